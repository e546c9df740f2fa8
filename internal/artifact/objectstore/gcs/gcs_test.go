package gcs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/gcs"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/objectstoretest"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// service is fake-gcs-server behind a check of the token.
type service struct {
	gcs    *fakestorage.Server
	public bool
	seen   atomic.Int64
}

func newService(t *testing.T) *service {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	must.Succeed(t, err)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "tenant-a"})
	return &service{gcs: server}
}

func (s *service) put(key, content, encoding string) {
	s.gcs.CreateObject(fakestorage.Object{
		ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "tenant-a", Name: key, ContentEncoding: encoding}, Content: []byte(content),
	})
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.seen.Add(1)
	if got := r.Header.Get("Authorization"); got != "Bearer token-of-tenant-a" && (!s.public || got != "") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":401,"message":"Anonymous caller does not have access","errors":[{"reason":"required"}]}}`)
		return
	}
	s.gcs.HTTPHandler().ServeHTTP(w, r)
}

const host = "storage.googleapis.com"

// serve returns a transport that connects to a handler. It fails the test for a connection to a
// host other than Google's.
func serve(t *testing.T, s http.Handler) http.RoundTripper {
	t.Helper()
	transport := objectstoretest.Serve(t, s)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, asked string) (net.Conn, error) {
		if asked != host+":443" {
			t.Errorf("a connection to %s", asked)
		}
		return dial(ctx, network, asked)
	}
	return transport
}

func open(t *testing.T, transport http.RoundTripper, name string, tokens oauth2.TokenSource) objectstore.Storage {
	t.Helper()
	storage, err := gcs.New(gcs.Options{Bucket: name, Endpoint: host, Tokens: tokens, Transport: transport})
	must.Succeed(t, err)
	return storage
}

func tokens() oauth2.TokenSource {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token-of-tenant-a"})
}

func TestListsAndOpens(t *testing.T) {
	s := newService(t)
	s.put("a b+c%/ü&<?.yaml", "one", "")
	s.put("d/e", "", "")
	s.put("d/f", "three", "")
	storage := open(t, serve(t, s), "tenant-a", tokens())
	got, err := objectstoretest.List(t, storage, "")
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Key != "a b+c%/ü&<?.yaml" || got[0].Size != 3 || len(got[0].Version) < 5 || got[2].Key != "d/f" {
		t.Errorf("%+v", got)
	}
	if some, err := objectstoretest.List(t, storage, "d/"); err != nil || !slices.Equal(some, got[1:]) {
		t.Errorf("with a prefix: %+v, %v", some, err)
	}
	body, err := storage.Open(t.Context(), got[0])
	must.Succeed(t, err)
	defer body.Close()
	if content, err := io.ReadAll(body); err != nil || string(content) != "one" {
		t.Errorf("%q, %v", content, err)
	}
	s.put("d/f", "changed", "")
	if _, err := storage.Open(t.Context(), got[2]); origin.CodeOf(err) != origin.CodeChanged {
		t.Errorf("changed: %v", err)
	}
}

func TestCompressedObjectStaysCompressed(t *testing.T) {
	var packed bytes.Buffer
	gz := gzip.NewWriter(&packed)
	_, _ = gz.Write([]byte("hello"))
	_ = gz.Close()
	s := newService(t)
	s.put("a.gz", packed.String(), "gzip")
	storage := open(t, serve(t, s), "tenant-a", tokens())
	got, err := objectstoretest.List(t, storage, "")
	if err != nil || len(got) != 1 || got[0].Size != int64(packed.Len()) {
		t.Fatalf("%+v, %v", got, err)
	}
	body, err := storage.Open(t.Context(), got[0])
	must.Succeed(t, err)
	defer body.Close()
	if content, err := io.ReadAll(body); err != nil || !bytes.Equal(content, packed.Bytes()) {
		t.Errorf("%q, %v", content, err)
	}
}

