package aws_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

const (
	bucketA     = "tenant-a-bucket"
	bucketB     = "tenant-b-bucket"
	bucketOther = "other-account-bucket"
	bucketUS    = "us-bucket"
	bucketCN    = "cn-bucket"

	roleS3 = "arn:aws:iam::" + account + ":role/tenant-a-s3"
)

// objects is an object store in memory. It refuses a request with credentials, with chunk framing,
// or without the bucket in the path.
type objects struct {
	mu      sync.Mutex
	content map[string]string // by path
}

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		if name == "Authorization" || strings.HasPrefix(name, "X-Minio-") || strings.HasPrefix(name, "X-Http-") || name == "X-Amz-Security-Token" || name == "X-Amz-Content-Sha256" || name == "X-Amz-Trailer" {
			http.Error(w, "a data plane got "+name, http.StatusTeapot)
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || int64(len(body)) != r.ContentLength || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") ||
		strings.Contains(r.URL.RawQuery, "X-Amz-") {
		http.Error(w, "a data plane got framing", http.StatusTeapot)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !strings.HasSuffix(bucket, "-bucket") {
		http.Error(w, "a data plane got another path than a bucket's", http.StatusTeapot)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch content, ok := o.content[r.URL.Path]; {
	case key == "":
		o.list(w, bucket, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut:
		o.content[r.URL.Path] = string(body) // the empty answer means success
	case r.Method == http.MethodDelete:
		delete(o.content, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		const missing = `<Error><Code>NoSuchKey</Code></Error>`
		w.Header().Set("Content-Length", strconv.Itoa(len(missing)))
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, missing)
	default:
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	}
}

func (o *objects) list(w http.ResponseWriter, bucket, prefix string) {
	type object struct{ Key string }
	var out struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Name     string
		Contents []object
	}
	out.Name = bucket
	for path := range o.content {
		if key, ok := strings.CutPrefix(path, "/"+bucket+"/"); ok && strings.HasPrefix(key, prefix) {
			out.Contents = append(out.Contents, object{key})
		}
	}
	slices.SortFunc(out.Contents, func(a, b object) int { return strings.Compare(a.Key, b.Key) })
	_ = xml.NewEncoder(w).Encode(out)
}

func statement(effect, action, resource, more string) string {
	return fmt.Sprintf(`{"Effect":%q,"Action":%s,"Resource":%q%s}`, effect, action, resource, more)
}

func document(statements ...string) json.RawMessage {
	return json.RawMessage(`{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`)
}

// s3World makes a cloud with these buckets:
//   - one per tenant
//   - one of another account
//   - one in another region
//   - one in another partition
//
// In its own bucket, tenant A may list below "shared/", read everything and write below "inbox/".
func s3World(t *testing.T) (*world, *objects) {
	t.Helper()
	w := newWorld(t)
	const arnA = "arn:aws:s3:::" + bucketA
	const listing = `,"Condition":{"StringLike":{"s3:prefix":"shared/*"}}`
	read := document(
		statement("Allow", `"s3:ListBucket"`, arnA, listing),
		statement("Allow", `"s3:GetObject"`, arnA+"/*", ""),
		statement("Allow", `["s3:PutObject","s3:DeleteObject"]`, arnA+"/inbox/*", ""),
		statement("Allow", `"s3:GetObject"`, "arn:aws:s3:::"+bucketOther+"/*", ""),
		statement("Allow", `"s3:GetObject"`, "arn:aws:s3:::"+bucketUS+"/*", ""),
	)
	tenant := aws.Role{Name: "tenant-a-s3", TrustPolicy: rig.TrustPolicy(subjectA), Policies: map[string]json.RawMessage{"s3": read}}
	must.Succeed(t, w.AWS().PutRole(account, tenant))
	must.Succeed(t, w.AWS().PutBucket(account, aws.Bucket{Region: region, Name: bucketA}))
	must.Succeed(t, w.AWS().PutBucket(account, aws.Bucket{Region: region, Name: bucketB}))
	must.Succeed(t, w.AWS().PutBucket(account, aws.Bucket{Region: "us-east-1", Name: bucketUS}))
	must.Succeed(t, w.AWS().PutBucket(otherAccount, aws.Bucket{Region: region, Name: bucketOther, Policy: document(strings.Replace(
		statement("Allow", `"s3:GetObject"`, "arn:aws:s3:::"+bucketOther+"/open/*", ""), "{", `{"Principal":{"AWS":"`+roleS3+`"},`, 1))}))
	must.Succeed(t, w.AWS().AddAccount(aws.Account{ID: "555555555555", Partition: "aws-cn", Buckets: []aws.Bucket{{Region: "cn-north-1", Name: bucketCN}}}))
	store := &objects{content: map[string]string{}}
	for _, b := range []string{bucketA, bucketB, bucketOther, bucketUS, bucketCN} {
		for _, key := range []string{"shared/config.yaml", "open/a", "secret"} {
			store.content["/"+b+"/"+key] = b + " " + key
		}
	}
	w.AWS().ServeS3(store)
	return w, store
}

// s3Client makes a client with the defaults of the SDK's shared configuration.
func s3Client(transport http.RoundTripper, creds awssdk.CredentialsProvider, opts ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		Region: region, Credentials: creds, HTTPClient: &http.Client{Transport: transport}, Retryer: awssdk.NopRetryer{},
		RequestChecksumCalculation: awssdk.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: awssdk.ResponseChecksumValidationWhenSupported,
	}, opts...)
}

