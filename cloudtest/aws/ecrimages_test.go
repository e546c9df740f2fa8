package aws_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

const (
	layerType  = "application/vnd.cncf.flux.content.v1.tar+gzip"
	configType = "application/vnd.cncf.flux.config.v1+json"
	imageType  = "application/vnd.oci.image.manifest.v1+json"
	indexType  = "application/vnd.oci.image.index.v1+json"
)

// imageManifest returns the manifest of an image with one layer of size bytes.
func imageManifest(size int) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"size":2},"layers":[{"mediaType":%q,"size":%d}]}`,
		imageType, configType, layerType, size)
}

// ownBody is a transport that replaces the body of each request by a copy. The SDK cannot close the
// copy. It closes the original body once it has the header of the answer. If net/http is still
// reading the body at that moment, net/http drops the rest of a long answer. The local cloud
// answers fast enough for this to happen.
type ownBody struct{ next http.RoundTripper }

func (o ownBody) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return o.next.RoundTrip(r)
}

// pushImage pushes a manifest and returns its digest.
func (w *world) pushImage(t *testing.T, repository, tag, manifest string) string {
	t.Helper()
	client := w.Client()
	defer client.CloseIdleConnections()
	r := rig.NewRequest(t, http.MethodPut, "https://"+registryHost+"/v2/"+repository+"/manifests/"+tag, imageType, manifest)
	r.Header.Set("Authorization", w.login(t, pusher()))
	res, err := client.Do(r)
	must.Succeed(t, err)
	if body := rig.ReadAll(t, res); res.StatusCode != http.StatusCreated {
		t.Fatalf("push: HTTP %d %s", res.StatusCode, body)
	}
	return res.Header.Get("Docker-Content-Digest")
}

// TestDescribeRepositories pages through a registry's repositories with the real client. It must
// find each repository once, and no repository of another region.
func TestDescribeRepositories(t *testing.T) {
	w := newWorld(t)
	for i := range 250 {
		must.Succeed(t, w.AWS().PutRepository(account, aws.Repository{Region: region, Name: fmt.Sprintf("many/%03d", i)}))
	}
	must.Succeed(t, w.AWS().PutRepository(account, aws.Repository{Region: "us-east-1", Name: "elsewhere"}))
	client := ecrClient(ownBody{w.Transport()}, pusher())
	for _, tt := range []struct {
		size  *int32
		pages int
	}{{nil, 3}, {awssdk.Int32(63), 4}, {awssdk.Int32(63 * 4), 1}, {awssdk.Int32(1000), 1}} {
		var names []string
		pages := 0
		p := ecr.NewDescribeRepositoriesPaginator(client, &ecr.DescribeRepositoriesInput{MaxResults: tt.size})
		for ; p.HasMorePages(); pages++ {
			out, err := p.NextPage(t.Context())
			must.Succeed(t, err)
			for _, r := range out.Repositories {
				names = append(names, *r.RepositoryName)
			}
		}
		if pages != tt.pages || len(names) != 252 || !slices.IsSorted(names) || len(slices.Compact(names)) != 252 {
			t.Errorf("%v at a time: %d pages of %d names, %v", tt.size, pages, len(names), names)
		}
	}
	out, err := client.DescribeRepositories(t.Context(), &ecr.DescribeRepositoriesInput{RepositoryNames: []string{"tenant-b/app", "tenant-a/app"}})
	if err != nil || len(out.Repositories) != 2 {
		t.Fatalf("named: %v, %v", out, err)
	}
	got := out.Repositories[1]
	if created := time.Since(*got.CreatedAt); created < 0 || created > time.Minute {
		t.Errorf("created %s ago", created)
	}
	if *got.RepositoryName != "tenant-a/app" || *got.RepositoryArn != "arn:aws:ecr:eu-west-1:"+account+":repository/tenant-a/app" ||
		*got.RepositoryUri != registryHost+"/tenant-a/app" || *got.RegistryId != account || got.ImageTagMutability != types.ImageTagMutabilityMutable {
		t.Errorf("described as %+v", got)
	}
}

// TestListImages lists images page by page: one entry for each tag, and one for each image without
// a tag. A push between two pages must not remove an earlier image from the list.
func TestListImages(t *testing.T) {
	w := newWorld(t)
	client := ecrClient(ownBody{w.Transport()}, pusher())
	list := func(size int32, filter *types.ListImagesFilter, between func()) []string {
		t.Helper()
		var ids []string
		p := ecr.NewListImagesPaginator(client, &ecr.ListImagesInput{RepositoryName: awssdk.String("tenant-a/app"), MaxResults: &size, Filter: filter})
		for p.HasMorePages() {
			out, err := p.NextPage(t.Context())
			must.Succeed(t, err)
			if len(out.ImageIds) > int(size) {
				t.Errorf("a page has %d", len(out.ImageIds))
			}
			for _, id := range out.ImageIds {
				ids = append(ids, awssdk.ToString(id.ImageDigest)+" "+awssdk.ToString(id.ImageTag))
			}
			between()
		}
		return ids
	}
	nothing := func() {}
	if ids := list(10, nil, nothing); len(ids) != 0 {
		t.Errorf("an empty repository has %v", ids)
	}
	first := w.pushImage(t, "tenant-a/app", "latest", imageManifest(1))
	second := w.pushImage(t, "tenant-a/app", "latest", imageManifest(2))
	w.pushImage(t, "tenant-a/app", "1.0.0", imageManifest(2))
	want := []string{first + " ", second + " 1.0.0", second + " latest"}
	slices.Sort(want)
	for size := range int32(4) {
		if diff := cmp.Diff(want, list(size+1, nil, nothing)); diff != "" {
			t.Errorf("%d at a time (-want +got):\n%s", size+1, diff)
		}
	}
	if ids := list(10, &types.ListImagesFilter{TagStatus: types.TagStatusUntagged}, nothing); !slices.Equal(ids, []string{first + " "}) {
		t.Errorf("without a tag: %v", ids)
	}
	if ids := list(10, &types.ListImagesFilter{TagStatus: types.TagStatusTagged}, nothing); len(ids) != 2 {
		t.Errorf("with a tag: %v", ids)
	}
	n := 0
	ids := list(1, nil, func() {
		if n++; n < 20 {
			w.pushImage(t, "tenant-a/app", fmt.Sprint("more-", n), imageManifest(100+n))
		}
	})
	for _, id := range want {
		if !slices.Contains(ids, id) {
			t.Errorf("a page lost %s", id)
		}
	}
}

// TestDescribeImages checks the details of an image, and of an index of two images.
func TestDescribeImages(t *testing.T) {
	w := newWorld(t)
	client := ecrClient(ownBody{w.Transport()}, pusher())
	small := w.pushImage(t, "tenant-a/app", "small", imageManifest(10))
	large := w.pushImage(t, "tenant-a/app", "large", imageManifest(1000))
	index := w.pushImage(t, "tenant-a/app", "both", fmt.Sprintf(`{"mediaType":%q,"manifests":[{"digest":%q},{"digest":%q}]}`, indexType, large, small))
	describe := func(ids ...types.ImageIdentifier) []types.ImageDetail {
		t.Helper()
		out, err := client.DescribeImages(t.Context(), &ecr.DescribeImagesInput{RepositoryName: awssdk.String("tenant-a/app"), ImageIds: ids})
		must.Succeed(t, err)
		return out.ImageDetails
	}
	if all := describe(); len(all) != 3 {
		t.Errorf("has %d images", len(all))
	}
	for name, tt := range map[string]struct {
		id   types.ImageIdentifier
		want types.ImageDetail
	}{
		"by tag": {types.ImageIdentifier{ImageTag: awssdk.String("small")}, types.ImageDetail{
			ImageDigest: &small, ImageTags: []string{"small"}, ImageSizeInBytes: awssdk.Int64(12),
			ImageManifestMediaType: awssdk.String(imageType), ArtifactMediaType: awssdk.String(configType),
		}},
		"by digest": {types.ImageIdentifier{ImageDigest: &index}, types.ImageDetail{
			ImageDigest: &index, ImageTags: []string{"both"}, ImageSizeInBytes: awssdk.Int64(1002), ImageManifestMediaType: awssdk.String(indexType),
		}},
		"by both": {types.ImageIdentifier{ImageDigest: &large, ImageTag: awssdk.String("large")}, types.ImageDetail{
			ImageDigest: &large, ImageTags: []string{"large"}, ImageSizeInBytes: awssdk.Int64(1002),
			ImageManifestMediaType: awssdk.String(imageType), ArtifactMediaType: awssdk.String(configType),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(tt.id)
			if len(got) != 1 {
				t.Fatalf("described %+v", got)
			}
			if pushed := time.Since(*got[0].ImagePushedAt); pushed < 0 || pushed > time.Minute {
				t.Errorf("pushed %s ago", pushed)
			}
			got[0].ImagePushedAt = nil
			tt.want.RegistryId, tt.want.RepositoryName = awssdk.String(account), awssdk.String("tenant-a/app")
			want, _ := json.Marshal(tt.want)
			if have, _ := json.Marshal(got[0]); string(have) != string(want) {
				t.Errorf("got  %s\nwant %s", have, want)
			}
		})
	}
}

// TestECRRefusals checks that the operations refuse what ECR refuses, with ECR's messages.
func TestECRRefusals(t *testing.T) {
	w := newWorld(t)
	w.pushImage(t, "tenant-a/app", "1.0.0", imageManifest(1))
	tenant := ecrClient(ownBody{w.Transport()}, w.assume(t, roleA, subjectA))
	everybody := ecrClient(ownBody{w.Transport()}, pusher())
	app, other, none := awssdk.String("tenant-a/app"), awssdk.String("tenant-b/app"), awssdk.String("tenant-a/none")
	listed := func(client *ecr.Client, input ecr.ListImagesInput) func(context.Context) error {
		return func(ctx context.Context) error { _, err := client.ListImages(ctx, &input); return err }
	}
	described := func(client *ecr.Client, input ecr.DescribeImagesInput) func(context.Context) error {
		return func(ctx context.Context) error { _, err := client.DescribeImages(ctx, &input); return err }
	}
	repositories := func(client *ecr.Client, input ecr.DescribeRepositoriesInput) func(context.Context) error {
		return func(ctx context.Context) error { _, err := client.DescribeRepositories(ctx, &input); return err }
	}
	const me = "User: arn:aws:sts::123456789123:assumed-role/tenant-a-ecr/test is not authorized to perform: "
	for name, tt := range map[string]struct {
		call          func(context.Context) error
		code, message string
	}{
		"allowed": {listed(tenant, ecr.ListImagesInput{RepositoryName: app}), "", ""},
		"another tenant's": {
			listed(tenant, ecr.ListImagesInput{RepositoryName: other}), "AccessDeniedException",
			me + "ecr:ListImages on resource: arn:aws:ecr:eu-west-1:123456789123:repository/tenant-b/app because no identity-based policy allows the ecr:ListImages action",
		},
		"action not allowed": {described(tenant, ecr.DescribeImagesInput{RepositoryName: app}), "AccessDeniedException", me + "ecr:DescribeImages"},
		"all repositories": {
			repositories(tenant, ecr.DescribeRepositoriesInput{}), "AccessDeniedException",
			me + "ecr:DescribeRepositories on resource: arn:aws:ecr:eu-west-1:123456789123:repository/*",
		},
		"unknown and not allowed": {listed(tenant, ecr.ListImagesInput{RepositoryName: awssdk.String("tenant-b/none")}), "AccessDeniedException", me},
		"unknown repository": {
			listed(tenant, ecr.ListImagesInput{RepositoryName: none}), "RepositoryNotFoundException",
			"The repository with name 'tenant-a/none' does not exist in the registry with id '123456789123'",
		},
		"unknown repository described": {repositories(everybody, ecr.DescribeRepositoriesInput{RepositoryNames: []string{*app, *none}}), "RepositoryNotFoundException", "tenant-a/none"},
		"another account's":            {listed(everybody, ecr.ListImagesInput{RegistryId: awssdk.String(otherAccount), RepositoryName: app}), "AccessDeniedException", "no resource-based policy allows"},
		"account of no number":         {listed(everybody, ecr.ListImagesInput{RegistryId: awssdk.String("x"), RepositoryName: app}), "InvalidParameterException", "'registryId'"},
		"unknown image": {
			described(everybody, ecr.DescribeImagesInput{RepositoryName: app, ImageIds: []types.ImageIdentifier{{ImageTag: awssdk.String("2")}}}), "ImageNotFoundException",
			"The image with imageId {imageDigest:'null', imageTag:'2'} does not exist within the repository with name 'tenant-a/app' in the registry with id '123456789123'",
		},
		"name in capitals":     {listed(everybody, ecr.ListImagesInput{RepositoryName: awssdk.String("App")}), "InvalidParameterException", "'repositoryName'"},
		"page of nothing":      {listed(everybody, ecr.ListImagesInput{RepositoryName: app, MaxResults: awssdk.Int32(0)}), "InvalidParameterException", "'maxResults'"},
		"page too long":        {listed(everybody, ecr.ListImagesInput{RepositoryName: app, MaxResults: awssdk.Int32(1001)}), "InvalidParameterException", "'maxResults'"},
		"token that is forged": {listed(everybody, ecr.ListImagesInput{RepositoryName: app, NextToken: awssdk.String("!")}), "InvalidParameterException", "'nextToken'"},
		"unknown filter": {
			listed(everybody, ecr.ListImagesInput{RepositoryName: app, Filter: &types.ListImagesFilter{TagStatus: "SOME"}}), "InvalidParameterException",
			"'filter.tagStatus'",
		},
		"page of named images": {
			described(everybody, ecr.DescribeImagesInput{RepositoryName: app, MaxResults: awssdk.Int32(1), ImageIds: []types.ImageIdentifier{{ImageTag: awssdk.String("1.0.0")}}}),
			"InvalidParameterException", "'maxResults'",
		},
		"page of named repositories": {repositories(everybody, ecr.DescribeRepositoriesInput{NextToken: awssdk.String("eA"), RepositoryNames: []string{*app}}), "InvalidParameterException", "'nextToken'"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.call(t.Context())
			if code := outcomeOf(err).Code; code != tt.code {
				t.Errorf("code %q, want %q: %v", code, tt.code, err)
			}
			if err != nil && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("%v\ndoes not say %q", err, tt.message)
			}
		})
	}
	_, err := tenant.ListImages(t.Context(), &ecr.ListImagesInput{RepositoryName: other})
	calls := w.Journal().Calls(journal.Filter{Operation: "ListImages"})
	if last := calls[len(calls)-1]; err == nil || last.Resource != "arn:aws:ecr:eu-west-1:123456789123:repository/tenant-b/app" || last.Reason == "" {
		t.Errorf("the journal has %+v", last)
	}
}

// TestRepositoryPolicyLetsIn checks that another account may list images if the repository's policy
// allows it.
func TestRepositoryPolicyLetsIn(t *testing.T) {
	w := newWorld(t)
	allow := json.RawMessage(`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + account + `:root"},"Action":"ecr:ListImages"}}`)
	must.Succeed(t, w.AWS().PutRepository(otherAccount, aws.Repository{Region: region, Name: "tenant-a/app", Policy: allow}))
	_, err := ecrClient(w.Transport(), pusher()).ListImages(t.Context(), &ecr.ListImagesInput{RegistryId: awssdk.String(otherAccount), RepositoryName: awssdk.String("tenant-a/app")})
	if err != nil {
		t.Error(err)
	}
}

