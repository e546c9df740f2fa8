package source_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

const (
	serviceHost = "registry.example.com" // a service of the cloud
	roleA       = "role/tenant-a"
	roleB       = "role/tenant-b"
)

var errRejected = errors.New("the service does not accept the credential")

// newTenant returns a world in which tenant-a has an account, and a role trusts the account. Each
// fetch uses a service of the cloud as that role.
func newTenant(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Cloud.Trust(roleA, "system:serviceaccount:tenant-a:puller")
	w.account("uid-1", roleA)
	w.kind.fetch = w.useService
	return w
}

// account creates or changes the tenant's account.
func (w *world) account(uid, role string) {
	w.T.Helper()
	w.Accounts.Put(w.T, "tenant-a", "puller", uid, map[string]string{"role": role})
}

// useService sends a credential to the service. The service accepts a credential until the cloud
// revokes it.
func (w *world) useService(o *v1alpha1.OCIRepository, call source.Call) error {
	ctx := w.T.Context()
	conn, err := w.Access.Connect(ctx, call.Call, serviceHost)
	if err != nil {
		return err
	}
	defer conn.Close()
	login := func(minRemaining time.Duration) (access.Login, error) {
		return w.Access.Mint(ctx, call.Call, conn, auth.WithMinRemaining(minRemaining), auth.WithImageRepository(serviceHost+"/app"))
	}
	use := func(l access.Login) error {
		if _, known := w.Cloud.Holder(l.Credential.Basic.Password.Reveal()); !known {
			return errRejected
		}
		return nil
	}
	return w.Access.WithCredential(conn, &o.Status.FetchStatus, login, use, func(err error) bool { return errors.Is(err, errRejected) })
}

func TestAccountThatChanges(t *testing.T) {
	w := newTenant(t)
	w.Accounts.Remove(t, "tenant-a", "puller")
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	if got := controllertest.Ready(o).Reason; got != "SubjectNotFound" {
		t.Fatalf("without the account: %s", got)
	}

	// The account is created, but the cache of accounts is still empty. The account must be found
	// all the same, and the status must show the identity.
	w.account("uid-1", roleA)
	w.Accounts.Unheard(true)
	o, _ = w.Reconcile(o)
	if got := controllertest.Ready(o); got.Status != metav1.ConditionTrue || o.Status.Identity.CloudIdentity != roleA {
		t.Fatalf("once the account is there: %+v, identity %+v", got, o.Status.Identity)
	}
	w.Accounts.Unheard(false)

	// Another role takes effect at the next reconciliation, even if a token is cached.
	w.reconcile(o)
	w.account("uid-1", roleB)
	o, _ = w.Reconcile(o)
	if got := controllertest.Ready(o).Reason; got != "TrustRefused" || o.Status.Identity != nil {
		t.Errorf("with another role: %s, identity %+v", got, o.Status.Identity)
	}

	// An account that is deleted and created again does not inherit a token.
	w.account("uid-1", roleA)
	w.Request(o, "1")
	w.reconcile(o)
	exchanges := len(w.Cloud.Exchanges())
	w.Accounts.Remove(t, "tenant-a", "puller")
	w.account("uid-2", roleA)
	w.reconcile(o)
	if got := len(w.Cloud.Exchanges()); w.ready(o).Status != metav1.ConditionTrue || got != exchanges+1 {
		t.Errorf("made again: Ready %s, %d exchanges more, want 1", w.ready(o).Status, got-exchanges)
	}
}

func TestRequestPassesTheRememberedFailure(t *testing.T) {
	w := newTenant(t)
	w.Cloud.Trust(roleA, "somebody else")
	o, result := w.Reconcile(w.create("tenant-a", "app", nil))
	if result.RequeueAfter > 2*time.Second {
		t.Errorf("first retry after %s", result.RequeueAfter)
	}
	w.Cloud.Trust(roleA, "system:serviceaccount:tenant-a:puller")
	w.reconcile(o)
	if got := w.ready(o).Reason; got != "TrustRefused" || len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("%s after %d exchanges: the failure was not remembered", got, len(w.Cloud.Exchanges()))
	}
	w.Request(o, "2026-01-01T00:00:00Z")
	o, _ = w.Reconcile(o)
	if got := controllertest.Ready(o); got.Status != metav1.ConditionTrue || o.Status.LastHandledReconcileAt != "2026-01-01T00:00:00Z" {
		t.Errorf("after the request: %+v, handled %q", got, o.Status.LastHandledReconcileAt)
	}
}

func TestCloudThatIsDown(t *testing.T) {
	w := newTenant(t)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	w.Cloud.Fail(&auth.Error{Stage: auth.StageExchange, Code: auth.CodeThrottled, Fix: "wait", RetryAfter: 5 * time.Minute, Err: errors.New("slow down")})
	if w.reconcile(o); w.ready(o).Status != metav1.ConditionTrue {
		t.Errorf("with a token in memory: %+v", w.ready(o))
	}
	w.Accounts.Remove(t, "tenant-a", "puller")
	w.account("uid-2", roleA) // the cache has no token of the new account
	o, result := w.Reconcile(o)
	if got := controllertest.Ready(o); got.Reason != string(auth.CodeThrottled) || o.Status.Identity == nil {
		t.Errorf("without: %+v, identity %+v", got, o.Status.Identity)
	}
	if result.RequeueAfter < 285*time.Second {
		t.Errorf("again after %s, asked for 5m", result.RequeueAfter)
	}
}

func TestCredentialThatTheServiceEnded(t *testing.T) {
	w := newTenant(t)
	o, other := w.create("tenant-a", "app", nil), w.create("tenant-a", "other", nil)
	w.reconcile(o)

	// The service rejects the credential. The controller immediately gets one new credential, and
	// uses it for both objects.
	w.Cloud.Revoke()
	for _, each := range []*v1alpha1.OCIRepository{o, other} {
		if w.reconcile(each); w.ready(each).Status != metav1.ConditionTrue || len(w.Cloud.Exchanges()) != 2 {
			t.Errorf("%s: %+v after %d exchanges, want 2", each.Name, w.ready(each), len(w.Cloud.Exchanges()))
		}
	}

	// If a service accepts no credential, the number of exchanges does not grow with the number of
	// reconciliations.
	w.Cloud.Revoke()
	for range 5 {
		if w.reconcile(o); w.ready(o).Status != metav1.ConditionFalse || len(w.Cloud.Exchanges()) != 2 {
			t.Errorf("%+v after %d exchanges, want 2", w.ready(o), len(w.Cloud.Exchanges()))
		}
	}
}

// The service rejects the credential, and the role no longer trusts the account. The failure must
// be the cloud's refusal, and the status must have no identity.
func TestCredentialThatTheServiceEndedAndTheCloudToo(t *testing.T) {
	w := newTenant(t)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	w.Cloud.Revoke()
	w.Cloud.Trust(roleA, "nobody")
	o, _ = w.Reconcile(o)
	if got := controllertest.Ready(o); got.Reason != string(auth.CodeTrustRefused) || !strings.Contains(got.Message, roleA) || o.Status.Identity != nil {
		t.Errorf("trust revoked: %+v, identity %+v", got, o.Status.Identity)
	}
}
