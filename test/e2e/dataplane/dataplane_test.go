package dataplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

const (
	region    = "eu-west-1"
	bucketA   = "tenant-a-bucket"
	bucketB   = "tenant-b-bucket"
	issuerURL = "https://issuer.cluster.example"
	secret    = "worth-something-only-here"
	writerKey = "AKIAWRITERWRITERWRIT"
	readerKey = "AKIAREADERREADERREAD"

	directory    = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	writerClient = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	readerClient = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	blobAccount  = "lanyardblobs"

	pool   = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/tenants/providers/kubernetes"
	member = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/tenants/subject/"

	writer = "system:serviceaccount:ci:writer"
	reader = "system:serviceaccount:tenant-a:reader"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type world struct {
	*cloudtest.Cloud

	issuer *oidc.Issuer
	client *http.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	policies := func(documents ...string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"only": json.RawMessage(`{"Version":"2012-10-17","Statement":[` + strings.Join(documents, ",") + `]}`)}
	}
	app := func(client, subject string) azure.Application {
		return azure.Application{ClientID: client, FederatedCredentials: []azure.FederatedCredential{{Name: "cluster", Issuer: issuerURL, Subject: subject}}}
	}
	google := func(role, subject string) gcp.Binding {
		return gcp.Binding{Role: role, Members: []string{member + subject}}
	}
	c, err := cloudtest.New(cloudtest.Config{
		AWS: aws.Config{Accounts: []aws.Account{{
			ID:      "123456789123",
			Buckets: []aws.Bucket{{Region: region, Name: bucketA}, {Region: region, Name: bucketB}},
			Users: []aws.User{
				{Name: "writer", AccessKeys: []aws.AccessKey{{ID: writerKey, Secret: secret}}, Policies: policies(`{"Effect":"Allow","Action":"s3:*","Resource":"*"}`)},
				{Name: "reader", AccessKeys: []aws.AccessKey{{ID: readerKey, Secret: secret}}, Policies: policies(
					`{"Effect":"Allow","Action":["s3:ListBucket","s3:GetObject"],"Resource":["arn:aws:s3:::` + bucketA + `","arn:aws:s3:::` + bucketA + `/*"]}`)},
			},
		}}},
		Azure: azure.Config{Tenants: []azure.Tenant{{
			ID: directory, Applications: []azure.Application{app(writerClient, writer), app(readerClient, reader)},
			StorageAccounts: []azure.StorageAccountConfig{{Name: blobAccount, RoleAssignments: []azure.StorageRole{
				{ClientID: writerClient, Role: "Storage Blob Data Contributor"}, {ClientID: readerClient, Role: "Storage Blob Data Reader", Container: bucketA},
			}}},
		}}},
		GCP: gcp.Config{Projects: []gcp.Project{{
			ID: "my-org-project", Number: "123456789012",
			Pools: []gcp.Pool{{ID: "tenants", Providers: []gcp.Provider{{
				ID: "kubernetes", IssuerURI: issuerURL, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
			}}}},
			Bindings: []gcp.Binding{google("roles/storage.objectAdmin", writer)},
			Buckets:  []gcp.Bucket{{Name: bucketA, Bindings: []gcp.Binding{google("roles/storage.objectViewer", reader)}}, {Name: bucketB}},
		}}},
	})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	issuer, err := oidc.NewIssuer(issuerURL, oidc.RS256)
	must(t, err)
	must(t, c.HandleIssuer(issuer))
	transport := c.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	return &world{c, issuer, &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// store accesses buckets or containers with an official client, as one caller.
type store interface {
	put(ctx context.Context, bucket, key, content string) error
	get(ctx context.Context, bucket, key string) (string, error)
	list(ctx context.Context, bucket, prefix string) ([]string, error)
}

// exercise writes objects with writer, and reads them with reader. The reader may only read bucket
// A. Each other call of the reader must return an error err for which code(err) == denied.
func exercise(t *testing.T, writer, reader store, code func(error) string, denied string) {
	t.Helper()
	ctx := t.Context()
	const key, content = "config/ünï & co.yaml", "hello world"
	for _, bucket := range []string{bucketA, bucketB} {
		must(t, writer.put(ctx, bucket, key, content))
		must(t, writer.put(ctx, bucket, "other", ""))
	}
	got, err := reader.get(ctx, bucketA, key)
	if err != nil || got != content {
		t.Errorf("read %q: %v", got, err)
	}
	keys, err := reader.list(ctx, bucketA, "config/")
	if err != nil || len(keys) != 1 || keys[0] != key {
		t.Errorf("list %q: %v", keys, err)
	}
	if keys, err := reader.list(ctx, bucketA, ""); err != nil || len(keys) != 2 {
		t.Errorf("list all %q: %v", keys, err)
	}
	_, err = reader.get(ctx, bucketB, key)
	if code(err) != denied {
		t.Errorf("read the other bucket: %v", err)
	}
	if _, err = reader.list(ctx, bucketB, ""); code(err) != denied {
		t.Errorf("list the other bucket: %v", err)
	}
	if err = reader.put(ctx, bucketA, key, "changed"); code(err) != denied {
		t.Errorf("write: %v", err)
	}
	if got, err := writer.get(ctx, bucketA, key); err != nil || got != content {
		t.Errorf("after all: %q, %v", got, err)
	}
}

func readAll(r io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return string(content), err
}

type s3Store struct{ *s3.Client }

func (s s3Store) put(ctx context.Context, bucket, key, content string) error {
	_, err := s.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(content)})
	return err
}

