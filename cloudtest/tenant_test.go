package cloudtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// holding is a tenant's credential for one host. It gives every permission on certain paths and
// their subpaths.
type holding struct {
	host, authorization string
	service             func(host string) service.Service
	below               []string
	good                string // the target of a request that is granted
}

// FuzzTenant sends any request with the credentials of a tenant. The tenant has every permission on
// its own buckets and repositories. A data plane must not find another tenant's name in these parts
// of the request:
//   - the path, raw, decoded or cleaned
//   - the query
//   - a form
//   - a header
func FuzzTenant(f *testing.F) {
	for _, target := range []string{
		"/v2/tenant-a/app/blobs/uploads/?mount=sha256:0&from=tenant-b/app", "/v2/" + projectID + "/tenant-a/app/manifests/1", "/tenant-a/x%2F..%2F..%2Ftenant-b/y",
		"/storage/v1/b/tenant-a/o/a%2Frewriteto%2Fb", "/upload/storage/v1/b/tenant-a/o?name=x", "/tenant-a/b?comp=block&blockid=AAAA", "/tenant-a?restype=container&comp=list",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			f.Add(method, target, "X-Goog-Copy-Source", "/tenant-b/x", "from=tenant-b")
			f.Add(method, target, "Content-Type", "application/x-www-form-urlencoded", "mount=sha256:0&from=tenant-b/app")
		}
	}
	var now holding
	reached := 0
	plane := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached++
		said := fmt.Sprintf("%s %s %v", r.Method, r.RequestURI, r.Header)
		for _, reading := range []string{r.URL.Path, path.Clean(r.URL.Path), path.Clean(r.URL.EscapedPath())} {
			inside := false
			for _, below := range now.below {
				inside = inside || reading == below || strings.HasPrefix(reading, below+"/")
			}
			if !inside {
				panic("a data plane reads " + reading + " from " + said)
			}
		}
		uri, err := url.Parse(r.RequestURI)
		if r.RequestURI != "" && (err != nil || !strings.HasSuffix(uri.Path, r.URL.Path)) {
			panic("two targets: " + said)
		}
		if strings.HasPrefix(r.URL.Path, "/v2/") && (r.FormValue("mount") != "" || r.FormValue("from") != "") {
			panic("a mount: " + said)
		}
		for name := range r.Header {
			plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
			if plain == "authorization" || strings.HasSuffix(plain, "-copy-source") || strings.Contains(plain, "-method") || strings.HasSuffix(plain, "-original-url") {
				panic("a header: " + said)
			}
		}
	})
	holdings := tenantA(f, plane)
	send := func(ctx context.Context, method, target, body string, header http.Header) {
		r, err := http.NewRequestWithContext(ctx, method, "https://"+now.host+"/"+strings.TrimPrefix(target, "/"), strings.NewReader(body))
		if err != nil {
			return
		}
		r.RequestURI = r.URL.RequestURI()
		r.Header = header
		r.Header["Authorization"], r.Header["X-Ms-Version"] = []string{now.authorization}, []string{"2024-11-04"}
		(&service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}).Serve(httptest.NewRecorder(), r, now.service(now.host))
	}
	for _, now = range holdings {
		before := reached
		if send(f.Context(), http.MethodGet, now.good, "", http.Header{}); reached != before+1 {
			f.Fatalf("%s%s did not reach the data plane", now.host, now.good)
		}
	}
	f.Fuzz(func(t *testing.T, method, target, header, value, body string) {
		for _, now = range holdings {
			send(t.Context(), method, target, body, http.Header{header: {"", value}})
		}
	})
}

