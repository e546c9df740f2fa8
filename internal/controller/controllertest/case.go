package controllertest

import (
	"errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// CaseOf makes a case of the conformance suite from an object of the world. The object must never
// have been reconciled. Its ServiceAccount must have a role in the cloud, and the role must
// trust the ServiceAccount. For a kind without artifacts, the caller sets Forge and Offers.
func CaseOf[O kinds.Tenant](w *World[O], o O) *Case[O] {
	w.T.Helper()
	account, err := w.Accounts.Read(w.T.Context(), subjectOf(w.T, o.GetNamespace(), o.GetAccess().ServiceAccountName))
	if err != nil {
		w.T.Fatal(err)
	}
	c := &Case[O]{
		Kube: w.Kube, Object: o,
		Reconciler: func() Reconciler[O] { return w.Reconciler.(Reconciler[O]) },
		Restart:    w.Restart,
		Exchanges:  func() int { return len(w.Cloud.Exchanges()) },
		Fail: func(fails bool) {
			w.Cloud.Fail(nil)
			if fails {
				w.Cloud.Fail(&auth.Error{Stage: auth.StageExchange, Code: auth.CodeUnreachable, Fix: "wait", Err: errors.New("the cloud is down")})
			}
		},
		Hang:   w.Cloud.Hang,
		Revoke: func() { w.Accounts.Remove(w.T, account.Subject.Namespace(), account.Subject.Name()) },
		Grant:  func() { w.Accounts.PutSubject(account.Subject, account.UID, account.Attributes) },
		Exclude: func(o O) {
			o.GetAccess().SecretRef = &meta.LocalReference{Name: "another"}
		},
		NameIdentity: func(o O) {
			named, err := auth.WorkloadIdentity(o.GetNamespace(), "runner")
			if err != nil {
				w.T.Fatal(err)
			}
			o.GetAccess().ServiceAccountName, o.GetAccess().WorkloadIdentityName = "", named.Name()
			w.Accounts.PutSubject(named, "uid-runner", account.Attributes)
			w.Cloud.Trust(account.Attributes["role"], named.String())
		},
	}
	if _, ok := any(o).(kinds.Keeper); ok {
		artifact := func(o O) *v1alpha1.Artifact { return any(o).(kinds.Keeper).GetArtifactStatus().Artifact }
		// The store has only this object's artifacts, so it is empty if none is kept.
		c.Kept = func() bool { return w.Shared.Artifacts.Store.Size() > 0 }
		c.Forge = func(o O) { artifact(o).Path, artifact(o).Digest = "another", "sha256:another" }
		c.Offers = func(o O) string {
			if artifact(o) == nil {
				return ""
			}
			return artifact(o).URL + artifact(o).Path + artifact(o).Digest + artifact(o).Revision
		}
	}
	return c
}
