package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lanyard-dev/lanyard/internal/artifact/boundedjson"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// Resolved identifies one artifact by its digest. [Client.Resolve] returns it for a Reference.
type Resolved struct {
	// Tag is the tag that led to the digest, empty for a reference by digest.
	Tag string
	// Digest is sha256:<hex> of the manifest or index.
	Digest string
}

// Revision returns the revision that the status of a Kubernetes object shows: <tag>@sha256:<hex>,
// or sha256:<hex> for a reference by digest.
func (r Resolved) Revision() string {
	if r.Tag == "" {
		return r.Digest
	}
	return r.Tag + "@" + r.Digest
}

// Manifest is an artifact's manifest, verified against its digest.
type Manifest struct {
	// Resolved identifies the artifact. If the artifact is an index, with one artifact per
	// platform, the digest is the index's.
	Resolved
	// Metadata are the manifest's annotations. They go into the status of a Kubernetes object, so
	// their total size is bounded. They are taken in the order of their keys, up to 16 KiB. The
	// rest is left out.
	Metadata map[string]string
	// Layers are the layers in the manifest's order.
	Layers []Layer
}

// Layer is a descriptor of a layer.
type Layer struct {
	// MediaType is set by the publisher, for example application/vnd.cncf.flux.content.v1.tar+gzip.
	MediaType string
	// Digest is sha256:<hex> of the layer as it is transferred.
	Digest string
	// Size is the layer's length in bytes as it is transferred.
	Size int64
}

// Operation says what is done with a layer.
type Operation string

// The operations.
const (
	// Extract unpacks the layer, leaves out ignored files and packs the rest again. It is the
	// default.
	Extract Operation = "extract"
	// Copy takes the layer's bytes unchanged.
	Copy Operation = "copy"
)

// LayerSelector chooses one layer, as spec.layerSelector of an OCIRepository does. The zero value
// extracts the first layer.
type LayerSelector struct {
	// MediaType chooses the first layer of this type; empty means the first layer.
	MediaType string
	// Operation says what is done with the layer; empty means Extract.
	Operation Operation
}

// ChartLayer is the media type of the layer that holds a Helm chart.
const ChartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// Validate checks the selector. The error is an *origin.Error with CodeInvalidReference.
func (s LayerSelector) Validate() error {
	switch s.Operation {
	case "", Extract, Copy:
		return nil
	default:
		return invalidReference("spec.layerSelector.operation", "use extract or copy", "%q is no operation", shorten(string(s.Operation)))
	}
}

// Resolve finds the artifact of ref. It asks the registry even for a known digest, to detect a
// missing permission. It transfers no content if the registry answers HEAD requests properly. The
// error is an *origin.Error.
func (c *Client) Resolve(ctx context.Context, ref Reference) (Resolved, error) {
	s, err := ref.selector()
	if err != nil {
		return Resolved{}, err
	}
	if s.match != nil {
		if s.tag, err = c.version(ctx, s.match); err != nil {
			return Resolved{}, err
		}
	}
	if s.digest != "" {
		_, err := c.digest(ctx, s.digest)
		return Resolved{Digest: s.digest}, err
	}
	digest, err := c.digest(ctx, s.tag)
	return Resolved{Tag: s.tag, Digest: digest}, err
}

// version returns the highest matching tag.
func (c *Client) version(ctx context.Context, m *matcher) (string, error) {
	const field = "spec.ref.semver"
	best := highest{matcher: m}
	for tag, err := range c.Tags(ctx) {
		if err != nil {
			if e, ok := errors.AsType[*origin.Error](err); ok && e.Code == origin.CodeTooLarge {
				e.Field, e.Fix = field, "name a tag or digest, or remove old tags from the repository"
			}
			return "", err
		}
		best.consider(tag)
	}
	if best.version == nil {
		return "", &origin.Error{
			Server: c.session.server, Code: origin.CodeNoMatch, Field: field,
			Err: fmt.Errorf("none of %d tags is a version in the range %q", best.considered, m.rang),
		}
	}
	return best.tag, nil
}

