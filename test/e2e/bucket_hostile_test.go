package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// hostileStore implements a part of S3. Each of its buckets has a different fault.
type hostileStore struct {
	mu       sync.Mutex
	listings map[string]int // number of list requests by bucket
	reads    map[string]int
	at       map[string][]time.Time // times of list requests
	// changed is the index of the changed object in the crowded bucket; 0 if none has changed.
	changed atomic.Int64
}

// crowd is the number of objects in the crowded bucket: the maximum for an artifact.
const crowd = 100_000

// pageSize is S3's page size. Source: Amazon S3 API, ListObjectsV2, max-keys.
const pageSize = 1000

func (s *hostileStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	if key == "" {
		s.listings[bucket]++
		s.at[bucket] = append(s.at[bucket], time.Now())
	} else {
		s.reads[bucket]++
	}
	n := s.listings[bucket]
	s.mu.Unlock()
	switch {
	case key != "":
		s.read(w, r, bucket, key)
	case bucket == "silent":
		<-r.Context().Done()
	case bucket == "dripping": // a listing that never ends, in small pieces
		_, _ = io.WriteString(w, `<ListBucketResult>`)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	case bucket == "endless": // a page that never ends
		_, _ = io.WriteString(w, `<ListBucketResult><Name>`)
		for more := strings.Repeat("a", 1<<20); r.Context().Err() == nil; {
			if _, err := io.WriteString(w, more); err != nil {
				return
			}
		}
	case bucket == "empty-pages":
		page(w, nil, strconv.Itoa(n))
	case bucket == "growing":
		page(w, pageOf(n, "app"), strconv.Itoa(n))
	case bucket == "circle":
		page(w, pageOf(1, "app"), "again")
	case bucket == "nowhere":
		page(w, pageOf(1, "app"), "")
	case bucket == "busy" && n == 1:
		w.Header().Set("Retry-After", "3")
		http.Error(w, "<Error><Code>SlowDown</Code></Error>", http.StatusTooManyRequests)
	case bucket == "foreign-prefix":
		last(w, object{"other/app.yaml", `"1"`, 1})
	case bucket == "elsewhere":
		w.Header().Set("Location", "https://"+registryHost+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	case bucket == "web-page":
		_, _ = io.WriteString(w, "<html><body><p>Welcome to the hotel's network</p></body></html>")
	case bucket == "negative":
		last(w, object{"app.yaml", `"1"`, -1})
	case bucket == "huge":
		last(w, object{"app.yaml", `"1"`, 1 << 50})
	case bucket == "no-tag":
		last(w, object{"app.yaml", "", 1})
	case strings.HasPrefix(bucket, "key-"):
		last(w, object{"app.yaml", `"1"`, 7}, object{hostileKeys[bucket], `"1"`, 7})
	case bucket == "crowd", bucket == "crowd-and-one":
		size := crowd
		if bucket == "crowd-and-one" {
			size++
		}
		s.crowd(w, r, size)
	default: // a page with one object
		last(w, object{"app.yaml", `"1"`, 7})
	}
}

// hostileKeys has, for each bucket, the key of the bucket's second object. The key is invalid as a
// file name.
var hostileKeys = map[string]string{
	"key-parent":      "../evil",
	"key-deep-parent": "a/../../evil",
	"key-absolute":    "/etc/passwd",
	"key-newline":     "a\nb",
	"key-backslash":   `..\evil`,
	"key-folder":      "app.yaml/evil",
	"key-twice":       "./app.yaml",
	"key-long":        strings.Repeat("long/", 300) + "file",
}

func (s *hostileStore) read(w http.ResponseWriter, r *http.Request, bucket, key string) {
	content := "content"
	switch bucket {
	case "crowd":
		content = s.content(key)
	case "longer":
		content = strings.Repeat("more than was said ", 1000)
	case "shorter":
		content = "less"
	case "cut":
		w.Header().Set("Content-Length", "7")
		content = "cut"
	case "stalled":
		w.Header().Set("Content-Length", "7")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, content)
}

// content returns the content of an object in the crowded bucket. All versions have the same
// length, so only the ETag shows a change.
func (s *hostileStore) content(key string) string {
	version := 0
	if changed := s.changed.Load(); changed > 0 && key == crowdKey(int(changed)) {
		version = 1
	}
	return key + " version " + strconv.Itoa(version) + "\n"
}

func crowdKey(i int) string { return fmt.Sprintf("dir-%03d/object-%06d.yaml", i/pageSize, i) }

// crowd lists a page of many objects. The continuation token is the index of the next page's first
// object.
func (s *hostileStore) crowd(w http.ResponseWriter, r *http.Request, size int) {
	from, _ := strconv.Atoi(r.URL.Query().Get("continuation-token"))
	to := min(from+pageSize, size)
	objects := make([]object, 0, pageSize)
	for i := from; i < to; i++ {
		key := crowdKey(i)
		content := s.content(key)
		// The ETag contains the content, so it changes with the content, as a digest does.
		objects = append(objects, object{key, `"` + strings.TrimSpace(content) + `"`, len(content)})
	}
	if to < size {
		page(w, objects, strconv.Itoa(to))
		return
	}
	last(w, objects...)
}

type object struct {
	key, tag string
	size     int
}

// pageOf returns the objects on page n of a listing. Their keys begin with the given name.
func pageOf(n int, name string) []object {
	objects := make([]object, 0, pageSize)
	for i := range pageSize {
		objects = append(objects, object{fmt.Sprintf("%s-%d-%d.yaml", name, n, i), `"1"`, 1})
	}
	return objects
}

// page writes a page of a listing that continues on another page. last writes the last page.
func page(w io.Writer, objects []object, next string) { listing(w, objects, true, next) }
func last(w io.Writer, objects ...object)             { listing(w, objects, false, "") }

// listing writes a response of ListObjectsV2. Source: Amazon S3 API Reference.
func listing(w io.Writer, objects []object, truncated bool, next string) {
	var b strings.Builder
	fmt.Fprintf(&b, "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%t</IsTruncated>", truncated)
	if next != "" {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", next)
	}
	for _, o := range objects {
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><ETag>%s</ETag><Size>%d</Size></Contents>", url.QueryEscape(o.key), o.tag, o.size)
	}
	b.WriteString("</ListBucketResult>")
	_, _ = io.WriteString(w, b.String())
}

// counts returns the number of requests for a bucket so far.
func (s *hostileStore) counts(bucket string) (listings, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listings[bucket], s.reads[bucket]
}

// TestHostileBuckets fetches from a store whose buckets misbehave in different ways. It measures
// how much memory and time the controller needs for a crowded bucket.
func TestHostileBuckets(t *testing.T) {
	beside(t)
	ours := newAuthority(t)
	store := &hostileStore{listings: map[string]int{}, reads: map[string]int{}, at: map[string][]time.Time{}}
	host := ours.serve(t, store)
	plain := httptest.NewServer(store)
	t.Cleanup(plain.Close)
	plainHost := strings.TrimPrefix(plain.URL, "http://")
	s := takeShard(t)
	c := s.start(t, "hostile-buckets", map[string]any{"identity": map[string]any{"allowedEndpointHosts": []any{host, plainHost}}})
	rest := metric(t, c, "process_resident_memory_bytes")
	tn := s.newTenant(t, "hostile-buckets")
	tn.secret(t, "ca", map[string]string{"ca.crt": string(ours.pem)})
	at := func(bucketName string) *v1alpha1.Bucket {
		o := tn.bucket(bucketName, v1alpha1.ProviderGeneric, bucketName)
		o.Spec.ServiceAccountName = ""
		o.Spec.Endpoint = host
		o.Spec.CertSecretRef = tn.ca()
		o.Spec.Timeout = &metav1.Duration{Duration: 2 * time.Second}
		o.Spec.Interval.Duration = time.Hour
		return o
	}
	patient := func(bucketName string) *v1alpha1.Bucket {
		o := at(bucketName)
		// If all tests run twice at the same time, 100,000 objects take more than five minutes.
		o.Spec.Timeout.Duration = 15 * time.Minute
		return o
	}
	prefixed := at("foreign-prefix")
	prefixed.Spec.Prefix = "mine/"
	var cases []bucketCase
	for bucketName, key := range hostileKeys {
		quoted := strconv.Quote(key)
		cases = append(cases, bucketCase{bucketName, at(bucketName), unfetched("ArchiveRefused", quoted[:min(len(quoted), 20)], "rename the object")})
	}
	cases = append(cases,
		bucketCase{"silent", at("silent"), unfetched("BucketUnreachable", "spec.timeout")},
		bucketCase{"dripping", at("dripping"), unfetched("BucketUnreachable", "spec.timeout")},
		bucketCase{"endless page", patient("endless"), unfetched("ArchiveRefused", "a page of the listing")},
		bucketCase{"empty pages", at("empty-pages"), unfetched("BucketUnreachable", "spec.timeout")},
		bucketCase{"ever more objects", patient("growing"), unfetched("ArchiveRefused", "more than 100000 objects", "spec.prefix")},
		bucketCase{"pages in a circle", at("circle"), unfetched("BucketRefused", "spec.endpoint")},
		bucketCase{"a page that leads nowhere", at("nowhere"), unfetched("BucketRefused", "spec.endpoint")},
		bucketCase{"objects of another prefix", prefixed, unfetched("BucketRefused", "prefix")},
		bucketCase{"redirect", at("elsewhere"), unfetched("BucketRefused", "307", "redirects are not followed")},
		bucketCase{"web page", at("web-page"), unfetched("BucketRefused", "no object")},
		bucketCase{"negative size", at("negative"), unfetched("BucketRefused", "size")},
		bucketCase{"huge object", at("huge"), unfetched("ArchiveRefused", "--artifact-max-decompressed-size")},
		bucketCase{"no entity tag", at("no-tag"), unfetched("BucketRefused", "entity tag")},
		bucketCase{"longer content", at("longer"), unfetched("BucketChanged", "app.yaml")},
		bucketCase{"shorter content", at("shorter"), unfetched("BucketUnreachable", "app.yaml")},
		bucketCase{"cut content", at("cut"), unfetched("BucketUnreachable", "app.yaml")},
		bucketCase{"stalled content", at("stalled"), unfetched("BucketUnreachable", "spec.timeout")},
		bucketCase{"too many objects", patient("crowd-and-one"), unfetched("ArchiveRefused", "more than 100000 objects", "spec.prefix")},
		bucketCase{"a good one beside them", at("good"), holding(t, map[string]string{"app.yaml": "content"})},
	)
	judge(t, cases)
	t.Run("nothing is read of what is refused", func(t *testing.T) {
		for _, bucketCase := range cases {
			name := bucketCase.o.Name
			switch name {
			case "good", "longer", "shorter", "cut", "stalled":
				continue
			}
			if _, reads := store.counts(name); reads > 0 {
				t.Errorf("%d objects of bucket %s were read", reads, name)
			}
		}
	})
	// Delete the objects. Otherwise the controller would retry them during the measurement below.
	for _, bucketCase := range cases {
		must(t, "remove an object", objects.Delete(t.Context(), bucketCase.o))
	}
	eventually(t, "they are gone", func(ctx context.Context) error {
		var left v1alpha1.BucketList
		err := objects.List(ctx, &left, client.InNamespace(tn.namespace))
		return errors.Join(err, wantf(len(left.Items) == 0, "%d are left", len(left.Items)))
	})
	t.Run("a pause is kept", func(t *testing.T) {
		o := at("busy")
		create(t, o)
		await(t, o, "the failure", unfetched("BucketUnreachable", "429"))
		await(t, o, "the objects", fetched)
		store.mu.Lock()
		defer store.mu.Unlock()
		// The controller varies its pauses by 5 %, so allow a slightly shorter pause.
		if asked := store.at["busy"]; len(asked) != 2 || asked[1].Sub(asked[0]) < 3*time.Second*94/100 {
			t.Errorf("the store asked for a pause of 3 s, and was asked at %v", asked)
		}
	})
	t.Run("a crowded bucket", func(t *testing.T) {
		o := patient("crowd")
		// No TLS, because TLS would take most of the measured time.
		o.Spec.Endpoint, o.Spec.CertSecretRef, o.Spec.Insecure = plainHost, nil, true
		crowded(t, c, rest, store, o)
	})
}

// crowded fetches the largest allowed number of objects. Then one object changes, and only this
// object may be fetched. The parameter rest is the controller's resident memory before any fetch,
// in bytes. The memory may grow by at most memoryBound.
func crowded(t *testing.T, c *local.Program, rest float64, store *hostileStore, o *v1alpha1.Bucket) {
	t.Helper()
	const mebi = 1 << 20
	// memoryBound is how many bytes of memory the controller may use in addition to those that it
	// used before its first fetch. They suffice for an index, a few objects and the garbage
	// collector.
	const memoryBound = 256 * mebi
	before := metric(t, c, "process_resident_memory_bytes")
	peak := before
	watch := func(want func(o *v1alpha1.Bucket) error) func(o *v1alpha1.Bucket) error {
		return func(o *v1alpha1.Bucket) error {
			peak = max(peak, metric(t, c, "process_resident_memory_bytes"))
			return want(o)
		}
	}
	begin := time.Now()
	create(t, o)
	awaitWithin(t, 20*time.Minute, o, "the objects", watch(fetched))
	whole := time.Since(begin)
	listings, reads := store.counts("crowd")
	if reads != crowd || listings != crowd/pageSize {
		t.Errorf("%d objects were read after %d listings", reads, listings)
	}
	files, err := contents(t, o.Status.Artifact)
	must(t, "read the artifact", err)
	if len(files) != crowd || files[crowdKey(4711)] != store.content(crowdKey(4711)) {
		t.Errorf("the artifact has %d files", len(files))
	}

	store.changed.Store(4711)
	begin = time.Now()
	at := request(t, o)
	awaitWithin(t, time.Minute, o, "the change", watch(func(o *v1alpha1.Bucket) error {
		return wantf(o.Status.LastHandledReconcileAt == at, "the request is not handled")
	}))
	update := time.Since(begin)
	if _, now := store.counts("crowd"); now != reads+1 {
		t.Errorf("after one object has changed, %d were read", now-reads)
	}
	files, err = contents(t, o.Status.Artifact)
	must(t, "read the artifact", err)
	if files[crowdKey(4711)] != store.content(crowdKey(4711)) || len(files) != crowd {
		t.Errorf("the artifact has %d files, and of the changed one %q", len(files), files[crowdKey(4711)])
	}
	t.Logf("%d objects: fetched in %.1f s, one of them in %.1f s; resident memory %.0f MiB at rest, %.0f MiB before, %.0f MiB at most, %.0f MiB after",
		crowd, whole.Seconds(), update.Seconds(), rest/mebi, before/mebi, peak/mebi, metric(t, c, "process_resident_memory_bytes")/mebi)
	if peak-rest > memoryBound {
		t.Errorf("the controller's memory grew by %.0f MiB; want %d at most", (peak-rest)/mebi, memoryBound/mebi)
	}
}
