package externalartifact

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// world has a publisher and a fake API server, and records writes.
type world struct {
	t      *testing.T
	p      *Publisher
	kube   client.WithWatch
	writes []string
	fail   func(verb string) error // returns the error for a call; nil if no call fails
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	scheme := runtime.NewScheme()
	gv := schema.GroupVersion{Group: group, Version: version}
	scheme.AddKnownTypeWithName(gv.WithKind(kind), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(gv.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	note := func(verb string) error {
		if w.fail != nil {
			if err := w.fail(verb); err != nil {
				return err
			}
		}
		if verb != "get" {
			w.writes = append(w.writes, verb)
		}
		return nil
	}
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(empty()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := note("get"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := note("create"); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := note("patch"); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := note("patch " + sub); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := note("delete"); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	w.p = &Publisher{Client: w.kube}
	return w
}

func source() Source {
	return Source{Kind: v1alpha1.OCIRepositoryKind, Namespace: "tenant-a", Name: "app", UID: "uid-1"}
}

func artifact(revision string) *v1alpha1.Artifact {
	return &v1alpha1.Artifact{
		URL:  "http://artifacts.example.com/ocirepository/tenant-a/app/0a/sha256-" + revision + ".tar.gz",
		Path: "ocirepository/tenant-a/app/" + revision + ".tar.gz", Revision: revision + "@sha256:3b4c", Digest: "sha256:9f86", Size: 512,
		LastUpdateTime: metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)), Metadata: map[string]string{"org.opencontainers.image.source": "git"},
	}
}

func (w *world) publish(o Offer) error {
	w.t.Helper()
	w.writes = nil
	return w.p.Publish(w.t.Context(), source(), o)
}

func (w *world) get() *unstructured.Unstructured {
	w.t.Helper()
	o := empty()
	must.Succeed(w.t, w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "app"}, o))
	return o
}

// put stores the source's ExternalArtifact after the function edit has changed it.
func (w *world) put(edit func(*unstructured.Unstructured)) {
	w.t.Helper()
	o := source().fresh()
	edit(o)
	must.Succeed(w.t, w.kube.Create(w.t.Context(), o))
}

