package flux

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // for newRegistry
	fluxoci "github.com/fluxcd/pkg/oci"
	"github.com/sirupsen/logrus"

	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// newRegistry starts a real registry, CNCF Distribution, and returns its host:port.
func newRegistry(t *testing.T) string {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one test"
	config.Log.Level = "panic"
	config.Log.AccessLog.Disabled = true
	server := httptest.NewServer(handlers.NewApp(t.Context(), config))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// published is an artifact as a client reads it.
type published struct {
	// files has the content of each file. A key contains the file's name, and says whether the file
	// is executable.
	files                             map[string]string
	source, revision, created, digest string
	annotations                       map[string]string
}

func (p published) compare(t *testing.T, who string, want published) {
	t.Helper()
	if !maps.Equal(p.files, want.files) {
		t.Errorf("%s: files %v, want %v", who, p.files, want.files)
	}
	if p.source != want.source || p.revision != want.revision || p.created != want.created || p.digest != want.digest {
		t.Errorf("%s: %s %s %s %s, want %s %s %s %s", who, p.source, p.revision, p.created, p.digest, want.source, want.revision, want.created, want.digest)
	}
	for key, value := range want.annotations {
		if p.annotations[key] != value {
			t.Errorf("%s: annotation %s is %q, want %q", who, key, p.annotations[key], value)
		}
	}
}

// files reads the files below a folder. It ignores empty folders.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		found[fmt.Sprintf("%s executable=%t", name, info.Mode()&0o100 != 0)] = string(body)
		return err
	})
	must.Succeed(t, err)
	return found
}

// lanyard connects Lanyard's client to the registry in the URL, and returns the URL's reference.
func lanyard(ctx context.Context, t *testing.T, url string) (*oci.Client, oci.Reference) {
	t.Helper()
	repository, reference, err := oci.ParseArtifact(url)
	must.Succeed(t, err)
	client, err := oci.Connect(ctx, repository, oci.Options{Transport: transport.Default(), Insecure: true})
	must.Succeed(t, err)
	return client, reference
}

// pull reads an artifact with Lanyard's client.
func pull(t *testing.T, url string) published {
	t.Helper()
	client, reference := lanyard(t.Context(), t, url)
	resolved, err := client.Resolve(t.Context(), reference)
	must.Succeed(t, err)
	manifest, err := client.Fetch(t.Context(), resolved)
	must.Succeed(t, err)
	layer, err := manifest.Select(oci.LayerSelector{MediaType: oci.LayerMediaType})
	must.Succeed(t, err)
	stream, err := client.Open(t.Context(), layer)
	must.Succeed(t, err)
	defer stream.Close()
	target := t.TempDir()
	root, err := os.OpenRoot(target)
	must.Succeed(t, err)
	defer root.Close()
	if _, err := archive.Extract(t.Context(), stream, root, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	meta := manifest.Metadata
	return published{
		files: files(t, target), source: meta[oci.AnnotationSource], revision: meta[oci.AnnotationRevision],
		created: meta[oci.AnnotationCreated], digest: resolved.Digest, annotations: meta,
	}
}

// fluxPull reads an artifact with Flux's client.
func fluxPull(t *testing.T, url string) published {
	t.Helper()
	target := t.TempDir()
	meta, err := fluxoci.NewClient(fluxoci.DefaultOptions()).Pull(t.Context(), strings.TrimPrefix(url, "oci://"), target)
	must.Succeed(t, err)
	_, digest, _ := strings.Cut(meta.Digest, "@")
	return published{
		files: files(t, target), source: meta.Source, revision: meta.Revision, created: meta.Created, digest: digest, annotations: meta.Annotations,
	}
}

// TestArtifactsOfEachOther asserts that Flux's client reads artifacts that Lanyard's client pushed,
// and vice versa. Files and metadata must be equal.
func TestArtifactsOfEachOther(t *testing.T) {
	host := newRegistry(t)
	source := t.TempDir()
	for name, mode := range map[string]os.FileMode{"app.yaml": 0o644, "sub/deep/run.sh": 0o755, "sub/ä.yaml": 0o600, ".hidden": 0o644, "empty": 0o644, strings.Repeat("n", 120): 0o644} {
		path := filepath.Join(source, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(strings.TrimPrefix(name, "empty")), mode))
	}
	tree := files(t, source)
	// Both clients leave the link out.
	must.Succeed(t, os.Symlink("app.yaml", filepath.Join(source, "link")))
	created := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	want := published{
		files: tree, source: "https://example.com/app", revision: "main@sha1:0123", created: created.Format(time.RFC3339), annotations: map[string]string{"team": "a"},
	}
	ours := "oci://" + host + "/ours:1.0.0"
	repository, reference, err := oci.ParseArtifact(ours)
	must.Succeed(t, err)
	pushed, err := oci.Push(t.Context(), repository, reference.Tag, oci.Artifact{
		Path: source, Source: want.source, Revision: want.revision, Created: created, Annotations: want.annotations,
	}, oci.Options{Transport: transport.Default(), Insecure: true})
	must.Succeed(t, err)
	want.digest = pushed.Digest
	fluxPull(t, ours).compare(t, "Flux reads ours", want)
	pull(t, ours).compare(t, "we read ours", want)

	theirs := "oci://" + host + "/theirs:1.0.0"
	digest, err := fluxoci.NewClient(fluxoci.DefaultOptions()).Push(t.Context(), strings.TrimPrefix(theirs, "oci://"), source,
		fluxoci.WithPushMetadata(fluxoci.Metadata{
			Source: want.source, Revision: want.revision, Created: want.created, Annotations: want.annotations,
		}))
	must.Succeed(t, err)
	_, want.digest, _ = strings.Cut(digest, "@")
	fluxPull(t, theirs).compare(t, "Flux reads theirs", want)
	pull(t, theirs).compare(t, "we read theirs", want)
}

// TestTagsOfEachOther asserts that each client lists the tags that the other client added.
func TestTagsOfEachOther(t *testing.T) {
	url := "oci://" + newRegistry(t) + "/app"
	source := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(source, "a.yaml"), nil, 0o600))
	flux := fluxoci.NewClient(fluxoci.DefaultOptions())
	if _, err := flux.Push(t.Context(), strings.TrimPrefix(url, "oci://")+":1.9.0", source); err != nil {
		t.Fatal(err)
	}
	client, reference := lanyard(t.Context(), t, url+":1.9.0")
	resolved, err := client.Resolve(t.Context(), reference)
	must.Succeed(t, err)
	must.Succeed(t, client.Tag(t.Context(), resolved, "1.10.0"))
	if _, err := flux.Tag(t.Context(), strings.TrimPrefix(url, "oci://")+":1.10.0", "latest"); err != nil {
		t.Fatal(err)
	}
	tags, err := client.List(t.Context(), oci.TagFilter{})
	if err != nil || fmt.Sprint(tags) != "[1.10.0 1.9.0 latest]" {
		t.Errorf("ours: %v, %v", tags, err)
	}
	listed, err := flux.List(t.Context(), strings.TrimPrefix(url, "oci://"), fluxoci.ListOptions{})
	if err != nil || len(listed) != 3 {
		t.Fatalf("theirs: %v, %v", listed, err)
	}
	for _, one := range listed {
		if !strings.HasSuffix(one.Digest, resolved.Digest) {
			t.Errorf("%s is %s, want %s", one.URL, one.Digest, resolved.Digest)
		}
	}
}
