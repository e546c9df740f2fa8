package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// image is a manifest in a repository.
type image struct {
	digest       string
	tags         []string // sorted; empty if the tags were moved to other manifests
	mediaType    string
	artifactType string
	size         int64     // bytes of the configuration and the layers
	pushed       time.Time // time of the push; if it is unknown, the repository's creation time
}

// manifest is an image manifest or an image index, with only the fields that the local ECR uses.
// Source: OCI Image Format Specification v1.1, "Image Manifest" and "Image Index".
type manifest struct {
	MediaType    string       `json:"mediaType"`
	ArtifactType string       `json:"artifactType"`
	Config       descriptor   `json:"config"`
	Layers       []descriptor `json:"layers"`
	Manifests    []descriptor `json:"manifests"`
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// manifestTypes is the Accept header of requests to the data plane. It lists the manifest types of
// OCI and Docker.
const manifestTypes = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, " +
	"application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json"

// imageStore reads the images of a repository from the data plane of its registry.
type imageStore struct {
	plane http.Handler
	host  string
	repo  *repository
}

// get reads a path of the repository. found is false if the data plane does not have the path.
func (s imageStore) get(ctx context.Context, path string) (body []byte, found bool, refusal *service.Refusal) {
	request := (&http.Request{
		Method: http.MethodGet, Host: s.host, Header: http.Header{"Accept": {manifestTypes}}, Body: http.NoBody,
		URL: &url.URL{Scheme: "https", Host: s.host, Path: "/v2/" + s.repo.key.name + path},
	}).WithContext(ctx)
	switch answer := plane.Ask(s.plane, request); answer.Status {
	case http.StatusOK:
		return answer.Body, true, nil
	case http.StatusNotFound:
		return nil, false, nil
	default:
		return nil, false, json11().Unavailable.Because(fmt.Sprintf("the data plane answered %s with HTTP %d", path, answer.Status))
	}
}

// tags lists the repository's tags.
func (s imageStore) tags(ctx context.Context) ([]string, *service.Refusal) {
	body, found, refusal := s.get(ctx, "/tags/list")
	if refusal != nil || !found {
		return nil, refusal
	}
	var list struct {
		Tags []string `json:"tags"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, json11().Unavailable.Because("the data plane's list of tags is not JSON")
	}
	return list.Tags, nil
}

// image reads an image by tag or digest.
func (s imageStore) image(ctx context.Context, reference string) (i image, found bool, refusal *service.Refusal) {
	m, digest, refusal := s.manifest(ctx, reference)
	if refusal != nil || digest == "" {
		return image{}, false, refusal
	}
	i = image{
		digest: digest, mediaType: m.MediaType, artifactType: cmp.Or(m.ArtifactType, m.Config.MediaType), size: m.size(),
	}
	// The size of an index is the size of its largest manifest. Source: ECR API Reference,
	// ImageDetail.
	for _, child := range m.Manifests {
		part, _, refusal := s.manifest(ctx, child.Digest) // the size of a missing manifest is 0
		if refusal != nil {
			return image{}, false, refusal
		}
		i.size = max(i.size, part.size())
	}
	return i, true, nil
}

// manifest reads a manifest by tag or digest. The digest is empty if the data plane does not have
// the manifest.
func (s imageStore) manifest(ctx context.Context, reference string) (m manifest, digest string, refusal *service.Refusal) {
	body, found, refusal := s.get(ctx, "/manifests/"+reference)
	if refusal != nil || !found {
		return manifest{}, "", refusal
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return manifest{}, "", json11().Unavailable.Because("a manifest of the data plane is not JSON")
	}
	sum := sha256.Sum256(body)
	return m, "sha256:" + hex.EncodeToString(sum[:]), nil
}

// size returns the bytes of the configuration and the layers.
func (m manifest) size() int64 {
	size := m.Config.Size
	for _, layer := range m.Layers {
		size += layer.Size
	}
	return size
}

// images reads the images of a repository, sorted by digest. It knows an image by its tag, or
// because it was pushed through the registry. So it misses an untagged image that was stored in the
// data plane directly.
func (c *Cloud) images(call *apiCall, at Registry, repo *repository) ([]image, *service.Refusal) {
	ctx, store := call.Context(), imageStore{plane: c.registry.Get(at), host: registryHost(call.ep, at.Account), repo: repo}
	if store.plane == nil {
		return nil, json11().Unavailable.Because("no data plane was handed in for the registries")
	}
	tags, refusal := store.tags(ctx)
	if refusal != nil {
		return nil, refusal
	}
	pushed := c.pushedTo(pushKey{at, repo.key.name})
	byDigest := map[string]image{}
	add := func(reference, tag string) *service.Refusal {
		i, found, refusal := store.image(ctx, reference)
		if refusal != nil || !found {
			return refusal
		}
		i.tags, i.pushed = byDigest[i.digest].tags, repo.created
		if at, known := pushed[i.digest]; known {
			i.pushed = at
		}
		if tag != "" {
			i.tags = append(i.tags, tag)
		}
		byDigest[i.digest] = i
		return nil
	}
	slices.Sort(tags)
	for _, tag := range tags {
		if refusal := add(tag, tag); refusal != nil {
			return nil, refusal
		}
	}
	for digest := range pushed {
		if refusal := add(digest, ""); refusal != nil {
			return nil, refusal
		}
	}
	return slices.SortedFunc(maps.Values(byDigest), func(a, b image) int { return strings.Compare(a.digest, b.digest) }), nil
}

// pushKey identifies a repository.
type pushKey struct {
	registry   Registry
	repository string
}

// pushedTo returns the times at which manifests were pushed to a repository, by digest.
func (c *Cloud) pushedTo(key pushKey) map[string]time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.pushes[key])
}

// recordPush wraps the answer to a push. If the push succeeds, the wrapper stores the time of the
// push under the manifest's digest.
func (c *Cloud) recordPush(answer service.Answer, key pushKey, now time.Time) service.Answer {
	return func(w http.ResponseWriter) *service.Refusal {
		refusal := answer(w)
		if digest := w.Header().Get("Docker-Content-Digest"); refusal == nil && digest != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.pushes[key] == nil {
				c.pushes[key] = map[string]time.Time{}
			}
			c.pushes[key][digest] = now
		}
		return refusal
	}
}

// imageID identifies an image by digest, tag or both. Source: ECR API Reference, ImageIdentifier.
type imageID struct {
	Digest string `json:"imageDigest,omitempty"`
	Tag    string `json:"imageTag,omitempty"`
}

// is reports whether the identifier fits the image.
func (id imageID) is(i image) bool {
	return id != (imageID{}) && (id.Digest == "" || id.Digest == i.digest) && (id.Tag == "" || slices.Contains(i.tags, id.Tag))
}

// String returns the identifier as ECR writes it in a refusal.
func (id imageID) String() string {
	return "{imageDigest:'" + cmp.Or(id.Digest, "null") + "', imageTag:'" + cmp.Or(id.Tag, "null") + "'}"
}

// imageFilter selects images by their tags.
type imageFilter struct {
	TagStatus string `json:"tagStatus"`
}

func (f imageFilter) refusal() *service.Refusal {
	if !slices.Contains([]string{"", "ANY", "TAGGED", "UNTAGGED"}, f.TagStatus) {
		return invalidECR("filter.tagStatus", "Member must satisfy enum value set: [TAGGED, UNTAGGED, ANY]")
	}
	return nil
}

func (f imageFilter) selects(i image) bool {
	return f.TagStatus != "TAGGED" && f.TagStatus != "UNTAGGED" || (f.TagStatus == "TAGGED") == (len(i.tags) > 0)
}

// listInput is the input of ListImages.
type listInput struct {
	repositoryInput
	pageInput

	Filter imageFilter `json:"filter"`
}

// listImages returns an identifier for each tag, and one for each image without a tag.
func (c *Cloud) listImages(call *apiCall, input listInput) (any, *service.Refusal) {
	images, refusal := c.imagesOf(call, input)
	if refusal != nil {
		return nil, refusal
	}
	ids := []imageID{}
	for _, i := range images {
		for _, tag := range i.tags {
			ids = append(ids, imageID{i.digest, tag})
		}
		if len(i.tags) == 0 {
			ids = append(ids, imageID{Digest: i.digest})
		}
	}
	ids, next, refusal := page(ids, input.pageInput, imageID.String)
	return struct {
		ImageIDs  []imageID `json:"imageIds"`
		NextToken string    `json:"nextToken,omitempty"`
	}{ids, next}, refusal
}

// imageDetail is an image in the answer of DescribeImages.
type imageDetail struct {
	RegistryID        string   `json:"registryId"`
	RepositoryName    string   `json:"repositoryName"`
	Digest            string   `json:"imageDigest"`
	Tags              []string `json:"imageTags,omitempty"`
	SizeInBytes       int64    `json:"imageSizeInBytes"`
	PushedAt          float64  `json:"imagePushedAt"` // seconds since 1970
	ManifestMediaType string   `json:"imageManifestMediaType,omitempty"`
	ArtifactMediaType string   `json:"artifactMediaType,omitempty"`
}

// detailInput is the input of DescribeImages.
type detailInput struct {
	listInput

	ImageIDs []imageID `json:"imageIds"`
}

// describeImages returns the details of all images of a repository, or only of those that the
// parameter imageIds lists.
func (c *Cloud) describeImages(call *apiCall, input detailInput) (any, *service.Refusal) {
	if refusal := input.absentWith("imageIds", len(input.ImageIDs), maxImageIDs); refusal != nil {
		return nil, refusal
	}
	images, refusal := c.imagesOf(call, input.listInput)
	if refusal != nil {
		return nil, refusal
	}
	for _, id := range input.ImageIDs {
		if !slices.ContainsFunc(images, id.is) {
			return nil, service.Refuse(http.StatusBadRequest, "ImageNotFoundException", fmt.Sprintf(
				"The image with imageId %s does not exist within the repository with name '%s' in the registry with id '%s'",
				id, input.RepositoryName, input.registry(call)))
		}
	}
	details := []imageDetail{}
	for _, i := range images {
		if len(input.ImageIDs) > 0 && !slices.ContainsFunc(input.ImageIDs, func(id imageID) bool { return id.is(i) }) {
			continue
		}
		details = append(details, imageDetail{
			RegistryID: input.registry(call), RepositoryName: input.RepositoryName, Digest: i.digest, Tags: i.tags, SizeInBytes: i.size,
			PushedAt: float64(i.pushed.Unix()), ManifestMediaType: i.mediaType, ArtifactMediaType: i.artifactType,
		})
	}
	details, next, refusal := page(details, input.pageInput, func(d imageDetail) string { return d.Digest })
	return struct {
		ImageDetails []imageDetail `json:"imageDetails"`
		NextToken    string        `json:"nextToken,omitempty"`
	}{details, next}, refusal
}

// imagesOf checks that the policies allow the call's operation on a repository. Then it returns the
// images that the filter selects.
func (c *Cloud) imagesOf(call *apiCall, input listInput) ([]image, *service.Refusal) {
	refusal := cmp.Or(checkRepositoryName(input.RepositoryName), input.refusal(), input.Filter.refusal())
	if refusal != nil {
		return nil, refusal
	}
	repo, refusal := c.onRepository(call, input.registryInput, input.RepositoryName)
	if refusal != nil {
		return nil, refusal
	}
	images, refusal := c.images(call, Registry{Account: input.registry(call), Region: call.ep.region}, repo)
	return slices.DeleteFunc(images, func(i image) bool { return !input.Filter.selects(i) }), refusal
}