func withoutChecksum(o *s3.Options) {
	o.RequestChecksumCalculation = awssdk.RequestChecksumCalculationWhenRequired
}

func pathStyle(o *s3.Options) { o.UsePathStyle = true }

func inRegion(region string) func(*s3.Options) { return func(o *s3.Options) { o.Region = region } }

func getObject(bucket, key string) func(*testing.T, *s3.Client) (string, error) {
	return func(t *testing.T, c *s3.Client) (string, error) {
		t.Helper()
		out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(out.Body)
		return string(body), err
	}
}

func putObject(bucket, key, content string) func(*testing.T, *s3.Client) (string, error) {
	return func(t *testing.T, c *s3.Client) (string, error) {
		t.Helper()
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(content)})
		return "", err
	}
}

// listObjects lists the objects below a prefix. If prefix is nil, the request has no prefix.
func listObjects(bucket string, prefix *string) func(*testing.T, *s3.Client) (string, error) {
	return func(t *testing.T, c *s3.Client) (string, error) {
		t.Helper()
		out, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: prefix})
		if err != nil {
			return "", err
		}
		var keys []string
		for _, o := range out.Contents {
			keys = append(keys, *o.Key)
		}
		return strings.Join(keys, " "), nil
	}
}

// listBuckets lists all pages of buckets, each bucket as "name" or "name@region".
func listBuckets(input s3.ListBucketsInput) func(*testing.T, *s3.Client) (string, error) {
	return func(t *testing.T, c *s3.Client) (string, error) {
		t.Helper()
		var names []string
		for in := input; ; {
			out, err := c.ListBuckets(t.Context(), &in)
			if err != nil {
				return "", err
			}
			if in.MaxBuckets != nil && len(out.Buckets) > int(*in.MaxBuckets) {
				t.Errorf("a page has %d buckets", len(out.Buckets))
			}
			for _, b := range out.Buckets {
				name := *b.Name
				if b.BucketRegion != nil {
					name += "@" + *b.BucketRegion
				}
				names = append(names, name)
			}
			if in.ContinuationToken = out.ContinuationToken; in.ContinuationToken == nil {
				return strings.Join(names, " "), nil
			}
		}
	}
}

