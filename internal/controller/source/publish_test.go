package source_test

import (
	"context"
	"errors"
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
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// offered returns the artifact in the object's ExternalArtifact, or nil if there is none.
func (w *world) offered(o *v1alpha1.OCIRepository) map[string]any {
	w.T.Helper()
	external := controllertest.ExternalArtifact()
	err := w.Kube.Get(w.T.Context(), client.ObjectKeyFromObject(o), external)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.T.Fatal(err)
	}
	artifact, _, err := unstructured.NestedMap(external.Object, "status", "artifact")
	if err != nil {
		w.T.Fatal(err)
	}
	return artifact
}

func (w *world) publishing() *v1alpha1.OCIRepository {
	w.T.Helper()
	return w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
}

// tellsFlux checks the condition Ready of the object's ExternalArtifact.
func (w *world) tellsFlux(o *v1alpha1.OCIRepository, status, reason, message string) {
	w.T.Helper()
	external := controllertest.ExternalArtifact()
	if err := w.Kube.Get(w.T.Context(), client.ObjectKeyFromObject(o), external); err != nil {
		w.T.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(external.Object, "status", "conditions")
	if c := conditions[0].(map[string]any); c["status"] != status || c["reason"] != reason || !strings.Contains(c["message"].(string), message) {
		w.T.Errorf("Flux is told %v, want %s, %s: …%s…", c, status, reason, message)
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
	w.Wants(quiet, meta.ConditionExternalArtifactPublished, "", "", "")

	o := w.publishing()
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "ExternalArtifact app offers revision v1")
	if got, want := w.offered(o), w.Get(o).Status.Artifact; got["url"] != want.URL || got["digest"] != want.Digest || got["revision"] != "v1" || got["size"] != want.Size {
		t.Errorf("offered %v, want %+v", got, want)
	}
	w.finds("v2")
	w.reconcile(o)
	if got := w.offered(o); got["revision"] != "v2" || got["url"] != w.Get(o).Status.Artifact.URL {
		t.Errorf("offered %v", got)
	}

	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.Wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v when switched off", got)
	}
}

// The condition ExternalArtifactPublished is saved before the ExternalArtifact is created. If the
// controller is then killed, its successor knows that it may have to remove the ExternalArtifact.
func TestPublicationIsAnnounced(t *testing.T) {
	w := newWorld(t)
	w.fails(errOdd)
	o := w.publishing()
	w.reconcile(o)
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionUnknown, meta.ReasonProgressing, "")
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v, and nothing was fetched", got)
	}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.Wants(o, meta.ConditionExternalArtifactPublished, "", "", "")

	var announced []metav1.ConditionStatus
	w.Shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.Kube, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, external client.Object, opts ...client.CreateOption) error {
			announced = append(announced, w.published(o).Status)
			return c.Create(ctx, external, opts...)
		},
	})}
	w.finds("v1")
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	w.reconcile(o)
	if len(announced) != 1 || announced[0] != metav1.ConditionUnknown {
		t.Errorf("when the ExternalArtifact was made, the condition was %q", announced)
	}
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "v1")
}

// After any failure, the ExternalArtifact keeps the earlier artifact, and its condition shows the
// failure to Flux.
func TestFailuresLeaveWhatIsPublished(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	first := w.offered(o)
	w.fails(errOdd)
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" })
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonInvalidSpec, "")
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "v1")
	w.tellsFlux(o, "False", "FetchFailed", "OCIRepository app, InvalidSpec")
	if got := w.offered(o); got["url"] != first["url"] {
		t.Errorf("offered %v, before %v", got, first)
	}
}

// An ExternalArtifact of somebody else is not changed. The object's conditions say so, and the
// controller checks again at the interval.
func TestForeignExternalArtifactsAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	theirs := controllertest.ExternalArtifact()
	theirs.SetNamespace("tenant-a")
	theirs.SetName("app")
	theirs.Object["status"] = map[string]any{"artifact": map[string]any{"url": "http://theirs.example.com"}}
	must.Succeed(t, w.Kube.Create(t.Context(), theirs))
	o := w.publishing()
	result := w.reconcile(o)
	for _, kind := range []string{meta.ConditionReady, meta.ConditionExternalArtifactPublished} {
		w.Wants(o, kind, metav1.ConditionFalse, meta.ReasonExternalArtifactRefused, "ExternalArtifact tenant-a/app exists and was not made for this object; delete or rename it")
	}
	w.Wants(o, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if result.RequeueAfter < 9*time.Minute {
		t.Errorf("again after %s, want the interval of ten minutes", result.RequeueAfter)
	}
	if got := w.offered(o); got["url"] != "http://theirs.example.com" {
		t.Errorf("theirs says %v", got)
	}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if got := w.offered(o); got == nil {
		t.Error("theirs was deleted")
	}

	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	must.Succeed(t, w.Kube.Delete(t.Context(), theirs))
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	if got := w.offered(o); got["revision"] != "v1" {
		t.Errorf("offered %v", got)
	}
}

