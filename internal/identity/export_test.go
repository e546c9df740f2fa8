package identity

import (
	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// GrantOf converts a grant to the type of package grant, which decides grants.
func GrantOf(allowed *v1alpha1.AllowedNamespaces) *grant.Namespaces { return grantOf(allowed) }
