package discovery_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/discovery"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestFollowRing asserts that, after each event of the watch, the served documents have exactly
// those keys that the ring's newest status publishes for the issuer.
func TestFollowRing(t *testing.T) {
	name := client.ObjectKey{Namespace: "lanyard-system", Name: keyring.IssuerRing}
	of := func(status identityv1.KeyRingStatus) *identityv1.KeyRing {
		return &identityv1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Status: status}
	}
	status, kids := ring(t, identityv1.KeyActive, identityv1.KeyPublished)
	with := func(states ...identityv1.KeyState) identityv1.KeyRingStatus {
		changed := status.DeepCopy()
		for i, state := range states {
			changed.Keys[i].State = state
		}
		return *changed
	}
	good, moved := of(*status), of(*status)
	moved.Status.Issuer = "https://another.example.com"
	another := of(*status)
	another.Namespace = "tenant-a"

	for _, tt := range []struct {
		name  string
		event func(toolscache.ResourceEventHandler)
		want  []string
	}{
		{"nothing happens", func(toolscache.ResourceEventHandler) {}, kids},
		{"the active key is revoked", func(h toolscache.ResourceEventHandler) {
			h.OnUpdate(good, of(with(identityv1.KeyRevoked, identityv1.KeyActive)))
		}, kids[1:]},
		{"the last key is revoked", func(h toolscache.ResourceEventHandler) {
			h.OnUpdate(good, of(with(identityv1.KeyRevoked, identityv1.KeyRevoked)))
		}, nil},
		{"the ring has keys of another issuer", func(h toolscache.ResourceEventHandler) { h.OnUpdate(good, moved) }, nil},
		{"the ring is made anew", func(h toolscache.ResourceEventHandler) { h.OnUpdate(good, of(identityv1.KeyRingStatus{})) }, nil},
		{"the ring is deleted", func(h toolscache.ResourceEventHandler) { h.OnDelete(good) }, nil},
		{"the watch has missed that the ring is deleted", func(h toolscache.ResourceEventHandler) {
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: name.String()})
		}, nil},
		{"another ring is deleted", func(h toolscache.ResourceEventHandler) { h.OnDelete(another) }, kids},
		{"another ring has other keys", func(h toolscache.ResourceEventHandler) {
			empty := another.DeepCopy()
			empty.Status = identityv1.KeyRingStatus{}
			h.OnUpdate(another, empty)
		}, kids},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			must.Succeed(t, identityv1.AddToScheme(scheme))
			informers := &handlers{FakeInformers: informertest.FakeInformers{Scheme: scheme}}
			i, err := discovery.NewIssuer(url)
			must.Succeed(t, err)
			must.Succeed(t, discovery.FollowRing(t.Context(), informers, name, i, slog.New(slog.DiscardHandler)))
			informers.handler.OnAdd(good, true)
			if d := i.Documents(); d == nil || !slices.Equal(d.KIDs, kids) {
				t.Fatalf("the ring's keys are not served: %+v", d)
			}
			tt.event(informers.handler)
			var served []string
			if d := i.Documents(); d != nil {
				served = d.KIDs
			}
			if !slices.Equal(served, tt.want) {
				t.Errorf("%q is served, want %q", served, tt.want)
			}
		})
	}
}

// handlers are fake informers that record the event handler, so that tests can send the events of a
// watch.
type handlers struct {
	informertest.FakeInformers
	handler toolscache.ResourceEventHandler
}

func (h *handlers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &recorder{FakeInformer: &controllertest.FakeInformer{}, into: h}, nil
}

type recorder struct {
	*controllertest.FakeInformer
	into *handlers
}

func (r *recorder) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r.into.handler = h
	return nil, nil
}
