package workloadidentity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	informers "sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	issuerURL = "https://issuer.example.com"
	uid       = "12b580fe-1f74-4195-852b-e1a74b03496a"
)

// world has a fake API server and a reconciler of WorkloadIdentities.
type world struct {
	t        *testing.T
	kube     client.Client
	informer *informers.FakeInformer
	ring     *workloadidentity.Ring
	r        *workloadidentity.Reconciler
	written  int // number of status writes
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t}
	scheme := runtime.NewScheme()
	must.Succeed(t, identityv1.AddToScheme(scheme))
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&identityv1.WorkloadIdentity{}, &identityv1.KeyRing{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				w.written++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	made := &informertest.FakeInformers{Scheme: scheme}
	var err error
	if w.informer, err = made.FakeInformerFor(t.Context(), &identityv1.KeyRing{}); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "lanyard-system", Name: keyring.IssuerRing}
	if w.ring, err = workloadidentity.NewRing(t.Context(), w.kube, made, key, issuerURL); err != nil {
		t.Fatal(err)
	}
	w.r = workloadidentity.New(&object.Shared{
		Client: controllertest.Remembering(w.kube), Live: w.kube, Recorder: events.NewFakeRecorder(10_000), Dependencies: object.Dependencies{Subscribe: w.ring.Subscribe},
	}, &issuer.Issuer{
		URL: issuerURL, APIAudiences: []string{"https://kubernetes.default.svc"},
		Limits: issuer.Limits{Min: 10 * time.Minute, Default: time.Hour, Max: 48 * time.Hour},
	}, w.ring)
	return w
}

// reconcile reconciles an identity, checks the rules of [controllertest.Holds], and returns the
// identity.
func (w *world) reconcile(name string) *identityv1.WorkloadIdentity {
	w.t.Helper()
	key := types.NamespacedName{Namespace: "tenant-a", Name: name}
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key})
	must.Succeed(w.t, err)
	o := &identityv1.WorkloadIdentity{}
	must.Succeed(w.t, w.kube.Get(w.t.Context(), key, o))
	controllertest.Holds(w.t, o, controllertest.View{Status: o.Status.Status}, result)
	if len(o.Finalizers) > 0 {
		w.t.Errorf("finalizers %v: a controller that is gone would keep the identity from being deleted", o.Finalizers)
	}
	return o
}

// setRing replaces the status of the ring, and creates the ring if it does not exist.
func (w *world) setRing(status identityv1.KeyRingStatus) {
	w.t.Helper()
	ring := newRing(identityv1.KeyRingStatus{})
	must.Succeed(w.t, client.IgnoreAlreadyExists(w.kube.Create(w.t.Context(), ring.DeepCopy())))
	must.Succeed(w.t, w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(ring), ring))
	ring.Status = status
	must.Succeed(w.t, w.kube.Status().Update(w.t.Context(), ring))
}

func newRing(status identityv1.KeyRingStatus) *identityv1.KeyRing {
	return &identityv1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: "lanyard-system", Name: keyring.IssuerRing, UID: "new"}, Status: status}
}

// ringOf returns the status of a ring with new ES256 keys in these states.
func ringOf(t *testing.T, states ...identityv1.KeyState) identityv1.KeyRingStatus {
	t.Helper()
	status := identityv1.KeyRingStatus{Issuer: issuerURL, PublishDelay: metav1.Duration{Duration: 24 * time.Hour}}
	for _, state := range states {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(t, err)
		key, err := keyring.NewKey(&private.PublicKey)
		must.Succeed(t, err)
		entry, err := key.Entry()
		must.Succeed(t, err)
		entry.State, entry.CreatedAt = state, metav1.Unix(1, 0)
		if state != identityv1.KeyPending {
			entry.PublishedAt = &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		}
		status.Keys = append(status.Keys, entry)
	}
	return status
}

// identity returns a WorkloadIdentity that was never reconciled.
func identity(name string, change ...func(*identityv1.WorkloadIdentity)) *identityv1.WorkloadIdentity {
	o := &identityv1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name, UID: uid, Generation: 1},
		Spec: identityv1.WorkloadIdentitySpec{
			Audiences: []string{"team-foo"}, SubjectFormat: identityv1.SubjectFormatUID, SigningAlgorithm: identityv1.ES256,
			TargetSystem: identityv1.TargetSystem{Type: "foo"},
		},
		Status: identityv1.WorkloadIdentityStatus{Status: meta.Status{ObservedGeneration: -1}},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func ready(o *identityv1.WorkloadIdentity) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// TestStatus checks the status of an identity for various KeyRings and specs.