// Flux may not be installed, or the controller may lack the right to write ExternalArtifacts. Then
// the object's conditions say what is missing, and the controller checks again.
func TestNoExternalArtifacts(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	absent := true
	kube := interceptor.NewClient(w.Kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if absent {
				return &apimeta.NoKindMatchError{GroupKind: controllertest.ExternalArtifact().GroupVersionKind().GroupKind(), SearchedVersions: []string{"v1"}}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.Shared.External = &externalartifact.Publisher{Client: kube}
	o := w.publishing()
	result := w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "install Flux 2.7 or newer")
	w.Wants(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry, "")
	if result.RequeueAfter < 9*time.Minute {
		t.Errorf("again after %s, want the interval of ten minutes", result.RequeueAfter)
	}
	absent = false
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
}

// The spec no longer asks for an ExternalArtifact, and the controller has no right to read
// ExternalArtifacts. The object must be ready all the same. A condition must say that an
// ExternalArtifact may remain.
func TestWithoutTheRightNothingIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	allowed := false
	w.Shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.Kube, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if !allowed {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "externalartifacts"}, key.Name, errors.New("RBAC"))
			}
			return c.Get(ctx, key, o, opts...)
		},
	})}
	o := w.publishing()
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "or set spec.externalArtifact to false")
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "")
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "delete ExternalArtifact tenant-a/app if there is one")
	allowed = true
	w.reconcile(o)
	w.Wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
}

// The garbage collector soon removes the ExternalArtifact of an earlier object of the same name. So
// the controller checks again soon, and does not wait for the interval.
func TestLeftoversAreLookedAtSoon(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.UID = "made-again" })
	if result := w.reconcile(o); result.RequeueAfter > 5*time.Second {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonExternalArtifactUnavailable, "was made for an earlier OCIRepository")
}

// If the API server fails, the controller tries again without waiting for the interval.
func TestPublicationIsRetried(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	w.Shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.Kube, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewInternalError(errors.New("etcd"))
		},
	})}
	o := w.publishing()
	if result := w.reconcile(o); result.RequeueAfter > 5*time.Second {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonInternalError, "write ExternalArtifact tenant-a/app")
}

// While an object is suspended, Flux keeps the published artifact, and a condition tells Flux of
// the suspension. spec.externalArtifact still decides whether the artifact is published.
func TestSuspendedObjectsStayPublished(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.publishing()
	w.reconcile(o)
	w.fails(errOdd)
	w.reconcile(o)
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	if result := w.reconcile(o); result.RequeueAfter != 0 {
		t.Errorf("again after %s", result.RequeueAfter)
	}
	if got := w.offered(o); got["revision"] != "v1" {
		t.Errorf("offered %v", got)
	}
	w.tellsFlux(o, "True", meta.ReasonSuspended, "OCIRepository app is suspended")

	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = false })
	w.reconcile(o)
	if got := w.offered(o); got != nil {
		t.Errorf("offered %v when switched off", got)
	}
	w.Wants(o, meta.ConditionExternalArtifactPublished, "", "", "")
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.ExternalArtifact = true })
	w.reconcile(o)
	w.tellsFlux(o, "True", meta.ReasonSuspended, "v1")
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionTrue, meta.ReasonSucceeded, "v1")

	// The volume is lost while the object is suspended.
	got := w.Get(o)
	must.Succeed(t, w.Shared.Artifacts.Store.Remove(controllertest.Owner(got)))
	w.reconcile(o)
	w.Wants(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended, "")
	w.tellsFlux(o, "False", "FetchFailed", "OCIRepository app, Suspended")

	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = false })
	w.finds("v2")
	w.reconcile(o)
	w.tellsFlux(o, "True", meta.ReasonSucceeded, "v2")
}

// If the artifact of a suspended object cannot be published, the controller tries again.
func TestPublicationOfTheSuspendedIsRetried(t *testing.T) {
	w := newWorld(t)
	w.finds("v1")
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	broken := true
	w.Shared.External = &externalartifact.Publisher{Client: interceptor.NewClient(w.Kube, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if broken {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return c.Create(ctx, o, opts...)
		},
	})}
	w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend, o.Spec.ExternalArtifact = true, true })
	first := w.reconcile(o).RequeueAfter
	if second := w.reconcile(o).RequeueAfter; first <= 0 || first > 2*time.Second || second <= first {
		t.Errorf("again after %s, then after %s", first, second)
	}
	w.Wants(o, meta.ConditionExternalArtifactPublished, metav1.ConditionFalse, meta.ReasonInternalError, "write ExternalArtifact tenant-a/app")
	broken = false
	if result := w.reconcile(o); result.RequeueAfter != 0 || w.offered(o)["revision"] != "v1" {
		t.Errorf("offered %v, again after %s", w.offered(o), result.RequeueAfter)
	}
}
