package identity

import (
	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// GrantOf is the grant as the package that decides it has it.
func GrantOf(allowed *v1alpha1.AllowedNamespaces) *grant.Namespaces { return grantOf(allowed) }
