package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/http/fetch"
	fluxtar "github.com/fluxcd/pkg/tar"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/server"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// world has the parts of Lanyard that Flux uses: the artifact store, its server, and the publisher.
type world struct {
	t      *testing.T
	kube   client.Client
	store  *store.Store
	server *httptest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	scheme := runtime.NewScheme()
	must.Succeed(t, sourcev1.AddToScheme(scheme))
	w.kube = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&sourcev1.ExternalArtifact{}).Build()
	var err error
	if w.store, err = store.Open(t.TempDir(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	w.server = httptest.NewServer(server.New(w.store))
	t.Cleanup(w.server.Close)
	return w
}

func owner() store.Object {
	return store.Object{Kind: "ocirepository", Namespace: "tenant-a", Name: "app", UID: "uid-1"}
}

// publish stores the output of write as an artifact, and publishes it.
func (w *world) publish(revision string, write func(io.Writer) error) {
	w.t.Helper()
	kept, err := w.store.Put(w.t.Context(), owner(), write)
	must.Succeed(w.t, err)
	path, err := w.store.URLPath(owner(), kept.Digest)
	must.Succeed(w.t, err)
	publisher := externalartifact.Publisher{Client: w.kube}
	err = publisher.Publish(w.t.Context(),
		externalartifact.Source{Kind: v1alpha1.OCIRepositoryKind, Namespace: "tenant-a", Name: "app", UID: "uid-1"},
		externalartifact.Offer{Artifact: &v1alpha1.Artifact{
			URL: w.server.URL + path, Path: kept.Path, Revision: revision, Digest: kept.Digest, Size: kept.Size,
			LastUpdateTime: metav1.NewTime(kept.Time.Truncate(time.Second)), Metadata: map[string]string{"org.opencontainers.image.revision": "main"},
		}})
	must.Succeed(w.t, err)
}

// read returns the published ExternalArtifact.
func (w *world) read() *sourcev1.ExternalArtifact {
	w.t.Helper()
	ea := &sourcev1.ExternalArtifact{}
	must.Succeed(w.t, w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "app"}, ea))
	return ea
}

// consume fetches an artifact as kustomize-controller does, and returns its files.
func (w *world) consume(url, digest string) (map[string]string, error) {
	w.t.Helper()
	dir := w.t.TempDir()
	fetcher := fetch.New(
		fetch.WithRetries(0),
		fetch.WithMaxDownloadSize(fluxtar.UnlimitedUntarSize),
		fetch.WithUntar(fluxtar.WithMaxUntarSize(fluxtar.UnlimitedUntarSize)),
	)
	if err := fetcher.FetchWithContext(w.t.Context(), url, digest, dir); err != nil {
		return nil, err
	}
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	must.Succeed(w.t, err)
	return files, nil
}

const revision = "1.2.0@sha256:3b4c28c09c10d0af2aec5b5d9e2c1d7cd6c1f9d6d51d4d9cb9c8d4a7a0d8f1f0"

// TestFluxReadsWhatIsPublished asserts that the published object fits Flux's Go type, and has
// everything that Flux needs from a source.
func TestFluxReadsWhatIsPublished(t *testing.T) {
	w := newWorld(t)
	w.publish(revision, normalized(t, map[string]string{"kustomization.yaml": "resources: []"}))
	ea := w.read()
	var source sourcev1.Source = ea
	artifact := source.GetArtifact()
	switch ref := ea.Spec.SourceRef; {
	case artifact == nil || !artifact.HasRevision(revision) || artifact.HasRevision("1.2.0@sha256:00"):
		t.Errorf("artifact %+v", artifact)
	case artifact.Size == nil || *artifact.Size <= 0 || artifact.LastUpdateTime.IsZero() || artifact.Metadata["org.opencontainers.image.revision"] != "main":
		t.Errorf("artifact %+v", artifact)
	case ref == nil || ref.APIVersion != "toolkit.lanyard.dev/v1alpha1" || ref.Kind != "OCIRepository" || ref.Name != "app" || ref.Namespace != "":
		t.Errorf("sourceRef %+v", ref)
	case len(ea.GetConditions()) != 1 || ea.GetConditions()[0].Type != "Ready" || ea.GetConditions()[0].Status != metav1.ConditionTrue || ea.GetConditions()[0].Reason != "Succeeded":
		t.Errorf("conditions %+v", ea.GetConditions())
	}
}

