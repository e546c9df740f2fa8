package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/report"
)

func TestClaim(t *testing.T) {
	t.Run("empties what a former world left", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		f, err := claim(t.Context(), dir)
		must.Succeed(t, err)
		must.Succeed(t, os.MkdirAll(f.join("cluster", "etcd"), 0o700))
		must.Succeed(t, f.release())
		if f, err = claim(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		defer f.release()
		entries, err := os.ReadDir(dir)
		must.Succeed(t, err)
		if len(entries) != 1 || entries[0].Name() != lockName {
			t.Errorf("left: %v", entries)
		}
	})
	t.Run("refuses a folder with other files, and keeps them", func(t *testing.T) {
		dir := t.TempDir()
		precious := filepath.Join(dir, "precious")
		must.Succeed(t, os.WriteFile(precious, []byte("x"), 0o600))
		if _, err := claim(t.Context(), dir); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "--dir") {
			t.Errorf("got %v", err)
		}
		if read(t, precious) != "x" {
			t.Error("changed it")
		}
	})
	t.Run("refuses what somebody put beside a former world's files, and keeps it", func(t *testing.T) {
		dir := t.TempDir()
		c, err := StartCloud(t.Context(), CloudOptions{Dir: dir})
		must.Succeed(t, err)
		must.Succeed(t, c.Stop())
		precious := filepath.Join(dir, "cloud.yaml")
		must.Succeed(t, os.WriteFile(precious, []byte("x"), 0o600))
		if f, err := claim(t.Context(), dir); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "cloud.yaml") {
			t.Errorf("got %v", err)
			if err == nil {
				f.release()
			}
		}
		if _, err := os.Stat(precious); err != nil {
			t.Error("removed it")
		}
		must.Succeed(t, os.Remove(precious))
		f, err := claim(t.Context(), dir) // the refused call must have unlocked the folder
		must.Succeed(t, err)
		f.release()
	})
	t.Run("refuses a folder in use, and says by whom", func(t *testing.T) {
		dir := t.TempDir()
		f, err := claim(t.Context(), dir)
		must.Succeed(t, err)
		defer f.release()
		_, err = claim(t.Context(), dir)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process ") {
			t.Errorf("got %v", err)
		}
	})
	for _, cluster := range []string{clusterName, filepath.Join(clustersName, "other", clusterName)} {
		testAwaitsCluster(t, cluster)
	}
}

// testAwaitsCluster asserts that claim waits while the folder's control plane is still stopping.
func testAwaitsCluster(t *testing.T, cluster string) {
	t.Helper()
	t.Run("waits for a control plane that still stops in "+cluster, func(t *testing.T) {
		dir := t.TempDir()
		f, err := claim(t.Context(), dir)
		must.Succeed(t, err)
		must.Succeed(t, errors.Join(os.MkdirAll(f.join(cluster), 0o700), f.release()))
		former, err := os.Create(filepath.Join(dir, cluster, "lock"))
		must.Succeed(t, err)
		must.Succeed(t, flock(former))
		cause := errors.New("the test ends the wait")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*pollInterval, cause)
		defer cancel()
		if _, err := claim(ctx, dir); !errors.Is(err, ErrInUse) || !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		former.Close()
		f, err = claim(t.Context(), dir)
		must.Succeed(t, err)
		f.release()
	})
}