// TestS3 checks which calls of the real SDK are allowed, and how the other calls are refused.
func TestS3(t *testing.T) {
	w, store := s3World(t)
	tenant := w.assume(t, roleS3, subjectA)
	nobody := credentials.NewStaticCredentialsProvider("AKIANOBODYNOBODYNOBO", pusherSecret, "")
	session, err := tenant.Retrieve(t.Context())
	must.Succeed(t, err)
	with := func(change func(*awssdk.Credentials)) awssdk.CredentialsProvider {
		c := session
		change(&c)
		return credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)
	}
	shared, inbox := awssdk.String("shared/"), "inbox/ünï + =&.txt"
	denied := outcome{"AccessDenied", 403}
	type call = func(*testing.T, *s3.Client) (string, error)
	bucket := func(b string, f func(*s3.Client, *string) error) call {
		return func(_ *testing.T, c *s3.Client) (string, error) { return "", f(c, &b) }
	}
	head := func(b string) call {
		return bucket(b, func(c *s3.Client, b *string) error {
			_, err := c.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: b})
			return err
		})
	}
	tests := []struct {
		name    string
		creds   awssdk.CredentialsProvider
		options func(*s3.Options)
		call    call
		want    outcome
		content string
		reason  string // text that the journal's reason must contain
	}{
		{"own object", tenant, nil, getObject(bucketA, "secret"), outcome{}, bucketA + " secret", ""},
		{"own object by path", tenant, pathStyle, getObject(bucketA, "secret"), outcome{}, bucketA + " secret", ""},
		{"own object by dual stack", tenant, func(o *s3.Options) { o.EndpointOptions.UseDualStackEndpoint = awssdk.DualStackEndpointStateEnabled }, getObject(bucketA, "secret"), outcome{}, bucketA + " secret", ""},
		{"own listing", tenant, nil, listObjects(bucketA, shared), outcome{}, "shared/config.yaml", ""},
		{"own listing by path", tenant, pathStyle, listObjects(bucketA, shared), outcome{}, "shared/config.yaml", ""},
		{"own listing without the prefix", tenant, nil, listObjects(bucketA, nil), denied, "", "s3:prefix wants"},
		{"own listing with another prefix", tenant, nil, listObjects(bucketA, awssdk.String("sha")), denied, "", "s3:prefix wants"},
		{"own listing, old form", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.ListObjects(t.Context(), &s3.ListObjectsInput{Bucket: b, Prefix: shared})
			return err
		}), outcome{}, "", ""},
		{"own bucket's head", tenant, nil, head(bucketA), outcome{"Forbidden", 403}, "", "s3:prefix wants"},
		{"object that is not there, without the right to list", tenant, nil, getObject(bucketA, "none"), denied, "", "s3:prefix wants"},
		{"object that is not there", pusher(), nil, getObject(bucketA, "none"), outcome{"NoSuchKey", 404}, "", ""},
		{"write", tenant, nil, putObject(bucketA, inbox, "hello"), outcome{}, "", ""},
		{"read what was written", tenant, nil, getObject(bucketA, inbox), outcome{}, "hello", ""},
		{"write by path", tenant, pathStyle, putObject(bucketA, inbox, ""), outcome{}, "", ""},
		{"read what was written by path", tenant, pathStyle, getObject(bucketA, inbox), outcome{}, "", ""},
		{"write without checksum", tenant, withoutChecksum, putObject(bucketA, inbox, "hello"), outcome{}, "", ""},
		{"write elsewhere", tenant, nil, putObject(bucketA, "secret", "x"), denied, "", "no statement"},
		{"delete", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: b, Key: &inbox})
			return err
		}), outcome{}, "", ""},
		{"delete elsewhere", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: b, Key: awssdk.String("secret")})
			return err
		}), denied, "", "no statement"},
		{"copy", pusher(), nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: b, Key: awssdk.String("x"), CopySource: awssdk.String(bucketB + "/secret")})
			return err
		}), outcome{"NotImplemented", 501}, "", "implies functionality"},
		{"access list", pusher(), nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: b, Key: awssdk.String("x"), ACL: s3types.ObjectCannedACLPublicRead})
			return err
		}), outcome{"NotImplemented", 501}, "", "implies functionality"},
		{"versions", pusher(), nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: b})
			return err
		}), outcome{"NotImplemented", 501}, "", "no such operation"},
		{"all buckets", pusher(), nil, listBuckets(s3.ListBucketsInput{}), outcome{}, strings.Join([]string{bucketA, bucketB, bucketUS}, " "), ""},
		{"all buckets, in pages", pusher(), nil, listBuckets(s3.ListBucketsInput{MaxBuckets: awssdk.Int32(1)}), outcome{}, bucketA + "@" + region + " " + bucketB + "@" + region + " " + bucketUS + "@us-east-1", ""},
		{"buckets with a prefix", pusher(), nil, listBuckets(s3.ListBucketsInput{Prefix: awssdk.String(bucketB[:8])}), outcome{}, bucketB + "@" + region, ""},
		{"buckets with a prefix that none has", pusher(), nil, listBuckets(s3.ListBucketsInput{Prefix: awssdk.String("none")}), outcome{}, "", ""},
		{"buckets of a region", pusher(), inRegion("us-east-1"), listBuckets(s3.ListBucketsInput{BucketRegion: awssdk.String("us-east-1")}), outcome{}, bucketUS + "@us-east-1", ""},
		{"buckets of another region", pusher(), nil, listBuckets(s3.ListBucketsInput{BucketRegion: awssdk.String("us-east-1")}), outcome{"InvalidArgument", 400}, "", "bucket-region"},
		{"a page of no buckets", pusher(), nil, listBuckets(s3.ListBucketsInput{MaxBuckets: awssdk.Int32(0)}), outcome{"InvalidArgument", 400}, "", "max-buckets"},
		{"a page after nothing", pusher(), nil, listBuckets(s3.ListBucketsInput{ContinuationToken: awssdk.String("x")}), outcome{"InvalidArgument", 400}, "", "continuation token"},
		{"all buckets, without permission", tenant, nil, listBuckets(s3.ListBucketsInput{}), denied, "", "no statement"},
		{"all buckets, unsigned", awssdk.AnonymousCredentials{}, nil, listBuckets(s3.ListBucketsInput{}), denied, "", "not signed"},
		{"other tenant's object", tenant, nil, getObject(bucketB, "secret"), denied, "", "no statement"},
		{"other tenant's listing", tenant, nil, listObjects(bucketB, shared), denied, "", "no statement"},
		{"other account's object that is shared", tenant, nil, getObject(bucketOther, "open/a"), outcome{}, bucketOther + " open/a", ""},
		{"other account's object", tenant, nil, getObject(bucketOther, "secret"), denied, "", "resource-based"},
		{"shared object, without own permission", bareUser(t, w), nil, getObject(bucketOther, "open/a"), denied, "", "policy"},
		{"expected owner", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: b, Key: awssdk.String("secret"), ExpectedBucketOwner: awssdk.String(account)})
			return err
		}), outcome{}, "", ""},
		{"another owner than expected", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: b, Key: awssdk.String("secret"), ExpectedBucketOwner: awssdk.String(otherAccount)})
			return err
		}), denied, "", "another account's"},
		{"bucket that is not there", tenant, nil, getObject("none-bucket", "secret"), outcome{"NoSuchBucket", 404}, "", "does not exist"},
		{"bucket of another partition", tenant, nil, getObject(bucketCN, "secret"), outcome{"NoSuchBucket", 404}, "", "does not exist"},
		{"bucket of another region", tenant, nil, getObject(bucketUS, "secret"), outcome{"PermanentRedirect", 301}, "", "the bucket is in us-east-1"},
		{"bucket of another region by path", tenant, pathStyle, getObject(bucketUS, "secret"), outcome{"PermanentRedirect", 301}, "", "the bucket is in us-east-1"},
		{"bucket of another region, there", tenant, inRegion("us-east-1"), getObject(bucketUS, "secret"), outcome{}, bucketUS + " secret", ""},
		{"signed for another region", tenant, func(o *s3.Options) {
			o.Region = "us-east-1"
			o.BaseEndpoint = awssdk.String("https://s3.eu-west-1.amazonaws.com")
		}, getObject(bucketA, "secret"), outcome{"AuthorizationHeaderMalformed", 400}, "", "the region 'us-east-1' is wrong; expecting 'eu-west-1'"},
		{"global endpoint", tenant, func(o *s3.Options) { o.BaseEndpoint = awssdk.String("https://s3.amazonaws.com") }, getObject(bucketA, "secret"), outcome{}, bucketA + " secret", ""},
		{"global endpoint, signed for its region", tenant, func(o *s3.Options) {
			o.Region = "us-east-1"
			o.BaseEndpoint = awssdk.String("https://s3.amazonaws.com")
		}, getObject(bucketA, "secret"), outcome{"AuthorizationHeaderMalformed", 400}, "", "expecting 'eu-west-1'"},
		{"global endpoint by path", pusher(), func(o *s3.Options) {
			o.Region, o.UsePathStyle = "us-east-1", true
			o.BaseEndpoint = awssdk.String("https://s3.amazonaws.com")
		}, getObject(bucketA, "secret"), outcome{"PermanentRedirect", 301}, "", "the bucket is in eu-west-1"},
		{"where the bucket is", pusher(), func(o *s3.Options) {
			o.Region, o.UsePathStyle = "us-east-1", true
			o.BaseEndpoint = awssdk.String("https://s3.amazonaws.com")
		}, func(t *testing.T, c *s3.Client) (string, error) {
			t.Helper()
			out, err := c.GetBucketLocation(t.Context(), &s3.GetBucketLocationInput{Bucket: awssdk.String(bucketA)})
			if err != nil {
				return "", err
			}
			return string(out.LocationConstraint), nil
		}, outcome{}, region, ""},
		{"where the bucket is, without permission", tenant, nil, bucket(bucketA, func(c *s3.Client, b *string) error {
			_, err := c.GetBucketLocation(t.Context(), &s3.GetBucketLocationInput{Bucket: b})
			return err
		}), denied, "", "no statement"},
		{"unsigned", awssdk.AnonymousCredentials{}, nil, getObject(bucketA, "secret"), denied, "", "not signed"},
		{"unknown key", nobody, nil, getObject(bucketA, "secret"), outcome{"InvalidAccessKeyId", 403}, "", "no such access key"},
		{"another secret", with(func(c *awssdk.Credentials) { c.SecretAccessKey += "x" }), nil, getObject(bucketA, "secret"), outcome{"SignatureDoesNotMatch", 403}, "", "another secret"},
		{"another session token", with(func(c *awssdk.Credentials) { c.SessionToken += "x" }), nil, getObject(bucketA, "secret"), outcome{"InvalidToken", 400}, "", "not the access key's"},
		{"no session token", with(func(c *awssdk.Credentials) { c.SessionToken = "" }), nil, getObject(bucketA, "secret"), outcome{"InvalidAccessKeyId", 403}, "", "token is missing"},
		{"user's key with a session token", credentials.NewStaticCredentialsProvider(pusherKey, pusherSecret, "x"), nil, getObject(bucketA, "secret"), outcome{"InvalidToken", 400}, "", "with a session token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			options := []func(*s3.Options){}
			if tt.options != nil {
				options = append(options, tt.options)
			}
			got, err := tt.call(t, s3Client(w.Transport(), tt.creds, options...))
			if diff := cmp.Diff(tt.want, outcomeOf(err)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s\n%v", diff, err)
			}
			if got != tt.content {
				t.Errorf("got %q, want %q", got, tt.content)
			}
			calls := w.Journal().Calls(journal.Filter{Service: "s3"})
			if last := calls[len(calls)-1]; !strings.Contains(last.Reason, tt.reason) || (tt.reason == "") != (last.Reason == "") {
				t.Errorf("journal says %+v, want reason %q", last, tt.reason)
			}
		})
	}
	if store.content["/"+bucketA+"/secret"] != bucketA+" secret" {
		t.Error("a refused request changed an object")
	}
	calls := w.Journal().Calls(journal.Filter{Service: "s3", Operation: "ListObjectsV2", Verdict: journal.Granted})
	if len(calls) != 2 || calls[0].Resource != "arn:aws:s3:::"+bucketA || !strings.Contains(calls[0].Principal, "assumed-role/tenant-a-s3/") {
		t.Errorf("journal has %+v", calls)
	}
}

