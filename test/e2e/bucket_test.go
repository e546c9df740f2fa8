package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// bucket returns an object of kind Bucket, which reads a cloud's bucket with the tenant's
// ServiceAccount.
func (tn *tenant) bucket(name, provider, bucketName string) *v1alpha1.Bucket {
	return &v1alpha1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name, Labels: tn.shard.labels()},
		Spec: v1alpha1.BucketSpec{
			BucketName: bucketName,
			Schedule:   v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
			Access:     v1alpha1.Access{Provider: provider, ServiceAccountName: puller},
		},
	}
}

// fetched asserts that a Bucket has the artifact of its current spec.
func fetched(o *v1alpha1.Bucket) error {
	c := ready(o)
	return wantf(c.Status == metav1.ConditionTrue && o.Status.ObservedGeneration == o.Generation && o.Status.Artifact != nil,
		"it is not fetched: Ready=%s %s: %s", c.Status, c.Reason, c.Message)
}

// unfetched returns a check that the current spec of a Bucket has failed: Ready is False for this
// reason, and the message contains all words.
func unfetched(reason string, words ...string) func(o *v1alpha1.Bucket) error {
	return func(o *v1alpha1.Bucket) error {
		if err := failed(ready(o), reason, words...); err != nil {
			return err
		}
		return wantf(o.Status.ObservedGeneration == o.Generation, "generation %d is observed", o.Status.ObservedGeneration)
	}
}

// again requests a reconciliation of a Bucket, and reads the Bucket when the request is handled.
func again(t *testing.T, o *v1alpha1.Bucket) {
	t.Helper()
	at := request(t, o)
	await(t, o, "the request is handled", func(o *v1alpha1.Bucket) error {
		return wantf(o.Status.LastHandledReconcileAt == at, "lastHandledReconcileAt is %q, not %q", o.Status.LastHandledReconcileAt, at)
	})
}

// holding returns a check that a Bucket has an artifact with exactly these files.
func holding(t *testing.T, want map[string]string) func(o *v1alpha1.Bucket) error {
	t.Helper()
	return func(o *v1alpha1.Bucket) error {
		if err := fetched(o); err != nil {
			return err
		}
		got, err := contents(t, o.Status.Artifact)
		if err != nil {
			return err
		}
		return wantf(maps.Equal(got, want), "its files are %.500q, not %.500q", got, want)
	}
}

// contents downloads an artifact, and returns its files. The download must match the artifact in
// the status.
func contents(t *testing.T, a *v1alpha1.Artifact) (map[string]string, error) {
	t.Helper()
	if err := fetch(t.Context(), a, a.URL); err != nil {
		return nil, err
	}
	res := get(t, a.URL)
	defer res.Body.Close()
	plain, err := gzip.NewReader(res.Body)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(header.Name, "./")] = string(content)
		}
	}
}

// some returns the contents of a few files, by path. Each value of the argument name gives other
// contents.
func some(name string) map[string]string {
	return map[string]string{"app.yaml": "app of " + name, "config/settings.yaml": "settings of " + name, "config/ünï & co.yaml": name}
}

// putInto sends a PUT request directly to a data plane, without the cloud's checks.
func putInto(t *testing.T, plane http.Handler, target, content string, header http.Header) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, target, strings.NewReader(content))
	maps.Copy(req.Header, header)
	// Set the header by hand, because the request reaches the data plane without an HTTP client or
	// server.
	req.Header.Set("Content-Length", strconv.Itoa(len(content)))
	res := httptest.NewRecorder()
	plane.ServeHTTP(res, req)
	if res.Code != http.StatusOK && res.Code != http.StatusCreated {
		t.Fatalf("put %s: HTTP %d: %s", target, res.Code, res.Body)
	}
}

// google writes to the tests' bucket at Google, with a token that may write.
type google struct{ token string }

func (g google) put(t *testing.T, key, content string) {
	t.Helper()
	status, body := call(t, cloudClient(), http.MethodPost,
		"https://storage.googleapis.com/upload/storage/v1/b/"+e2eBucket+"/o?uploadType=media&name="+url.QueryEscape(key), "text/plain", []byte(content), g.token)
	if status != http.StatusOK {
		t.Fatalf("put %s: HTTP %d: %s", key, status, body)
	}
}

func (g google) remove(t *testing.T, key string) {
	t.Helper()
	status, body := call(t, cloudClient(), http.MethodDelete, "https://storage.googleapis.com/storage/v1/b/"+e2eBucket+"/o/"+url.PathEscape(key), "", nil, g.token)
	if status != http.StatusNoContent && status != http.StatusOK {
		t.Fatalf("delete %s: HTTP %d: %s", key, status, body)
	}
}

// reads returns how many objects and listings a principal got. It ignores calls up to the given
// journal number.
func (google) reads(principal string, after uint64) (objects, listings int) {
	granted := func(operation string) int {
		return len(world.Cloud().Journal().Calls(journal.Filter{
			Service: "gcs", Operation: operation, Principal: principal, Verdict: journal.Granted, After: after,
		}))
	}
	return granted("storage.objects.get"), granted("storage.objects.list")
}