// tenantA makes a cloud with two tenants and returns the holdings of the first.
func tenantA(f *testing.F, plane http.Handler) []holding {
	f.Helper()
	const directory, client = "72f988bf-86f1-41af-91ab-2d7cd011db47", "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	const robot = "tenant-a@" + projectID + ".iam.gserviceaccount.com"
	c, err := cloudtest.New(cloudtest.Config{
		Azure: azure.Config{Tenants: []azure.Tenant{{
			ID: directory, Applications: []azure.Application{{ClientID: client}},
			Registries: []azure.RegistryConfig{{Name: "shared", ABAC: true, RoleAssignments: []azure.RegistryRole{
				{ClientID: client, Role: "Container Registry Repository Contributor", RepositoryPrefix: "tenant-a/"},
			}}},
			StorageAccounts: []azure.StorageAccountConfig{{Name: "shared", RoleAssignments: []azure.StorageRole{
				{ClientID: client, Role: "Storage Blob Data Owner", Container: "tenant-a"},
			}}},
		}}, ManagedIdentity: &azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{client}}},
		GCP: gcp.Config{
			Projects: []gcp.Project{{
				ID: projectID, Number: projectNumber, ServiceAccounts: []gcp.ServiceAccount{{Email: robot}},
				Repositories: []gcp.Repository{
					{Location: "europe-west1", Name: "tenant-a", Bindings: bind("roles/artifactregistry.admin", "serviceAccount:"+robot)}, {Location: "europe-west1", Name: "tenant-b"},
				},
				Buckets: []gcp.Bucket{{Name: "tenant-a", Bindings: bind("roles/storage.admin", "serviceAccount:"+robot)}, {Name: "tenant-b"}},
			}},
			Metadata: &gcp.Metadata{Project: projectID, ServiceAccount: robot},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	c.Azure().ServeRegistry(func(azure.Registry) http.Handler { return plane })
	c.Azure().ServeBlob(func(azure.StorageAccount) http.Handler { return plane })
	c.GCP().ServeRegistry(func(gcp.Registry) http.Handler { return plane })
	c.GCP().ServeStorage(plane)
	return holdingsOf(f, c)
}

// holdingsOf gets the first tenant's tokens from the metadata servers.
func holdingsOf(f *testing.F, c *cloudtest.Cloud) []holding {
	f.Helper()
	server := &service.Server{Faults: c.Faults(), Journal: c.Journal()}
	ask := func(r *http.Request, s service.Service) string {
		w := httptest.NewRecorder()
		server.Serve(w, r, s)
		var fields map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &fields); err != nil {
			f.Fatalf("HTTP %d %s: %v", w.Code, w.Body, err)
		}
		for _, name := range []string{"access_token", "refresh_token"} {
			if token, ok := fields[name].(string); ok {
				return token
			}
		}
		f.Fatalf("HTTP %d %s", w.Code, w.Body)
		return ""
	}
	managed := func(resource string) string {
		r := httptest.NewRequestWithContext(f.Context(), http.MethodGet, "/metadata/identity/oauth2/token?api-version=2018-02-01&resource="+url.QueryEscape(resource), nil)
		r.Header.Set("Metadata", "true")
		return ask(r, c.Azure().Metadata)
	}
	posted := func(target string, form url.Values) string {
		r := httptest.NewRequestWithContext(f.Context(), http.MethodPost, target, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return ask(r, c.Azure().Service(r.Host))
	}
	const registry = "shared.azurecr.io"
	refresh := posted("https://"+registry+"/oauth2/exchange", url.Values{
		"grant_type": {"access_token"}, "service": {registry}, "access_token": {managed("https://containerregistry.azure.net")},
	})
	access := posted("https://"+registry+"/oauth2/token", url.Values{
		"grant_type": {"refresh_token"}, "service": {registry}, "refresh_token": {refresh}, "scope": {"repository:tenant-a/app:* repository:tenant-b/app:*"},
	})
	metadata := httptest.NewRequestWithContext(f.Context(), http.MethodGet, "/computeMetadata/v1/instance/service-accounts/default/token", nil)
	metadata.Header.Set("Metadata-Flavor", "Google")
	google := "Bearer " + ask(metadata, c.GCP().Metadata)
	ofGoogle, ofAzure := c.GCP().Service, c.Azure().Service
	return []holding{
		{registry, "Bearer " + access, ofAzure, []string{"/v2/tenant-a/app"}, "/v2/tenant-a/app/manifests/1"},
		{"shared.blob.core.windows.net", "Bearer " + managed("https://storage.azure.com"), ofAzure, []string{"/tenant-a"}, "/tenant-a/b"},
		{dockerHost, google, ofGoogle, []string{"/v2/" + projectID + "/tenant-a"}, "/v2/" + projectID + "/tenant-a/app/manifests/1"},
		{"storage.googleapis.com", google, ofGoogle, []string{
			"/tenant-a", "/storage/v1/b/tenant-a", "/download/storage/v1/b/tenant-a", "/upload/storage/v1/b/tenant-a", "/resumable/upload/storage/v1/b/tenant-a",
		}, "/tenant-a/b"},
		{"tenant-a.storage.googleapis.com", google, ofGoogle, []string{"/tenant-a"}, "/b"},
	}
}