func TestKeys(t *testing.T) {
	cfg, err := ParseCloud("cloud.yaml", examples.Cloud())
	must.Succeed(t, err)
	keysOf := func(cfg cloudtest.Config) map[string][]aws.AccessKey {
		found := map[string][]aws.AccessKey{}
		for _, account := range cfg.AWS.Accounts {
			for _, user := range account.Users {
				if len(user.AccessKeys) > 0 {
					found[user.Name] = user.AccessKeys
				}
			}
		}
		return found
	}
	if found := keysOf(cfg); len(found) > 0 {
		t.Errorf("keys of %d users stand in the file", len(found))
	}
	for _, name := range []string{Publisher, ProgramUser} {
		with, key := withKey(cfg, name)
		if len(keysOf(cfg)) != 0 {
			t.Error("the caller's configuration was changed")
		}
		if got := keysOf(with); len(got) != 1 || len(got[name]) != 1 || got[name][0] != key {
			t.Errorf("%d users have keys, and %s has %d", len(got), name, len(got[name]))
		}
		if _, other := withKey(cfg, name); other == key {
			t.Error("two worlds have the same key")
		}
		if _, none := withKey(cloudtest.Config{}, name); none != (aws.AccessKey{}) {
			t.Errorf("without the user: %v", none.ID)
		}
	}
}

// TestParseCloudRefuses asserts that each error names the file and the line.
func TestParseCloudRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown field":   {"# mine\naws:\n  acounts: []\n", `my.yaml:3: unknown field "aws.acounts"`},
		"field twice":     {"aws: {}\naws: {}\n", "my.yaml:2: "},
		"no YAML":         {"aws:\n\t- x", "my.yaml:2: "},
		"wrong type":      {"aws:\n  accounts: 7\n", "my.yaml:2: aws.accounts: must not be a JSON number"},
		"two documents":   {"aws: {}\n---\ngcp: {}\n", "my.yaml: "},
		"invalid account": {"aws:\n  accounts:\n  - id: \"123456789123\"\n  - id: \"12\"\n", "my.yaml:4: aws.accounts[1].id: "},
		"invalid policy": {
			"aws:\n  accounts:\n  - id: \"123456789123\"\n    roles:\n    - name: r\n      trustPolicy: {Version: x}\n",
			"my.yaml:6: aws.accounts[0].roles[0].trustPolicy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseCloud("my.yaml", []byte(tc.text)); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// startDemonstration starts the demonstration's cloud.
func startDemonstration(t *testing.T) *Cloud {
	t.Helper()
	cfg, err := ParseCloud("cloud.yaml", examples.Cloud())
	must.Succeed(t, err)
	c, err := StartCloud(t.Context(), CloudOptions{Dir: t.TempDir(), Config: cfg})
	must.Succeed(t, err)
	t.Cleanup(func() { c.Stop() })
	return c
}

// TestPush asserts that PushAll publishes all artifacts through ECR as the user Publisher.
func TestPush(t *testing.T) {
	c := startDemonstration(t)
	files, err := examples.Artifacts()
	must.Succeed(t, err)
	pushed, err := c.PushAll(t.Context(), files, "1.0.0")
	must.Succeed(t, err)
	if len(pushed) != 3 || pushed[0].Repository != "tenant-a/app" || pushed[1].Repository != "tenant-b/app" || pushed[2].Repository != "tenant-c/app" {
		t.Errorf("pushed %v", pushed)
	}
	put := c.Journal().Calls(journal.Filter{Operation: "ecr:PutImage", Verdict: journal.Granted})
	if len(put) != 3 || put[0].Principal != "arn:aws:iam::"+Account+":user/"+Publisher {
		t.Errorf("the journal has %v", put)
	}

	user, password, err := c.registryLogin(t.Context())
	must.Succeed(t, err)
	repository, err := oci.ParseURL(repositoryURL("tenant-a/app"))
	must.Succeed(t, err)
	client, err := oci.Connect(t.Context(), repository, oci.Options{Auth: oci.Basic(user, password), Transport: c.Transport()})
	must.Succeed(t, err)
	resolved, err := client.Resolve(t.Context(), oci.Reference{Tag: "1.0.0"})
	must.Succeed(t, err)
	if resolved.Digest != c.pushed[repositoryURL("tenant-a/app")+":1.0.0"] {
		t.Error("the tag is not what was pushed")
	}
	c.key = aws.AccessKey{}
	if _, err := c.Push(t.Context(), pushed[0]); !errors.Is(err, ErrNoPublisher) {
		t.Errorf("without a publisher: %v", err)
	}
}

// TestPublish asserts that two clusters of one cloud cannot publish an issuer under the same host.
func TestPublish(t *testing.T) {
	c := startDemonstration(t)
	const host = "oidc.eks.eu-west-1.amazonaws.com"
	must.Succeed(t, c.publish(host, http.NotFoundHandler()))
	if err := c.publish(host, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), host) {
		t.Errorf("a second issuer at the host: %v", err)
	}
	must.Succeed(t, c.withdraw(host))
	if err := c.publish(host, http.NotFoundHandler()); err != nil {
		t.Errorf("the host is not free again: %v", err)
	}
}

