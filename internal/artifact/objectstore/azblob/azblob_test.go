package azblob_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/azblob"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore/objectstoretest"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// service is a fake of Azure Blob Storage. It has what a container's reader needs: List Blobs with
// markers, Get Blob with If-Match.
type service struct {
	objects  map[string]string
	page     int
	public   bool
	requests []*http.Request
}

func etag(content string) string { return fmt.Sprintf("0x%x", content) }

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="https://evil.example/x/oauth2/authorize" resource_id="https://evil.example"`)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r)
	containerName, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case !s.public && r.Header.Get("Authorization") != "Bearer token-of-tenant-a":
		refuse(w, http.StatusUnauthorized, "NoAuthenticationInformation")
	case r.Header.Get("x-ms-version") == "":
		refuse(w, http.StatusBadRequest, "MissingRequiredHeader")
	case containerName != "tenant-a":
		refuse(w, http.StatusNotFound, "ContainerNotFound")
	case key == "" && query.Get("restype") == "container" && query.Get("comp") == "list":
		s.list(w, query.Get("prefix"), query.Get("marker"))
	default:
		content, ok := s.objects[key]
		switch {
		case !ok:
			refuse(w, http.StatusNotFound, "BlobNotFound")
		case r.Header.Get("If-Match") != etag(content):
			refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
		default:
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("ETag", etag(content))
			_, _ = io.WriteString(w, content)
		}
	}
}

func (s *service) list(w http.ResponseWriter, prefix, marker string) {
	type properties struct {
		Size int    `xml:"Content-Length"`
		ETag string `xml:"Etag"`
	}
	type item struct {
		Name       string
		Properties properties
	}
	var out struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      []item   `xml:"Blobs>Blob"`
		NextMarker string
	}
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) && key > marker {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) > s.page {
		keys = keys[:s.page]
		out.NextMarker = keys[len(keys)-1]
	}
	for _, key := range keys {
		out.Blobs = append(out.Blobs, item{key, properties{len(s.objects[key]), etag(s.objects[key])}})
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(out)
}

type credential struct {
	token  string
	err    error
	scopes []string
}

func (c *credential) GetToken(_ context.Context, opts policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.scopes = opts.Scopes
	return azcore.AccessToken{Token: c.token, ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

const host = "account.blob.core.windows.net"

func open(t *testing.T, opts azblob.Options) objectstore.Storage {
	t.Helper()
	if opts.Container == "" {
		opts.Container = "tenant-a"
	}
	opts.Endpoint = host
	storage, err := azblob.New(opts)
	must.Succeed(t, err)
	return storage
}

func TestListsEveryPage(t *testing.T) {
	s := &service{objects: map[string]string{"a b+c%/ü&<.yaml": "1", "d": "22", "e/f": "333", "z": ""}, page: 2}
	c := &credential{token: "token-of-tenant-a"}
	storage := open(t, azblob.Options{Credential: c, Transport: objectstoretest.Serve(t, s)})
	got, err := objectstoretest.List(t, storage, "")
	want := []objectstore.Object{
		{Key: "a b+c%/ü&<.yaml", Version: etag("1"), Size: 1},
		{Key: "d", Version: etag("22"), Size: 2},
		{Key: "e/f", Version: etag("333"), Size: 3},
		{Key: "z", Version: etag("")},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := objectstoretest.List(t, storage, "e/"); err != nil || !slices.Equal(got, want[2:3]) {
		t.Errorf("with a prefix: %+v, %v", got, err)
	}
	if !slices.Equal(c.scopes, []string{"https://storage.azure.com/.default"}) {
		t.Errorf("scopes %q", c.scopes)
	}
	for _, r := range s.requests {
		if r.Host != host {
			t.Errorf("a request to %s", r.Host)
		}
	}
}

// TestDirectoriesAreNoObjects lists an account with a hierarchical namespace. Its directories must
// not be listed as objects.
func TestDirectoriesAreNoObjects(t *testing.T) {
	storage := open(t, azblob.Options{Transport: objectstoretest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.URL.Query().Get("maxresults"); n != "1000" {
			t.Errorf("maxresults %q", n)
		}
		_, _ = io.WriteString(w, `<EnumerationResults><Blobs>`+
			`<Blob><Name>d</Name><Properties><Etag>1</Etag><Content-Length>0</Content-Length><ResourceType>directory</ResourceType></Properties></Blob>`+
			`<Blob><Name>d/a</Name><Properties><Etag>2</Etag><Content-Length>3</Content-Length><ResourceType>file</ResourceType></Properties></Blob>`+
			`</Blobs></EnumerationResults>`)
	}))})
	if got, err := objectstoretest.List(t, storage, ""); err != nil || !slices.Equal(got, []objectstore.Object{{Key: "d/a", Version: "2", Size: 3}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTokensAreForTheAudience(t *testing.T) {
	c := &credential{token: "token-of-tenant-a"}
	storage := open(t, azblob.Options{Credential: c, Audience: "https://storage.cloud.example", Transport: objectstoretest.Serve(t, &service{page: 1})})
	if _, err := objectstoretest.List(t, storage, ""); err != nil || !slices.Equal(c.scopes, []string{"https://storage.cloud.example/.default"}) {
		t.Errorf("scopes %q, %v", c.scopes, err)
	}
}

func TestOpensWhatWasListed(t *testing.T) {
	const key = "a b+c%/ü?#.yaml"
	s := &service{objects: map[string]string{key: "content"}, page: 10}
	storage := open(t, azblob.Options{Credential: &credential{token: "token-of-tenant-a"}, Transport: objectstoretest.Serve(t, s)})
	o := objectstore.Object{Key: key, Version: etag("content"), Size: 7}
	body, err := storage.Open(t.Context(), o)
	must.Succeed(t, err)
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	s.objects[key] = "changed"
	if _, err := storage.Open(t.Context(), o); origin.CodeOf(err) != origin.CodeChanged {
		t.Errorf("changed: %v", err)
	}
	delete(s.objects, key)
	if _, err := storage.Open(t.Context(), o); origin.CodeOf(err) != origin.CodeChanged {
		t.Errorf("gone: %v", err)
	}
}

// TestErrorsAreTyped checks the code of each failure. The service's challenge names another token
// endpoint, which the client must not ask.
func TestErrorsAreTyped(t *testing.T) {
	s := &service{page: 10}
	transport := objectstoretest.Serve(t, s)
	c := &credential{token: "token-of-tenant-b"}
	if _, err := objectstoretest.List(t, open(t, azblob.Options{Credential: c, Transport: transport}), ""); origin.CodeOf(err) != origin.CodeUnauthorized || strings.Contains(err.Error(), "token-of") {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(c.scopes, []string{"https://storage.azure.com/.default"}) || len(s.requests) != 1 {
		t.Errorf("scopes %q after %d requests", c.scopes, len(s.requests))
	}
	if _, err := objectstoretest.List(t, open(t, azblob.Options{Transport: transport}), ""); origin.CodeOf(err) != origin.CodeUnauthorized {
		t.Errorf("anonymous: %v", err)
	}
	if got := s.requests[1].Header.Get("Authorization"); got != "" {
		t.Errorf("an anonymous request has the Authorization %q", got)
	}
	missing := open(t, azblob.Options{Container: "missing", Credential: &credential{token: "token-of-tenant-a"}, Transport: transport})
	if _, err := objectstoretest.List(t, missing, ""); origin.CodeOf(err) != origin.CodeNotFound {
		t.Errorf("no container: %v", err)
	}
	withdrawn := errors.New("withdrawn")
	unsigned := open(t, azblob.Options{Credential: &credential{err: withdrawn}, Transport: transport})
	if _, err := objectstoretest.List(t, unsigned, ""); err != withdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	if _, err := unsigned.Open(t.Context(), objectstore.Object{Key: "a", Version: "1"}); err != withdrawn { //nolint:errorlint // the very error
		t.Errorf("error %v", err)
	}
	plain := open(t, azblob.Options{Transport: objectstoretest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>secret")
	}))})
	if _, err := objectstoretest.List(t, plain, ""); origin.CodeOf(err) != origin.CodeProtocol || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	for name, opts := range map[string]azblob.Options{
		"no container": {Endpoint: host, Transport: transport}, "no endpoint": {Container: "c", Transport: transport},
		"no transport": {Container: "c", Endpoint: host},
	} {
		if _, err := azblob.New(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPublicContainerIsReadWithoutCredential(t *testing.T) {
	s := &service{objects: map[string]string{"a": "1"}, page: 10, public: true}
	if got, err := objectstoretest.List(t, open(t, azblob.Options{Transport: objectstoretest.Serve(t, s)}), ""); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