// digest returns the digest of the manifest with the given tag or digest. It sends HEAD first. If
// the answer has no header with a valid digest, it sends GET. It also sends GET after an error such
// as HTTP 404, because an error of HEAD has no body. The digest from HEAD is trusted only after
// Fetch has verified it.
func (c *Client) digest(ctx context.Context, reference string) (string, error) {
	resp, err := c.send(ctx, http.MethodHead, c.url("manifests", reference), targetManifest, manifestTypes()...)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // no body
		digest := resp.Header.Get("Docker-Content-Digest")
		if checkDigest(digest) == nil {
			return digest, nil
		}
	} else if code := origin.CodeOf(err); code == origin.CodeUnreachable || code == origin.CodeThrottled || code == origin.CodeServer {
		return "", err
	}
	raw, err := c.manifest(ctx, reference)
	return raw.digest, err
}

type rawManifest struct {
	body      []byte
	digest    string
	mediaType types.MediaType
}

func manifestTypes() []string {
	return []string{
		string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
		string(types.OCIImageIndex), string(types.DockerManifestList),
	}
}

// manifest fetches a manifest by tag or digest. It verifies the digest.
func (c *Client) manifest(ctx context.Context, reference string) (rawManifest, error) {
	resp, err := c.send(ctx, http.MethodGet, c.url("manifests", reference), targetManifest, manifestTypes()...)
	if err != nil {
		return rawManifest{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := c.readAll(ctx, resp.Body, maxManifestBytes, "the manifest")
	if err != nil {
		return rawManifest{}, err
	}
	m := rawManifest{body: body, digest: digestOf(body)}
	if strings.Contains(reference, ":") && m.digest != reference {
		return rawManifest{}, c.failed(origin.CodeDigestMismatch,
			"the manifest that was asked for by %s has the digest %s", reference, m.digest)
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return rawManifest{}, c.protocol("the manifest has no media type")
	}
	m.mediaType = types.MediaType(mediaType)
	return m, nil
}

// maxValues bounds the JSON tokens of a manifest or index.
const maxValues = 50_000

// cost estimates the memory of a part of a manifest or index, in bytes; see [reserve.Cost]. A comma
// separates two values, such as two layers.
func cost(part []byte) int64 { return reserve.Cost(len(part), bytes.Count(part, []byte(","))) }

// decode decodes a manifest or index. The parameter what is the document's name in errors, such as
// "the manifest". For a large document, decode waits for a turn; see [reserve.Compute].
func (c *Client) decode(ctx context.Context, body []byte, what string, v any) error {
	if cost(body) > reserve.Large {
		if err := reserve.Compute(ctx); err != nil {
			return c.bodyError(ctx, err, what)
		}
		defer reserve.Rest(ctx)
	}
	err := boundedjson.Unmarshal(body, maxValues, v)
	switch {
	case errors.Is(err, boundedjson.ErrTooMany):
		return &origin.Error{
			Server: c.session.server, Code: origin.CodeTooLarge, Fix: "publish an artifact with fewer layers and annotations",
			Err: fmt.Errorf("%s has more than %d values", what, maxValues),
		}
	case err != nil:
		return c.protocol(what + " is not valid JSON")
	default:
		return nil
	}
}

// Fetch reads the manifest of a resolved artifact. From an index, it takes the first manifest that
// is for linux/amd64 or has no platform. If there is none, the index must have only one manifest,
// which Fetch takes. The error is an *origin.Error.
func (c *Client) Fetch(ctx context.Context, r Resolved) (*Manifest, error) {
	if err := checkDigest(r.Digest); err != nil {
		return nil, invalidReference("spec.ref.digest", "", "%w", err)
	}
	raw, err := c.manifest(ctx, r.Digest)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, r, raw)
}

// Get combines Resolve and Fetch. For a tag, Get sends one request less than both together, and
// always transfers the manifest. The error is an *origin.Error.
func (c *Client) Get(ctx context.Context, ref Reference) (*Manifest, error) {
	s, err := ref.selector()
	if err != nil {
		return nil, err
	}
	if s.match != nil || s.digest != "" {
		r, err := c.Resolve(ctx, ref)
		if err != nil {
			return nil, err
		}
		return c.Fetch(ctx, r)
	}
	raw, err := c.manifest(ctx, s.tag)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, Resolved{Tag: s.tag, Digest: raw.digest}, raw)
}