// TestPages asserts that all pages of a listing are read, and that only the needed fields are
// requested.
func TestPages(t *testing.T) {
	var asked []string
	storage := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, r.URL.Path+" "+q.Get("prefix")+" "+q.Get("pageToken"))
		if want := "nextPageToken,items(name,generation,size)"; q.Get("fields") != want {
			t.Errorf("asks for %q", q.Get("fields"))
		}
		if q.Get("pageToken") == "" {
			_, _ = io.WriteString(w, `{"nextPageToken":"two&x","items":[{"name":"p/a","generation":"1","size":"3"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"items":[{"name":"p/b","generation":"2","size":"4"}]}`)
	})), "tenant-a", tokens())
	got, err := objectstoretest.List(t, storage, "p/")
	if want := []objectstore.Object{{Key: "p/a", Version: "1", Size: 3}, {Key: "p/b", Version: "2", Size: 4}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if want := []string{"/storage/v1/b/tenant-a/o p/ ", "/storage/v1/b/tenant-a/o p/ two&x"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
}

// TestChecksum asserts that content with a wrong checksum is never returned completely.
func TestChecksum(t *testing.T) {
	for name, test := range map[string]struct {
		hash string
		good bool
	}{
		"right":            {"crc32c=mnG7TA==", true},
		"right, and MD5":   {"md5=XUFAKrxLKna5cZ2REBfFkg==,crc32c=mnG7TA==", true},
		"none":             {"", true},
		"of other content": {"crc32c=AAAAAA==", false},
		"not understood":   {"crc32c=AAAA", true},
	} {
		t.Run(name, func(t *testing.T) {
			storage := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("generation") != "7" || r.URL.EscapedPath() != "/storage/v1/b/tenant-a/o/d%2Fa" {
					t.Errorf("asks for %s", r.URL)
				}
				w.Header().Set("X-Goog-Hash", test.hash)
				_, _ = io.WriteString(w, "hello")
			})), "tenant-a", tokens())
			body, err := storage.Open(t.Context(), objectstore.Object{Key: "d/a", Version: "7", Size: 5})
			must.Succeed(t, err)
			defer body.Close()
			content, err := io.ReadAll(body)
			if good := err == nil && string(content) == "hello"; good != test.good || (!good && len(content) == 5) {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
}

// TestNobodyIsAskedForCredentials asserts that the client searches for no credentials. Google's
// clients would search in files, in variables and on a metadata server.
func TestNobodyIsAskedForCredentials(t *testing.T) {
	asked := false
	metadata := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer metadata.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/does/not/exist.json")
	s := newService(t)
	s.public = true
	s.put("a", "1", "")
	if got, err := objectstoretest.List(t, open(t, serve(t, s), "tenant-a", nil), ""); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if asked {
		t.Error("the metadata server was asked")
	}
}

// TestHostileListingsAreRefused checks the error for each listing that Google would not send.
func TestHostileListingsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		items string
		code  origin.Code
	}{
		"null":            {`null`, origin.CodeProtocol},
		"empty objects":   {`{}` + strings.Repeat(`,{}`, 2_000_000), origin.CodeTooLarge},
		"nulls":           {`null` + strings.Repeat(`,null`, 1_000_000), origin.CodeTooLarge},
		"a long name":     {`{"name":"` + strings.Repeat("x", 20<<20) + `"}`, origin.CodeTooLarge},
		"many fields":     {`{"name":"a","acl":[` + strings.Repeat(`{},`, 100_000) + `{}]}`, origin.CodeTooLarge},
		"no float":        {`{"x":1e999},` + strings.Repeat(`{},`, 100_000) + `{}`, origin.CodeTooLarge},
		"no JSON":         {`{`, origin.CodeProtocol},
		"a negative size": {`{"name":"a","size":"-1"}`, origin.CodeProtocol},
		"no number":       {`{"name":"a","size":"1x"}`, origin.CodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			storage := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"items":[`+test.items+`]}`)
			})), "tenant-a", nil)
			if got, err := objectstoretest.List(t, storage, ""); origin.CodeOf(err) != test.code || len(got) > 0 {
				t.Errorf("%d objects, %v", len(got), err)
			}
		})
	}
}

func TestErrorsAreTyped(t *testing.T) {
	s := newService(t)
	transport := serve(t, s)
	wrong := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token-of-tenant-b"})
	if _, err := objectstoretest.List(t, open(t, transport, "tenant-a", wrong), ""); origin.CodeOf(err) != origin.CodeUnauthorized || strings.Contains(err.Error(), "token-of") {
		t.Errorf("error %v", err)
	}
	if n := s.seen.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	if _, err := objectstoretest.List(t, open(t, transport, "missing", tokens()), ""); origin.CodeOf(err) != origin.CodeNotFound {
		t.Errorf("no bucket: %v", err)
	}
	unsigned := open(t, transport, "tenant-a", withdrawn{})
	if _, err := objectstoretest.List(t, unsigned, ""); err != errWithdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	if _, err := unsigned.Open(t.Context(), objectstore.Object{Key: "a", Version: "1"}); err != errWithdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	if _, err := unsigned.Open(t.Context(), objectstore.Object{Key: "a", Version: "x"}); origin.CodeOf(err) != origin.CodeProtocol {
		t.Errorf("error %v", err)
	}
	plain := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>secret")
	})), "tenant-a", nil)
	if _, err := objectstoretest.List(t, plain, ""); origin.CodeOf(err) != origin.CodeProtocol || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	for name, opts := range map[string]gcs.Options{
		"no bucket": {Endpoint: host, Transport: transport}, "no endpoint": {Bucket: "b", Transport: transport},
		"no transport": {Bucket: "b", Endpoint: host},
	} {
		if _, err := gcs.New(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

var errWithdrawn = errors.New("withdrawn")

type withdrawn struct{}

func (withdrawn) Token() (*oauth2.Token, error) { return nil, errWithdrawn }