// TestBucketChanges changes a bucket at Google, and counts the fetched objects. Only changed
// objects may be fetched, whatever happens to the controller meanwhile.
func TestBucketChanges(t *testing.T) {
	beside(t)
	const count = 20
	s := takeShard(t)
	first := s.start(t, "bucket-changes", nil)
	tn := s.newTenant(t, "bucket-changes")
	tn.annotate(t, roleAnnotation, "")
	defer tn.clear(t) // needs a running controller, to remove finalizers
	principal := googlePrincipal(tn.namespace, puller)
	lend(t, principal)
	access, v := googleToken(t, token(t, tn.namespace, puller, googlePool))
	if !v.granted() {
		t.Fatalf("Google's STS says: %s", v)
	}
	store := google{access}
	files := map[string]string{}
	put := func(name, content string) {
		files[name] = content
		store.put(t, "clusters/"+name, content)
	}
	for i := range count {
		put(fmt.Sprintf("app-%02d.yaml", i), fmt.Sprintf("content %d\n", i))
	}
	// This object is so large that the controller begins to archive it before reading all of it.
	put("large.bin", noise(t, 3<<20))
	store.put(t, "elsewhere/app.yaml", "not of the prefix")
	whole := func() map[string]string {
		keyed := map[string]string{}
		for name, content := range files {
			keyed["clusters/"+name] = content
		}
		return keyed
	}
	o := tn.bucket("app", v1alpha1.ProviderGCP, e2eBucket)
	o.Spec.Prefix = "clusters/"
	o.Spec.Interval.Duration = time.Hour // only requested reconciliations run
	create(t, o)
	await(t, o, "the objects", holding(t, whole()))
	// step requests a reconciliation. The number of objects that the controller then fetches must
	// equal fetches. If renewed is true, the revision must change; otherwise it must stay the same.
	step := func(t *testing.T, fetches int, renewed bool) {
		t.Helper()
		begin, before := world.Cloud().Journal().Last(), o.Status.Artifact.Revision
		again(t, o)
		must(t, "the objects", holding(t, whole())(o))
		objects, listings := store.reads(principal, begin)
		if objects != fetches || listings == 0 {
			t.Errorf("%d objects were fetched after %d listings; want %d", objects, listings, fetches)
		}
		if (o.Status.Artifact.Revision != before) != renewed {
			t.Errorf("the revision was %s and is %s", before, o.Status.Artifact.Revision)
		}
	}
	t.Run("nothing", func(t *testing.T) { step(t, 0, false) })
	t.Run("one object", func(t *testing.T) {
		put("app-07.yaml", "changed")
		step(t, 1, true)
	})
	t.Run("a new object and the large one", func(t *testing.T) {
		put("another.yaml", "another")
		put("large.bin", noise(t, 2<<20))
		step(t, 2, true)
	})
	t.Run("an object of another prefix", func(t *testing.T) {
		store.put(t, "elsewhere/more.yaml", "more")
		step(t, 0, false)
	})
	t.Run("an object is deleted", func(t *testing.T) {
		store.remove(t, "clusters/app-03.yaml")
		delete(files, "app-03.yaml")
		step(t, 0, true)
	})
	begin := world.Cloud().Journal().Last()
	must(t, "stop the controller", first.Stop(t.Context()))
	second := s.start(t, "bucket-changes", nil)
	t.Run("the controller is restarted", func(t *testing.T) {
		await(t, o, "the address of the new controller", func(o *v1alpha1.Bucket) error {
			return wantf(strings.HasPrefix(o.Status.Artifact.URL, second.URL("artifacts")+"/"), "it is another")
		})
		put("app-11.yaml", "changed after the restart")
		step(t, 1, true)
		if objects, _ := store.reads(principal, begin); objects != 1 {
			t.Errorf("%d objects were fetched since the old controller ended; want 1", objects)
		}
	})
	t.Run("everything is deleted", func(t *testing.T) {
		for name := range files {
			store.remove(t, "clusters/"+name)
		}
		again(t, o)
		must(t, "the refusal", unfetched("BucketRefused", "spec.prefix")(o))
		must(t, "the last artifact is kept", fetch(t.Context(), o.Status.Artifact, o.Status.Artifact.URL))
	})
}

// secret creates a Secret in the tenant's namespace.
func (tn *tenant) secret(t *testing.T, name string, data map[string]string) *meta.LocalReference {
	t.Helper()
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: name}, StringData: data})
	return &meta.LocalReference{Name: name}
}

// ca returns a reference to the tenant's Secret with certificate authorities.
func (*tenant) ca() *meta.LocalReference { return &meta.LocalReference{Name: "ca"} }

// statements returns a policy with these statements.
func statements(all ...string) string {
	var b bytes.Buffer
	b.WriteString(`{"Version":"2012-10-17","Statement":[`)
	b.WriteString(strings.Join(all, ","))
	b.WriteString("]}")
	return b.String()
}
