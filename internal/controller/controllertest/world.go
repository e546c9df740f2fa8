// Package controllertest has the code that the tests of all reconcilers share. A [World] has a fake
// API server, a store and a fake cloud. It checks the rules for all objects after each
// reconciliation. A [Network] has fake hosts. No program imports the package.
package controllertest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// World has a reconciler of objects of type O, and everything that the reconciler needs.
type World[O object.Object] struct {
	// T is the test.
	T *testing.T
	// Kube is the fake API server, as users see it.
	Kube client.WithWatch
	// Writes counts the writes of the reconciler.
	Writes *Writes
	// Events has the events that the reconciler recorded.
	Events *events.FakeRecorder
	// Cloud is a fake cloud, the provider with the name aws.
	Cloud *Cloud
	// Accounts has the ServiceAccounts and other subjects that get tokens.
	Accounts *Accounts
	// Shared and Access are the dependencies of the reconciler.
	Shared *source.Shared
	Access *access.Access
	// Dir is the store's folder.
	Dir string
	// Elected is a channel that a test closes to simulate that the replica was elected leader.
	Elected chan struct{}
	// Reconciler is the reconciler that [World.Start] or [World.Restart] made last.
	Reconciler reconcile.Reconciler
	// Index returns an object's keys in Kube's index "dependencies"; nil if no object has keys.
	Index client.IndexerFunc

	options store.Options
	start   func() reconcile.Reconciler
}

// Writes counts the calls that change objects at the API server.
type Writes struct {
	// Objects is the number of patches of objects.
	Objects int
	// Statuses is the number of patches of statuses.
	Statuses int
}

// New makes a world without a reconciler. The world's cloud has its registry at the given host. The
// API server has Lanyard's kinds, and additional kinds that the caller gives.
func New[O object.Object](t *testing.T, registry string, options store.Options, more ...kinds.Kind) *World[O] {
	t.Helper()
	w := &World[O]{
		T: t, Writes: &Writes{}, Events: events.NewFakeRecorder(10_000), Cloud: NewCloud(registry), Accounts: &Accounts{},
		Dir: t.TempDir(), Elected: make(chan struct{}), options: options,
	}
	scheme, table := runtime.NewScheme(), append(kinds.All(), more...)
	if err := errors.Join(corev1.AddToScheme(scheme), table.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	flux := ExternalArtifact()
	scheme.AddKnownTypeWithName(flux.GroupVersionKind(), flux)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(flux)
	for _, kind := range table.Where(kinds.Kind.Fetches) {
		builder.WithStatusSubresource(kind.New()).WithIndex(kind.New(), metav1.ObjectNameField, NameIndex)
		builder.WithIndex(kind.New(), "dependencies", func(o client.Object) []string {
			if _, mine := o.(O); !mine || w.Index == nil {
				return nil
			}
			return w.Index(o)
		})
	}
	w.Kube = builder.Build()
	w.boot()
	return w
}

// NameIndex is an index of the fake API server, for the field metav1.ObjectNameField. A real API
// server needs no index to list the objects with a name.
func NameIndex(o client.Object) []string { return []string{o.GetName()} }

// boot makes the dependencies of a controller that starts: an open store, empty caches.
func (w *World[O]) boot() {
	w.T.Helper()
	artifacts, err := store.Open(w.Dir, w.options)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = artifacts.Close() })
	tokens := cache.New(cache.Options{MaxSize: 100})
	w.Accounts.Subscribe(tokens.Invalidate)
	old := w.Access
	w.Access = &access.Access{
		Live: w.Kube, Provider: func(string) (auth.Provider, error) { return w.Cloud, nil }, Accounts: w.Accounts, Cache: tokens, Invalidate: tokens.Invalidate, Observer: tokens,
	}
	if old != nil {
		w.Access.Transports = old.Transports
	}
	w.Shared = &source.Shared{
		Shared: &tenant.Shared{
			Shared: &object.Shared{
				Client: w.counting(), Live: w.Kube, Recorder: w.Events, Forgetter: tokens, Elected: w.Elected,
				Dependencies: object.Dependencies{Subscribe: w.Access.Subscribe},
			},
			Rules: spec.Rules{Providers: []string{"aws"}, TokenServer: true}, Renew: w.Access.Renew, Durations: tenant.NewDurations(),
		},
		Artifacts: &source.Artifacts{Store: artifacts, BaseURL: BaseURL, Elected: w.Elected},
		External:  &externalartifact.Publisher{Client: w.Kube},
	}
}

// counting returns the reconciler's client. The client counts its writes in w.Writes. An object
// that the client reads has only what a manager's cache would have; see [Remembering].
func (w *World[O]) counting() client.Client {
	return Remembering(interceptor.NewClient(w.Kube, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.Writes.Objects++
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.Writes.Statuses++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}))
}

// Start calls the function start, which makes the reconciler from w.Shared and w.Access.
func (w *World[O]) Start(start func() reconcile.Reconciler) {
	w.start, w.Reconciler = start, start()
}