// TestCloudState asserts that other processes find a running cloud by its state file. If the cloud
// has ended, they get ErrNoCloud.
func TestCloudState(t *testing.T) {
	cfg, err := ParseCloud("cloud.yaml", examples.Cloud())
	must.Succeed(t, err)
	dir := t.TempDir()
	if _, err := ReadCloud(t.Context(), dir); !errors.Is(err, ErrNoCloud) {
		t.Errorf("before the start: %v", err)
	}
	c, err := StartCloud(t.Context(), CloudOptions{Dir: dir, Config: cfg})
	must.Succeed(t, err)
	state, err := ReadCloud(t.Context(), dir)
	must.Succeed(t, err)
	if state.ProxyURL != c.ProxyURL() || state.CAFile != c.CAFile() || state.PID != os.Getpid() {
		t.Errorf("noted %+v", state)
	}
	if read(t, state.CAFile) != string(c.CAPEM()) {
		t.Error("the CA's file has another CA")
	}
	noted := read(t, filepath.Join(dir, stateName))
	must.Succeed(t, c.Stop())
	if _, err := ReadCloud(t.Context(), dir); !errors.Is(err, ErrNoCloud) {
		t.Errorf("after the stop: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, stateName), []byte(noted), 0o600); err != nil { // a crashed cloud leaves its state file
		t.Fatal(err)
	}
	if _, err := ReadCloud(t.Context(), dir); !errors.Is(err, ErrNoCloud) {
		t.Errorf("after a crash: %v", err)
	}
}

// TestReadCloudOfAnother asserts that ReadCloud returns ErrNoCloud if another server answers at the
// address in the state file.
func TestReadCloudOfAnother(t *testing.T) {
	dir := t.TempDir()
	c, err := StartCloud(t.Context(), CloudOptions{Dir: dir})
	must.Succeed(t, err)
	defer c.Stop()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	defer other.Close()
	state, err := ReadCloud(t.Context(), dir)
	must.Succeed(t, err)
	state.ProxyURL = other.URL
	must.Succeed(t, state.write(filepath.Join(dir, stateName)))
	if _, err := ReadCloud(t.Context(), dir); !errors.Is(err, ErrNoCloud) {
		t.Errorf("got %v", err)
	}
}

func TestStartCloudRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, listen := range []string{"0.0.0.0:0", "nonsense", "127.0.0.1:99999"} {
		if c, err := StartCloud(t.Context(), CloudOptions{Dir: dir, Listen: listen}); err == nil {
			t.Errorf("listens on %s", listen)
			c.Stop()
		}
	}
	// The starts that were refused have unlocked the folder, so this start succeeds.
	c, err := StartCloud(t.Context(), CloudOptions{Dir: dir})
	must.Succeed(t, err)
	c.Stop()
}

