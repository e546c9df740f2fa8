package binding

import (
	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Lend exports lend.
func Lend(accounts auth.Accounts, o *identityv1.WorkloadIdentityBinding, uid string) auth.Accounts {
	return lend(accounts, o, uid)
}

// DependsOn returns the dependencies whose changes wake a binding.
func DependsOn(options Options, o *identityv1.WorkloadIdentityBinding) []object.Dependency {
	return (&kind{options}).View(o).DependsOn
}

// ViewOf returns the object.View of a binding.
func ViewOf(options Options, o *identityv1.WorkloadIdentityBinding) object.View {
	return (&kind{options}).View(o)
}
