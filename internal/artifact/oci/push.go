package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// The media types of the Flux artifacts that Push writes. See "OCI artifacts" in Flux's
// documentation.
const (
	ConfigMediaType = "application/vnd.cncf.flux.config.v1+json"
	LayerMediaType  = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// The annotations of a Flux artifact (OCI image specification, "Pre-Defined Annotation Keys").
const (
	AnnotationCreated  = "org.opencontainers.image.created"
	AnnotationSource   = "org.opencontainers.image.source"
	AnnotationRevision = "org.opencontainers.image.revision"
)

// Artifact is the content that Push publishes, and its metadata.
type Artifact struct {
	// Path is a folder, a tar.gz archive, or any other file. Any other file is published as a
	// folder that holds only this file. Package archive gives folders and archives a uniform form.
	Path string
	// Ignore says which files of a folder are not published.
	Ignore archive.Patterns
	// Limits bound the content.
	Limits archive.Limits
	// Source is the origin of the content, by convention a URL; empty for none.
	Source string
	// Revision is the content's version at its source, <branch>@sha1:<commit> by convention; empty
	// for none.
	Revision string
	// Created is the time of publication. AnnotationCreated has it in UTC. If Created is zero, that
	// annotation is left out, so that equal content has equal digests.
	Created time.Time
	// Annotations are added to the manifest. Annotations from the fields above take precedence.
	Annotations map[string]string
	// Progress is called with the number of bytes of the layer that were sent, and the layer's
	// size. It may be nil.
	Progress func(done, total int64)
}

// Pushed is the result of Push.
type Pushed struct {
	Resolved
	archive.Summary

	// Layer is the layer with the content.
	Layer Layer
}

// Push publishes an artifact under a tag, in the form that Flux's clients expect. It packs the
// content into a temporary file while it connects to the registry. It writes the tag last, so an
// earlier failure leaves the tag as it was. Errors of the registry are *origin.Error, errors of the
// content are *archive.Error. Options.Write is implied.
func Push(ctx context.Context, repo Repository, tag string, artifact Artifact, opts Options) (Pushed, error) {
	if err := checkTag(tag); err != nil {
		return Pushed{}, err
	}
	opts.Write = true
	var client *Client
	content := &packed{}
	defer content.remove()
	prepare, either := errgroup.WithContext(ctx)
	prepare.Go(func() (err error) { client, err = Connect(either, repo, opts); return err })
	prepare.Go(func() error { return content.pack(either, artifact) })
	if err := prepare.Wait(); err != nil {
		return Pushed{}, err
	}
	config, err := json.Marshal(content.config())
	if err != nil {
		return Pushed{}, err
	}
	layer := blob{digest: content.layer.Digest, size: content.layer.Size, content: content.file}
	if artifact.Progress != nil {
		layer.progress = func(done int64) { artifact.Progress(done, layer.size) }
	}
	described := blob{digest: digestOf(config), size: int64(len(config)), content: bytes.NewReader(config)}
	if err := client.uploadAll(ctx, layer, described); err != nil {
		return Pushed{}, err
	}
	parts, err := manifestOf(content.layer, config, artifact.annotations())
	if err != nil {
		return Pushed{}, err
	}
	manifest, err := json.Marshal(parts)
	if err != nil {
		return Pushed{}, err
	}
	pushed := Pushed{Resolved: Resolved{Tag: tag, Digest: digestOf(manifest)}, Summary: content.sum, Layer: content.layer}
	return pushed, client.putManifest(ctx, tag, rawManifest{body: manifest, digest: pushed.Digest, mediaType: types.OCIManifestSchema1})
}

// checkTag refuses a text that is not a tag.
func checkTag(tag string) error {
	if tag == "" {
		return invalidReference("spec.ref.tag", "name a tag", "there is none")
	}
	return Reference{Tag: tag}.Validate()
}

// Tag adds a tag to an artifact. It reads only the artifact's manifest. The error is an
// *origin.Error.
func (c *Client) Tag(ctx context.Context, r Resolved, tag string) error {
	if err := checkTag(tag); err != nil {
		return err
	}
	raw, err := c.manifest(ctx, r.Digest)
	if err != nil {
		return err
	}
	return c.putManifest(ctx, tag, raw)
}

// putManifest stores a manifest in the registry under a tag.
func (c *Client) putManifest(ctx context.Context, tag string, m rawManifest) error {
	resp, err := c.repeat(ctx, request{
		method: http.MethodPut, url: c.url("manifests", tag), target: targetManifest,
		header: http.Header{"Content-Type": {string(m.mediaType)}},
		body:   func() io.Reader { return bytes.NewReader(m.body) }, size: int64(len(m.body)),
		want: []int{http.StatusCreated, http.StatusOK, http.StatusAccepted},
	})
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // the body is not read
	return c.checkStored(resp, m.digest)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// packed is an artifact's content in a temporary file.
type packed struct {
	file   *os.File
	layer  Layer
	diffID string // hex digest of the content before compression
	sum    archive.Summary
}

func (p *packed) remove() {
	if p.file != nil {
		_ = p.file.Close() // the file is not needed any more
		_ = os.Remove(p.file.Name())
	}
}

// pack writes the content to a temporary file; remove deletes the file.
func (p *packed) pack(ctx context.Context, artifact Artifact) (err error) {
	if p.file, err = os.CreateTemp("", "lanyard-push-*.tar.gz"); err != nil {
		return err
	}
	digest, plain := sha256.New(), sha256.New()
	if p.sum, err = artifact.write(ctx, io.MultiWriter(p.file, digest), plain); err != nil {
		return err
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	p.layer = Layer{MediaType: LayerMediaType, Digest: "sha256:" + hex.EncodeToString(digest.Sum(nil)), Size: info.Size()}
	p.diffID = hex.EncodeToString(plain.Sum(nil))
	return nil
}

// Pack writes the layer that Push publishes.
func (a Artifact) Pack(ctx context.Context, out io.Writer) (archive.Summary, error) {
	return a.write(ctx, out, io.Discard)
}

// write writes the packed content to out, and the uncompressed content to plain.
func (a Artifact) write(ctx context.Context, out, plain io.Writer) (archive.Summary, error) {
	opts := archive.Options{Limits: a.Limits, Plain: plain}
	info, err := os.Stat(a.Path)
	if err != nil {
		return archive.Summary{}, err
	}
	if info.IsDir() {
		opts.Ignore = a.Ignore
		root, err := os.OpenRoot(a.Path)
		if err != nil {
			return archive.Summary{}, err
		}
		defer root.Close() //nolint:errcheck // opened for reading
		return archive.Create(ctx, root.FS(), out, opts)
	}
	if !info.Mode().IsRegular() {
		return archive.Summary{}, fmt.Errorf("%s is neither a folder nor a file", a.Path)
	}
	file, err := os.Open(a.Path)
	if err != nil {
		return archive.Summary{}, err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	if isGzip(file) {
		return archive.Normalize(ctx, file, out, opts)
	}
	return archive.CreateFile(ctx, os.DirFS(filepath.Dir(a.Path)), filepath.Base(a.Path), out, opts)
}

// isGzip reports whether a file begins with gzip's magic bytes (RFC 1952 §2.3.1).
func isGzip(file io.ReaderAt) bool {
	var magic [2]byte
	_, err := file.ReadAt(magic[:], 0)
	return err == nil && magic == [2]byte{0x1f, 0x8b}
}

func (a Artifact) annotations() map[string]string {
	annotations := maps.Clone(a.Annotations)
	if annotations == nil {
		annotations = make(map[string]string)
	}
	if !a.Created.IsZero() {
		annotations[AnnotationCreated] = a.Created.UTC().Format(time.RFC3339)
	}
	if a.Source != "" {
		annotations[AnnotationSource] = a.Source
	}
	if a.Revision != "" {
		annotations[AnnotationRevision] = a.Revision
	}
	return annotations
}

// config returns the configuration that every image must have (OCI image specification, "Image
// Configuration").
func (p *packed) config() v1.ConfigFile {
	return v1.ConfigFile{RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: p.diffID}}}}
}

func manifestOf(layer Layer, config []byte, annotations map[string]string) (v1.Manifest, error) {
	digest, err := v1.NewHash(layer.Digest)
	if err != nil {
		return v1.Manifest{}, err
	}
	of, err := v1.NewHash(digestOf(config))
	return v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config:      v1.Descriptor{MediaType: ConfigMediaType, Digest: of, Size: int64(len(config))},
		Layers:      []v1.Descriptor{{MediaType: types.MediaType(layer.MediaType), Digest: digest, Size: layer.Size}},
		Annotations: annotations,
	}, err
}
