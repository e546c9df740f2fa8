package binding_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/hub"
)

// stubHub is a fake hub. Its identities are at the fake API server of the test. The namespaces of
// the identities have other names than the namespaces of the bindings.
type stubHub struct {
	hub.Namespaces

	kube  client.Reader
	state hub.State
}

func (h *stubHub) NamespaceOf(namespace string) (string, error) { return h.Of(namespace) }

func (h *stubHub) Get(ctx context.Context, key client.ObjectKey, identity *identityv1.WorkloadIdentity) error {
	if h.state.Err != nil && h.state.Answered.IsZero() {
		return h.state.Err
	}
	return h.kube.Get(ctx, key, identity)
}

func (h *stubHub) State() hub.State { return h.state }

// newSpoke returns a world whose identities are at a hub. A wrong identity with the same name is in
// the binding's own namespace.
func newSpoke(t *testing.T, change ...func(*identityv1.WorkloadIdentity)) *world {
	t.Helper()
	at := append(change, func(o *identityv1.WorkloadIdentity) { o.Namespace = "eu-1-tenant-a" })
	w := newWorld(t, newIdentity(func(o *identityv1.WorkloadIdentity) { o.UID = "not-this-one" }), newIdentity(at...), newBinding())
	w.hub = &stubHub{Namespaces: hub.Namespaces{"tenant-a": "eu-1-tenant-a"}, kube: w.kube, state: hub.State{Answered: time.Now()}}
	w.options = func(o *binding.Options) { o.Hub, o.Issuer = w.hub, nil }
	w.restart()
	return w
}

// waits reports whether a binding is woken when the hub answers again.
func waits(o *identityv1.WorkloadIdentityBinding) bool {
	return slices.Contains(binding.DependsOn(binding.Options{Hub: &stubHub{}, WorkloadIdentities: &tokenServer{}}, o), binding.HubDependency())
}

func reachable(o *identityv1.WorkloadIdentityBinding) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionHubReachable); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// TestIdentityAtHub checks that a spoke's binding uses the identity at the hub. By default, the
// binding's tokens must name no object of the spoke.
func TestIdentityAtHub(t *testing.T) {
	w := newSpoke(t)
	o, _ := w.reconcile()
	if ready(o).Status != metav1.ConditionTrue || reachable(o).Status != metav1.ConditionTrue {
		t.Fatalf("%+v", o.Status.Conditions)
	}
	if got := w.server.accounts[0]; got.UID != identityUID || got.Subject.Namespace() != "eu-1-tenant-a" {
		t.Errorf("%+v", got)
	}
	if got := w.server.requests[0].ContextObject; got != (auth.ObjectReference{}) {
		t.Errorf("the token names %+v", got)
	}
	w.editBinding(func(o *identityv1.WorkloadIdentityBinding) {
		o.Spec.ContextObject = &identityv1.ContextObject{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot", Namespace: "garden-local", Name: "foo", UID: "1"}
	})
	w.reconcile()
	if got := w.server.requests[1].ContextObject; got.Kind != "Shoot" || got.Namespace != "garden-local" {
		t.Errorf("the token names %+v", got)
	}
}

// TestNamespaceWithoutHub checks a binding whose namespace is not mapped to a namespace of the hub.
// The binding must get no credential.
func TestNamespaceWithoutHub(t *testing.T) {
	w := newSpoke(t)
	w.hub.Namespaces = hub.Namespaces{"tenant-b": "eu-1-tenant-a"}
	o, _ := w.reconcile()
	if r := ready(o); r.Reason != meta.ReasonNamespaceNotMapped || !strings.Contains(r.Message, "--hub-namespace-map") ||
		!apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionStalled) {
		t.Errorf("%+v", o.Status.Conditions)
	}
	if len(w.server.requests) != 0 || w.secret() != nil {
		t.Error("it got a credential")
	}
}

// TestConfigOfHub checks that a providerConfig from the hub is validated before it is written into
// a Secret.
func TestConfigOfHub(t *testing.T) {
	w := newSpoke(t, func(o *identityv1.WorkloadIdentity) {
		o.Spec.TargetSystem.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"iamRoleARN":"` + roleARN + `\\nrole_arn=x"}`)}
	})
	if o, _ := w.reconcile(); ready(o).Reason != meta.ReasonInvalidSpec || w.secret() != nil {
		t.Errorf("%+v", ready(o))
	}
}

// TestHubIsDown checks that the credential stays in the Secret while the hub does not answer. The
// conditions must say why the hub does not answer, and since when. Ready must be true until the
// credential is due for renewal.
func TestHubIsDown(t *testing.T) {
	for _, reason := range []string{meta.ReasonHubUnreachable, meta.ReasonHubRefused} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSpoke(t)
				w.reconcile()
				before, since := w.secret(), time.Now()
				w.hub.state = hub.State{Answered: since, Err: &hub.Error{Reason: reason, Since: since, Fix: "mend it", Err: errDown}}
				w.server.down = &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeUnreachable, Fix: "wait", Err: errDown}
				says := " since " + since.UTC().Format(time.RFC3339)

				time.Sleep(10 * time.Minute)
				o, _ := w.reconcile()
				if c := reachable(o); ready(o).Status != metav1.ConditionTrue || c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, says) {
					t.Errorf("%+v", o.Status.Conditions)
				}
				if !waits(o) {
					t.Error("a binding that says that the hub does not answer is not woken when it does")
				}
				time.Sleep(25 * time.Minute)
				o, _ = w.reconcile()
				if r := ready(o); r.Reason != reason || !strings.Contains(r.Message, says) || !strings.Contains(r.Message, "ends at "+o.Status.ExpiresAt.UTC().Format(time.RFC3339)) {
					t.Errorf("%+v", r)
				}
				if w.secret().ResourceVersion != before.ResourceVersion {
					t.Error("the Secret was changed")
				}
				if !waits(o) {
					t.Error("it is not woken when the hub answers again")
				}

				w.hub.state, w.server.down = hub.State{Answered: time.Now()}, nil
				o, _ = w.reconcile()
				if waits(o) || ready(o).Status != metav1.ConditionTrue || reachable(o).Status != metav1.ConditionTrue || string(w.secret().Data[delivery.TokenKey]) == string(before.Data[delivery.TokenKey]) {
					t.Errorf("%+v", o.Status.Conditions)
				}
			})
		})
	}
}

// TestHubIsDownAtStart checks that a program that starts while the hub is down does not change the
// Secret.
func TestHubIsDownAtStart(t *testing.T) {
	w := newSpoke(t)
	w.reconcile()
	before := w.secret()
	w.hub.state = hub.State{Err: &hub.Error{Reason: meta.ReasonHubUnreachable, Since: time.Now(), Fix: "mend it", Err: errDown}}
	w.restart()
	if o, _ := w.reconcile(); ready(o).Reason != meta.ReasonHubUnreachable || w.secret().ResourceVersion != before.ResourceVersion || o.Status.ExpiresAt == nil {
		t.Errorf("%+v", o.Status)
	}
}

// TestKeyIsRevokedAtHub checks that a credential is renewed at once after its key was revoked at
// the hub.
func TestKeyIsRevokedAtHub(t *testing.T) {
	w := newSpoke(t)
	w.reconcile()
	w.server.revoked["key-1"], w.server.kid = true, "key-2"
	if o, _ := w.reconcile(); o.Status.KID != "key-2" {
		t.Errorf("%+v", o.Status)
	}
}