func TestExpect(t *testing.T) {
	object := func(kind, value string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(v1alpha1.GroupVersion().String())
		o.SetKind(kind)
		if value != "" {
			o.SetAnnotations(map[string]string{examples.ExpectAnnotation: value})
		}
		return o
	}
	for _, tc := range []struct {
		kind, value, want string
		ok                bool
	}{
		{v1alpha1.OCIRepositoryKind, "", "pulled", true},
		{v1alpha1.OCIRepositoryKind, "pulled", "pulled", true},
		{v1alpha1.OCIRepositoryKind, "refused:X", "refused:X", true},
		{v1alpha1.OCIRepositoryKind, "refuse:X", "refuse:X", false},
		{v1alpha1.BucketKind, "", "pulled", true},
		{v1alpha1.ImageRepositoryKind, "refuse:X", "refuse:X", false},
		{"ConfigMap", "", "", true},
	} {
		o := object(tc.kind, tc.value)
		err := expect(o)
		if got := o.GetAnnotations()[examples.ExpectAnnotation]; (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%s with %q has %q: %v", tc.kind, tc.value, got, err)
		}
	}
}

func TestMerge(t *testing.T) {
	base := map[string]any{"env": []any{1}, "identity": map[string]any{"awsRegion": "a", "denyCIDRs": 1}}
	over := map[string]any{"env": []any{2}, "identity": map[string]any{"awsRegion": "b"}, "shards": 3}
	want := map[string]any{"env": []any{2}, "identity": map[string]any{"awsRegion": "b", "denyCIDRs": 1}, "shards": 3}
	if got := merge(base, over); !reflect.DeepEqual(got, want) {
		t.Errorf("is %v", got)
	}
	if base["identity"].(map[string]any)["awsRegion"] != "a" {
		t.Error("the base was changed")
	}
}

func TestCheckRevision(t *testing.T) {
	c := &Cluster{cloud: &Cloud{pushed: map[string]string{"oci://host/app:1": "sha256:aa"}}}
	o := &v1alpha1.OCIRepository{}
	o.Spec.URL, o.Spec.Ref = "oci://host/app", &v1alpha1.OCIRepositoryRef{Tag: "1"}
	for revision, ok := range map[string]bool{"1@sha256:aa": true, "1@sha256:bb": false, "": false} {
		o.Status.Artifact = &v1alpha1.Artifact{Revision: revision}
		if err := c.checkRevision(report.Object{Resource: o, Kind: kinds.OCIRepository()}); (err == nil) != ok {
			t.Errorf("%q: %v", revision, err)
		}
	}
	o.Spec.Ref.Tag = "2" // a tag that was not pushed
	if err := c.checkRevision(report.Object{Resource: o, Kind: kinds.OCIRepository()}); err != nil {
		t.Error(err)
	}
}

// TestCheckArtifact asserts which content the address of an artifact must deliver. Errors must not
// repeat the address: whoever knows the address can read the artifact.
func TestCheckArtifact(t *testing.T) {
	content := []byte("content")
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/secret.tar.gz" {
			http.NotFound(w, r)
			return
		}
		w.Write(content)
	}))
	defer server.Close()
	for name, tc := range map[string]struct {
		artifact v1alpha1.Artifact
		want     string
	}{
		"good":          {v1alpha1.Artifact{URL: server.URL + "/secret.tar.gz", Digest: digest, Size: 7}, ""},
		"other digest":  {v1alpha1.Artifact{URL: server.URL + "/secret.tar.gz", Digest: "sha256:00", Size: 7}, "the status says sha256:00"},
		"other size":    {v1alpha1.Artifact{URL: server.URL + "/secret.tar.gz", Digest: digest, Size: 8}, "of 8 bytes"},
		"not there":     {v1alpha1.Artifact{URL: server.URL + "/secret", Digest: digest, Size: 7}, "HTTP 404"},
		"no URL":        {v1alpha1.Artifact{URL: "http://secret\n", Digest: digest, Size: 7}, "not a URL"},
		"nobody serves": {v1alpha1.Artifact{URL: "http://127.0.0.1:1/secret", Digest: digest, Size: 7}, "cannot be fetched"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkArtifact(t.Context(), directClient(), &tc.artifact)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want == "":
			case err == nil || !strings.Contains(err.Error(), tc.want):
				t.Errorf("got %v, want something with %q", err, tc.want)
			case strings.Contains(err.Error(), "secret"):
				t.Errorf("repeats the key: %v", err)
			}
		})
	}
}
