package e2e

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// alone declares that a test runs while no other test runs, and why. These tests run before all
// tests that call beside.
func alone(t *testing.T, why string) {
	t.Helper()
	t.Logf("runs alone: %s", why)
}

// beside declares that a test runs in parallel with other tests. The test has exclusive use of the
// given things until it ends.
func beside(t *testing.T, things ...*sharedThing) {
	t.Helper()
	t.Parallel()
	ownCluster := false
	for _, thing := range things {
		thing.mu.Lock()
		t.Cleanup(thing.mu.Unlock)
		ownCluster = ownCluster || thing.clusters
	}
	if !ownCluster {
		seats <- struct{}{}
		t.Cleanup(func() { <-seats })
	}
}

// maxParallel is the value of go test's flag -parallel. It is so large that only [seats] and
// [sharedThing] limit the tests.
const maxParallel = "100"

// seats limits the tests that run at once in the shared cluster. Tests in lanes do not take a seat.
// Two seats and the lanes keep two processors busy. With four seats, the suite takes a tenth more
// processor time, and ends later.
var seats = make(chan struct{}, 2)

// sharedThing is something that only one test at a time may use.
type sharedThing struct {
	mu sync.Mutex
	// clusters is true for the lanes below: their tests start their own clusters.
	clusters bool
}

// stories is held by a test that uses the namespaces and the registry host of the stories in
// testdata/stories.
var stories = &sharedThing{}

// Lanes are for tests that start their own clusters. Each lane runs one test at a time, to bound
// the memory of a run. All lanes take about the same time: five to seven minutes on two processors.
var (
	lane1 = &sharedThing{clusters: true}
	lane2 = &sharedThing{clusters: true}
	lane3 = &sharedThing{clusters: true}
	lane4 = &sharedThing{clusters: true}
)

// planes maps buckets and storage accounts to the handlers that serve their content. The local
// cloud calls a handler after it has authorized the request.
var planes = struct {
	mu   sync.Mutex
	s3   map[string]http.Handler // by bucket
	blob map[string]http.Handler // by storage account
}{s3: map[string]http.Handler{}, blob: map[string]http.Handler{}}

// serveS3 makes a data plane serve buckets of Amazon S3 until the test ends.
func serveS3(t *testing.T, plane http.Handler, buckets ...string) {
	t.Helper()
	serve(t, planes.s3, plane, buckets...)
}

// serveBlob makes a data plane serve a storage account of Azure until the test ends.
func serveBlob(t *testing.T, plane http.Handler, account string) {
	t.Helper()
	serve(t, planes.blob, plane, account)
}

func serve(t *testing.T, all map[string]http.Handler, plane http.Handler, names ...string) {
	t.Helper()
	planes.mu.Lock()
	defer planes.mu.Unlock()
	for _, name := range names {
		if all[name] != nil {
			t.Fatalf("another test serves %s", name)
		}
		all[name] = plane
		t.Cleanup(func() {
			planes.mu.Lock()
			defer planes.mu.Unlock()
			delete(all, name)
		})
	}
}

// serving returns the data plane of a bucket or storage account.
func serving(all map[string]http.Handler, name string) http.Handler {
	planes.mu.Lock()
	defer planes.mu.Unlock()
	if plane := all[name]; plane != nil {
		return plane
	}
	return http.NotFoundHandler()
}

// connectPlanes makes the local cloud use the tests' data planes.
func connectPlanes() {
	world.Cloud().AWS().ServeS3(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		serving(planes.s3, bucket).ServeHTTP(w, r)
	}))
	world.Cloud().Azure().ServeBlob(func(account azure.StorageAccount) http.Handler { return serving(planes.blob, account.Name) })
}

// lentBucket counts, for each principal, the tests that have lent the bucket e2eBucket to this
// principal.
var lentBucket = struct {
	mu      sync.Mutex
	members map[string]int
}{members: map[string]int{}}

// lend lets a principal list, read and write the tests' bucket at Google until the test ends. Each
// test uses its own prefix in the bucket.
func lend(t *testing.T, member string) {
	t.Helper()
	must(t, "lend the bucket", changeLent(member, 1))
	t.Cleanup(func() {
		if err := changeLent(member, -1); err != nil {
			t.Errorf("take the bucket back: %v", err)
		}
	})
}

func changeLent(member string, by int) error {
	lentBucket.mu.Lock()
	defer lentBucket.mu.Unlock()
	if lentBucket.members[member] += by; lentBucket.members[member] == 0 {
		delete(lentBucket.members, member)
	}
	bucket := gcp.Bucket{Name: e2eBucket}
	for member := range lentBucket.members {
		bucket.Bindings = append(bucket.Bindings, gcp.Binding{Role: "roles/storage.objectAdmin", Members: []string{member}})
	}
	return world.Cloud().GCP().PutBucket(googleProject, bucket)
}

// TestEachTestSaysWhatItShares asserts that each test begins with a call of beside or alone.
func TestEachTestSaysWhatItShares(t *testing.T) {
	beside(t)
	files, err := filepath.Glob("*_test.go")
	must(t, "list the tests", err)
	for _, name := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, "read a test", err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			if first := firstCall(f); first != "beside" && first != "alone" {
				t.Errorf("%s of %s begins with a call of %q: begin with beside or alone", f.Name.Name, name, first)
			}
		}
	}
}

// firstCall returns the name of the function that a function's first statement calls.
func firstCall(f *ast.FuncDecl) string {
	if len(f.Body.List) == 0 {
		return ""
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return ""
	}
	name, _ := call.Fun.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}
