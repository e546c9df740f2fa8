package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// The media types of a Flux artifact ("OCI artifacts" in Flux's documentation), which Push writes.
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

// Artifact is what Push publishes.
type Artifact struct {
	// Path is a folder, which is packed with archive.Create, or a tar.gz file, which archive.Normalize must take.
	Path string
	// Ignore leaves files of a folder out; a file is published as it is.
	Ignore archive.Patterns
	// Limits bound the content.
	Limits archive.Limits
	// Source is where the content comes from, a URL by convention; empty for none.
	Source string
	// Revision is the content's version at its source, <branch>@sha1:<commit> by convention; empty for none.
	Revision string
	// Created is the time of publication, UTC in the annotation. The zero time leaves the annotation out, which makes equal
	// content have equal digests.
	Created time.Time
	// Annotations are added to the manifest; those of the fields above win.
	Annotations map[string]string
}

// Push publishes an artifact under a tag, as Flux's clients expect it, and returns what stands there now. A folder is packed into a
// temporary file first. Errors of the registry are *Error, those of the content archive.Error.
func Push(ctx context.Context, repo Repository, tag string, artifact Artifact, opts Options) (Resolved, error) {
	if repo.IsZero() {
		return Resolved{}, invalidRepository(fieldURL, "", "no repository is given")
	}
	if opts.Transport == nil {
		return Resolved{}, errors.New("oci: Options.Transport is required")
	}
	if tag == "" {
		return Resolved{}, invalidReference("spec.ref.tag", "name a tag", "there is none")
	}
	if err := (Reference{Tag: tag}).Validate(); err != nil {
		return Resolved{}, err
	}
	target, err := repo.target(opts.Insecure)
	if err != nil {
		return Resolved{}, invalidRepository(repo.field, "", "%w", err)
	}
	file, cleanup, err := content(ctx, artifact)
	if err != nil {
		return Resolved{}, err
	}
	defer cleanup()
	image, err := build(file, artifact)
	if err != nil {
		return Resolved{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return Resolved{}, err
	}
	auth := opts.Auth
	if auth == nil {
		auth = authn.Anonymous
	}
	s := &session{field: repo.field, host: repo.host, home: target.RegistryStr(), insecure: opts.Insecure, next: opts.Transport}
	err = remote.Write(target.Tag(tag), image,
		remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(s), remote.WithUserAgent(userAgent),
		// Reads are repeated by the session; this repeats uploads.
		remote.WithRetryBackoff(transport.Backoff{Duration: retry.FirstPause, Factor: retry.Factor, Jitter: 0.1, Steps: retry.Attempts}))
	if err != nil {
		return Resolved{}, s.requestError(ctx, err, targetManifest)
	}
	return Resolved{Tag: tag, Digest: digest.String()}, nil
}

// content returns the path of a checked tar.gz.
func content(ctx context.Context, artifact Artifact) (file string, cleanup func(), err error) {
	info, err := os.Stat(artifact.Path)
	if err != nil {
		return "", nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(artifact.Path)
		if err != nil {
			return "", nil, err
		}
		defer f.Close() //nolint:errcheck // opened for reading
		_, err = archive.Normalize(ctx, f, io.Discard, archive.Options{Limits: artifact.Limits})
		return artifact.Path, func() {}, err
	}
	tmp, err := os.CreateTemp("", "lanyard-push-*.tar.gz")
	if err != nil {
		return "", nil, err
	}
	cleanup = func() { _ = os.Remove(tmp.Name()) }
	_, err = archive.Create(ctx, os.DirFS(artifact.Path), tmp, archive.Options{Ignore: artifact.Ignore, Limits: artifact.Limits})
	if err = errors.Join(err, tmp.Close()); err != nil {
		cleanup()
		return "", nil, err
	}
	return tmp.Name(), cleanup, nil
}

func build(file string, artifact Artifact) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(LayerMediaType))
	if err != nil {
		return nil, fmt.Errorf("read the packed artifact: %w", err)
	}
	annotations := maps.Clone(artifact.Annotations)
	if annotations == nil {
		annotations = make(map[string]string)
	}
	if !artifact.Created.IsZero() {
		annotations[AnnotationCreated] = artifact.Created.UTC().Format(time.RFC3339)
	}
	if artifact.Source != "" {
		annotations[AnnotationSource] = artifact.Source
	}
	if artifact.Revision != "" {
		annotations[AnnotationRevision] = artifact.Revision
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), ConfigMediaType)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer})
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return nil, errors.New("annotate the artifact: the library returned no image")
	}
	return annotated, nil
}