// read parses a manifest. For an index, it first fetches one of the index's manifests, chosen by
// [Client.child].
func (c *Client) read(ctx context.Context, r Resolved, raw rawManifest) (*Manifest, error) {
	if raw.mediaType.IsIndex() {
		child, err := c.child(ctx, raw.body)
		if err != nil {
			return nil, err
		}
		if raw, err = c.manifest(ctx, child); err != nil {
			return nil, err
		}
	}
	if !raw.mediaType.IsImage() {
		return nil, c.unsupported("push it as an OCI image manifest",
			fmt.Errorf("the artifact is of type %q", c.session.clean(string(raw.mediaType))))
	}
	var parsed v1.Manifest
	if err := c.decode(ctx, raw.body, "the manifest", &parsed); err != nil {
		return nil, err
	}
	m := &Manifest{Resolved: r, Metadata: c.metadata(parsed.Annotations)}
	for _, d := range parsed.Layers {
		layer := Layer{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size}
		if err := checkDigest(layer.Digest); err != nil || layer.Size < 0 {
			return nil, c.protocol("the manifest has a layer without a valid sha256 digest and size")
		}
		m.Layers = append(m.Layers, layer)
	}
	return m, nil
}

// child returns the digest of one manifest of an index. This is the first manifest for linux/amd64
// or without a platform, or else the only manifest. The library go-containerregistry and Flux
// choose in the same way.
func (c *Client) child(ctx context.Context, index []byte) (string, error) {
	var parsed v1.IndexManifest
	if err := c.decode(ctx, index, "the index", &parsed); err != nil {
		return "", err
	}
	chosen := slices.IndexFunc(parsed.Manifests, func(d v1.Descriptor) bool {
		return d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == "amd64"
	})
	if chosen < 0 && len(parsed.Manifests) == 1 {
		chosen = 0
	}
	if chosen < 0 {
		return "", c.unsupported("push the artifact for linux/amd64 or without a platform",
			errors.New("the index has no manifest for linux/amd64"))
	}
	digest := parsed.Manifests[chosen].Digest.String()
	if err := checkDigest(digest); err != nil {
		return "", c.protocol("the index has a manifest without a valid sha256 digest")
	}
	return digest, nil
}

func (c *Client) unsupported(fix string, err error) *origin.Error {
	return &origin.Error{Server: c.session.server, Code: origin.CodeUnsupportedMediaType, Fix: fix, Err: err}
}

// Limits of the annotations of a manifest, in bytes. The publisher of an artifact chooses these
// annotations. Lanyard copies the annotations into the status of a Kubernetes object.
const (
	maxMetadata    = 16 << 10
	annotationCost = 64 // counted for each annotation besides its text: the memory of an entry of a map
)

// metadata returns the annotations that fit into maxMetadata bytes. It takes a manifest's
// annotations in the order of their keys. It stops at the first annotation that does not fit.
func (c *Client) metadata(annotations map[string]string) map[string]string {
	left := maxMetadata
	out := make(map[string]string)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if left -= len(key) + len(annotations[key]) + annotationCost; left < 0 {
			break
		}
		out[key] = annotations[key]
	}
	return out
}

// Select returns the layer that the selector chooses. The error is an *origin.Error.
func (m *Manifest) Select(s LayerSelector) (Layer, error) {
	if err := s.Validate(); err != nil {
		return Layer{}, err
	}
	for _, layer := range m.Layers {
		if s.MediaType != "" && layer.MediaType != s.MediaType {
			continue
		}
		if strings.HasSuffix(layer.MediaType, "+zstd") {
			return Layer{}, &origin.Error{
				Code: origin.CodeUnsupportedMediaType, Fix: "push the layer as tar+gzip",
				Err: fmt.Errorf("the layer is of type %q", shorten(layer.MediaType)),
			}
		}
		return layer, nil
	}
	if s.MediaType == "" {
		return Layer{}, &origin.Error{Code: origin.CodeUnsupportedMediaType, Err: errors.New("the artifact has no layer")}
	}
	return Layer{}, &origin.Error{
		Code: origin.CodeUnsupportedMediaType, Field: "spec.layerSelector.mediaType", Fix: "name a media type that the artifact has",
		Err: fmt.Errorf("the artifact has no layer of type %q; it has %s", shorten(s.MediaType), m.mediaTypes()),
	}
}

func (m *Manifest) mediaTypes() string {
	if len(m.Layers) == 0 {
		return "none"
	}
	var list []string
	for _, layer := range m.Layers[:min(len(m.Layers), 5)] {
		list = append(list, fmt.Sprintf("%q", shorten(layer.MediaType)))
	}
	return strings.Join(list, ", ")
}
