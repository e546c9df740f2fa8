package bucket

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
)

func TestBucketIsFetchedAsTheTenant(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o, result := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "stored artifact for revision sha256:")
	want := map[string]string{"hello.txt": "hello tenant-a", "deploy/app.yaml": "kind: App"}
	if got := w.Served(o); !maps.Equal(got, want) {
		t.Errorf("served %q", got)
	}
	if id := o.Status.Identity; id == nil || id.Subject != "system:serviceaccount:tenant-a:reader" || id.CloudIdentity != "role/tenant-a" || id.Provider != "aws" {
		t.Errorf("identity %+v", id)
	}
	if d := result.RequeueAfter; d < 9*time.Minute || d > 11*time.Minute {
		t.Errorf("again after %s", d)
	}
	if got := w.service.fetches(); !slices.Equal(got, []string{"deploy/app.yaml", "hello.txt"}) {
		t.Errorf("fetched %q", got)
	}
	if len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("%d exchanges", len(w.Cloud.Exchanges()))
	}
	// The bucket has not changed: nothing is fetched, and no status is written.
	again, _ := w.wants(o, meta.ReasonSucceeded, "")
	if got := w.service.fetches(); len(got) != 0 || again.Status.Artifact.Digest != o.Status.Artifact.Digest || len(w.Cloud.Exchanges()) != 1 {
		t.Errorf("fetched %q, %d exchanges", got, len(w.Cloud.Exchanges()))
	}
	if again.ResourceVersion != o.ResourceVersion {
		t.Errorf("written: %+v, then %+v", o.Status, again.Status)
	}
}

// TestNobodyReadsTheOthersBucket checks that a tenant can use neither another tenant's bucket nor
// another tenant's identity. This is Story 3 of the design D1 (docs/deviations.md).
func TestNobodyReadsTheOthersBucket(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	w.tenant("tenant-b")
	o, _ := w.wants(w.create("tenant-b", func(s *v1alpha1.BucketSpec) { s.BucketName = "tenant-a" }), meta.ReasonBucketRefused, "as role/tenant-b: ")
	if o.Status.Artifact != nil || o.Status.Identity == nil || o.Status.Identity.CloudIdentity != "role/tenant-b" {
		t.Errorf("%+v", o.Status)
	}
	w.account("tenant-a", "role/tenant-b")
	o, _ = w.wants(w.create("tenant-a", nil), string(auth.CodeTrustRefused), "role/tenant-b does not trust system:serviceaccount:tenant-a:reader")
	if o.Status.Artifact != nil || o.Status.Identity != nil {
		t.Errorf("%+v", o.Status)
	}
	if got := w.service.fetches(); len(got) != 0 {
		t.Errorf("fetched %q", got)
	}
}

// TestNothingIsLeftOutByDefault checks that only spec.ignore leaves objects out, as in Flux.
func TestNothingIsLeftOutByDefault(t *testing.T) {
	for name, ignore := range map[string]*string{"absent": nil, "empty": new("")} {
		w := newWorld(t)
		w.tenant("tenant-a")
		w.service.put("tenant-a", ".github/app.yaml", "x")
		w.service.put("tenant-a", ".sops.yaml", "x")
		o, _ := w.wants(w.create("tenant-a", func(s *v1alpha1.BucketSpec) { s.Ignore = ignore }), meta.ReasonSucceeded, "")
		if got := w.Served(o); len(got) != 5 {
			t.Errorf("%s: served %q", name, got)
		}
	}
}

func TestOnlyWhatChangedIsFetched(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o, _ := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "")
	w.service.fetches()

	w.service.put("tenant-a", "deploy/app.yaml", "kind: Other")
	w.service.put("tenant-a", "new.txt", "new")
	o, _ = w.wants(o, meta.ReasonSucceeded, "")
	want := map[string]string{"hello.txt": "hello tenant-a", "deploy/app.yaml": "kind: Other", "new.txt": "new"}
	if got := w.Served(o); !maps.Equal(got, want) {
		t.Errorf("served %q", got)
	}
	if got := w.service.fetches(); !slices.Equal(got, []string{"deploy/app.yaml", "new.txt"}) {
		t.Errorf("fetched %q", got)
	}

	// Even after a restart, only changed objects are fetched.
	w.Restart()
	w.service.remove("tenant-a", "hello.txt")
	w.service.put("tenant-a", "new.txt", "newer")
	o, _ = w.wants(o, meta.ReasonSucceeded, "")
	want = map[string]string{"deploy/app.yaml": "kind: Other", "new.txt": "newer"}
	if got := w.Served(o); !maps.Equal(got, want) {
		t.Errorf("served %q", got)
	}
	if got := w.service.fetches(); !slices.Equal(got, []string{"new.txt"}) {
		t.Errorf("fetched %q", got)
	}

	// A change of spec.ignore changes the artifact. Objects that are in the old artifact are not
	// fetched again.
	ignore := "/new.txt\n"
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.Ignore = &ignore })
	o, _ = w.wants(o, meta.ReasonSucceeded, "")
	want = map[string]string{"deploy/app.yaml": "kind: Other", "deploy/logo.png": "a picture"}
	if got := w.Served(o); !maps.Equal(got, want) {
		t.Errorf("served %q", got)
	}
	if got := w.service.fetches(); !slices.Equal(got, []string{"deploy/logo.png"}) {
		t.Errorf("fetched %q", got)
	}
}