// TestECRLacks checks the error for an operation that the local ECR does not have. The client gets
// the same text as the journal.
func TestECRLacks(t *testing.T) {
	w := newWorld(t)
	_, err := ecrClient(w.Transport(), pusher()).DescribeRegistry(t.Context(), nil)
	calls := w.Journal().Calls(journal.Filter{Service: aws.ServiceECR})
	said := calls[len(calls)-1].Reason
	want := `the local cloud does not have the operation "AmazonEC2ContainerRegistry_V20150921.DescribeRegistry"; ` +
		"it has DescribeImages, DescribeRepositories, GetAuthorizationToken, ListImages"
	if said != want || err == nil || !strings.Contains(err.Error(), said) {
		t.Errorf("the journal says %q, the client %v", said, err)
	}
}

// TestECRWithoutImages checks the error of ListImages if the data plane is missing or broken, and
// if a fault throttles the call.
func TestECRWithoutImages(t *testing.T) {
	w := newWorld(t)
	client := ecrClient(ownBody{w.Transport()}, pusher())
	list := func() string {
		_, err := client.ListImages(t.Context(), &ecr.ListImagesInput{RepositoryName: awssdk.String("tenant-a/app")})
		return outcomeOf(err).Code
	}
	for name, plane := range map[string]http.Handler{
		"none":     nil,
		"broken":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }),
		"not JSON": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
	} {
		w.AWS().ServeRegistry(func(aws.Registry) http.Handler { return plane })
		if code := list(); code != "ServiceUnavailableException" {
			t.Errorf("%s: %s", name, code)
		}
	}
	if _, err := w.Faults().Add(fault.Fault{Kind: fault.Throttle, Operation: "ListImages"}); err != nil {
		t.Fatal(err)
	}
	if code := list(); code != "ThrottlingException" {
		t.Errorf("throttled: %s", code)
	}
}