func (s s3Store) get(ctx context.Context, bucket, key string) (string, error) {
	out, err := s.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return "", err
	}
	return readAll(out.Body, nil)
}

func (s s3Store) list(ctx context.Context, bucket, prefix string) (keys []string, err error) {
	pages := s3.NewListObjectsV2Paginator(s.Client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix, MaxKeys: awssdk.Int32(1)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys, nil
}

func TestS3(t *testing.T) {
	w := newWorld(t)
	plane, err := dataplane.S3(bucketA, bucketB)
	must(t, err)
	w.AWS().ServeS3(plane)
	as := func(key string) store {
		return s3Store{s3.New(s3.Options{
			Region: region, Credentials: credentials.NewStaticCredentialsProvider(key, secret, ""), HTTPClient: w.client, Retryer: awssdk.NopRetryer{},
			RequestChecksumCalculation: awssdk.RequestChecksumCalculationWhenSupported,
		})}
	}
	exercise(t, as(writerKey), as(readerKey), func(err error) string {
		if api, ok := errors.AsType[smithy.APIError](err); ok {
			return api.ErrorCode()
		}
		return ""
	}, "AccessDenied")
}

// TestS3Command uploads with the unmodified aws command, in one request and in parts, and downloads
// the content again.
func TestS3Command(t *testing.T) {
	program, err := exec.LookPath("aws")
	if err != nil {
		t.Fatal("the aws command is missing: apt-get install awscli")
	}
	w := newWorld(t)
	plane, err := dataplane.S3(bucketA, bucketB)
	must(t, err)
	w.AWS().ServeS3(plane)
	must(t, w.Start(t.Context()))
	dir := t.TempDir()
	must(t, w.WriteCA(filepath.Join(dir, "ca.pem")))
	run := func(key string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"s3"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(w.Env("ca.pem"), "PATH="+os.Getenv("PATH"), "HOME="+dir, "LC_ALL=C.UTF-8", "AWS_REGION="+region, "AWS_DEFAULT_REGION="+region,
			"AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_MAX_ATTEMPTS=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	small, large := strings.Repeat("small ", 100), strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB, sent in two parts
	for name, content := range map[string]string{"small": small, "large": large} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		if out, err := run(writerKey, "cp", "--no-progress", name, "s3://"+bucketA+"/in/"+name); err != nil {
			t.Fatalf("upload %s: %v\n%s", name, err, out)
		}
		if out, err := run(readerKey, "cp", "--no-progress", "s3://"+bucketA+"/in/"+name, "back-"+name); err != nil {
			t.Fatalf("download %s: %v\n%s", name, err, out)
		}
		back, err := os.ReadFile(filepath.Join(dir, "back-"+name))
		if err != nil || string(back) != content {
			t.Errorf("%s came back with %d bytes of %d: %v", name, len(back), len(content), err)
		}
	}
	if out, err := run(readerKey, "ls", "s3://"+bucketA+"/in/"); err != nil || !strings.Contains(out, "large") || !strings.Contains(out, "small") {
		t.Errorf("list: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"ls", "s3://" + bucketB + "/"}, {"cp", "small", "s3://" + bucketA + "/small"}, {"rm", "s3://" + bucketA + "/in/small"}} {
		if out, err := run(readerKey, args...); err == nil || !strings.Contains(out, "AccessDenied") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// entra is an application that exchanges ServiceAccount tokens for tokens of Entra ID.
type entra struct {
	w               *world
	client, subject string
}

func (e entra) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	assertion, err := e.w.issuer.Mint(oidc.Claims{"sub": e.subject, "aud": "api://AzureADTokenExchange"})
	if err != nil {
		return azcore.AccessToken{}, err
	}
	token, err := e.w.token(ctx, "https://login.microsoftonline.com/"+directory+"/oauth2/v2.0/token", url.Values{
		"grant_type": {"client_credentials"}, "client_id": {e.client}, "scope": {"https://storage.azure.com/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {assertion},
	})
	return azcore.AccessToken{Token: token, ExpiresOn: time.Now().Add(time.Hour)}, err
}

func (w *world) token(ctx context.Context, endpoint string, form url.Values) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := w.client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.AccessToken == "" {
		return "", errors.New(answer.Description)
	}
	return answer.AccessToken, nil
}

type blobStore struct{ *azblob.Client }

func (s blobStore) put(ctx context.Context, bucket, key, content string) error {
	_, err := s.UploadBuffer(ctx, bucket, key, []byte(content), nil)
	return err
}

func (s blobStore) get(ctx context.Context, bucket, key string) (string, error) {
	out, err := s.DownloadStream(ctx, bucket, key, nil)
	return readAll(out.Body, err)
}

func (s blobStore) list(ctx context.Context, bucket, prefix string) (keys []string, err error) {
	one := int32(1)
	pages := s.NewListBlobsFlatPager(bucket, &azblob.ListBlobsFlatOptions{Prefix: &prefix, MaxResults: &one})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Segment.BlobItems {
			keys = append(keys, *b.Name)
		}
	}
	return keys, nil
}

func TestAzurite(t *testing.T) {
	w := newWorld(t)
	azurite, err := dataplane.StartAzurite(t.Context(), blobAccount)
	must(t, err)
	t.Cleanup(azurite.Close)
	w.Azure().ServeBlob(func(account azure.StorageAccount) http.Handler { return azurite.Blob(account.Name) })
	as := func(client, subject string) blobStore {
		c, err := azblob.NewClient("https://"+blobAccount+".blob.core.windows.net/", entra{w, client, subject}, &azblob.ClientOptions{
			ClientOptions: policy.ClientOptions{Transport: w.client, Retry: policy.RetryOptions{MaxRetries: -1}},
		})
		must(t, err)
		return blobStore{c}
	}
	admin := as(writerClient, writer)
	for _, container := range []string{bucketA, bucketB} {
		_, err := admin.CreateContainer(t.Context(), container, nil)
		must(t, err)
	}
	exercise(t, admin, as(readerClient, reader), func(err error) string {
		if bloberror.HasCode(err, bloberror.AuthorizationPermissionMismatch) {
			return "mismatch"
		}
		return ""
	}, "mismatch")
	if azurite.Blob("others") != nil {
		t.Error("there is an account that was not made")
	}
}

// google exchanges a ServiceAccount token at Google's STS, and adds the new token to each request.
type google struct {
	w       *world
	subject string
}

func (g google) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, err := g.w.issuer.Mint(oidc.Claims{"sub": g.subject, "aud": "https:" + pool})
	if err != nil {
		return nil, err
	}
	token, err := g.w.token(r.Context(), "https://sts.googleapis.com/v1/token", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {pool}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {raw},
	})
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return g.w.client.Transport.RoundTrip(r)
}

type gcsStore struct{ *storage.Client }

func (s gcsStore) put(ctx context.Context, bucket, key, content string) error {
	w := s.Bucket(bucket).Object(key).NewWriter(ctx)
	w.ChunkSize = 0 // upload in one request
	if _, err := io.WriteString(w, content); err != nil {
		return err
	}
	return w.Close()
}

func (s gcsStore) get(ctx context.Context, bucket, key string) (string, error) {
	r, err := s.Bucket(bucket).Object(key).NewReader(ctx)
	if err != nil {
		return "", err
	}
	return readAll(r, nil)
}

func (s gcsStore) list(ctx context.Context, bucket, prefix string) (keys []string, err error) {
	objects := s.Bucket(bucket).Objects(ctx, &storage.Query{Prefix: prefix})
	objects.PageInfo().MaxSize = 1
	for {
		o, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return keys, nil
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, o.Name)
	}
}

func TestGCS(t *testing.T) {
	for name, options := range map[string][]option.ClientOption{"XML reads": nil, "JSON reads": {storage.WithJSONReads()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			plane, closeServer, err := dataplane.GCS(bucketA, bucketB)
			must(t, err)
			t.Cleanup(closeServer)
			w.GCP().ServeStorage(plane)
			as := func(subject string) store {
				c, err := storage.NewClient(t.Context(), append(options, option.WithHTTPClient(&http.Client{Transport: google{w, subject}}))...)
				must(t, err)
				c.SetRetry(storage.WithPolicy(storage.RetryNever))
				t.Cleanup(func() { _ = c.Close() })
				return gcsStore{c}
			}
			exercise(t, as(writer), as(reader), func(err error) string {
				if api, ok := errors.AsType[*googleapi.Error](err); ok && api.Code == http.StatusForbidden {
					return "forbidden"
				}
				return ""
			}, "forbidden")
		})
	}
}
