package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const stsHost = "sts." + local.Region + ".amazonaws.com"

// inject starts a fault, which lasts until the returned function is called or the test ends. With
// the fault Refuse, existing connections to the host are also dropped.
func inject(t *testing.T, f fault.Fault) (end func()) {
	t.Helper()
	all := []fault.Fault{f}
	if f.Kind == fault.Refuse {
		all = append(all, fault.Fault{Host: f.Host, Kind: fault.Drop})
	}
	var ids []string
	for _, f := range all {
		id, err := world.Cloud().Faults().Add(f)
		must(t, "inject a fault", err)
		ids = append(ids, id)
	}
	end = func() {
		for _, id := range ids {
			world.Cloud().Faults().Remove(id)
		}
	}
	t.Cleanup(end)
	return end
}

// TestCloudFaults breaks the cloud's services while one object has no token yet and another has a
// token. The first object must report the fault, and recover by itself. The second object must not
// be affected.
func TestCloudFaults(t *testing.T) {
	alone(t, "its faults hit all callers of AWS STS and of Amazon ECR")
	cached := newTenant(t, "faults-cached")
	cached.pushFile(t, "1.0.0", "app")
	neighbour := cached.object("neighbour")
	create(t, neighbour)
	await(t, neighbour, "the artifact", pulled)

	tests := []struct {
		name   string
		fault  fault.Fault
		reason string
		words  []string
	}{
		{"sts-down", fault.Fault{Host: stsHost, Kind: fault.Refuse}, "Unreachable", []string{"exchange", "AWS STS in " + local.Region}},
		{"sts-dropping", fault.Fault{Service: "sts", Kind: fault.Drop}, "Unreachable", []string{"exchange"}},
		{"sts-slow", fault.Fault{Service: "sts", Kind: fault.Latency, Delay: time.Minute}, "Unreachable", []string{"spec.timeout"}},
		{"sts-failing", fault.Fault{Service: "sts", Kind: fault.InternalFailure}, "Unavailable", []string{"exchange"}},
		{"sts-throttling", fault.Fault{Service: "sts", Kind: fault.Throttle}, "Throttled", []string{"exchange"}},
		{"sts-malformed", fault.Fault{Service: "sts", Kind: fault.Malformed}, "ResponseInvalid", []string{"exchange"}},
		{"ecr-failing", fault.Fault{Service: "ecr", Kind: fault.InternalFailure}, "Unavailable", []string{"registry"}},
		{"ecr-unavailable", fault.Fault{Service: "ecr", Kind: fault.Unavailable}, "Unavailable", []string{"registry"}},
		{"ecr-throttling", fault.Fault{Service: "ecr", Kind: fault.Throttle}, "Throttled", []string{"registry"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tn := newTenant(t, "faults-"+tt.name)
			manifest := tn.pushFile(t, "1.0.0", tt.name)
			end := inject(t, tt.fault)
			o := tn.object("app")
			o.Spec.Timeout = &metav1.Duration{Duration: 2 * time.Second}
			if tt.name != "sts-slow" {
				// The AWS SDK retries before it gives up, so the object needs more time.
				o.Spec.Timeout.Duration = 20 * time.Second
			}
			create(t, o)
			await(t, o, "the failure", failing(tt.reason, tt.words...))
			if !strings.Contains(ready(o).Message, ";") {
				t.Errorf("the message names no next step: %s", ready(o).Message)
			}
			at := request(t, neighbour)
			await(t, neighbour, "a neighbour with a token goes on", handled(at))
			must(t, "the neighbour", pulled(neighbour))
			end()
			await(t, o, "it recovers by itself", revision(manifest))
		})
	}
}

// TestRegistryFaults breaks the registry's data plane for an object that already has an artifact.
// The artifact must stay served.
func TestRegistryFaults(t *testing.T) {
	alone(t, "its faults hit all callers of the registries")
	tn := newTenant(t, "registry-faults")
	tn.pushFile(t, "1.0.0", "first")
	o := tn.object("app")
	create(t, o)
	await(t, o, "the artifact", pulled)
	for _, tt := range []struct {
		fault  fault.Fault
		reason string
	}{
		{fault.Fault{Service: "registry", Kind: fault.InternalFailure}, "RegistryUnreachable"},
		{fault.Fault{Service: "registry", Kind: fault.Throttle}, "RegistryUnreachable"},
		{fault.Fault{Host: registryHost, Kind: fault.Refuse}, "RegistryUnreachable"},
		{fault.Fault{Service: "registry", Kind: fault.Drop}, "RegistryUnreachable"},
	} {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			end := inject(t, tt.fault)
			at := request(t, o)
			await(t, o, "the request is handled", handled(at))
			must(t, "the failure", failing(tt.reason, registryHost)(o))
			wantServed(t, o)
			end()
			await(t, o, "it recovers by itself", pulled)
		})
	}
}

