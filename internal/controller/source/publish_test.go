package source

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
)

// externalArtifact is Flux's kind without content.
func externalArtifact() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifact"})
	return o
}

// finds has the kind find an artifact of this revision, and keep it.
func (w *world) finds(revision string) {
	w.kind.fetch = func(o *v1alpha1.OCIRepository, call Call) (err error) {
		o.Status.Artifact, err = w.shared.Artifacts.Put(w.t.Context(), call.Owner, o.Status.Artifact, revision, func(out io.Writer) error {
			_, err := io.WriteString(out, "content of "+revision)
			return err
		})
		return err
	}
}

// offered is the published artifact of the object, or nil.
func (w *world) offered(o *v1alpha1.OCIRepository) map[string]any {
	w.t.Helper()
	external := externalArtifact()
	err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), external)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	artifact, _, err := unstructured.NestedMap(external.Object, "status", "artifact")
	if err != nil {
		w.t.Fatal(err)
	}
	return artifact
}

func (w *world) publishing() *v1alpha1.OCIRepository {
	w.t.Helper()
	return w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
}

func (w *world) edit(o *v1alpha1.OCIRepository, change func(*v1alpha1.OCIRepository)) {
	w.t.Helper()
	got := w.get(o)
	change(got)
	got.Generation++
	if err := w.kube.Update(w.t.Context(), got); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wants(o *v1alpha1.OCIRepository, kind string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	got := w.get(o)
	c := apimeta.FindStatusCondition(got.Status.Conditions, kind)
	switch {
	case status == "" && c == nil:
	case c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) || c.ObservedGeneration != got.Generation:
		w.t.Errorf("%s is %+v, want %s, %s: …%s…", kind, c, status, reason, message)
	}
}

// tellsFlux checks the condition Ready of the object's ExternalArtifact.
func (w *world) tellsFlux(o *v1alpha1.OCIRepository, status, reason, message string) {
	w.t.Helper()
	external := externalArtifact()
	if err := w.kube.Get(w.t.Context(), client.ObjectKeyFromObject(o), external); err != nil {
		w.t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(external.Object, "status", "conditions")
	if c := conditions[0].(map[string]any); c["status"] != status || c["reason"] != reason || !strings.Contains(c["message"].(string), message) {
		w.t.Errorf("Flux is told %v, want %s, %s: …%s…", c, status, reason, message)
	}
}

func TestArtifactsArePublishedOnRequest(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	quiet := w.create("tenant-a", "quiet", nil)
	w.reconcile(quiet)
	if w.offered(quiet) != nil {
		t.Error("published unasked")
	}
	w.wants(quiet, meta.ConditionExternalArtifactPublished, "", "", "")

	o := w.publishing()
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "ExternalArtifact app offers revision v1")
	if got, want := w.offered(o), w.get(o).Status.Artifact; got["url"] != want.URL || got["digest"] != want.Digest || got["revision"] != "v1" || got["size"] != want.Size {
		t.Errorf("offered %v, want %+v", got, want)
	}
	w.finds("v2")
	w.reconcile(o)
	if got := w.offered(o); got["revision"] != "v2" || got["url"] != w.get(o).Status.Artifact.URL {
		t.Errorf("offered %v", got)
	}

	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v when switched off", got)
	}
}

// The condition stands before the ExternalArtifact does: a controller that is killed in between takes it back later.
func TestPublicationIsAnnounced(t *testing.T) {
	w := newWorld(t)
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
	o := w.publishing()
	w.reconcile(o)
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionUnknown, meta.ReasonProgressing, "")
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v, and nothing was fetched", got)
	}
	announced := false
	w.kind.fetch = func(o *v1alpha1.OCIRepository, _ Call) error {
		announced = published(&w.get(o).Status.Status)
		return nil
	}
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	w.reconcile(o)
	if !announced {
		t.Error("the fetch began before the condition was written")
	}
}

// After a failure, whatever it is, Flux keeps what was there before, and is told.
func TestFailuresLeaveWhatIsPublished(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	first := w.offered(o)
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
	w.reconcile(o)
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" })
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonInvalidSpec, "")
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "v1")
	w.tellsFlux(o, "False", "FetchFailed", "OCIRepository app, InvalidSpec")
	if got := w.offered(o); got["url"] != first["url"] {
		t.Errorf("offered %v, before %v", got, first)
	}
}

