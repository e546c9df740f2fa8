package binding_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
)

// lentWorld returns a world with AWS identities, a fake AWS and a binding that names the
// AWSClusterRoleIdentity "target".
func lentWorld(t *testing.T) (*world, *identitytest.World) {
	t.Helper()
	lent := identitytest.New(t)
	lent.Namespace("tenant-a", map[string]string{"team": "a"})
	w := newWorld(t, newBinding(func(o *identityv1.WorkloadIdentityBinding) {
		o.Spec.WorkloadIdentity = nil
		o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "target"}
		o.Spec.Store.Format = identityv1.StoreAWSSessionKeys
	}))
	w.lent = lent
	w.restart()
	return w, lent
}

// TestUnknownIsNotWithdrawn checks that no credential is withdrawn before all AWS identities are
// known. Otherwise a restart would remove credentials from Secrets.
func TestUnknownIsNotWithdrawn(t *testing.T) {
	w, _ := lentWorld(t)
	synced := false
	w.options = func(o *binding.Options) { o.IdentitiesSynced = func() bool { return synced } }
	w.restart()
	o, result := w.reconcile()
	if r := ready(o); r.Reason != meta.ReasonInternalError || !strings.Contains(r.Message, "not all known yet") || result.RequeueAfter > 2*time.Second {
		t.Errorf("%+v, again after %s", r, result.RequeueAfter)
	}
	synced = true
	if o, _ := w.reconcile(); ready(o).Reason != string(auth.CodeSubjectNotFound) {
		t.Errorf("%+v", ready(o))
	}
}

// TestNothingIsShared checks that bindings share no credential. Each binding must get an
// [auth.Account] with its own fingerprint and session name. The method Prove must still accept this
// account.
func TestNothingIsShared(t *testing.T) {
	inner := fixed{auth.Account{UID: "u", Fingerprint: "f", Attributes: map[string]string{"sessionName": "spinner", "roleARN": roleARN}}}
	first := binding.Lend(&inner, newBinding(), "u")
	second := binding.Lend(&inner, newBinding(func(o *identityv1.WorkloadIdentityBinding) { o.Name = "other" }), "u")
	a, _ := first.Lookup(t.Context(), auth.Subject{})
	b, _ := second.Lookup(t.Context(), auth.Subject{})
	if a.Fingerprint == b.Fingerprint || a.Fingerprint == "f" || a.Attributes["sessionName"] != "spinner@cloudidentity.tenant-a" || a.Attributes["roleARN"] != roleARN {
		t.Errorf("%+v and %+v", a, b)
	}
	if inner.account.Attributes["sessionName"] != "spinner" {
		t.Error("the attributes of the identity itself have changed")
	}
	if _, err := first.Prove(t.Context(), a, auth.ProofRequest{}); err != nil {
		t.Error(err)
	}
	replaced := binding.Lend(&inner, newBinding(), "another")
	if _, err := replaced.Read(t.Context(), auth.Subject{}); auth.CodeOf(err) != auth.CodeSubjectReplaced {
		t.Errorf("an identity that was created again: %v", err)
	}
}

// fixed implements auth.Accounts with one account.
type fixed struct{ account auth.Account }

func (f *fixed) Lookup(context.Context, auth.Subject) (auth.Account, error) { return f.account, nil }

func (f *fixed) Read(context.Context, auth.Subject) (auth.Account, error) { return f.account, nil }
func (f *fixed) Subscribe(func(auth.Subject))                             {}

func (f *fixed) Prove(_ context.Context, account auth.Account, _ auth.ProofRequest) (auth.Proof, error) {
	if account.Fingerprint != f.account.Fingerprint {
		return nil, errors.New("the identity does not know this account")
	}
	return nil, nil
}
