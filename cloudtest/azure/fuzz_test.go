package azure

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

const (
	fuzzTenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	fuzzClient = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
)

// refuseAll is a transport that reaches no issuer.
type refuseAll struct{}

func (refuseAll) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }

// FuzzTokenForm asserts that a form gets no token if no issuer signed its assertion. The answer to
// every form is a refusal in Entra ID's format. Neither the answer nor the journal has the
// assertion.
func FuzzTokenForm(f *testing.F) {
	c, err := New(Config{Tenants: []Tenant{{ID: fuzzTenant, Applications: []Application{{
		ClientID: fuzzClient, FederatedCredentials: []FederatedCredential{{Name: "cluster", Issuer: "https://issuer.example", Subject: "s"}},
	}}}}}, refuseAll{})
	if err != nil {
		f.Fatal(err)
	}
	const unsigned = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoicyIsImF1ZCI6ImFwaTovL0F6dXJlQURUb2tlbkV4Y2hhbmdlIiwiZXhwIjo0MDAwMDAwMDAwLCJpYXQiOjQwMDAwMDAwMDB9.c2lnbmF0dXJl"
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {fuzzClient}, "scope": {"https://storage.azure.com/.default"}, "client_assertion": {unsigned},
		"client_assertion_type": {assertionType},
	}
	f.Add(fuzzTenant, form.Encode())
	f.Add("common", "grant_type=password")
	f.Add(fuzzTenant, "client_assertion=a&client_assertion=b;c=%zz")
	f.Add("../x'y\x00", "scope=%00'<>\"&client_id=é")
	f.Fuzz(func(t *testing.T, tenantName, body string) {
		r := httptest.NewRequest(http.MethodPost, "https://login.microsoftonline.com/", strings.NewReader(body))
		r.URL.Path = "/" + strings.ReplaceAll(tenantName, "/", "") + "/oauth2/v2.0/token"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		server := &service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}
		w := httptest.NewRecorder()
		server.Serve(w, r, c.Service("login.microsoftonline.com"))
		call := server.Journal.Calls(journal.Filter{})[0]
		var answer entraError
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%q: %v", w.Body, err)
		}
		if w.Code < 400 || w.Code > 499 || len(answer.ErrorCodes) != 1 || call.Principal != "" || call.Granted() {
			t.Errorf("HTTP %d %s, %+v", w.Code, w.Body, call)
		}
		if code := "AADSTS" + strconv.Itoa(answer.ErrorCodes[0]); code != call.Code || !strings.HasPrefix(answer.ErrorDescription, code+": ") {
			t.Errorf("code %s, journal %s, description %s", code, call.Code, answer.ErrorDescription)
		}
		values, err := url.ParseQuery(body)
		assertion := values.Get("client_assertion")
		if err != nil || len(assertion) < 24 || strings.Contains(values.Get("client_id")+values.Get("scope")+tenantName, assertion) {
			return
		}
		if said := answer.ErrorDescription + call.Reason + call.Resource; strings.Contains(said, assertion) {
			t.Errorf("the assertion %q is in %s", assertion, said)
		}
	})
}

// FuzzScope asserts that readScope either refuses a scope or returns a resource. One word of the
// scope must be the resource followed by /.default.
func FuzzScope(f *testing.F) {
	for _, s := range []string{"https://storage.azure.com/.default", "a/.default b/.default", "openid", "/.default", "a//.default openid profile", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, scope string) {
		resource, no := readScope(scope)
		if (resource == "") != (no != nil) {
			t.Fatalf("%q: %q, %+v", scope, resource, no)
		}
		if no == nil && (!slices.Contains(strings.Fields(scope), resource+"/.default") || strings.ContainsAny(resource, " \t\n")) {
			t.Errorf("%q: %q", scope, resource)
		}
	})
}

// FuzzRegistryScopes asserts that an application whose role is limited to a prefix never gets
// access to other repositories, whatever scope it requests.
func FuzzRegistryScopes(f *testing.F) {
	for _, s := range []string{"repository:tenant-a/app:pull", "repository:tenant-a/../b:pull", "registry:catalog:*", "repository:*:*", "repository:tenant-b/app:pull,push", "::", "repository:tenant-a/x:*:y"} {
		f.Add(s)
	}
	role := RegistryRole{ClientID: fuzzClient, Role: "Container Registry Repository Reader", RepositoryPrefix: "tenant-a/"}
	reg := &registry{abac: true, assignments: []registryAssignment{{RegistryRole: role}}}
	who := registryToken{app: &application{clientID: fuzzClient}, grant: grantRefresh}
	f.Fuzz(func(t *testing.T, scope string) {
		ask, err := readScopes([]string{scope})
		if err != nil {
			return
		}
		for _, a := range reg.granted(who, ask) {
			if a.Type != "repository" || !strings.HasPrefix(a.Name, "tenant-a/") || path.Clean(a.Name) != a.Name || !strings.Contains(scope, a.Name) || len(a.Actions) == 0 {
				t.Errorf("%q: %+v", scope, a)
			}
			for _, action := range a.Actions {
				if action != actionPull && action != actionReadMetadata {
					t.Errorf("%q: %+v", scope, a)
				}
			}
		}
	})
}