// TestWhatAnotherIdentityReadIsReadAnew uses an identity that may list a bucket's files, but not
// read them. The Bucket must not become ready with files that another identity has read.
func TestWhatAnotherIdentityReadIsReadAnew(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o, _ := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "")
	artifact := o.Status.Artifact
	w.service.fetches()
	w.Cloud.Trust("role/lister", "system:serviceaccount:tenant-a:reader")
	w.account("tenant-a", "role/lister")
	w.service.tamper(func(rw http.ResponseWriter, r *http.Request) {
		if w.service.user(r) == "lister" && r.URL.Path == "/tenant-a" {
			rw.Header().Set("Tampered", "yes")
			w.service.list(rw, "tenant-a", "")
		}
	})
	o, _ = w.wants(o, meta.ReasonBucketRefused, "as role/lister: ")
	if o.Status.Artifact.Digest != artifact.Digest {
		t.Errorf("artifact %+v", o.Status.Artifact)
	}
	// A new file must not make the Bucket ready: role/lister can read neither the new file nor the
	// old ones.
	w.service.put("tenant-a", "new.txt", "new")
	w.wants(o, meta.ReasonBucketRefused, "as role/lister: ")

	w.service.remove("tenant-a", "new.txt")
	w.account("tenant-a", "role/tenant-a")
	o, _ = w.wants(o, meta.ReasonSucceeded, "")
	if got := w.service.fetches(); len(got) != 0 || o.Status.Artifact.Digest != artifact.Digest {
		t.Errorf("fetched %q, artifact %+v", got, o.Status.Artifact)
	}
}

// TestWhatCameWithoutTLSIsReadAnew checks that content from plain HTTP is fetched again after TLS
// was switched on. Anybody may have changed such content on its way.
func TestWhatCameWithoutTLSIsReadAnew(t *testing.T) {
	w := newWorld(t)
	w.service.put("public", "a", "1")
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) {
		s.Provider, s.ServiceAccountName, s.Endpoint, s.BucketName, s.Insecure = "generic", "", minioHost, "public", true
	})
	w.service.network.Addresses[minioHost+":80"] = w.service.network.Addresses[plainHost] // the same service, without TLS
	o, _ = w.wants(o, meta.ReasonSucceeded, "")
	w.service.fetches()
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.Insecure = false })
	w.wants(o, meta.ReasonSucceeded, "")
	if got := w.service.fetches(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("fetched %q", got)
	}
}

// TestDamagedStoreIsFetchedWhole damages the store, with and without a restart of the controller.
// The whole bucket must then be fetched again.
func TestDamagedStoreIsFetchedWhole(t *testing.T) {
	for name, damage := range map[string]func(w *world, archive, note string) error{
		"no note": func(_ *world, _, note string) error { return os.Remove(note) },
		"a note of something else": func(_ *world, _, note string) error {
			return os.WriteFile(note, []byte("something else"), 0o600)
		},
		"the archive is damaged while the controller runs": func(_ *world, archive, _ string) error {
			return os.WriteFile(archive, []byte("damaged"), 0o600)
		},
		"the archive is damaged before a start": func(w *world, archive, _ string) error {
			defer w.Restart()
			return os.WriteFile(archive, []byte("damaged"), 0o600)
		},
		"the volume is lost": func(w *world, _, _ string) error {
			w.Dir = w.T.TempDir()
			w.Restart()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("tenant-a")
			o, _ := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "")
			w.service.fetches()
			file := filepath.Join(w.Dir, filepath.FromSlash(o.Status.Artifact.Path))
			if err := damage(w, file, strings.TrimSuffix(file, ".tar.gz")+".note"); err != nil {
				t.Fatal(err)
			}
			w.service.put("tenant-a", "hello.txt", "changed")
			o, _ = w.wants(o, meta.ReasonSucceeded, "")
			if got := w.Served(o); !maps.Equal(got, map[string]string{"hello.txt": "changed", "deploy/app.yaml": "kind: App"}) {
				t.Errorf("served %q", got)
			}
			if got := w.service.fetches(); !slices.Contains(got, "deploy/app.yaml") {
				t.Errorf("fetched %q", got)
			}
		})
	}
}

