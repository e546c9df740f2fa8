package gcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// strange returns a cloud whose names and issuer a stranger can guess. A stranger does not have the
// issuer's signing key.
func strange(tb testing.TB) *Cloud {
	tb.Helper()
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	must.Succeed(tb, err)
	c, err := New(Config{Projects: []Project{{
		ID: "my-org-project", Number: "1",
		Clusters:     []Cluster{{Location: "us-east1", Name: "c", Issuer: issuer.URL(), JWKS: issuer.JWKS()}},
		Repositories: []Repository{{Location: "us", Name: "r"}},
		Buckets:      []Bucket{{Name: "bucket"}},
	}}}, http.DefaultTransport)
	must.Succeed(tb, err)
	fail := func(http.ResponseWriter, *http.Request) { panic("a data plane was reached") }
	c.ServeStorage(http.HandlerFunc(fail))
	c.ServeRegistry(func(Registry) http.Handler { return http.HandlerFunc(fail) })
	return c
}

// ask sends a request to a cloud, and returns the answer and the journal's line.
func ask(c *Cloud, r *http.Request) (*httptest.ResponseRecorder, journal.Call) {
	server := &service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}
	w := httptest.NewRecorder()
	server.Serve(w, r, c.Service(r.Host))
	return w, server.Journal.Calls(journal.Filter{})[0]
}

// FuzzExchange checks that STS refuses every request without a valid token. The answer must be in
// OAuth's error format. The journal must have a reason and no principal.
func FuzzExchange(f *testing.F) {
	const token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.c2ln"
	const form = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token" +
		"&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform&subject_token=" + token + "&audience="
	f.Add("application/x-www-form-urlencoded", form+"identitynamespace%3Amy-org-project.svc.id.goog%3Ahttps%3A%2F%2Fcontainer.googleapis.com%2Fv1%2Fprojects%2Fmy-org-project%2Flocations%2Fus-east1%2Fclusters%2Fc")
	f.Add("application/x-www-form-urlencoded", form+"%2F%2Fiam.googleapis.com%2Fprojects%2F1%2Flocations%2Fglobal%2FworkloadIdentityPools%2Fpool%2Fproviders%2Fprovider")
	f.Add("application/json", `{"grantType":"urn:ietf:params:oauth:grant-type:token-exchange","audience":"//iam.googleapis.com/","subjectToken":"x"}`)
	c := strange(f)
	f.Fuzz(func(t *testing.T, contentType, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts.googleapis.com/v1/token", strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		w, call := ask(c, r)
		var answer struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
			AccessToken string `json:"access_token"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
		if w.Code < 400 || w.Code >= 500 || answer.Error == "" || answer.Description == "" || answer.AccessToken != "" {
			t.Errorf("HTTP %d %s", w.Code, w.Body)
		}
		if call.Code != answer.Error || call.Reason == "" || call.Principal != "" {
			t.Errorf("journal has %+v", call)
		}
	})
}

// FuzzStrangers checks that a caller without issued credentials reaches no data plane, with any
// path and any Authorization header.
func FuzzStrangers(f *testing.F) {
	for _, authorization := range []string{"", "Bearer x", "Basic b2F1dGgyYWNjZXNzdG9rZW46eA==", "Bearer ", "Basic x", "GOOG4-RSA-SHA256 Credential=x"} {
		for _, target := range []string{"/v2/my-org-project/r/app/manifests/1", "/v2/token?scope=repository:my-org-project/r/app:pull", "/storage/v1/b/bucket/o/a%2Fb", "/bucket/a", "/v2/"} {
			f.Add(target, authorization, http.MethodGet)
		}
	}
	c := strange(f)
	f.Fuzz(func(t *testing.T, target, authorization, method string) {
		for _, host := range []string{"us-docker.pkg.dev", "gcr.io", "storage.googleapis.com", "bucket.storage.googleapis.com", "iamcredentials.googleapis.com"} {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+"/"+strings.TrimPrefix(target, "/"), http.NoBody)
			if err != nil {
				return
			}
			r.Header.Set("Authorization", authorization)
			w, call := ask(c, r)
			granted := w.Code < 400
			// The registry issues tokens even to anonymous callers, so a call for a token may be
			// granted.
			anonymousToken := call.Operation == opRegistryToken && call.Resource == ""
			if granted && !anonymousToken || call.Principal != "" || (call.Code == "") != granted {
				t.Errorf("%s %s with %q: HTTP %d, journal has %+v", method, r.URL, authorization, w.Code, call)
			}
		}
	})
}

// FuzzPlace checks that an image's name begins with the project and the repository that readPlace
// reads from it.
func FuzzPlace(f *testing.F) {
	for _, name := range []string{"my-org-project/r/app", "example.com/project/r/a/b", "my-org-project/app"} {
		f.Add(name, "us-docker.pkg.dev")
		f.Add(name, "gcr.io")
		f.Add(name, "u-france-east1-docker.s3nsregistry.fr")
	}
	f.Fuzz(func(t *testing.T, name, host string) {
		ep, known := parseHost(host, []string{DefaultUniverse, "s3nsapis.fr"})
		if !known || ep.service != ServiceRegistry {
			return
		}
		p, ok := readPlace(name, ep)
		if !ok {
			return
		}
		domain, project, scoped := strings.Cut(p.project, ":")
		prefix := p.project
		if scoped {
			prefix = domain + "/" + project
		}
		if ep.gcr == "" {
			prefix += "/" + p.repository
		}
		if image, found := strings.CutPrefix(name, prefix+"/"); !found || image == "" {
			t.Errorf("%q is read as %+v", name, p)
		}
	})
}
