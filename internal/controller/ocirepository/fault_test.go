package ocirepository

import (
	"archive/tar"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// onBlobs answers requests for blobs in place of the registry.
func onBlobs(answer func(w http.ResponseWriter, content []byte)) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		recorded := httptest.NewRecorder()
		inner.ServeHTTP(recorded, r)
		answer(w, recorded.Body.Bytes())
		return true
	}
}

// Whatever the registry does, what was fetched before stays served, and the object heals by itself.
func TestRegistryFaults(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(http.ResponseWriter, *http.Request, http.Handler) bool
		reason string
		says   string
		atMost time.Duration
		least  time.Duration
	}{
		"down": {
			tamper: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			},
			reason: meta.ReasonRegistryUnreachable, says: "HTTP 503", atMost: 2 * time.Second,
		},
		"down, and says for how long": {
			tamper: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.Header().Set("Retry-After", "300")
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			},
			reason: meta.ReasonRegistryUnreachable, says: "HTTP 503", least: 285 * time.Second, atMost: 315 * time.Second,
		},
		"throttles": {
			tamper: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			},
			reason: meta.ReasonRegistryUnreachable, says: "HTTP 429", least: 57 * time.Second, atMost: 63 * time.Second,
		},
		"lost the repository": {
			tamper: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"errors":[{"code":"NAME_UNKNOWN","message":"no such repository"}]}`))
				return true
			},
			reason: meta.ReasonRegistryRefused, says: "create the repository or correct the name", atMost: 2 * time.Second,
		},
		"truncates the layer": {
			tamper: onBlobs(func(w http.ResponseWriter, content []byte) { _, _ = w.Write(content[:len(content)/2]) }),
			reason: meta.ReasonDigestMismatch, says: "the layer ended after", atMost: 2 * time.Second,
		},
		"changes the layer": {
			tamper: onBlobs(func(w http.ResponseWriter, content []byte) {
				content[len(content)-1] ^= 1
				_, _ = w.Write(content)
			}),
			reason: meta.ReasonDigestMismatch, says: "has the digest", atMost: 2 * time.Second,
		},
		"asks for the credential elsewhere": {
			tamper: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+storageHost+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			},
			reason: meta.ReasonRegistryRefused, says: "sent to another host, or without TLS, which is refused", atMost: 2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, store.Options{})
			w.tenant("tenant-a", roleA)
			o, _ := w.reconcile(w.create("tenant-a", "app", nil))
			before := o.Status.Artifact
			w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "newer"}))

			w.registry.tamper(c.tamper)
			o, result := w.reconcile(o)
			if got := ready(o); got.Status != metav1.ConditionFalse || got.Reason != c.reason || !strings.Contains(got.Message, c.says) || strings.Contains(got.Message, "s3cret") {
				t.Errorf("Ready is %s %s %q, want %s and %q", got.Status, got.Reason, got.Message, c.reason, c.says)
			}
			if result.RequeueAfter < c.least || result.RequeueAfter > c.atMost {
				t.Errorf("again after %s, want %s to %s", result.RequeueAfter, c.least, c.atMost)
			}
			if o.Status.Artifact.Digest != before.Digest || w.served(o)["hello.txt"] != "hello tenant-a" {
				t.Errorf("artifact %+v, want %+v", o.Status.Artifact, before)
			}
			if o.Status.Identity == nil || o.Status.Identity.CloudIdentity != roleA {
				t.Errorf("identity %+v", o.Status.Identity)
			}

			w.registry.tamper(nil)
			w.told()
			if o, _ = w.reconcile(o); ready(o).Status != metav1.ConditionTrue || w.served(o)["hello.txt"] != "newer" {
				t.Errorf("healed: %+v", ready(o))
			}
			if told := w.told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal NewArtifact") {
				t.Errorf("events %q", told)
			}
		})
	}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	for name, fill := range map[string]func(tape){
		"parent folder":     func(out tape) { out.file("../../etc/passwd", "x") },
		"absolute path":     func(out tape) { out.file("/etc/passwd", "x") },
		"link that escapes": func(out tape) { out.entry(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../../x"}) },
		"hard link":         func(out tape) { out.entry(&tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "x"}) },
		"device":            func(out tape) { out.entry(&tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}) },
		// 4 MiB of zeros; MaxArtifactSize is 1 MiB.
		"decompression bomb": func(out tape) { out.file("b", strings.Repeat("\x00", 4<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, operation := range []string{v1alpha1.LayerExtract, v1alpha1.LayerCopy} {
				w := newWorld(t, store.Options{})
				w.tenant("tenant-a", roleA)
				w.registry.push(t, "tenant-a/app", "bad", tarOf(t, fill))
				o, _ := w.reconcile(w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) {
					o.Spec.Ref.Tag = "bad"
					o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: operation}
				}))
				if got := ready(o); got.Reason != meta.ReasonArchiveRefused || !strings.Contains(got.Message, "archive refused") {
					t.Errorf("%s: Ready is %+v", operation, got)
				}
				if w.shared.Artifacts.Store.Size() != 0 || o.Status.Artifact != nil {
					t.Errorf("%s: something was stored: %d bytes, %+v", operation, w.shared.Artifacts.Store.Size(), o.Status.Artifact)
				}
			}
		})
	}
}

func TestCredentialThatTheRegistryEnded(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	other := w.create("tenant-a", "other", nil)

	// One fresh credential is got, at once, and serves the other object too.
	w.cloud.Revoke()
	if o, _ = w.reconcile(o); ready(o).Status != metav1.ConditionTrue || len(w.cloud.Exchanges()) != 2 {
		t.Errorf("%+v after %d exchanges, want 2", ready(o), len(w.cloud.Exchanges()))
	}
	if other, _ = w.reconcile(other); ready(other).Status != metav1.ConditionTrue || len(w.cloud.Exchanges()) != 2 {
		t.Errorf("the other: %+v after %d exchanges, want 2", ready(other), len(w.cloud.Exchanges()))
	}

	// One that accepts nothing has no exchange made again for as often as it is asked.
	w.cloud.Revoke()
	for range 5 {
		if o, _ = w.reconcile(o); ready(o).Reason != meta.ReasonRegistryRefused || !strings.Contains(ready(o).Message, "as "+roleA+": ") {
			t.Errorf("%+v", ready(o))
		}
	}
	if n := len(w.cloud.Exchanges()); n != 2 || !strings.Contains(ready(o).Message, "HTTP 401") {
		t.Errorf("%d exchanges, want 2: %+v", n, ready(o))
	}
}

// If by then the role trusts us no more, that is what people are told, and the token is gone.
func TestCredentialThatTheRegistryEndedAndTheCloudToo(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	w.cloud.Revoke()
	w.cloud.Trust(roleA, "nobody")
	if o, _ = w.reconcile(o); ready(o).Reason != string(auth.CodeTrustRefused) || o.Status.Artifact == nil || o.Status.Identity != nil {
		t.Errorf("trust revoked: %+v, identity %+v", ready(o), o.Status.Identity)
	}
}

func TestCloudThatIsDown(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	down := &auth.Error{Stage: auth.StageExchange, Code: auth.CodeThrottled, Fix: "wait", RetryAfter: 5 * time.Minute, Err: errors.New("slow down")}
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	w.cloud.Fail(down)
	if o, _ = w.reconcile(o); ready(o).Status != metav1.ConditionTrue {
		t.Errorf("with a token in memory: %+v", ready(o))
	}
	w.accounts.Remove(t, "tenant-a", "puller")
	w.account("tenant-a", "uid-2", roleA) // which has no token yet
	o, result := w.reconcile(o)
	if ready(o).Reason != string(auth.CodeThrottled) || o.Status.Identity == nil {
		t.Errorf("without: %+v, identity %+v", ready(o), o.Status.Identity)
	}
	if result.RequeueAfter < 285*time.Second {
		t.Errorf("again after %s, asked for 5m", result.RequeueAfter)
	}
}

func TestStoreThatIsFull(t *testing.T) {
	w := newWorld(t, store.Options{MaxBytes: 400})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	if ready(o).Status != metav1.ConditionTrue {
		t.Fatalf("the first: %+v", ready(o))
	}
	random := make([]byte, 2000)
	for i := range random {
		random[i] = byte(i*i*31 + i>>3)
	}
	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": string(random)}))
	o, _ = w.reconcile(o)
	if got := ready(o); got.Reason != meta.ReasonStorageFull || !strings.Contains(got.Message, "--artifact-store-max-size") {
		t.Errorf("Ready is %+v", got)
	}
	if w.served(o)["hello.txt"] != "hello tenant-a" {
		t.Error("the old artifact is gone")
	}
}

// One tenant reaches its own bound, and the others do not notice.
func TestNamespaceThatIsFull(t *testing.T) {
	w := newWorld(t, store.Options{MaxBytes: 4000, MaxNamespaceBytes: 100})
	w.tenant("tenant-a", roleA)
	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"one.txt": "1", "two.txt": "22", "three.txt": "333"}))
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	if got := ready(o); got.Reason != meta.ReasonStorageFull || !strings.Contains(got.Message, "--artifact-namespace-max-size") ||
		strings.Contains(got.Message, "--artifact-store-max-size") {
		t.Errorf("Ready is %+v", got)
	}
}

// A process that is killed between store and status leaves a file that nobody names, and one that lost its volume a status
// whose file is missing.
func TestKilledAtAnyMoment(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	current := o.Status.Artifact.Path
	close(w.elected)
	request := httptest.NewRequest(http.MethodGet, "/readyz", nil)

	// The status was not written: the leftover goes, the rest stays.
	leftover := filepath.Join(filepath.Dir(current), strings.Repeat("0", 64)+".tar.gz")
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(filepath.Join(w.dir, leftover), []byte("x"), 0o600),
		os.Chtimes(filepath.Join(w.dir, leftover), old, old), os.Chtimes(filepath.Join(w.dir, current), old, old)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.dir, leftover)); !os.IsNotExist(err) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if w.served(o) == nil {
		t.Error("the artifact is gone")
	}

	// The volume was lost: not ready, until it is fetched again.
	if err := os.Remove(filepath.Join(w.dir, current)); err != nil {
		t.Fatal(err)
	}
	restarted := w.restart()
	if err := restarted.shared.Artifacts.Ready(request); err == nil || !strings.Contains(err.Error(), "1 artifacts are missing") {
		t.Errorf("ready without the artifact: %v", err)
	}
	o, _ = restarted.reconcile(o)
	if restarted.served(o)["hello.txt"] != "hello tenant-a" {
		t.Error("the artifact was not fetched again")
	}
	if err := restarted.shared.Artifacts.Ready(request); err != nil {
		t.Errorf("not ready: %v", err)
	}

	// A damaged file is found at the next start.
	if err := os.WriteFile(filepath.Join(w.dir, current), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	restarted = w.restart()
	if o, _ = restarted.reconcile(o); restarted.served(o)["hello.txt"] != "hello tenant-a" {
		t.Error("the damaged artifact was not fetched again")
	}
}

// Memory may not have heard of a status that was just written. What that status names must stay all the same.
func TestCollectorKeepsWhatMemoryHasNotHeardOf(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	before, _ := w.reconcile(w.create("tenant-a", "app", nil))
	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "newer"}))
	o, _ := w.reconcile(before)
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{before.Status.Artifact.Path, o.Status.Artifact.Path} {
		if err := os.Chtimes(filepath.Join(w.dir, path), old, old); err != nil {
			t.Fatal(err)
		}
	}
	behind := interceptor.NewClient(w.kube, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*v1alpha1.OCIRepositoryList).Items = []v1alpha1.OCIRepository{*before}
			return nil
		},
	})
	w.shared.Client = behind
	if _, err := w.shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.served(o)["hello.txt"] != "newer" || w.served(before)["hello.txt"] != "hello tenant-a" {
		t.Error("an artifact that a status names is gone")
	}

	// Nothing is remembered of an object that is not ours any more.
	w.shared.Client = interceptor.NewClient(w.kube, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	if _, err := w.shared.Artifacts.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.shared.Artifacts.Store.Size() != 0 {
		t.Error("something is left of an object of another shard")
	}
}

// restart makes a reconciler that remembers nothing, on the same store and API server.
func (w *world) restart() *world {
	again, was := *w, w.shared
	again.shared = &source.Shared{
		Client: was.Client, Recorder: was.Recorder, Rules: was.Rules, Accounts: was.Accounts, Metrics: was.Metrics,
		Artifacts: &source.Artifacts{Store: was.Artifacts.Store, BaseURL: was.Artifacts.BaseURL, Elected: was.Artifacts.Elected},
	}
	again.r = New(again.shared, w.access, 1<<20)
	return &again
}

func TestReadyOfAReplica(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	request := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	standby := w.restart()
	if err := standby.shared.Artifacts.Ready(request); err != nil {
		t.Errorf("a standby that has everything: %v", err)
	}
	if err := os.Remove(filepath.Join(w.dir, o.Status.Artifact.Path)); err != nil {
		t.Fatal(err)
	}
	if err := standby.shared.Artifacts.Ready(request); err == nil {
		t.Error("a standby that lacks an artifact is ready")
	}

	// An object that cannot be fetched any more does not hold up the others, nor does one that is suspended.
	close(w.elected)
	w.registry.grant("tenant-a/app", "")
	standby.reconcile(o)
	if err := standby.shared.Artifacts.Ready(request); err != nil {
		t.Errorf("tried, and still not ready: %v", err)
	}
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	if err := w.restart().shared.Artifacts.Ready(request); err != nil {
		t.Errorf("a suspended object holds it up: %v", err)
	}
}

func TestSuspended(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	exchanges := len(w.cloud.Exchanges())
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true })
	w.annotate(o, "now")
	w.accounts.Remove(t, "tenant-a", "puller")
	o, result := w.reconcile(o)
	if got := ready(o); got.Reason != meta.ReasonSuspended || got.Status != metav1.ConditionTrue || result.RequeueAfter != 0 {
		t.Errorf("Ready is %+v, again after %s", got, result.RequeueAfter)
	}
	if len(w.cloud.Exchanges()) != exchanges || o.Status.LastHandledReconcileAt != "" || w.served(o) == nil {
		t.Error("a suspended object was worked on")
	}
	w.account("tenant-a", "uid-1", roleA)
	w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = false })
	if o, _ = w.reconcile(o); ready(o).Reason != meta.ReasonSucceeded || o.Status.LastHandledReconcileAt != "now" {
		t.Errorf("resumed: %+v, handled %q", ready(o), o.Status.LastHandledReconcileAt)
	}

	never, _ := w.reconcile(w.create("tenant-a", "never", func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true }))
	if got := ready(never); got.Status != metav1.ConditionFalse || got.Reason != meta.ReasonSuspended {
		t.Errorf("suspended from the beginning: %+v", got)
	}
}

func TestDeletedObjectLeavesNothing(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	if err := w.kube.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	forgotten := &forgetting{}
	w.shared.Metrics = forgotten
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
	for range 2 { // the second finds nothing
		if result, err := w.r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != 0 {
			t.Fatalf("delete: %+v, %v", result, err)
		}
	}
	if err := w.kube.Get(t.Context(), request.NamespacedName, &v1alpha1.OCIRepository{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the object is still there: %v", err)
	}
	if w.shared.Artifacts.Store.Size() != 0 {
		t.Errorf("%d bytes are left in the store", w.shared.Artifacts.Store.Size())
	}
	if forgotten.what != "OCIRepository/tenant-a/app" {
		t.Errorf("forgot %q", forgotten.what)
	}
}

// The finalizer stays while there is something to clean up, and people are told what the deletion waits for.
func TestDeletionThatHasToWaitIsTold(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	w.told()
	if err := errors.Join(w.kube.Delete(t.Context(), o), w.shared.Artifacts.Store.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err == nil {
		t.Error("no error, and so no retry")
	}
	if told := strings.Join(w.told(), "\n"); !strings.Contains(told, "Warning StorageFailed the object stays") {
		t.Errorf("told %q", told)
	}
	if got := w.get(o); len(got.Finalizers) != 1 {
		t.Errorf("finalizers %v", got.Finalizers)
	}
}

type forgetting struct{ what string }

func (f *forgetting) Forget(kind, namespace, name string) {
	f.what += kind + "/" + namespace + "/" + name
}

func TestControllerThatEndsWritesNothing(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	ctx, cancel := context.WithCancel(t.Context())
	w.registry.tamper(func(http.ResponseWriter, *http.Request, http.Handler) bool { cancel(); return false })
	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "newer"}))
	if _, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := w.get(o); got.ResourceVersion != o.ResourceVersion {
		t.Errorf("status was written: %+v", ready(got))
	}
}

func TestConflictBeginsAnew(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.tenant("tenant-a", roleA)
	o, _ := w.reconcile(w.create("tenant-a", "app", nil))
	w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "newer"}))
	w.registry.tamper(onBlobs(func(out http.ResponseWriter, content []byte) {
		w.edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour }) // while the layer is fetched
		_, _ = out.Write(content)
	}))
	result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second {
		t.Fatalf("%+v, %v", result, err)
	}
	if got := w.get(o); got.Status.ObservedGeneration != 1 || got.Status.Artifact.Digest != o.Status.Artifact.Digest {
		t.Errorf("the status speaks of a spec that was not read: %+v", got.Status)
	}
	w.registry.tamper(nil)
	if o, _ = w.reconcile(o); w.served(o)["hello.txt"] != "newer" {
		t.Error("not fetched anew")
	}
}