// bareUser makes a user without permissions.
func bareUser(t *testing.T, w *world) awssdk.CredentialsProvider {
	t.Helper()
	const id, secret = "AKIABAREBAREBAREBARE", "bare-secret-bare-secret"
	must.Succeed(t, w.AWS().PutUser(account, aws.User{Name: "bare", AccessKeys: []aws.AccessKey{{ID: id, Secret: secret}}}))
	return credentials.NewStaticCredentialsProvider(id, secret, "")
}

// TestS3Uploads: the data plane stores the content that the SDK sends, in whatever form the SDK
// sends it. Content that was changed on the way is refused.
func TestS3Uploads(t *testing.T) {
	w, store := s3World(t)
	content := strings.Repeat("0123456789abcdef", 70_000)
	for name, change := range map[string]func(*s3.PutObjectInput){
		"default":   func(*s3.PutObjectInput) {},
		"CRC32":     func(in *s3.PutObjectInput) { in.ChecksumAlgorithm = s3types.ChecksumAlgorithmCrc32 },
		"CRC32C":    func(in *s3.PutObjectInput) { in.ChecksumAlgorithm = s3types.ChecksumAlgorithmCrc32c },
		"CRC64NVME": func(in *s3.PutObjectInput) { in.ChecksumAlgorithm = s3types.ChecksumAlgorithmCrc64nvme },
		"SHA1":      func(in *s3.PutObjectInput) { in.ChecksumAlgorithm = s3types.ChecksumAlgorithmSha1 },
		"SHA256":    func(in *s3.PutObjectInput) { in.ChecksumAlgorithm = s3types.ChecksumAlgorithmSha256 },
		"of a stream": func(in *s3.PutObjectInput) {
			in.Body, in.ContentLength = io.MultiReader(in.Body), awssdk.Int64(int64(len(content)))
		},
		"with MD5":     func(in *s3.PutObjectInput) { in.ContentMD5 = awssdk.String("rPkfUtAfzLT+0M53Tk8UTA==") },
		"with gzip":    func(in *s3.PutObjectInput) { in.ContentEncoding = awssdk.String("gzip") },
		"with a label": func(in *s3.PutObjectInput) { in.Metadata = map[string]string{"label": "x"} },
	} {
		t.Run(name, func(t *testing.T) {
			delete(store.content, "/"+bucketA+"/inbox/x")
			in := &s3.PutObjectInput{Bucket: awssdk.String(bucketA), Key: awssdk.String("inbox/x"), Body: strings.NewReader(content)}
			change(in)
			_, err := s3Client(w.Transport(), pusher()).PutObject(t.Context(), in)
			if name == "with MD5" {
				// The header Content-MD5 has the digest of different content.
				if diff := cmp.Diff(outcome{"BadDigest", 400}, outcomeOf(err)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			if err != nil || store.content["/"+bucketA+"/inbox/x"] != content {
				t.Errorf("stored %d bytes: %v", len(store.content["/"+bucketA+"/inbox/x"]), err)
			}
		})
	}
	// Unsigned content can be changed on the way. But then it does not match its checksum, so S3
	// must refuse it.
	flip := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte("hello"), []byte("jello"), 1)))
		return w.Transport().RoundTrip(r)
	})
	_, err := putObject(bucketA, "inbox/y", "hello")(t, s3Client(flip, pusher()))
	if diff := cmp.Diff(outcome{"BadDigest", 400}, outcomeOf(err)); diff != "" {
		t.Errorf("changed on the way (-want +got):\n%s", diff)
	}
	if _, stored := store.content["/"+bucketA+"/inbox/y"]; stored {
		t.Error("a changed content was stored")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestS3Presigned checks that presigned requests are granted until they expire or their session
// ends. A changed request must be refused.
func TestS3Presigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := s3World(t)
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		presign := func(creds awssdk.CredentialsProvider, expires time.Duration) *v4.PresignedHTTPRequest {
			out, err := s3.NewPresignClient(s3Client(transport, creds)).PresignGetObject(t.Context(),
				&s3.GetObjectInput{Bucket: awssdk.String(bucketA), Key: awssdk.String("shared/config.yaml")}, s3.WithPresignExpires(expires))
			must.Succeed(t, err)
			return out
		}
		fetch := func(target string) string {
			res, err := (&http.Client{Transport: transport}).Do(rig.NewRequest(t, http.MethodGet, target, "", ""))
			must.Succeed(t, err)
			var refusal struct{ Code, Message string }
			body := rig.ReadAll(t, res)
			if xml.Unmarshal([]byte(body), &refusal) == nil {
				return refusal.Code + ": " + refusal.Message
			}
			return body
		}
		user := presign(pusher(), 2*time.Hour).URL
		session := presign(w.assume(t, roleS3, subjectA), 2*time.Hour).URL
		const content = bucketA + " shared/config.yaml"
		steps := []struct{ name, url, want string }{
			{"user's", user, content},
			{"session's", session, content},
			{"another object", strings.Replace(user, "config", "secret", 1), "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method."},
			{"a longer life", strings.Replace(user, "Expires=7200", "Expires=7201", 1), "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method."},
			{"a parameter more", user + "&versionId=1", "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided. Check your key and signing method."},
			{"without a life", strings.Replace(user, "X-Amz-Expires=7200&", "", 1), "AuthorizationQueryParametersError: Error parsing the X-Amz-Credential parameter; signature is incomplete: AWS query-string parameters must include 'X-Amz-Expires'."},
			{"for another region", strings.Replace(user, "%2Feu-west-1%2F", "%2Fus-east-1%2F", 1), "AuthorizationQueryParametersError: Error parsing the X-Amz-Credential parameter; the region 'us-east-1' is wrong; expecting 'eu-west-1'"},
		}
		for _, s := range steps {
			if got := fetch(s.url); got != s.want {
				t.Errorf("%s: %q, want %q", s.name, got, s.want)
			}
		}
		time.Sleep(61 * time.Minute) // the session has ended
		if got := fetch(user); got != content {
			t.Errorf("user's, after an hour: %q", got)
		}
		if got := fetch(session); got != "ExpiredToken: The provided token has expired." {
			t.Errorf("session's, after its end: %q", got)
		}
		time.Sleep(time.Hour)
		if got := fetch(user); got != "AccessDenied: Request has expired" {
			t.Errorf("user's, after its life: %q", got)
		}
	})
}

