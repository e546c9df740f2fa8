package ocirepository

import (
	"archive/tar"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

// onBlobs returns a function that answers requests for blobs in place of the registry. It calls the
// function answer with the blob's content.
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

// TestRegistryFaults checks that the last artifact is still served while the registry fails, and
// that the object recovers by itself.
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
			w := newWorld(t)
			w.tenant("tenant-a", roleA)
			o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
			before := o.Status.Artifact
			w.registry.push(t, "tenant-a/app", "v1", layerOf(t, map[string]string{"hello.txt": "newer"}))

			w.registry.tamper(c.tamper)
			o, result := w.Reconcile(o)
			if got := controllertest.Ready(o); got.Status != metav1.ConditionFalse || got.Reason != c.reason || !strings.Contains(got.Message, c.says) || strings.Contains(got.Message, "s3cret") {
				t.Errorf("Ready is %s %s %q, want %s and %q", got.Status, got.Reason, got.Message, c.reason, c.says)
			}
			if result.RequeueAfter < c.least || result.RequeueAfter > c.atMost {
				t.Errorf("again after %s, want %s to %s", result.RequeueAfter, c.least, c.atMost)
			}
			if o.Status.Artifact.Digest != before.Digest || w.Served(o)["hello.txt"] != "hello tenant-a" {
				t.Errorf("artifact %+v, want %+v", o.Status.Artifact, before)
			}
			if o.Status.Identity == nil || o.Status.Identity.CloudIdentity != roleA {
				t.Errorf("identity %+v", o.Status.Identity)
			}

			w.registry.tamper(nil)
			w.Told()
			if o, _ = w.Reconcile(o); controllertest.Ready(o).Status != metav1.ConditionTrue || w.Served(o)["hello.txt"] != "newer" {
				t.Errorf("healed: %+v", controllertest.Ready(o))
			}
			if told := w.Told(); len(told) != 1 || !strings.HasPrefix(told[0], "Normal NewArtifact") {
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
		// 4 MiB of zeros; the tests allow artifacts of 1 MiB.
		"decompression bomb": func(out tape) { out.file("b", strings.Repeat("\x00", 4<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, operation := range []string{v1alpha1.LayerExtract, v1alpha1.LayerCopy} {
				w := newWorld(t)
				w.tenant("tenant-a", roleA)
				w.registry.push(t, "tenant-a/app", "bad", tarOf(t, fill))
				o, _ := w.Reconcile(w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) {
					o.Spec.Ref.Tag = "bad"
					o.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: operation}
				}))
				if got := controllertest.Ready(o); got.Reason != meta.ReasonArchiveRefused || !strings.Contains(got.Message, "archive refused") {
					t.Errorf("%s: Ready is %+v", operation, got)
				}
				if w.Shared.Artifacts.Store.Size() != 0 || o.Status.Artifact != nil {
					t.Errorf("%s: something was stored: %d bytes, %+v", operation, w.Shared.Artifacts.Store.Size(), o.Status.Artifact)
				}
			}
		})
	}
}

// TestCredentialThatTheRegistryEnded checks that the answer 401 makes the controller get a new
// credential at once. A second 401 soon after must be reported.
func TestCredentialThatTheRegistryEnded(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	w.Cloud.Revoke()
	if o, _ = w.Reconcile(o); controllertest.Ready(o).Status != metav1.ConditionTrue || len(w.Cloud.Exchanges()) != 2 {
		t.Errorf("%+v after %d exchanges, want 2", controllertest.Ready(o), len(w.Cloud.Exchanges()))
	}
	w.Cloud.Revoke()
	o, _ = w.Reconcile(o)
	got := controllertest.Ready(o)
	if got.Reason != meta.ReasonRegistryRefused || !strings.Contains(got.Message, "as "+roleA+": ") || !strings.Contains(got.Message, "HTTP 401") {
		t.Errorf("%+v", got)
	}
}

// TestLostArtifactIsPulledAgain checks that an artifact that is missing in the store is pulled
// again.
func TestLostArtifactIsPulledAgain(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	o, _ := w.Reconcile(w.create("tenant-a", "app", nil))
	if err := w.Shared.Artifacts.Store.Remove(controllertest.Owner(o)); err != nil {
		t.Fatal(err)
	}
	if o, _ = w.Reconcile(o); w.Served(o)["hello.txt"] != "hello tenant-a" {
		t.Error("the artifact was not pulled again")
	}
}
