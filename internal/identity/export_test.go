package identity

import (
	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// GrantOf converts spec.allowedNamespaces to a [grant.Namespaces], whose Decide method admits or
// refuses namespaces.
func GrantOf(allowed *v1alpha1.AllowedNamespaces) *grant.Namespaces { return grantOf(allowed) }
