package binding

import (
	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Lend returns an identity as a binding uses it.
func Lend(accounts auth.Accounts, o *identityv1.WorkloadIdentityBinding, uid string) auth.Accounts {
	return lend(accounts, o, uid)
}

// DependsOn is what wakes a binding.
func DependsOn(options Options, o *identityv1.WorkloadIdentityBinding) []object.Dependency {
	return (&kind{options}).View(o).DependsOn
}

// ViewOf is what the frame needs of a binding.
func ViewOf(options Options, o *identityv1.WorkloadIdentityBinding) object.View {
	return (&kind{options}).View(o)
}