// TestFluxFetchesWhatIsPublished asserts that Flux's fetcher accepts the URL, the digest and the
// archive, and finds the files at the archive's root.
func TestFluxFetchesWhatIsPublished(t *testing.T) {
	long := strings.Repeat("long-", 40) + "name.yaml"
	want := map[string]string{
		"kustomization.yaml":           "resources: [deploy/app.yaml]",
		"deploy/app.yaml":              "kind: Deployment",
		"deploy/with space.yaml":       "a",
		"deploy/ünïcode.yaml":          "b",
		"deploy/dots..in..name":        "c",
		".hidden/file":                 "d",
		"empty":                        "",
		"large":                        strings.Repeat("0123456789abcdef", 1<<16),
		"a/b/c/d/e/f/g/h/i/j/k/l.yaml": "deep",
		"deploy/" + long:               "e",
	}
	for what, write := range map[string]func(io.Writer) error{
		"as it is normalised from a layer": normalized(t, want),
		"as it is made of a bucket":        made(t, want),
		"as it is made of a bucket that has changed": changed(t, want, map[string]string{
			"kustomization.yaml": "resources: []", "deploy/app.yaml": "kind: Deployment", "large": want["large"], "removed.yaml": "f",
		}),
		"as it is copied from a layer": func(out io.Writer) error {
			_, err := archive.Copy(t.Context(), bytes.NewReader(layer(t, want)), out, archive.Limits{})
			return err
		},
	} {
		w := newWorld(t)
		w.publish(revision, write)
		artifact := w.read().GetArtifact()
		got, err := w.consume(artifact.URL, artifact.Digest)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %d files of %d, %v", what, len(got), len(want), err)
		}
	}
}

// TestFluxRefusesWhatIsNotPublished asserts that Flux's fetcher verifies the digest. For a removed
// artifact, the fetcher must return fetch.ErrFileNotFound. Flux tries again after this error.
func TestFluxRefusesWhatIsNotPublished(t *testing.T) {
	w := newWorld(t)
	w.publish(revision, normalized(t, map[string]string{"a": "1"}))
	before := w.read().GetArtifact().DeepCopy()
	w.publish("1.3.0"+revision[5:], normalized(t, map[string]string{"a": "2"}))
	after := w.read().GetArtifact()
	if after.URL == before.URL || after.Digest == before.Digest || after.HasRevision(revision) {
		t.Fatalf("%+v, then %+v", before, after)
	}
	if _, err := w.consume(after.URL, before.Digest); err == nil {
		t.Error("fetched with another digest")
	}
	must.Succeed(t, w.store.Remove(owner()))
	if _, err := w.consume(after.URL, after.Digest); !errors.Is(err, fetch.ErrFileNotFound) {
		t.Errorf("an artifact that is gone: %v", err)
	}
}

// layer packs files as a publisher of image layers does: with tar and gzip.
func layer(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	out := tar.NewWriter(zip)
	for name, content := range files {
		err := out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o640, Uid: 1000, Size: int64(len(content)), ModTime: time.Now()})
		must.Succeed(t, err)
		if _, err := io.WriteString(out, content); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, errors.Join(out.Close(), zip.Close()))
	return buf.Bytes()
}

// normalized returns a function that writes an OCIRepository's artifact: a layer with these files,
// as archive.Normalize rewrites it.
func normalized(t *testing.T, files map[string]string) func(io.Writer) error {
	t.Helper()
	content := layer(t, files)
	return func(out io.Writer) error {
		_, err := archive.Normalize(t.Context(), bytes.NewReader(content), out, archive.Options{})
		return err
	}
}

// objects is a bucket in memory: contents by key. An object's version is the digest of its content.
type objects map[string]string

func (o objects) List(_ context.Context, prefix string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		for key, content := range o {
			listed := objectstore.Object{Key: key, Version: fmt.Sprintf("%x", sha256.Sum256([]byte(content))), Size: int64(len(content))}
			if strings.HasPrefix(key, prefix) && !yield(listed, nil) {
				return
			}
		}
	}
}

func (o objects) Open(_ context.Context, object objectstore.Object) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(o[object.Key])), nil
}

func (o objects) index(t *testing.T) *objectstore.Index {
	t.Helper()
	index, err := objectstore.List(t.Context(), o, "flux", objectstore.Options{})
	must.Succeed(t, err)
	return index
}

// made returns a function that writes the first artifact of a bucket, as the controller does. There
// is no former artifact with content to copy, so the function fetches every object.
func made(t *testing.T, files objects) func(io.Writer) error {
	t.Helper()
	index := files.index(t)
	return func(out io.Writer) error {
		_, err := objectstore.Write(t.Context(), files, index, nil, out, 0)
		return err
	}
}

// changed returns a function that writes the next artifact of a bucket, as the controller does. The
// function copies unchanged objects from the former artifact.
func changed(t *testing.T, files, former objects) func(io.Writer) error {
	t.Helper()
	var text, archived bytes.Buffer
	must.Succeed(t, errors.Join(former.index(t).Encode(&text), made(t, former)(&archived)))
	index := files.index(t)
	return func(out io.Writer) error {
		done, err := objectstore.Write(t.Context(), files, index, &objectstore.Previous{Index: &text, Archive: &archived}, out, 0)
		if err == nil && (done.Kept == 0 || done.Fetched == 0) {
			t.Errorf("%+v: nothing is merged", done)
		}
		return err
	}
}