// TestRawS3 checks S3's answers to requests that no SDK would send.
func TestRawS3(t *testing.T) {
	w, store := s3World(t)
	user := awssdk.Credentials{AccessKeyID: pusherKey, SecretAccessKey: pusherSecret}
	const host = "https://s3.eu-west-1.amazonaws.com/"
	const own = host + bucketA + "/"
	tests := []struct {
		name, method, target, body string
		change                     func(*http.Request) // changes the request before it is signed
		status                     int
		code                       string
	}{
		{"object", "GET", own + "secret", "", nil, 200, ""},
		{"path with ..", "GET", own + "../" + bucketB + "/secret", "", nil, 400, "InvalidURI"},
		{"path with a double slash", "GET", host + bucketA + "//secret", "", nil, 400, "InvalidURI"},
		{"path that begins with two slashes", "GET", host + "/" + bucketB + "/secret", "", nil, 400, "InvalidURI"},
		// At a virtual host, the whole path is the key. So the key begins with the other bucket's
		// name.
		{"virtual host with a path of another bucket", "GET", "https://" + bucketA + ".s3.eu-west-1.amazonaws.com/" + bucketB + "/secret", "", nil, 404, ""},
		{"key that is too long", "GET", own + strings.Repeat("x", 1025), "", nil, 400, "KeyTooLongError"},
		{"bucket that cannot be", "GET", host + "Tenant_A/secret", "", nil, 400, "InvalidBucketName"},
		{"folder", "PUT", own + "folder/", "", nil, 200, ""},
		{"prefix twice", "GET", own + "?list-type=2&prefix=a&prefix=b", "", nil, 400, "InvalidArgument"},
		{"access list", "GET", own + "secret?acl=", "", nil, 501, "NotImplemented"},
		{"header in the query", "PUT", own + "x?x-amz-copy-source=%2F" + bucketB + "%2Fsecret", "", nil, 501, "NotImplemented"},
		{"several deletions", "POST", own + "?delete=", "<Delete/>", nil, 501, "NotImplemented"},
		{"another method", "PATCH", own + "secret", "", nil, 501, "NotImplemented"},
		{"new bucket", "PUT", host + "new-bucket", "", nil, 501, "NotImplemented"},
		{"a store's own header", "DELETE", own + "x", "", func(r *http.Request) { r.Header.Set("X-Minio-Force-Delete", "true") }, 204, ""},
		{"method in a header", "GET", own + "secret", "", func(r *http.Request) { r.Header.Set("X-Http-Method-Override", "DELETE") }, 200, ""},
		{"archive to be unpacked", "PUT", own + "x", "tar", func(r *http.Request) { r.Header.Set("X-Amz-Meta-Snowball-Auto-Extract", "true") }, 501, "NotImplemented"},
		{"metadata", "PUT", own + "described", "hello", func(r *http.Request) { r.Header.Set("X-Amz-Meta-A_b", "c") }, 200, ""},
		{"no length", "PUT", own + "x", "hello", func(r *http.Request) { r.ContentLength, r.Body = -1, io.NopCloser(io.MultiReader(r.Body)) }, 411, "MissingContentLength"},
		{"for another service", "GET", own + "secret", "", func(r *http.Request) { r.Header.Set("Test-Service", "sts") }, 400, "AuthorizationHeaderMalformed"},
		{"by a slow clock", "GET", own + "secret", "", func(r *http.Request) { r.Header.Set("Test-Skew", "-16m") }, 403, "RequestTimeTooSkewed"},
		{"without hash", "GET", own + "secret", "", func(r *http.Request) { r.Header.Del("X-Amz-Content-Sha256") }, 400, "InvalidRequest"},
		{"another hash", "PUT", own + "x", "hello", func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", strings.Repeat("0", 64)) }, 400, "XAmzContentSHA256Mismatch"},
		{"no basic authentication", "GET", own + "secret", "", func(r *http.Request) { r.Header.Set("Test-Basic", "1") }, 400, "AuthorizationHeaderMalformed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rig.NewRequest(t, tt.method, tt.target, "", tt.body)
			r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			if tt.change != nil {
				tt.change(r)
			}
			signS3(t, r, user)
			before := w.Journal().Last()
			res, err := w.Client().Do(r)
			must.Succeed(t, err)
			body := rig.ReadAll(t, res)
			if res.StatusCode != tt.status || (tt.code != "" && !strings.Contains(body, "<Code>"+tt.code+"</Code>")) {
				t.Errorf("HTTP %d %s, want %d %s", res.StatusCode, body, tt.status, tt.code)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: "s3"})
			if len(calls) != 1 || calls[0].Code != tt.code || calls[0].Status != tt.status {
				t.Errorf("journal has %+v", calls)
			}
			if !strings.HasPrefix(res.Header.Get("X-Amz-Bucket-Region"), region) && strings.Contains(tt.target, bucketA) && tt.code != "InvalidURI" {
				t.Error("the bucket's region is not told")
			}
		})
	}
	if _, ok := store.content["/"+bucketA+"/x"]; ok {
		t.Error("a refused upload was stored")
	}
	if content, ok := store.content["/"+bucketA+"/folder/"]; !ok || content != "" {
		t.Error("the folder was not stored under its name")
	}
}