func TestStatus(t *testing.T) {
	const sub = "lanyard.dev:workloadidentity:tenant-a:app:" + uid
	published := ringOf(t, identityv1.KeyActive, identityv1.KeyPublished)
	next := ringOf(t, identityv1.KeyPublished)
	pending := ringOf(t, identityv1.KeyPending)
	never := ringOf(t, identityv1.KeyActive)
	never.Keys[0].PublishedAt = nil
	moved := ringOf(t, identityv1.KeyActive)
	moved.Issuer = "https://other.example.com"
	forged := ringOf(t, identityv1.KeyActive)
	forged.Keys[0].KID = strings.Repeat("x", 43)
	foreign := ringOf(t, identityv1.KeyActive)
	foreign.Conditions = []metav1.Condition{{
		Type: meta.ConditionReady, Status: metav1.ConditionFalse, Reason: identityv1.ReasonForeignKey, Message: "the active key k has no private half: restore its Secret",
	}}
	for _, c := range []struct {
		name   string
		ring   *identityv1.KeyRingStatus
		change func(*identityv1.WorkloadIdentity)
		reason string
		says   string // part of the message
	}{
		{"all is well", &published, nil, meta.ReasonSucceeded, issuerURL},
		{"no ring", nil, nil, meta.ReasonIssuerUnavailable, "there is no KeyRing lanyard-system/issuer"},
		{"a new ring", &identityv1.KeyRingStatus{}, nil, meta.ReasonIssuerNotPublished, "no keys yet"},
		{"a ring of another issuer", &moved, nil, meta.ReasonIssuerUnavailable, "the same --issuer"},
		{"a ring without private half", &foreign, nil, meta.ReasonIssuerUnavailable, "restore its Secret"},
		{"a key that is not published", &pending, nil, meta.ReasonIssuerNotPublished, `run "lanyard keys confirm ` + pending.Keys[0].KID + `"`},
		{"a key that waits for the delay", &next, nil, meta.ReasonIssuerNotPublished, "signs at 2026-03-02T12:00:00Z"},
		{"an active key that nobody has seen", &never, nil, meta.ReasonIssuerNotPublished, never.Keys[0].KID + " is not in the public document"},
		{"an active key under another's name", &forged, nil, meta.ReasonIssuerNotPublished, ""},
		{"no key of the algorithm", &published, func(o *identityv1.WorkloadIdentity) { o.Spec.SigningAlgorithm = identityv1.RS256 }, meta.ReasonIssuerNotPublished, "choose another spec.signingAlgorithm"},
		{"an invalid spec", &published, func(o *identityv1.WorkloadIdentity) { o.Spec.Audiences = nil }, meta.ReasonInvalidSpec, "spec.audiences: Required value: name who accepts the tokens"},
		{"two mistakes", nil, func(o *identityv1.WorkloadIdentity) { o.Spec.Audiences, o.Spec.TargetSystem.Type = nil, "foo,bar" }, meta.ReasonInvalidSpec, "; spec.targetSystem.type: Invalid value"},
		{"the API server's audience", &published, func(o *identityv1.WorkloadIdentity) { o.Spec.Audiences = []string{"https://kubernetes.default.svc"} }, meta.ReasonInvalidSpec, "spec.audiences[0]: Forbidden"},
		{"a life that the issuer refuses", &published, func(o *identityv1.WorkloadIdentity) { o.Spec.Duration = &metav1.Duration{Duration: time.Minute} }, meta.ReasonInvalidSpec, "spec.duration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := identity("app")
			if c.change != nil {
				c.change(o)
			}
			w := newWorld(t, o)
			if c.ring != nil {
				w.setRing(*c.ring)
			}
			got := w.reconcile("app")
			if r := ready(got); r.Reason != c.reason || !strings.Contains(r.Message, c.says) || (r.Status == metav1.ConditionTrue) != (c.reason == meta.ReasonSucceeded) {
				t.Errorf("Ready is %+v, want reason %s that says %q", r, c.reason, c.says)
			}
			invalid := c.reason == meta.ReasonInvalidSpec
			if apimeta.IsStatusConditionTrue(got.Status.Conditions, meta.ConditionStalled) != invalid {
				t.Errorf("the conditions are %+v", got.Status.Conditions)
			}
			if shown := got.Status.Sub == sub && got.Status.Issuer == issuerURL; shown == invalid {
				t.Errorf("sub %q, issuer %q", got.Status.Sub, got.Status.Issuer)
			}
			if again := w.written; again != 1 {
				t.Errorf("%d statuses were written", again)
			}
			if w.reconcile("app"); w.written != 1 {
				t.Error("a status was written, and nothing had changed")
			}
		})
	}
}