// Somebody else's ExternalArtifact stays; the object says so, and looks again.
func TestForeignExternalArtifactsAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	theirs := externalArtifact()
	theirs.SetNamespace("tenant-a")
	theirs.SetName("app")
	theirs.Object["status"] = map[string]any{"artifact": map[string]any{"url": "http://theirs.example.com"}}
	if err := w.kube.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	o := w.publishing()
	result := w.reconcile(o)
	for _, kind := range []string{meta.ConditionReady, meta.ConditionExternalArtifactPublished} {
		w.wants(o, kind, metav1.ConditionFalse, meta.ReasonExternalArtifactRefused, "ExternalArtifact tenant-a/app exists and was not made for this object; delete or rename it")
	}
	w.wants(o, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if result.RequeueAfter < 9*time.Minute {
		t.Errorf("again after %s, want the interval of ten minutes", result.RequeueAfter)
	}
	if got := w.offered(o); got["url"] != "http://theirs.example.com" {
		t.Errorf("theirs says %v", got)
	}
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if got := w.offered(o); got == nil {
		t.Error("theirs was deleted")
	}

	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	if err := w.kube.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if got := w.offered(o); got["revision"] != "v1" {
		t.Errorf("offered %v", got)
	}
}

// A cluster without Flux, or without the right to write its kind: the object says what is missing and looks again.
func TestNoExternalArtifacts(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	absent := true
	kube := interceptor.NewClient(w.kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if absent {
				return &apimeta.NoKindMatchError{GroupKind: externalArtifact().GroupVersionKind().GroupKind(), SearchedVersions: []string{"v1"}}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.shared.External = &externalartifact.Publisher{Client: kube}
	o := w.publishing()
	result := w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "install Flux 2.7 or newer")
	w.wants(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry, "")
	if result.RequeueAfter < 9*time.Minute {
		t.Errorf("again after %s, want the interval of ten minutes", result.RequeueAfter)
	}
	absent = false
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
}

// Who asked for what the controller may not write, and asks no more, has what the spec asks for. What may be left is told.
func TestWithoutTheRightNothingIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	allowed := false
	w.shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if !allowed {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "externalartifacts"}, key.Name, errors.New("RBAC"))
			}
			return c.Get(ctx, key, o, opts...)
		},
	})}
	o := w.publishing()
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "or set spec.externalArtifact to false")
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "delete ExternalArtifact tenant-a/app if there is one")
	allowed = true
	w.reconcile(o)
	w.wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
}

// What was published for an object of the same name that is gone is the garbage collector's, which is a matter of moments.
func TestLeftoversAreLookedAtSoon(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.UID = "made-again" })
	if result := w.reconcile(o); result.RequeueAfter > 5*time.Second {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "was made for an earlier OCIRepository")
}

// An API server that fails is no reason to wait for the interval.
func TestPublicationIsRetried(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	w.shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.kube, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewInternalError(errors.New("etcd"))
		},
	})}
	o := w.publishing()
	if result := w.reconcile(o); result.RequeueAfter > 5*time.Second {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonInternalError, "write ExternalArtifact tenant-a/app")
}

// While an object is suspended, Flux goes on with what is there, and is told; whether it is published is still the spec's to say.
func TestSuspendedObjectsStayPublished(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
	w.reconcile(o)
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	if result := w.reconcile(o); result.RequeueAfter != 0 {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	if got := w.offered(o); got["revision"] != "v1" {
		t.Errorf("offered %v", got)
	}
	w.tellsFlux(o, "True", meta.ReasonSuspended, "OCIRepository app is suspended")

	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v when switched off", got)
	}
	w.wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	w.reconcile(o)
	w.tellsFlux(o, "True", meta.ReasonSuspended, "v1")
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "v1")

	// A volume that is lost while nobody fetches.
	got := w.get(o)
	if err := w.shared.Artifacts.remove(w.r.owner(got)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(o)
	w.wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended, "")
	w.tellsFlux(o, "False", "FetchFailed", "OCIRepository app, Suspended")

	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = false })
	w.finds("v2")
	w.reconcile(o)
	w.tellsFlux(o, "True", meta.ReasonSucceeded, "v2")
}

// What cannot be published while an object is suspended is tried again.
func TestPublicationOfTheSuspendedIsRetried(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	broken := true
	w.shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.kube, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if broken {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return c.Create(ctx, o, opts...)
		},
	})}
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend, o.Spec.ExternalArtifact = true, true })
	first := w.reconcile(o).RequeueAfter
	if second := w.reconcile(o).RequeueAfter; first <= 0 || first > 2*time.Second || second <= first {
		t.Errorf("again after %s, then after %s", first, second)
	}
	w.wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, meta.ReasonInternalError, "write ExternalArtifact tenant-a/app")
	broken = false
	if result := w.reconcile(o); result.RequeueAfter != 0 || w.offered(o)["revision"] != "v1" {
		t.Errorf("offered %v, again after %s", w.offered(o), result.RequeueAfter)
	}
}