// signS3 signs a request by S3's rules. Headers that begin with Test- control the signature, and
// are removed.
func signS3(t *testing.T, r *http.Request, creds awssdk.Credentials) {
	t.Helper()
	service, now := "s3", time.Now()
	if s := r.Header.Get("Test-Service"); s != "" {
		service = s
	}
	if skew, err := time.ParseDuration(r.Header.Get("Test-Skew")); err == nil {
		now = now.Add(skew)
	}
	basic := r.Header.Get("Test-Basic") != ""
	for _, name := range []string{"Test-Service", "Test-Skew", "Test-Basic"} {
		r.Header.Del(name)
	}
	if basic {
		r.SetBasicAuth(creds.AccessKeyID, creds.SecretAccessKey)
		return
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	must.Succeed(t, signer.SignHTTP(t.Context(), creds, r, hash, service, region, now))
}

func TestS3Faults(t *testing.T) {
	w, _ := s3World(t)
	for kind, want := range map[fault.Kind]outcome{
		fault.Throttle: {"SlowDown", 503}, fault.Unavailable: {"ServiceUnavailable", 503}, fault.InternalFailure: {"InternalError", 500},
	} {
		w.Faults().Clear()
		if _, err := w.Faults().Add(fault.Fault{Service: "s3", Operation: "GetObject", Kind: kind}); err != nil {
			t.Fatal(err)
		}
		client := s3Client(w.Transport(), pusher())
		_, err := getObject(bucketA, "secret")(t, client)
		if diff := cmp.Diff(want, outcomeOf(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		if _, err := listObjects(bucketA, nil)(t, client); err != nil {
			t.Errorf("%s: another operation: %v", kind, err)
		}
	}
	w.Faults().Clear()
	if _, err := w.Faults().Add(fault.Fault{Service: "s3", Kind: fault.Malformed}); err != nil {
		t.Fatal(err)
	}
	_, err := listObjects(bucketA, nil)(t, s3Client(w.Transport(), pusher()))
	if broken := (*smithy.DeserializationError)(nil); !errors.As(err, &broken) {
		t.Errorf("malformed: %v", err)
	}
}

// TestBucketsOfTheConfiguration checks that PutBucket refuses the buckets that S3 does not allow.
// DeleteBucket must delete only the account's own buckets.
func TestBucketsOfTheConfiguration(t *testing.T) {
	w, _ := s3World(t)
	policyOf := func(resource, action string) json.RawMessage {
		return document(strings.Replace(statement("Allow", `"`+action+`"`, resource, ""), "{", `{"Principal":"*",`, 1))
	}
	for name, tt := range map[string]struct {
		account string
		bucket  aws.Bucket
		field   string
	}{
		"no region":                  {account, aws.Bucket{Name: "a-bucket"}, "region"},
		"another partition's region": {account, aws.Bucket{Name: "a-bucket", Region: "cn-north-1"}, "region"},
		"short name":                 {account, aws.Bucket{Name: "ab", Region: region}, "name"},
		"long name":                  {account, aws.Bucket{Name: strings.Repeat("a", 64), Region: region}, "name"},
		"capital letters":            {account, aws.Bucket{Name: "Bucket", Region: region}, "name"},
		"two dots":                   {account, aws.Bucket{Name: "a..b", Region: region}, "name"},
		"an address":                 {account, aws.Bucket{Name: "10.0.0.1", Region: region}, "name"},
		"reserved prefix":            {account, aws.Bucket{Name: "xn--a", Region: region}, "name"},
		"reserved suffix":            {account, aws.Bucket{Name: "a--x-s3", Region: region}, "name"},
		"another account's":          {otherAccount, aws.Bucket{Name: bucketA, Region: region}, "name"},
		"another partition's":        {account, aws.Bucket{Name: bucketCN, Region: region}, "name"},
		"moved":                      {account, aws.Bucket{Name: bucketA, Region: "eu-west-2"}, "region"},
		"policy on another bucket":   {account, aws.Bucket{Name: bucketA, Region: region, Policy: policyOf("arn:aws:s3:::"+bucketA+"b/*", "s3:GetObject")}, "policy"},
		"policy on everything":       {account, aws.Bucket{Name: bucketA, Region: region, Policy: policyOf("*", "s3:GetObject")}, "policy"},
		"policy of another service":  {account, aws.Bucket{Name: bucketA, Region: region, Policy: policyOf("arn:aws:s3:::"+bucketA, "ecr:*")}, "policy"},
		"policy without principal":   {account, aws.Bucket{Name: bucketA, Region: region, Policy: document(statement("Allow", `"s3:*"`, "arn:aws:s3:::"+bucketA, ""))}, "policy"},
	} {
		err := w.AWS().PutBucket(tt.account, tt.bucket)
		if refusal := (*setting.Error)(nil); !errors.As(err, &refusal) || refusal.Field != tt.field {
			t.Errorf("%s: %v, want field %s", name, err, tt.field)
		}
	}
	if err := w.AWS().DeleteBucket(otherAccount, bucketA); !errors.Is(err, setting.ErrNotFound) {
		t.Errorf("delete another account's: %v", err)
	}
	if err := w.AWS().DeleteBucket(account, bucketA); err != nil {
		t.Error(err)
	}
	_, err := getObject(bucketA, "secret")(t, s3Client(w.Transport(), pusher()))
	if diff := cmp.Diff(outcome{"NoSuchBucket", 404}, outcomeOf(err)); diff != "" {
		t.Errorf("after its deletion (-want +got):\n%s", diff)
	}
}
