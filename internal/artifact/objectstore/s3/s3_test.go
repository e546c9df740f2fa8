package s3_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/objectstoretest"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/s3"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// service is a fake of Amazon S3. It has what a bucket's reader needs: ListObjectsV2 with pages,
// GetObject with If-Match.
type service struct {
	objects  map[string]string
	page     int
	raw      bool // ignores encoding-type: keys are not encoded
	requests []*http.Request
}

func etag(content string) string { return fmt.Sprintf(`"%x"`, content) }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r)
	bucketName, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if host, _, _ := strings.Cut(r.Host, "."); strings.HasPrefix(r.Host, "virtual.") {
		bucketName, key = host, strings.TrimPrefix(r.URL.Path, "/")
	}
	if bucketName != "tenant-a" && bucketName != "virtual" {
		refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if key == "" && r.URL.Query().Get("list-type") == "2" {
		s.list(w, r.URL.Query())
		return
	}
	content, ok := s.objects[key]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case r.Header.Get("If-Match") != etag(content):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		// The client must not decode this encoding.
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", etag(content))
		_, _ = io.WriteString(w, content)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
}

func (s *service) list(w http.ResponseWriter, query url.Values) {
	type contents struct {
		Key, ETag string
		Size      int
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string   `xml:",omitempty"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []contents
	}
	if !s.raw {
		out.EncodingType = query.Get("encoding-type")
	}
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, query.Get("prefix")) && key > query.Get("continuation-token") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > s.page {
		keys = keys[:s.page]
		out.IsTruncated, out.NextContinuationToken = true, keys[len(keys)-1]
	}
	for _, key := range keys {
		name := key
		if out.EncodingType == "url" {
			name = strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
		}
		out.Contents = append(out.Contents, contents{name, etag(s.objects[key]), len(s.objects[key])})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

func keys() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", SessionToken: "session"}, nil
	})
}

func open(t *testing.T, opts s3.Options) objectstore.Storage {
	t.Helper()
	storage, err := s3.New(opts)
	must.Succeed(t, err)
	return storage
}

func TestListsEveryPage(t *testing.T) {
	for _, raw := range []bool{false, true} {
		s := &service{objects: map[string]string{"a b+c%/ü&<.yaml": "1", "d": "22", "e/": "", "e/f": "333", "z": "4"}, page: 2, raw: raw}
		storage := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Credentials: keys(), Transport: objectstoretest.Serve(t, s)})
		got, err := objectstoretest.List(t, storage, "")
		want := []objectstore.Object{
			{Key: "a b+c%/ü&<.yaml", Version: etag("1"), Size: 1},
			{Key: "d", Version: etag("22"), Size: 2},
			{Key: "e/", Version: etag("")},
			{Key: "e/f", Version: etag("333"), Size: 3},
			{Key: "z", Version: etag("4"), Size: 1},
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("raw %t: %+v, %v", raw, got, err)
		}
		if got, err := objectstoretest.List(t, storage, "e/"); err != nil || !slices.Equal(got, want[2:4]) {
			t.Errorf("with a prefix: %+v, %v", got, err)
		}
	}
}

func TestKeysThatXMLCannotHoldAreListed(t *testing.T) {
	s := &service{objects: map[string]string{"a\x01b": "1"}, page: 10}
	storage := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Transport: objectstoretest.Serve(t, s)})
	if got, err := objectstoretest.List(t, storage, ""); err != nil || len(got) != 1 || got[0].Key != "a\x01b" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOpensWhatWasListed(t *testing.T) {
	s := &service{objects: map[string]string{"a b+c%/ü?.yaml": "content"}, page: 10}
	storage := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Credentials: keys(), Transport: objectstoretest.Serve(t, s)})
	o := objectstore.Object{Key: "a b+c%/ü?.yaml", Version: etag("content"), Size: 7}
	body, err := storage.Open(t.Context(), o)
	must.Succeed(t, err)
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	s.objects[o.Key] = "changed"
	if _, err := storage.Open(t.Context(), o); origin.CodeOf(err) != origin.CodeChanged {
		t.Errorf("changed: %v", err)
	}
	delete(s.objects, o.Key)
	if _, err := storage.Open(t.Context(), o); origin.CodeOf(err) != origin.CodeChanged {
		t.Errorf("gone: %v", err)
	}
}

// TestChangedObjectIsRefusedWithoutTheServicesHelp checks a service that ignores If-Match and sends
// the current object, as some services do. An object with another entity tag must be refused.
func TestChangedObjectIsRefusedWithoutTheServicesHelp(t *testing.T) {
	answer := map[string]string{"a": `"2"`, "b": `1`, "c": ""}
	storage := open(t, s3.Options{
		Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true,
		Transport: objectstoretest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if etag := answer[strings.TrimPrefix(r.URL.Path, "/tenant-a/")]; etag != "" {
				w.Header().Set("ETag", etag)
			}
			_, _ = io.WriteString(w, "content")
		})),
	})
	for key, want := range map[string]origin.Code{"a": origin.CodeChanged, "b": "", "c": ""} {
		body, err := storage.Open(t.Context(), objectstore.Object{Key: key, Version: `"1"`, Size: 7})
		if origin.CodeOf(err) != want {
			t.Errorf("%s: %v", key, err)
		}
		if err == nil {
			_ = body.Close()
		}
	}
}

func TestRequestsAreSignedWithWhatIsGivenAndNothingElse(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENVIRONMENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-north-1")
	t.Setenv("AWS_ENDPOINT_URL", "https://evil.example")
	s := &service{page: 10}
	transport := objectstoretest.Serve(t, s)
	signed := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "eu-west-1", PathStyle: true, Credentials: keys(), Transport: transport})
	if _, err := objectstoretest.List(t, signed, ""); err != nil {
		t.Fatal(err)
	}
	anonymous := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "eu-west-1", PathStyle: true, Transport: transport})
	if _, err := objectstoretest.List(t, anonymous, ""); err != nil {
		t.Fatal(err)
	}
	virtual := open(t, s3.Options{Bucket: "virtual", Endpoint: "s3.example.com", Region: "eu-west-1", Credentials: keys(), Transport: transport})
	if _, err := objectstoretest.List(t, virtual, ""); err != nil {
		t.Fatal(err)
	}
	first := s.requests[0]
	if got := first.Header.Get("Authorization"); !strings.Contains(got, "Credential=AKIDEXAMPLE/") || !strings.Contains(got, "/eu-west-1/s3/aws4_request") {
		t.Errorf("Authorization %q", got)
	}
	if first.Header.Get("X-Amz-Security-Token") != "session" || first.Host != "s3.example.com" {
		t.Errorf("to %s: %v", first.Host, first.Header)
	}
	for name := range s.requests[1].Header {
		if name == "Authorization" || strings.HasPrefix(name, "X-Amz-Security") {
			t.Errorf("an anonymous request has %s", name)
		}
	}
	if host := s.requests[2].Host; host != "virtual.s3.example.com" {
		t.Errorf("virtual-hosted: to %s", host)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	s := &service{}
	transport := objectstoretest.Serve(t, s)
	none := open(t, s3.Options{Bucket: "missing", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Transport: transport})
	if _, err := objectstoretest.List(t, none, ""); origin.CodeOf(err) != origin.CodeNotFound || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Error(err)
	}
	if len(s.requests) != 1 {
		t.Errorf("%d requests", len(s.requests))
	}
	withdrawn := errors.New("withdrawn")
	refused := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, withdrawn })
	unsigned := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Credentials: refused, Transport: transport})
	if _, err := objectstoretest.List(t, unsigned, ""); err != withdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	if _, err := unsigned.Open(t.Context(), objectstore.Object{Key: "a", Version: "1"}); err != withdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	plain := open(t, s3.Options{Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true, Transport: objectstoretest.Serve(t, html{})})
	if _, err := objectstoretest.List(t, plain, ""); origin.CodeOf(err) != origin.CodeProtocol || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	for name, opts := range map[string]s3.Options{
		"no bucket": {Endpoint: "e", Region: "r", Transport: transport}, "no endpoint": {Bucket: "b", Region: "r", Transport: transport},
		"no region": {Bucket: "b", Endpoint: "e", Transport: transport}, "no transport": {Bucket: "b", Endpoint: "e", Region: "r"},
	} {
		if _, err := s3.New(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

type html struct{}

func (html) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "<html><body>secret & more</body>")
}

// TestPagesThatLeadNowhereAreAnError checks that an incomplete listing is refused, because its
// missing objects would look deleted.
func TestPagesThatLeadNowhereAreAnError(t *testing.T) {
	const object = `<Contents><Key>a</Key><ETag>"1"</ETag><Size>1</Size></Contents>`
	for name, next := range map[string]string{
		"the same page for ever": "<NextContinuationToken>x</NextContinuationToken>",
		"an empty token":         "<NextContinuationToken></NextContinuationToken>",
		"no token":               "",
	} {
		requests := 0
		storage := open(t, s3.Options{
			Bucket: "tenant-a", Endpoint: "s3.example.com", Region: "us-east-1", PathStyle: true,
			Transport: objectstoretest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				_, _ = io.WriteString(w, `<ListBucketResult><IsTruncated>true</IsTruncated>`+object+next+`</ListBucketResult>`)
			})),
		})
		if got, err := objectstoretest.List(t, storage, ""); origin.CodeOf(err) != origin.CodeProtocol || requests > 2 {
			t.Errorf("%s: %v, %v after %d requests", name, got, err, requests)
		}
	}
}