// TestPublishedObject checks the whole object that Flux reads.
func TestPublishedObject(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.publish(Offer{Artifact: artifact("v1")}))
	o := w.get()
	since, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	at, err := time.Parse(time.RFC3339, since[0].(map[string]any)["lastTransitionTime"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("lastTransitionTime %s, %v", at, err)
	}
	since[0].(map[string]any)["lastTransitionTime"] = "then"
	must.Succeed(t, unstructured.SetNestedSlice(o.Object, since, "status", "conditions"))
	o.SetResourceVersion("")
	got, err := yaml.Marshal(o.Object)
	must.Succeed(t, err)
	const want = `apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata:
  labels:
    app.kubernetes.io/managed-by: lanyard
  name: app
  namespace: tenant-a
  ownerReferences:
  - apiVersion: toolkit.lanyard.dev/v1alpha1
    controller: true
    kind: OCIRepository
    name: app
    uid: uid-1
spec:
  sourceRef:
    apiVersion: toolkit.lanyard.dev/v1alpha1
    kind: OCIRepository
    name: app
status:
  artifact:
    digest: sha256:9f86
    lastUpdateTime: "2026-03-04T05:06:07Z"
    metadata:
      org.opencontainers.image.source: git
    path: ocirepository/tenant-a/app/v1.tar.gz
    revision: v1@sha256:3b4c
    size: 512
    url: http://artifacts.example.com/ocirepository/tenant-a/app/0a/sha256-v1.tar.gz
  conditions:
  - lastTransitionTime: then
    message: stored artifact for revision v1@sha256:3b4c
    observedGeneration: 0
    reason: Succeeded
    status: "True"
    type: Ready
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyDifferencesAreWritten(t *testing.T) {
	w := newWorld(t)
	wrote := func(what, want string, o Offer) {
		t.Helper()
		if err := w.publish(o); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := strings.Join(w.writes, ", "); got != want {
			t.Errorf("%s: wrote %q, want %q", what, got, want)
		}
	}
	wrote("the first", "create, patch status", Offer{Artifact: artifact("v1")})
	wrote("the same", "", Offer{Artifact: artifact("v1")})
	bare := artifact("v2")
	bare.Metadata = nil
	wrote("another, with less metadata", "patch status", Offer{Artifact: bare})
	if _, found, _ := unstructured.NestedMap(w.get().Object, "status", "artifact", "metadata"); found {
		t.Error("metadata of the artifact before are left")
	}
	wrote("a failure", "patch status", Offer{Artifact: bare, Failed: "RegistryUnreachable"})
	conditions, _, _ := unstructured.NestedSlice(w.get().Object, "status", "conditions")
	if c := conditions[0].(map[string]any); c["status"] != "False" || c["reason"] != "FetchFailed" || !strings.Contains(c["message"].(string), "OCIRepository app, RegistryUnreachable") {
		t.Errorf("after a failure: %v", c)
	}
	wrote("the same failure", "", Offer{Artifact: bare, Failed: "RegistryUnreachable"})
	wrote("suspended", "patch status", Offer{Artifact: bare, Suspended: true})
	conditions, _, _ = unstructured.NestedSlice(w.get().Object, "status", "conditions")
	if c := conditions[0].(map[string]any); c["status"] != "True" || c["reason"] != "Suspended" || !strings.Contains(c["message"].(string), "OCIRepository app is suspended") {
		t.Errorf("while suspended: %v", c)
	}
	wrote("success again", "patch status", Offer{Artifact: bare})

	// Publish restores the fields that somebody else has changed.
	o := w.get()
	o.Object["spec"] = map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "other", "namespace": "tenant-b"}}
	o.SetLabels(map[string]string{"team": "a"})
	must.Succeed(t, w.kube.Update(t.Context(), o))
	o = w.get()
	must.Succeed(t, unstructured.SetNestedField(o.Object, "http://evil.example.com/x.tar.gz", "status", "artifact", "url"))
	must.Succeed(t, w.kube.Status().Update(t.Context(), o))
	wrote("what was changed", "patch, patch status", Offer{Artifact: bare})
	o = w.get()
	url, _, _ := unstructured.NestedString(o.Object, "status", "artifact", "url")
	ref, _, _ := unstructured.NestedStringMap(o.Object, "spec", "sourceRef")
	if url != bare.URL || ref["kind"] != "OCIRepository" || ref["namespace"] != "" || o.GetLabels()["team"] != "a" || o.GetLabels()[managedByLabel] != managedBy {
		t.Errorf("corrected to %s, %v, %v", url, ref, o.GetLabels())
	}
}

// foreign returns functions that change the source's ExternalArtifact so that the source no longer
// owns it.
func foreign() map[string]func(*unstructured.Unstructured) {
	owner := func(change func(*metav1.OwnerReference)) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			owners := o.GetOwnerReferences()
			change(&owners[0])
			o.SetOwnerReferences(owners)
		}
	}
	return map[string]func(*unstructured.Unstructured){
		"one without an owner, with our label":       func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) },
		"one of a source of another kind":            owner(func(r *metav1.OwnerReference) { r.Kind = "Bucket" }),
		"one of a source of another name":            owner(func(r *metav1.OwnerReference) { r.Name = "other" }),
		"one of a source of Flux":                    owner(func(r *metav1.OwnerReference) { r.APIVersion = "source.toolkit.fluxcd.io/v1" }),
		"one of a group that begins like ours":       owner(func(r *metav1.OwnerReference) { r.APIVersion = "toolkit.lanyard.dev.evil.example/v1alpha1" }),
		"one that names the source as no controller": owner(func(r *metav1.OwnerReference) { r.Controller = nil }),
		"one whose owner is no controller":           owner(func(r *metav1.OwnerReference) { r.Controller = new(false) }),
		"one that names it beside its real controller": func(o *unstructured.Unstructured) {
			owners := o.GetOwnerReferences()
			owners[0].Controller = nil
			o.SetOwnerReferences(append(owners, metav1.OwnerReference{
				APIVersion: "source.extensions.fluxcd.io/v1beta1", Kind: "ArtifactGenerator", Name: "g", UID: "uid-9", Controller: new(true),
			}))
		},
	}
}

func TestForeignObjectsAreNeitherAdoptedNorDeleted(t *testing.T) {
	for what, edit := range foreign() {
		w := newWorld(t)
		w.put(edit)
		before := w.get()
		err := w.publish(Offer{Artifact: artifact("v1")})
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Reason != meta.ReasonExternalArtifactRefused || refused.Fix == "" {
			t.Errorf("%s: %v", what, err)
		}
		if err := w.p.Withdraw(t.Context(), source()); err != nil {
			t.Errorf("%s: withdraw: %v", what, err)
		}
		if after := w.get(); len(w.writes) != 0 || after.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s: wrote %q", what, w.writes)
		}
	}
}

// TestLeftoversOfAnEarlierSourceGoByThemselves deletes an object, and creates it again before the
// garbage collector runs. The second object must not take over the first object's ExternalArtifact,
// and must not be blocked forever.
func TestLeftoversOfAnEarlierSourceGoByThemselves(t *testing.T) {
	w := newWorld(t)
	w.put(func(o *unstructured.Unstructured) {
		owners := o.GetOwnerReferences()
		owners[0].UID = "uid-0"
		o.SetOwnerReferences(owners)
	})
	err := w.publish(Offer{Artifact: artifact("v1")})
	refused, ok := errors.AsType[*Error](err)
	if !ok || refused.Reason != meta.ReasonExternalArtifactUnavailable || !refused.Passing || !strings.Contains(err.Error(), "for an earlier OCIRepository") {
		t.Errorf("publish: %v", err)
	}
	if err := w.p.Withdraw(t.Context(), source()); err != nil || len(w.writes) != 0 {
		t.Errorf("withdraw: %v, wrote %q", err, w.writes)
	}
	must.Succeed(t, w.kube.Delete(t.Context(), w.get()))
	if err := w.publish(Offer{Artifact: artifact("v1")}); err != nil {
		t.Error(err)
	}
}

// TestNoUIDOwnsNothing checks that a source with an empty UID owns no ExternalArtifact.
func TestNoUIDOwnsNothing(t *testing.T) {
	s := source()
	s.UID = ""
	if s.owns(s.fresh()) {
		t.Error("an empty UID is taken for the owner's")
	}
}

func TestWithdraw(t *testing.T) {
	w := newWorld(t)
	if err := w.p.Withdraw(t.Context(), source()); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	must.Succeed(t, w.publish(Offer{Artifact: artifact("v1")}))
	must.Succeed(t, w.p.Withdraw(t.Context(), source()))
	err := w.kube.Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "app"}, empty())
	if !apierrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestOnlyWhatWasJudgedIsDeleted replaces the object between its check and its deletion. The new
// object must stay.
func TestOnlyWhatWasJudgedIsDeleted(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.publish(Offer{Artifact: artifact("v1")}))
	replaced := false
	w.fail = func(verb string) error {
		if verb != "delete" || replaced {
			return nil
		}
		replaced = true
		o := empty()
		o.SetNamespace("tenant-a")
		o.SetName("app")
		if err := w.kube.Delete(t.Context(), o); err != nil {
			return err
		}
		w.put(foreign()["one without an owner, with our label"])
		return nil
	}
	must.Succeed(t, w.p.Withdraw(t.Context(), source()))
	if !replaced || len(w.get().GetOwnerReferences()) != 0 {
		t.Errorf("the other's object is %v", w.get())
	}
}

// TestConflicts checks that a change is repeated a few times if somebody else changes the object
// first.
func TestConflicts(t *testing.T) {
	resource := schema.GroupResource{Group: group, Resource: resource}
	for what, c := range map[string]struct {
		verb string
		err  error
	}{
		"another creates it first":  {"create", apierrors.NewAlreadyExists(resource, "app")},
		"another changes it first":  {"patch status", apierrors.NewConflict(resource, "app", errors.New("changed"))},
		"another deletes it before": {"delete", apierrors.NewConflict(resource, "app", errors.New("changed"))},
	} {
		for _, times := range []int{1, 2, 100} {
			w := newWorld(t)
			if c.verb == "delete" {
				must.Succeed(t, w.publish(Offer{Artifact: artifact("v1")}))
			}
			tried := 0
			w.fail = func(verb string) error {
				if verb != c.verb {
					return nil
				}
				if tried++; tried <= times {
					return c.err
				}
				return nil
			}
			var err error
			if c.verb == "delete" {
				err = w.p.Withdraw(t.Context(), source())
			} else {
				err = w.publish(Offer{Artifact: artifact("v1")})
			}
			if (err != nil) != (times == 100) || tried > attempts {
				t.Errorf("%s, %d times: %v after %d attempts", what, times, err, tried)
			}
		}
	}
}

func TestUnavailable(t *testing.T) {
	resource := schema.GroupResource{Group: group, Resource: resource}
	gone := func(verb string) error {
		return apierrors.NewGenericServerResponse(404, verb, resource, "app", "404 page not found", 0, true)
	}
	terminating := apierrors.NewForbidden(resource, "app", errors.New("because it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for what, c := range map[string]struct {
		fail func(verb string) error
		text string // part of the *Error's text; empty if the API server's error is returned
	}{
		"no such kind": {
			fail: func(string) error {
				return &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: group, Kind: kind}}
			},
			text: "the cluster has no externalartifacts.source.toolkit.fluxcd.io of version v1: its CustomResourceDefinition is Flux's; install Flux 2.7 or newer",
		},
		"a kind that was removed": {fail: gone, text: "the cluster has no externalartifacts.source.toolkit.fluxcd.io"},
		"no right to read": {
			fail: func(string) error { return apierrors.NewForbidden(resource, "app", errors.New("secret details")) },
			text: "the controller may not write externalartifacts.source.toolkit.fluxcd.io; have the administrator set flux.externalArtifacts",
		},
		"no right to write the status": {
			fail: func(verb string) error {
				if verb != "patch status" {
					return nil
				}
				return apierrors.NewForbidden(resource, "app", errors.New("secret details"))
			},
			text: "have the administrator set flux.externalArtifacts",
		},
		"a namespace that goes": {
			fail: func(verb string) error {
				if verb != "create" {
					return nil
				}
				return terminating
			},
		},
		"an API server that fails": {fail: func(string) error { return apierrors.NewInternalError(errors.New("etcd")) }},
	} {
		w := newWorld(t)
		w.fail = c.fail
		err := w.publish(Offer{Artifact: artifact("v1")})
		refused, ok := errors.AsType[*Error](err)
		switch {
		case err == nil:
			t.Errorf("%s: no error", what)
		case (c.text == "") == ok:
			t.Errorf("%s: %v is typed: %v", what, err, ok)
		case ok && (refused.Reason != meta.ReasonExternalArtifactUnavailable || !strings.Contains(err.Error(), c.text)):
			t.Errorf("%s: %v, want %q", what, err, c.text)
		case ok && strings.Contains(err.Error(), "secret details"):
			t.Errorf("%s: %v", what, err)
		}
	}

	// Without the kind, no object can exist, so Withdraw succeeds. Without the permission to read,
	// an object may exist, so Withdraw fails.
	w := newWorld(t)
	w.fail = func(string) error { return &apimeta.NoKindMatchError{} }
	if err := w.p.Withdraw(t.Context(), source()); err != nil {
		t.Errorf("no such kind: %v", err)
	}
	w.fail = func(string) error { return apierrors.NewForbidden(resource, "app", nil) }
	if err := w.p.Withdraw(t.Context(), source()); err == nil || strings.Contains(err.Error(), "spec.externalArtifact") ||
		!strings.Contains(err.Error(), "delete ExternalArtifact tenant-a/app") {
		t.Errorf("no right: %v", err)
	}
}

// TestTerminating checks an ExternalArtifact that is being deleted, but has a finalizer. It must be
// neither written nor deleted again.
func TestTerminating(t *testing.T) {
	w := newWorld(t)
	w.put(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/held"}) })
	must.Succeed(t, w.p.Withdraw(t.Context(), source()))
	if w.get().GetDeletionTimestamp() == nil {
		t.Fatal("it is not being deleted")
	}
	err := w.publish(Offer{Artifact: artifact("v1")})
	refused, ok := errors.AsType[*Error](err)
	if !ok || !refused.Passing || refused.Reason != meta.ReasonExternalArtifactUnavailable || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("publish: %v", err)
	}
	if err := w.p.Withdraw(t.Context(), source()); err != nil || len(w.writes) != 0 {
		t.Errorf("withdraw: %v, wrote %q", err, w.writes)
	}
}