// FuzzBlobPath asserts that readBlobRequest finds the container to which the cleaned path leads. A
// data plane may clean the path after the request was authorized.
func FuzzBlobPath(f *testing.F) {
	for _, s := range []string{"/", "/tenant-a/b", "/tenant-a/x%2F..%2F..%2Ftenant-b/c", "/tenant%2Da/b", "/tenant-a?restype=container&comp=list", "/a//b", "//a/b", "/$root/x", "/tenant-a/%5C..%5Cx"} {
		f.Add(http.MethodGet, s)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		req, no := readBlobRequest(&http.Request{Method: method, URL: u, Header: http.Header{}})
		if no != nil {
			return
		}
		read := method == http.MethodGet || method == http.MethodHead
		if (req.permission == permitRead) != read || req.operation == "" {
			t.Errorf("%s %s: %+v", method, target, req)
		}
		clean := path.Clean(u.Path)
		first, rest, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
		switch {
		case req.container == "":
			if clean != "/" {
				t.Errorf("%s %s: the account, but it leads to %s", method, target, clean)
			}
		case req.container == rootContainer:
			if rest != "" && first != rootContainer {
				t.Errorf("%s %s: the root container, but it leads to %s", method, target, clean)
			}
		case first != req.container || !isContainer(first):
			t.Errorf("%s %s: %s, but it leads to %s", method, target, req.container, clean)
		}
	})
}

// FuzzKeyRequest asserts that an application with a role on one key neither learns about the other
// key of the vault nor changes it. Every refusal has the format of key vaults, and the journal has
// its code.
func FuzzKeyRequest(f *testing.F) {
	c, err := New(Config{Tenants: []Tenant{{
		ID: fuzzTenant, Applications: []Application{{ClientID: fuzzClient}},
		KeyVaults: []KeyVaultConfig{{Name: "vault", Keys: []string{"own", "other"}, RoleAssignments: []KeyVaultRole{
			{ClientID: fuzzClient, Role: "Key Vault Administrator", Key: "own"},
		}}},
	}}}, refuseAll{})
	if err != nil {
		f.Fatal(err)
	}
	const host = "vault.vault.azure.net"
	token := c.issueAccessToken(c.tenants[fuzzTenant], c.tenants[fuzzTenant].apps[fuzzClient], "https://vault.azure.net", time.Now(), 1000*time.Hour)
	other := c.keys[host+"/keys/other"]
	for _, path := range []string{"own", "own/", "own//decrypt", "other", "own/../other", "own%2F..%2Fother/decrypt", "OWN/encrypt", "own/" + other.versions[0].id + "/encrypt", "own/x/y/decrypt"} {
		f.Add(http.MethodGet, "/keys/"+path, "api-version=7.4", "")
		f.Add(http.MethodPost, "/keys/"+path, "api-version=7.4", `{"alg":"RSA-OAEP","value":"AAAA"}`)
	}
	f.Add(http.MethodPatch, "/keys/own", "api-version=7.6", `{"attributes":{"enabled":true,"exp":-1},"key_ops":["encrypt"]}`)
	f.Add(http.MethodDelete, "/keys/other", "api-version=7.6&x=y", "{")
	f.Fuzz(func(t *testing.T, method, target, query, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || strings.Contains(target, "/create") || method == http.MethodDelete {
			return // new keys take long, and a deleted key refuses everything
		}
		u.RawQuery = query
		r := &http.Request{Method: method, URL: u, Host: host, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		server := &service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}
		w := httptest.NewRecorder()
		server.Serve(w, r, c.Service(host))
		call := server.Journal.Calls(journal.Filter{})[0]
		var answer struct{ Error vaultError }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Error.Code != call.Code || call.Principal == "" {
			t.Fatalf("%q: %v, %+v", w.Body, err, call)
		}
		if w.Code == http.StatusOK && call.Resource != host+"/keys/own" {
			t.Errorf("%s %s: %s, %+v", method, target, w.Body, call)
		}
		if w.Code != http.StatusOK && (w.Code < 400 || w.Code > 499 || call.Granted()) {
			t.Errorf("%s %s: HTTP %d %s, %+v", method, target, w.Code, w.Body, call)
		}
		if c.keys[host+"/keys/other"] != other {
			t.Errorf("%s %s changed the other key", method, target)
		}
	})
}