func TestGenericBuckets(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	w.service.put("public", "a", "1")
	w.Secret("tenant-a", "keys", corev1.SecretTypeOpaque, map[string]string{"accesskey": "USERtenant-a", "secretkey": "s3cret"})
	w.Secret("tenant-a", "wrong", corev1.SecretTypeOpaque, map[string]string{"accesskey": "USERtenant-b", "secretkey": "s3cret"})
	w.Secret("tenant-a", "empty", corev1.SecretTypeOpaque, map[string]string{"accesskey": "USERtenant-a"})
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) {
		s.Provider, s.ServiceAccountName, s.Endpoint = "generic", "", minioHost
		s.SecretRef = &meta.LocalReference{Name: "keys"}
	})
	got, _ := w.wants(o, meta.ReasonSucceeded, "")
	if id := got.Status.Identity; id == nil || id.Subject != "secret:tenant-a:keys" || id.Provider != "generic" {
		t.Errorf("identity %+v", id)
	}
	with := func(change func(*v1alpha1.BucketSpec), reason, message string) *v1alpha1.Bucket {
		t.Helper()
		w.editSpec(o, change)
		got, _ := w.wants(o, reason, message)
		return got
	}
	with(func(s *v1alpha1.BucketSpec) { s.SecretRef.Name = "wrong" }, meta.ReasonBucketRefused, "as secret:tenant-a:wrong: ")
	with(func(s *v1alpha1.BucketSpec) { s.SecretRef.Name = "empty" }, meta.ReasonSecretRefused, "set accesskey and secretkey")
	with(func(s *v1alpha1.BucketSpec) { s.SecretRef.Name = "none" }, meta.ReasonSecretRefused, "does not exist")
	with(func(s *v1alpha1.BucketSpec) { s.SecretRef = nil }, meta.ReasonBucketRefused, "AccessDenied")
	if got := with(func(s *v1alpha1.BucketSpec) { s.BucketName = "public" }, meta.ReasonSucceeded, ""); got.Status.Identity != nil {
		t.Errorf("identity %+v", got.Status.Identity)
	}
	with(func(s *v1alpha1.BucketSpec) { s.ServiceAccountName = "reader" }, meta.ReasonInvalidSpec, "needs sts")
	if !w.stalled(o) {
		t.Error("not stalled")
	}
	got = with(func(s *v1alpha1.BucketSpec) {
		s.BucketName, s.STS = "tenant-a", &v1alpha1.BucketSTS{Provider: "aws", Endpoint: stsURL}
	}, meta.ReasonSucceeded, "")
	if id := got.Status.Identity; id == nil || id.Subject != "system:serviceaccount:tenant-a:reader" || id.CloudIdentity != "role/tenant-a" {
		t.Errorf("identity %+v", id)
	}
	if got := w.Cloud.Exchanges(); len(got) != 1 || got[0].Endpoint != stsURL {
		t.Errorf("exchanges %+v", got)
	}
	with(func(s *v1alpha1.BucketSpec) { s.Insecure = true }, meta.ReasonInvalidSpec, "insecure and sts")
	with(func(s *v1alpha1.BucketSpec) {
		s.STS, s.ServiceAccountName, s.BucketName, s.Endpoint = nil, "", "public", plainHost
	}, meta.ReasonSucceeded, "")
	with(func(s *v1alpha1.BucketSpec) { s.Insecure = false }, meta.ReasonBucketUnreachable, "no answer")
}

// TestForeignEndpointIsRefusedBeforeAnExchange checks that no session is made for a host that does
// not belong to the cloud.
func TestForeignEndpointIsRefusedBeforeAnExchange(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) { s.Endpoint = "s3.example.com.evil.example" })
	w.wants(o, string(auth.CodeEndpointRefused), "spec.endpoint")
	if !w.stalled(o) || len(w.Cloud.Exchanges()) != 0 {
		t.Errorf("stalled %t, %d exchanges", w.stalled(o), len(w.Cloud.Exchanges()))
	}
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.Provider, s.Endpoint = "gcp", "" })
	w.wants(o, meta.ReasonUnsupportedProvider, "gcp")
}

func TestCredentialThatEndedEarlyIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o, _ := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "")
	w.Cloud.Revoke()
	w.service.tamper(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "AKID1/") {
			rw.Header().Set("Tampered", "yes")
			refuse(rw, http.StatusBadRequest, "ExpiredToken")
		}
	})
	w.wants(o, meta.ReasonSucceeded, "")
	if len(w.Cloud.Exchanges()) != 2 {
		t.Errorf("%d exchanges", len(w.Cloud.Exchanges()))
	}
	// If the service refuses every session, further attempts must not cause further exchanges.
	w.service.tamper(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Tampered", "yes")
		refuse(rw, http.StatusUnauthorized, "ExpiredToken")
	})
	for range 5 {
		w.wants(o, meta.ReasonBucketRefused, "as role/tenant-a: bucket tenant-a: ")
	}
	if len(w.Cloud.Exchanges()) != 2 {
		t.Errorf("%d exchanges", len(w.Cloud.Exchanges()))
	}
}

func TestFailuresKeepTheArtifact(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o, _ := w.wants(w.create("tenant-a", nil), meta.ReasonSucceeded, "")
	artifact := o.Status.Artifact
	fails := func(reason, message string) (after time.Duration) {
		t.Helper()
		got, result := w.wants(o, reason, message)
		if got.Status.Artifact == nil || got.Status.Artifact.Digest != artifact.Digest || w.stalled(o) {
			t.Errorf("artifact %+v, stalled %t", got.Status.Artifact, w.stalled(o))
		}
		return result.RequeueAfter
	}
	answer := func(status int, code string, headers ...string) {
		w.service.tamper(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Tampered", "yes")
			for i := 0; i < len(headers); i += 2 {
				rw.Header().Set(headers[i], headers[i+1])
			}
			refuse(rw, status, code)
		})
	}
	answer(404, "NoSuchBucket")
	fails(meta.ReasonBucketRefused, "spec.bucketName")
	answer(503, "SlowDown", "Retry-After", "600")
	if after := fails(meta.ReasonBucketUnreachable, "SlowDown"); after < 9*time.Minute {
		t.Errorf("again after %s", after)
	}
	answer(301, "PermanentRedirect", "x-amz-bucket-region", "eu-north-1")
	fails(meta.ReasonBucketRefused, "set it to eu-north-1")
	answer(500, "")
	fails(meta.ReasonBucketUnreachable, "HTTP 500")

	w.service.tamper(nil)
	w.service.put("tenant-a", "large.bin", strings.Repeat("x", 1<<20))
	fails(meta.ReasonArchiveRefused, "--artifact-max-decompressed-size")
	w.service.remove("tenant-a", "large.bin")

	w.service.tamper(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "racing.txt") {
			rw.Header().Set("Tampered", "yes")
			refuse(rw, http.StatusPreconditionFailed, "PreconditionFailed")
		}
	})
	w.service.put("tenant-a", "racing.txt", "x")
	fails(meta.ReasonBucketChanged, `"racing.txt"`)
	w.service.tamper(nil)
	w.service.remove("tenant-a", "racing.txt")

	w.service.put("tenant-a", "a/../../x", "x")
	fails(meta.ReasonArchiveRefused, "rename the object")
	w.service.remove("tenant-a", "a/../../x")

	// An empty artifact must be refused: programs that apply the artifact would remove everything.
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.Prefix = "deplyo/" })
	fails(meta.ReasonBucketRefused, "spec.prefix")
	w.editSpec(o, func(s *v1alpha1.BucketSpec) { s.Prefix = "deploy/" })
	got, _ := w.wants(o, meta.ReasonSucceeded, "")
	if files := w.Served(got); !maps.Equal(files, map[string]string{"deploy/app.yaml": "kind: App"}) {
		t.Errorf("served %q", files)
	}
}

func TestSlowServiceEndsWithTheTimeout(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	o := w.create("tenant-a", func(s *v1alpha1.BucketSpec) { s.Timeout = &metav1.Duration{Duration: time.Second} })
	w.service.tamper(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Tampered", "yes")
		<-r.Context().Done()
	})
	begun := time.Now()
	w.wants(o, meta.ReasonBucketUnreachable, "raise spec.timeout")
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}