// wantServed asserts that the artifact in the status is served, and that its content has the digest
// and the size in the status.
func wantServed(t *testing.T, o *v1alpha1.OCIRepository) {
	t.Helper()
	if o.Status.Artifact == nil {
		t.Fatalf("%s/%s has no artifact", o.Namespace, o.Name)
	}
	if err := fetch(t.Context(), o.Status.Artifact, o.Status.Artifact.URL); err != nil {
		t.Errorf("the artifact of %s/%s: %v", o.Namespace, o.Name, err)
	}
}

// TestHostileRegistry pulls once from a good registry, which then misbehaves in many ways. The
// controller must keep serving the first artifact.
func TestHostileRegistry(t *testing.T) {
	beside(t)
	tn := newTenant(t, "hostile")
	r := newRegistry(t, "hostile.registry.example.com")
	r.push(t, "app", "good", layer(t, file("app.yaml", "good")))
	_, blob := r.push(t, "app", "bad", layer(t, file("app.yaml", "bad")))
	status := func(code int, body string) func(w http.ResponseWriter, r *http.Request, well http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, well http.Handler) {
			// The controller first checks whether the host is a registry. Only later requests must
			// fail.
			if r.URL.Path == "/v2/" {
				well.ServeHTTP(w, r)
				return
			}
			http.Error(w, body, code)
		}
	}
	// onBlob replaces the response to a request for the layer.
	onBlob := func(answer func(w http.ResponseWriter)) func(w http.ResponseWriter, r *http.Request, well http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, well http.Handler) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+blob) {
				answer(w)
				return
			}
			well.ServeHTTP(w, r)
		}
	}
	other := layer(t, file("app.yaml", "something else"))
	tests := []struct {
		name   string
		how    func(w http.ResponseWriter, r *http.Request, well http.Handler)
		reason string
		words  []string
	}{
		{"401", status(401, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`), "RegistryRefused", nil},
		{"403", status(403, `{"errors":[{"code":"DENIED","message":"not you"}]}`), "RegistryRefused", nil},
		{"404 of the repository", status(404, `{"errors":[{"code":"NAME_UNKNOWN","message":"no such repository"}]}`), "RegistryRefused", []string{"spec.url", "create the repository"}},
		{"404 of the tag", status(404, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such tag"}]}`), "ReferenceNotFound", []string{"spec.ref", "push this tag"}},
		{"500", status(500, "out of order"), "RegistryUnreachable", []string{"500"}},
		{"web page", status(200, "<html>Welcome!</html>"), "LayerNotFound", []string{"push it as an OCI image"}},
		{"404 of the layer", onBlob(func(w http.ResponseWriter) { http.Error(w, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`, 404) }), "RegistryRefused", nil},
		{"wrong digest of the layer", onBlob(func(w http.ResponseWriter) { _, _ = w.Write(other) }), "DigestMismatch", nil},
		{"truncated layer", onBlob(func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(other[:len(other)/2])
		}), "DigestMismatch", nil},
		{"redirect to the controller's own machine", onBlob(func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://127.0.0.1:"+port(t, controller.URL("health"))+"/healthz")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}), "RegistryRefused", []string{"127.0.0.1"}},
	}
	o := tn.generic("app", r.url("app"))
	o.Spec.Ref.Tag = "good"
	create(t, o)
	await(t, o, "the artifact", pulled)
	served := *o.Status.Artifact
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.behave(tt.how)
			patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "bad" })
			await(t, o, "the failure", func(o *v1alpha1.OCIRepository) error {
				if err := failing(tt.reason, append(tt.words, r.host)...)(o); err != nil {
					return err
				}
				return wantf(o.Status.ObservedGeneration == o.Generation, "generation %d is observed", o.Status.ObservedGeneration)
			})
			if a := o.Status.Artifact; a == nil || a.Digest != served.Digest || a.Revision != served.Revision {
				t.Errorf("status.artifact is %+v; want the former, %+v", a, served)
			}
			wantServed(t, o)
			r.behave(nil)
			patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "good" })
			await(t, o, "the good tag again", pulled)
		})
	}
	t.Run("recovery", func(t *testing.T) {
		patch(t, o, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "bad" })
		await(t, o, "what was broken is now well", func(o *v1alpha1.OCIRepository) error {
			if err := pulled(o); err != nil {
				return err
			}
			return wantf(o.Status.Artifact.Digest != served.Digest, "it is still the former artifact")
		})
	})
}

// TestRetryAfter tests that the controller waits as long as a registry's Retry-After says.
func TestRetryAfter(t *testing.T) {
	beside(t)
	const pause = 5 * time.Second
	tn := newTenant(t, "retry-after")
	r := newRegistry(t, "busy.registry.example.com")
	manifest, _ := r.push(t, "app", "1.0.0", layer(t, file("app.yaml", "app")))
	// refused is the time of the first refusal in Unix nanoseconds. early counts requests before
	// the pause was over.
	var refused, early atomic.Int64
	r.behave(func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if refused.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After", strconv.Itoa(int(pause.Seconds())))
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		// The controller varies its pauses by 5 %, so allow a slightly shorter pause.
		if time.Since(time.Unix(0, refused.Load())) < pause*94/100 {
			early.Add(1)
		}
		well.ServeHTTP(w, req)
	})
	o := tn.generic("app", r.url("app"))
	create(t, o)
	await(t, o, "the failure", failing("RegistryUnreachable", r.host, "429"))
	await(t, o, "the artifact", revision(manifest))
	if n := early.Load(); n > 0 {
		t.Errorf("the registry was asked %d times within the pause that it asked for", n)
	}
}

// noise returns random content, which does not compress.
func noise(t *testing.T, size int) string {
	t.Helper()
	b := make([]byte, size)
	_, err := rand.Read(b)
	must(t, "make noise", err)
	return string(b)
}

func port(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	must(t, "read a URL", err)
	return u.Port()
}

// zeros is an endless reader of zero bytes, which compress well.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLimits tests a controller's limits: the unpacked size of an artifact, and the size of the
// store.
func TestLimits(t *testing.T) {
	beside(t)
	s := takeShard(t)
	s.start(t, "limits", map[string]any{
		"artifacts": map[string]any{"maxDecompressedSize": "1Mi", "storeMaxSize": "1500Ki", "namespaceMaxSize": "1500Ki"},
	})
	tn := s.newTenant(t, "limits")
	object := func(name, tag string) *v1alpha1.OCIRepository {
		o := tn.object(name)
		o.Spec.Ref.Tag = tag
		return o
	}
	t.Run("decompression bomb", func(t *testing.T) {
		content, err := io.ReadAll(io.LimitReader(zeros{}, 64<<20))
		must(t, "make zeros", err)
		bomb := layer(t, file("zeros", string(content)))
		if len(bomb) > 1<<20 {
			t.Fatalf("the bomb is %d bytes packed; it must pass the limit of what is transferred", len(bomb))
		}
		tn.push(t, "bomb", bomb)
		o := object("bomb", "bomb")
		create(t, o)
		await(t, o, "the refusal", failing("ArchiveRefused", "--artifact-max-decompressed-size"))
	})
	t.Run("large layer", func(t *testing.T) {
		tn.push(t, "large", layer(t, file("noise", noise(t, 2<<20))))
		o := object("large", "large")
		create(t, o)
		await(t, o, "the refusal", failing("ArchiveRefused", "--artifact-max-decompressed-size"))
	})
	t.Run("store full", func(t *testing.T) {
		tn.push(t, "one", layer(t, file("noise", noise(t, 100<<10))))
		tn.push(t, "two", layer(t, file("noise", noise(t, 250<<10))))
		tn.push(t, "three", layer(t, file("noise", noise(t, 400<<10))))
		first, second := object("first", "one"), object("second", "two")
		create(t, first)
		await(t, first, "the artifact", pulled)
		// The two artifacts exceed the namespace's share of the store. The namespace is the only
		// one, so its share is 3/8 of 1500 KiB: 562 KiB. The largest artifact counts twice, so the
		// two artifacts need 100 KiB + 2 * 250 KiB = 600 KiB.
		create(t, second)
		await(t, second, "the store is full", failing("StorageFull", "--artifact-store-max-size"))
		// If there is no room for an object's new artifact, the object keeps the old one.
		patch(t, first, func(o *v1alpha1.OCIRepository) { o.Spec.Ref.Tag = "three" })
		await(t, first, "the store is full", failing("StorageFull", "--artifact-store-max-size"))
		if !strings.HasPrefix(first.Status.Artifact.Revision, "one@") {
			t.Errorf("its artifact is %s; want the former", first.Status.Artifact.Revision)
		}
		wantServed(t, first)
		must(t, "make room", objects.Delete(t.Context(), first))
		await(t, second, "the artifact, once there is room", pulled)
		wantServed(t, second)
	})
}

// TestNamespaceShare makes one tenant exceed its share of the artifact store. Its neighbour must
// not be affected.
func TestNamespaceShare(t *testing.T) {
	beside(t)
	s := takeShard(t)
	s.start(t, "share", map[string]any{"artifacts": map[string]any{"namespaceMaxSize": "150Ki", "storeMaxSize": "1Mi"}})
	greedy, neighbour := s.newTenant(t, "greedy"), s.newTenant(t, "neighbour")
	pull := func(tn *tenant, name string) *v1alpha1.OCIRepository {
		o := tn.object(name)
		o.Spec.Ref.Tag = name
		tn.push(t, name, layer(t, file("noise", noise(t, 100<<10))))
		create(t, o)
		return o
	}
	first := pull(greedy, "first")
	await(t, first, "the artifact", pulled)
	await(t, pull(greedy, "second"), "its share is used up", failing("StorageFull", "--artifact-namespace-max-size"))
	theirs := pull(neighbour, "theirs")
	await(t, theirs, "the artifact", pulled)
	wantServed(t, first)
	wantServed(t, theirs)
}

// fetch downloads an artifact from a URL and compares it with the status.
func fetch(ctx context.Context, a *v1alpha1.Artifact, from string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	res, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", res.StatusCode)
	}
	return wantf(digest(body) == a.Digest && int64(len(body)) == a.Size, "it is %s of %d bytes; want %s of %d", digest(body), len(body), a.Digest, a.Size)
}