// TestKeyRingIsRemembered checks that the status has the UID of the last ring with a published key.
// The UID must stay even after this ring was deleted. If a new ring is made, the old UID shows that
// services may still remember the old keys.
func TestKeyRingIsRemembered(t *testing.T) {
	published := ringOf(t, identityv1.KeyActive)
	for _, tt := range []struct {
		name, issuer, before string
		ring                 *identityv1.KeyRingStatus
		want                 string
	}{
		{"services can check tokens", issuerURL, "old", &published, "new"},
		{"a new ring is not published yet", issuerURL, "old", &identityv1.KeyRingStatus{Issuer: issuerURL}, "old"},
		{"the ring is gone", issuerURL, "old", nil, "old"},
		{"the release has another issuer now", "https://former.example.com", "old", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := identity("app")
			o.Status.Issuer, o.Status.KeyRing = tt.issuer, tt.before
			w := newWorld(t, o)
			if tt.ring != nil {
				w.setRing(*tt.ring)
			}
			if got := w.reconcile("app").Status.KeyRing; got != tt.want {
				t.Errorf("keyRing %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRotationIsNoNews checks that a rotation of keys neither wakes nor changes an identity.
// Changes of the ring that concern identities must wake them.
func TestRotationIsNoNews(t *testing.T) {
	const many = 100
	w := newWorld(t)
	for i := range many {
		must.Succeed(t, w.kube.Create(t.Context(), identity(fmt.Sprint("app-", i))))
	}
	woken := 0
	w.ring.Subscribe(func(d object.Dependency) {
		if d.Kind != identityv1.KeyRingKind || d.Namespace != "lanyard-system" || d.Name != keyring.IssuerRing {
			t.Errorf("woken by %+v", d)
		}
		woken++
	})
	last := newRing(identityv1.KeyRingStatus{})
	for _, step := range []struct {
		name string
		ring *identityv1.KeyRingStatus // nil: the ring is deleted
		wake bool
	}{
		{"the first key is made", new(ringOf(t, identityv1.KeyPending)), true},
		{"the first key signs", new(ringOf(t, identityv1.KeyActive)), true},
		{"another key is published", new(ringOf(t, identityv1.KeyActive, identityv1.KeyPublished)), false},
		{"a rotation", new(ringOf(t, identityv1.KeyRetiring, identityv1.KeyActive, identityv1.KeyPending)), false},
		{"a revocation that leaves no key", new(ringOf(t, identityv1.KeyRevoked)), true},
		{"its end", new(ringOf(t, identityv1.KeyActive)), true},
		{"the ring is deleted", nil, true},
	} {
		before, written := woken, w.written
		if step.ring == nil {
			must.Succeed(t, w.kube.Delete(t.Context(), last))
			w.informer.Delete(last)
		} else {
			w.setRing(*step.ring)
			now := newRing(*step.ring)
			w.informer.Update(last, now)
			last = now
		}
		if got := woken - before; got != map[bool]int{true: 1}[step.wake] {
			t.Errorf("%s: woken %d times", step.name, got)
		}
		for i := range many {
			w.reconcile(fmt.Sprint("app-", i))
		}
		if got := w.written - written; !step.wake && got != 0 {
			t.Errorf("%s: %d statuses were written", step.name, got)
		}
	}
}

// TestRingThatIsThereFromTheBeginning adds a ring that is ready at once. The ring must wake the
// identities whose status says that no ring exists.
func TestRingThatIsThereFromTheBeginning(t *testing.T) {
	w := newWorld(t)
	woken := 0
	w.ring.Subscribe(func(object.Dependency) { woken++ })
	for range 2 { // the second time, nothing has changed
		if w.informer.Add(newRing(ringOf(t, identityv1.KeyActive))); woken != 1 {
			t.Errorf("woken %d times", woken)
		}
	}
}

// TestDeleted checks that the reconciliation of a deleted identity returns no error.
func TestDeleted(t *testing.T) {
	w := newWorld(t)
	_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant-a", Name: "gone"}})
	if err != nil {
		t.Error(err)
	}
}
