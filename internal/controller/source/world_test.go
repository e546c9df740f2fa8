package source

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
)

// world is the frame around a kind that fetches nothing, over a fake API server and a real store.
type world struct {
	t        *testing.T
	kube     client.WithWatch
	shared   *Shared
	r        *Reconciler[*v1alpha1.OCIRepository, string]
	kind     *still
	accounts *subscribers
	elected  chan struct{}
}

// still is a kind whose objects are of type OCIRepository. It finds what its fetch says.
type still struct {
	fetch   func(o *v1alpha1.OCIRepository, call Call) error
	fetched []string // names of the objects
}

func (*still) Empty() (*v1alpha1.OCIRepository, client.ObjectList) {
	return &v1alpha1.OCIRepository{}, &v1alpha1.OCIRepositoryList{}
}

func (*still) View(o *v1alpha1.OCIRepository) View {
	return View{
		Fields:  spec.Fields{Namespace: o.Namespace, Provider: o.Spec.Provider, ServiceAccountName: o.Spec.ServiceAccountName},
		Suspend: o.Spec.Suspend, Interval: o.Spec.Interval, Timeout: o.Spec.Timeout, Status: &o.Status.Status, Stores: true, Artifact: o.Status.Artifact,
		Publish: o.Spec.ExternalArtifact, Found: o.Status.LastHandledReconcileAt,
	}
}

func (*still) Decide(o *v1alpha1.OCIRepository, _ bool) (string, error) {
	if o.Spec.URL == "" {
		return "", Invalid("spec.url", "write one", "it is empty")
	}
	return o.Spec.URL, nil
}

func (k *still) Fetch(_ context.Context, o *v1alpha1.OCIRepository, _ string, call Call) error {
	k.fetched = append(k.fetched, o.Name)
	if k.fetch == nil {
		return nil
	}
	return k.fetch(o, call)
}

var errOdd = errors.New("odd")

func (*still) Explain(err error) (Failure, bool) {
	return Failure{Reason: "Odd", Message: "that was odd"}, errors.Is(err, errOdd)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, kind: &still{}, accounts: &subscribers{}, elected: make(chan struct{})}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	artifacts, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = artifacts.Close() })
	w.shared = &Shared{
		Recorder: events.NewFakeRecorder(100), Rules: spec.Rules{Providers: []string{"aws"}}, Accounts: w.accounts, Metrics: w.accounts,
		Artifacts: &Artifacts{Store: artifacts, BaseURL: "http://artifacts.example.com", Elected: w.elected},
	}
	w.r = New(w.shared, v1alpha1.OCIRepositoryKind, w.kind)
	flux := externalArtifact()
	scheme.AddKnownTypeWithName(flux.GroupVersionKind(), flux)
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.OCIRepository{}, flux).
		WithIndex(&v1alpha1.OCIRepository{}, accountIndex, w.r.indexAccount).Build()
	w.shared.Client = w.kube
	w.shared.External = &externalartifact.Publisher{Client: w.kube}
	return w
}

func (w *world) create(namespace, name string, edit func(*v1alpha1.OCIRepository)) *v1alpha1.OCIRepository {
	w.t.Helper()
	o := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), Generation: 1},
		Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://registry.example.com/app", Provider: "aws", ServiceAccountName: "puller", Interval: metav1.Duration{Duration: 10 * time.Minute},
		},
	}
	if edit != nil {
		edit(o)
	}
	if err := w.kube.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// reconcile runs once, and checks what must hold of every object that a worker had time for.
func (w *world) reconcile(o *v1alpha1.OCIRepository) reconcile.Result {
	w.t.Helper()
	result := w.attempt(o)
	got := w.get(o)
	stored := got.Status.Artifact != nil && w.shared.Artifacts.Store.Verify(w.t.Context(), w.r.owner(got), got.Status.Artifact.Digest) == nil
	sourcetest.Holds(w.t, got, sourcetest.View{Status: got.Status.Status, Suspended: got.Spec.Suspend, Stored: stored}, result)
	return result
}

// attempt runs once, whatever comes of it.
func (w *world) attempt(o *v1alpha1.OCIRepository) reconcile.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) get(o *v1alpha1.OCIRepository) *v1alpha1.OCIRepository {
	w.t.Helper()
	got := &v1alpha1.OCIRepository{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

// subscribers are accounts that change, and nothing more.
type subscribers struct {
	auth.Accounts

	all []func(auth.Subject)
}

func (s *subscribers) Subscribe(changed func(auth.Subject)) { s.all = append(s.all, changed) }

func (*subscribers) Forget(string, string, string) {}

func (s *subscribers) change(t *testing.T, namespace, name string) {
	t.Helper()
	subject, err := auth.ServiceAccount(namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, changed := range s.all {
		changed(subject)
	}
}