// Restart makes a new reconciler with empty caches, for the same store and API server.
func (w *World[O]) Restart() {
	w.T.Helper()
	w.boot()
	w.Reconciler = w.start()
}

// Create stores an object of generation 1, after the function edit has changed it; edit may be nil.
func (w *World[O]) Create(o O, edit func(O)) O {
	w.T.Helper()
	o.SetUID(types.UID("uid-" + o.GetNamespace() + "-" + o.GetName()))
	o.SetGeneration(1)
	if edit != nil {
		edit(o)
	}
	Create(w.T, w.Kube, o)
	return o
}

// Get reads the object as it stands now.
func (w *World[O]) Get(o O) O {
	w.T.Helper()
	got := o.DeepCopyObject().(O) // a copy is of the same type
	if err := w.Kube.Get(w.T.Context(), client.ObjectKeyFromObject(o), got); err != nil {
		w.T.Fatal(err)
	}
	return got
}

// Edit changes an object as a user does, and increases its generation.
func (w *World[O]) Edit(o O, change func(O)) {
	w.T.Helper()
	w.update(o, func(o O) {
		change(o)
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

// Request requests a reconciliation by an annotation with this value.
func (w *World[O]) Request(o O, value string) {
	w.T.Helper()
	w.update(o, func(o O) { o.SetAnnotations(map[string]string{meta.ReconcileRequestedAnnotation: value}) })
}

func (w *World[O]) update(o O, change func(O)) {
	w.T.Helper()
	got := w.Get(o)
	change(got)
	if err := w.Kube.Update(w.T.Context(), got); err != nil {
		w.T.Fatal(err)
	}
}

// Secret stores a Secret.
func (w *World[O]) Secret(namespace, name string, kind corev1.SecretType, data map[string]string) {
	w.T.Helper()
	CreateSecret(w.T, w.Kube, namespace, name, kind, data)
}

// Attempt reconciles once, and does not check the object.
func (w *World[O]) Attempt(o O) reconcile.Result {
	w.T.Helper()
	result, err := w.Reconciler.Reconcile(w.T.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.T.Fatalf("reconcile: %v", err)
	}
	return result
}

// Reconcile reconciles once and returns the stored object. It checks the rules of [Holds], and that
// the object shows no secret.
func (w *World[O]) Reconcile(o O) (O, reconcile.Result) {
	w.T.Helper()
	result := w.Attempt(o)
	got := w.Get(o)
	suspended, artifact := look(got)
	stored := artifact != nil && w.Shared.Artifacts.Store.Verify(w.T.Context(), Owner(got), artifact.Digest) == nil
	Holds(w.T, got, View{Status: *got.GetStatus(), Suspended: suspended, Stored: stored}, result)
	if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), "s3cret") || strings.Contains(string(text), "hunter2") {
		w.T.Errorf("a secret is shown: %s, %v", text, err)
	}
	return got, result
}

// look returns the fields of an object that the checks need; zero if the kind lacks them.
func look(o object.Object) (suspended bool, artifact *v1alpha1.Artifact) {
	if keeper, ok := o.(kinds.Keeper); ok {
		artifact = keeper.GetArtifactStatus().Artifact
	}
	tenant, ok := o.(kinds.Tenant)
	return ok && tenant.GetSchedule().Suspend, artifact
}

// Owner returns the name under which the store has the object's artifacts.
func Owner(o client.Object) store.Object {
	return store.Object{Kind: strings.ToLower(reflect.TypeOf(o).Elem().Name()), Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

// Wants reads the object and checks a condition. If the parameter status is empty, the condition
// must be absent.
func (w *World[O]) Wants(o O, kind string, status metav1.ConditionStatus, reason, message string) {
	w.T.Helper()
	got := w.Get(o)
	c := Condition(got, kind)
	if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) || status != "" && c.ObservedGeneration != got.GetGeneration() {
		w.T.Errorf("%s is %+v, want %s, %s: …%s…", kind, c, status, reason, message)
	}
}

// Condition returns the object's condition of the given type, or a zero condition if it is absent.
func Condition(o object.Object, kind string) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.GetStatus().Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Ready returns the condition Ready, or a zero condition if it is absent.
func Ready(o object.Object) metav1.Condition { return Condition(o, meta.ConditionReady) }

// Told returns the events since the last call of Told.
func (w *World[O]) Told() (all []string) {
	for len(w.Events.Events) > 0 {
		all = append(all, <-w.Events.Events)
	}
	return all
}

// Served reads the object's artifact by its URL, and returns its files: name -> content.
func (w *World[O]) Served(o O) map[string]string {
	w.T.Helper()
	_, artifact := look(o)
	return Served(w.T, w.Shared.Artifacts.Store, artifact)
}

// ExternalArtifact returns an empty object of Flux's kind ExternalArtifact.
func ExternalArtifact() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifact"})
	return o
}
