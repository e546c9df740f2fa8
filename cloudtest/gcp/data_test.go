package gcp_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

const (
	dockerHost = "europe-west1-docker.pkg.dev"
	imageA     = projectID + "/tenant-a/app"
	imageB     = projectID + "/tenant-b/app"
	imageOpen  = projectID + "/open/app"
)

// withData adds repositories, buckets and their data planes.
func (w *world) withData(t *testing.T) {
	t.Helper()
	const reader, viewer = "roles/artifactregistry.reader", "roles/storage.objectViewer"
	for _, r := range []gcp.Repository{
		{Location: "europe-west1", Name: "tenant-a", Bindings: bind(reader, "serviceAccount:"+accountA)},
		{Location: "europe-west1", Name: "tenant-b", Bindings: bind("roles/artifactregistry.writer", principalOf("tenant-b", "tenant-b-bucket-sa"))},
		{Location: "europe-west1", Name: "open", Bindings: bind(reader, "allUsers")},
		{Location: "europe-west1", Name: "members", Bindings: bind(reader, "allAuthenticatedUsers")},
		{Location: "us", Name: "gcr.io", Bindings: bind(reader, "serviceAccount:"+accountA)},
	} {
		must.Succeed(t, w.GCP().PutRepository(projectID, r))
	}
	for _, b := range []gcp.Bucket{
		{Name: "tenant-a-bucket", Bindings: bind(viewer, "serviceAccount:"+accountA)},
		{Name: "tenant-b-bucket", Bindings: bind("roles/storage.objectAdmin", principalOf("tenant-b", "tenant-b-bucket-sa"))},
		{Name: "namespace-bucket", Bindings: bind("roles/storage.legacyObjectReader",
			"principalSet://iam.googleapis.com/projects/"+projectNumber+"/locations/global/workloadIdentityPools/"+gkePool+"/namespace/tenant-a")},
		{Name: "open.bucket", Bindings: bind(viewer, "allUsers")},
	} {
		must.Succeed(t, w.GCP().PutBucket(projectID, b))
	}
	var mu sync.Mutex
	planes := map[gcp.Registry]http.Handler{}
	w.GCP().ServeRegistry(func(r gcp.Registry) http.Handler {
		mu.Lock()
		defer mu.Unlock()
		if planes[r] == nil {
			p := rig.NewPlane()
			for _, image := range []string{imageA, imageB, imageOpen, projectID + "/members/app", projectID + "/app"} {
				p.Put("/v2/"+image+"/manifests/1", r.Host+" "+image)
			}
			planes[r] = p
		}
		return planes[r]
	})
	w.GCP().ServeStorage(newStoragePlane())
}

// storagePlane answers with the request's method and path. It has no object whose name contains
// "missing". It fails on a request that still carries credentials.
type storagePlane struct{}

func newStoragePlane() http.Handler { return storagePlane{} }

func (storagePlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "" || r.Host != "storage.googleapis.com":
		http.Error(w, "a data plane got credentials or another host", http.StatusTeapot)
	case strings.Contains(r.URL.Path, "missing"):
		w.Header().Set("X-Goog-Hash", "tells too much")
		http.Error(w, "no such object", http.StatusNotFound)
	default:
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(r.Method+" "+r.URL.EscapedPath()+" "), r.Body))
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func (w *world) get(t *testing.T, target, authorization string) answer {
	t.Helper()
	r := rig.NewRequest(t, http.MethodGet, target, "", "")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return w.do(t, r)
}

// TestArtifactRegistry checks who may read which repository, with each way to authenticate.
func TestArtifactRegistry(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	asA, asB := w.accountToken(t, ksaA, accountA), w.federated(t, ksaB)
	f := exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(clusterClaims(ksaB))))
	f.Set("scope", "https://www.googleapis.com/auth/devstorage.read_only")
	reading := w.exchange(t, f).text(t, "access_token")
	f = exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(clusterClaims(ksaB))))
	f.Set("scope", "https://www.googleapis.com/auth/monitoring")
	narrow := w.exchange(t, f).text(t, "access_token")
	for _, tt := range []struct {
		name, request, host, path, authorization string
		status                                   int
		text                                     string
	}{
		{"service account, password", "GET", dockerHost, imageA, basic("oauth2accesstoken", asA), 200, dockerHost + " " + imageA},
		{"gcloud's helper", "GET", dockerHost, imageA, basic("_dcgcloud_token", asA), 200, dockerHost + " " + imageA},
		{"bearer", "GET", dockerHost, imageA, "Bearer " + asA, 200, dockerHost + " " + imageA},
		{"federated", "GET", dockerHost, imageB, "Bearer " + asB, 200, imageB},
		{"federated, scope of storage", "GET", dockerHost, imageB, "Bearer " + reading, 200, imageB},
		{"gcr.io", "GET", "gcr.io", projectID + "/app", "Bearer " + asA, 200, "gcr.io"},
		{"push", "PUT", dockerHost, imageB, "Bearer " + asB, 201, ""},
		{"open to all", "GET", dockerHost, imageOpen, "", 200, imageOpen},
		{"members, service account", "GET", dockerHost, projectID + "/members/app", "Bearer " + asA, 200, ""},

		{"members, federated", "GET", dockerHost, projectID + "/members/app", "Bearer " + asB, 403, "DENIED"},
		{"other tenant", "GET", dockerHost, imageB, "Bearer " + asA, 403, `Permission \"artifactregistry.repositories.downloadArtifacts\" denied on resource \"projects/my-org-project/locations/europe-west1/repositories/tenant-b\" (or it may not exist)`},
		{"push by a reader", "PUT", dockerHost, imageA, "Bearer " + asA, 403, `uploadArtifacts`},
		{"push with a scope to read", "PUT", dockerHost, imageB, "Bearer " + reading, 403, "DENIED"},
		{"scope of something else", "GET", dockerHost, imageB, "Bearer " + narrow, 403, "DENIED"},
		{"delete by a writer", "DELETE", dockerHost, imageB, "Bearer " + asB, 403, `deleteArtifacts`},
		{"other location", "GET", "us-docker.pkg.dev", imageA, "Bearer " + asA, 403, "locations/us/repositories/tenant-a"},
		{"other of gcr.io's hosts", "GET", "eu.gcr.io", projectID + "/app", "Bearer " + asA, 403, "locations/europe/repositories/eu.gcr.io"},
		{"no such repository", "GET", dockerHost, projectID + "/none/app", "Bearer " + asA, 403, "or it may not exist"},
		{"no such project", "GET", dockerHost, "other-project/tenant-a/app", "Bearer " + asA, 403, "or it may not exist"},
		{"nobody", "GET", dockerHost, imageA, "", 401, "Unauthenticated request. Unauthenticated requests do not have permission"},
		{"wrong password", "GET", dockerHost, imageA, basic("oauth2accesstoken", "x"), 401, "failed authentication"},
		{"another user", "GET", dockerHost, imageA, basic("AWS", asA), 401, "failed authentication"},
		{"bad token on what is open", "GET", dockerHost, imageOpen, "Bearer x", 401, "failed authentication"},
		{"image without a repository", "GET", dockerHost, projectID + "/app", "Bearer " + asA, 404, "NAME_INVALID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Journal().Last()
			r := rig.NewRequest(t, tt.request, "https://"+tt.host+"/v2/"+tt.path+"/manifests/1", "", "")
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			a := w.do(t, r)
			if a.status != tt.status || !strings.Contains(a.body, tt.text) {
				t.Errorf("HTTP %d %s", a.status, a.body)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceRegistry})
			if len(calls) != 1 || calls[0].Status != tt.status || (calls[0].Code == "") != (tt.status < 300) {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
	must.Succeed(t, w.GCP().PutBindings(projectID, bind("roles/artifactregistry.reader", "serviceAccount:"+accountA)))
	if a := w.get(t, "https://"+dockerHost+"/v2/"+imageB+"/manifests/1", "Bearer "+asA); a.status != http.StatusOK {
		t.Errorf("by the project's binding: HTTP %d", a.status)
	}
	if a := w.get(t, "https://"+dockerHost+"/v2/"+projectID+"/none/app/manifests/1", "Bearer "+asA); a.status != http.StatusNotFound || !strings.Contains(a.body, "NAME_UNKNOWN") {
		t.Errorf("allowed, but not there: HTTP %d %s", a.status, a.body)
	}
}

// TestArtifactRegistryChallenge follows Docker's steps: it gets a challenge, requests a token, and
// uses the token. The token must be valid only at the registry that issued it. It must give no
// access after the repository's binding is withdrawn.
func TestArtifactRegistryChallenge(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	for target, want := range map[string]string{
		"https://" + dockerHost + "/v2/":                           `Bearer realm="https://` + dockerHost + `/v2/token"`,
		"https://gcr.io/v2/":                                       `Bearer realm="https://gcr.io/v2/token"`,
		"https://" + dockerHost + "/v2/" + imageA + "/manifests/1": `Bearer realm="https://` + dockerHost + `/v2/token",service="` + dockerHost + `",scope="repository:` + imageA + `:pull"`,
	} {
		if a := w.get(t, target, ""); a.status != http.StatusUnauthorized || a.header.Get("Www-Authenticate") != want {
			t.Errorf("%s: HTTP %d %s", target, a.status, a.header.Get("Www-Authenticate"))
		}
	}
	token := func(authorization string, scopes ...string) answer {
		return w.get(t, "https://"+dockerHost+"/v2/token?"+url.Values{"scope": scopes, "service": {dockerHost}}.Encode(), authorization)
	}
	login := basic("oauth2accesstoken", w.accountToken(t, ksaA, accountA))
	pull := func(image string) string { return "repository:" + image + ":pull" }
	for _, tt := range []struct {
		name, authorization string
		scopes              []string
		status              int
	}{
		{"login", login, nil, 200},
		{"pull", login, []string{pull(imageA)}, 200},
		{"pull of two", login, []string{pull(imageA), pull(imageOpen)}, 200},
		{"anonymous pull", "", []string{pull(imageOpen)}, 200},
		{"other tenant", login, []string{pull(imageB)}, 403},
		{"one of two", login, []string{pull(imageA), pull(imageB)}, 403},
		{"push", login, []string{"repository:" + imageA + ":pull,push"}, 403},
		{"delete", login, []string{"repository:" + imageA + ":delete"}, 403},
		{"anonymous pull of a tenant's", "", []string{pull(imageA)}, 403},
		{"wrong password", basic("oauth2accesstoken", "x"), nil, 401},
		{"a registry's own name", login, []string{"registry:catalog:*"}, 400},
		{"unknown action", login, []string{"repository:" + imageA + ":admin"}, 400},
		{"no repository", login, []string{"repository:app:pull"}, 400},
	} {
		if a := token(tt.authorization, tt.scopes...); a.status != tt.status || (a.status == 200) != (a.status < 300 && a.text(t, "token") != "") {
			t.Errorf("%s: HTTP %d %s", tt.name, a.status, a.body)
		}
	}
	own := "Bearer " + token(login, pull(imageA)).text(t, "token")
	anonymous := "Bearer " + token("", pull(imageOpen)).text(t, "token")
	for _, tt := range []struct {
		target, authorization string
		status                int
	}{
		{"https://" + dockerHost + "/v2/", own, 200},
		{"https://" + dockerHost + "/v2/", anonymous, 200},
		{"https://" + dockerHost + "/v2/" + imageA + "/manifests/1", own, 200},
		{"https://" + dockerHost + "/v2/" + imageB + "/manifests/1", own, 403},
		{"https://" + dockerHost + "/v2/" + imageOpen + "/manifests/1", anonymous, 200},
		{"https://" + dockerHost + "/v2/" + imageA + "/manifests/1", anonymous, 403},
		{"https://gcr.io/v2/" + projectID + "/app/manifests/1", own, 401},
		{"https://storage.googleapis.com/storage/v1/b/tenant-a-bucket/o", own, 401},
	} {
		if a := w.get(t, tt.target, tt.authorization); a.status != tt.status {
			t.Errorf("%s: HTTP %d %s, want %d", tt.target, a.status, a.body, tt.status)
		}
	}
	must.Succeed(t, w.GCP().PutRepository(projectID, gcp.Repository{Location: "europe-west1", Name: "tenant-a"}))
	if a := w.get(t, "https://"+dockerHost+"/v2/"+imageA+"/manifests/1", own); a.status != http.StatusForbidden {
		t.Errorf("a withdrawn binding is still in force: HTTP %d", a.status)
	}
}

// TestCloudStorage checks which caller may do which operation, in the JSON and the XML API.
func TestCloudStorage(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	asA, asB := w.accountToken(t, ksaA, accountA), w.federated(t, ksaB)
	federatedA := w.federated(t, ksaA)
	const host = "https://storage.googleapis.com"
	const noGet = "does not have storage.objects.get access to the Google Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist)."
	const noList = "does not have storage.objects.list access to the Google Cloud Storage bucket. Permission 'storage.objects.list' denied on resource (or it may not exist)."
	for _, tt := range []struct {
		name, method, target, token string
		status                      int
		text                        string
	}{
		{"list", "GET", host + "/storage/v1/b/tenant-a-bucket/o?prefix=x", asA, 200, "GET /storage/v1/b/tenant-a-bucket/o"},
		{"object", "GET", host + "/storage/v1/b/tenant-a-bucket/o/a%2Fb?alt=media", asA, 200, "GET /storage/v1/b/tenant-a-bucket/o/a%2Fb"},
		{"download", "GET", host + "/download/storage/v1/b/tenant-a-bucket/o/a%2Fb?alt=media", asA, 200, "a%2Fb"},
		{"XML list", "GET", host + "/tenant-a-bucket?prefix=x", asA, 200, "GET /tenant-a-bucket"},
		{"XML object", "GET", host + "/tenant-a-bucket/a/b", asA, 200, "GET /tenant-a-bucket/a/b"},
		{"XML object, bucket's host", "GET", "https://tenant-a-bucket.storage.googleapis.com/a/b%20c", asA, 200, "GET /tenant-a-bucket/a/b%20c"},
		{"direct principal", "GET", host + "/tenant-b-bucket/a", asB, 200, ""},
		{"direct principal, upload", "POST", host + "/upload/storage/v1/b/tenant-b-bucket/o?uploadType=media&name=a", asB, 200, ""},
		{"direct principal, delete", "DELETE", host + "/storage/v1/b/tenant-b-bucket/o/a", asB, 200, ""},
		{"direct principal, XML upload", "PUT", host + "/tenant-b-bucket/a", asB, 200, ""},
		{"namespace", "GET", host + "/namespace-bucket/a", federatedA, 200, ""},
		{"open to all", "GET", host + "/open.bucket/a", "", 200, ""},
		{"open to all, missing", "GET", host + "/storage/v1/b/open.bucket/o/missing", "", 404, "no such object"},

		{"other tenant", "GET", host + "/storage/v1/b/tenant-b-bucket/o/a", asA, 403, accountA + " " + noGet},
		{"other tenant, XML", "GET", host + "/tenant-b-bucket/a", asA, 403, "<Code>AccessDenied</Code><Message>Access denied.</Message><Details>" + accountA + " does not have storage.objects.get access"},
		{"other tenant, bucket's host", "GET", "https://tenant-b-bucket.storage.googleapis.com/a", asA, 403, "AccessDenied"},
		{"other tenant, federated", "GET", host + "/storage/v1/b/tenant-a-bucket/o", asB, 403, "Caller " + noList},
		{"same ServiceAccount, direct", "GET", host + "/tenant-a-bucket/a", federatedA, 403, "Caller does not have"},
		{"other namespace", "GET", host + "/namespace-bucket/a", asB, 403, "Caller"},
		{"viewer uploads", "POST", host + "/upload/storage/v1/b/tenant-a-bucket/o?name=a", asA, 403, "storage.objects.create"},
		{"viewer deletes", "DELETE", host + "/tenant-a-bucket/a", asA, 403, "storage.objects.delete"},
		{"viewer looks at the bucket", "GET", host + "/storage/v1/b/tenant-a-bucket", asA, 403, "storage.buckets.get access to the Google Cloud Storage bucket"},
		{"missing, without list", "GET", host + "/storage/v1/b/namespace-bucket/o/missing", federatedA, 403, "Caller " + noList},
		{"anonymous", "GET", host + "/storage/v1/b/tenant-a-bucket/o/a", "", 401, "Anonymous caller " + noGet},
		{"anonymous, XML", "GET", host + "/tenant-a-bucket/a", "", 403, "<Details>Anonymous caller"},
		{"bad token", "GET", host + "/storage/v1/b/tenant-a-bucket/o/a", "x", 401, "Invalid Credentials"},
		{"bad token on what is open", "GET", host + "/storage/v1/b/open.bucket/o/a", "x", 401, "Invalid Credentials"},
		{"bad token, XML", "GET", host + "/open.bucket/a", "x", 401, "<Code>AuthenticationRequired</Code>"},
		{"no such bucket", "GET", host + "/storage/v1/b/nobodys-bucket/o", asA, 404, "The specified bucket does not exist."},
		{"no such bucket, XML", "GET", host + "/nobodys-bucket/a", asA, 404, "<Code>NoSuchBucket</Code>"},
		{"no such bucket, anonymous", "GET", host + "/nobodys-bucket", "", 404, "NoSuchBucket"},

		{"policy", "GET", host + "/storage/v1/b/tenant-b-bucket/iam", asB, 404, "Not Found"},
		{"copy", "POST", host + "/storage/v1/b/tenant-a-bucket/o/a/rewriteTo/b/tenant-b-bucket/o/a", asB, 404, "Not Found"},
		{"all buckets", "GET", host + "/storage/v1/b?project=" + projectID, asB, 404, "Not Found"},
		{"batch", "POST", host + "/batch/storage/v1", asB, 404, "Not Found"},
		{"subresource", "GET", host + "/tenant-b-bucket?acl", asB, 400, "InvalidArgument"},
		{"leaves the bucket", "GET", host + "/tenant-b-bucket/../tenant-a-bucket/a", asB, 400, "InvalidArgument"},
		{"leaves the bucket, escaped", "GET", host + "/storage/v1/b/tenant-b-bucket/o/..%2F..%2Ftenant-a-bucket%2Fo%2Fa", asB, 404, "Not Found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Journal().Last()
			r := rig.NewRequest(t, tt.method, tt.target, "", "")
			if tt.token != "" {
				r.Header.Set("Authorization", "Bearer "+tt.token)
			}
			a := w.do(t, r)
			if a.status != tt.status || !strings.Contains(a.body, tt.text) || a.header.Get("X-Goog-Hash") != "" && tt.status != 404 {
				t.Errorf("HTTP %d %s", a.status, a.body)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceStorage})
			if len(calls) != 1 || calls[0].Status != tt.status || (calls[0].Code == "") != (tt.status < 300 || tt.name == "open to all, missing") {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
	for name, values := range map[string][]string{
		"X-Http-Method-Override": {"DELETE"}, "X-Goog-Copy-Source": {"", "/tenant-a-bucket/a"}, "X_Goog_Copy_Source": {"/tenant-a-bucket/a"},
	} {
		r := rig.NewRequest(t, http.MethodPut, host+"/tenant-b-bucket/a", "", "")
		r.Header.Set("Authorization", "Bearer "+asB)
		r.Header[name] = values
		if a := w.do(t, r); a.status != http.StatusBadRequest {
			t.Errorf("%s: HTTP %d %s", name, a.status, a.body)
		}
	}
}

// TestNoDataPlane checks that a service without a data plane answers "unavailable", and not "not
// found".
func TestNoDataPlane(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	w.GCP().ServeRegistry(nil)
	w.GCP().ServeStorage(nil)
	for _, target := range []string{"https://" + dockerHost + "/v2/" + imageOpen + "/manifests/1", "https://storage.googleapis.com/open.bucket/a"} {
		if a := w.get(t, target, ""); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: HTTP %d", target, a.status)
		}
	}
}

// TestJournalHasNoSecrets makes granted and refused calls with every kind of secret. The journal
// must contain none of the secrets.
func TestJournalHasNoSecrets(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	proof := minted(t)(w.cluster.Mint(clusterClaims(ksaA)))
	forged := minted(t)(w.cluster.Forge(clusterClaims(ksaA)))
	federated := w.exchange(t, exchangeForm(gkeAudience, proof)).text(t, "access_token")
	_ = w.exchange(t, exchangeForm(gkeAudience, forged))
	_ = w.exchange(t, exchangeForm(gkeAudience, "x"+proof))
	_ = w.exchange(t, exchangeForm("https:"+gkeAudience, proof))
	impersonated := w.impersonate(t, federated, accountA, `{"scope":["`+scopeAll+`"]}`).text(t, "accessToken")
	_ = w.impersonate(t, federated+"x", accountA, "{}")
	registry := w.get(t, "https://"+dockerHost+"/v2/token", basic("oauth2accesstoken", impersonated)).text(t, "token")
	for _, token := range []string{federated, impersonated, registry, federated + "x"} {
		for _, target := range []string{
			"https://" + dockerHost + "/v2/" + imageA + "/manifests/1?secret=parameter", "https://storage.googleapis.com/tenant-a-bucket/a?secret=parameter",
			"https://storage.googleapis.com/storage/v1/b/tenant-a-bucket/o?secret=parameter",
		} {
			_ = w.get(t, target, "Bearer "+token)
			_ = w.get(t, target, basic("oauth2accesstoken", token))
		}
	}
	calls := w.Journal().Calls(journal.Filter{})
	if len(calls) < 30 {
		t.Fatalf("only %d calls", len(calls))
	}
	told := fmt.Sprintf("%+v", calls)
	for name, secret := range map[string]string{"proof": proof, "forged proof": forged, "federated token": federated, "account's token": impersonated, "registry's token": registry, "query": "secret=parameter"} {
		parts := strings.Split(secret, ".")
		if strings.Contains(told, secret) || strings.Contains(told, parts[len(parts)-1]) {
			t.Errorf("the journal has the %s", name)
		}
	}
}

// TestChangesRaceCalls is for the race detector: policies change while calls read them, and no call
// sees half a change.
func TestChangesRaceCalls(t *testing.T) {
	w := newWorld(t)
	w.withData(t)
	proof := minted(t)(w.cluster.Mint(clusterClaims(ksaA)))
	asA := w.accountToken(t, ksaA, accountA)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			client := &http.Client{Transport: w.Transport(), Timeout: 30 * time.Second}
			for range 15 {
				for target, wants := range map[string][]int{
					"https://storage.googleapis.com/tenant-a-bucket/a":         {200, 403, 404},
					"https://" + dockerHost + "/v2/" + imageA + "/manifests/1": {200, 403},
				} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Authorization", "Bearer "+asA)
					res, err := client.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					if !bytes.Contains(fmt.Append(nil, wants), fmt.Append(nil, res.StatusCode)) {
						t.Errorf("%s: HTTP %d", target, res.StatusCode)
					}
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts.googleapis.com/v1/token", strings.NewReader(exchangeForm(gkeAudience, proof).Encode()))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
			}
		})
	}
	wg.Go(func() {
		config := worldConfig().GCP.Projects[0]
		for range 50 {
			for _, err := range []error{
				w.GCP().PutBindings(projectID, bind("roles/storage.objectViewer", "serviceAccount:"+accountB)),
				w.GCP().PutPool(projectID, config.Pools[0]), w.GCP().PutCluster(projectID, config.Clusters[0]),
				w.GCP().DeleteServiceAccount(projectID, accountB), w.GCP().PutServiceAccount(projectID, config.ServiceAccounts[1]),
				w.GCP().DeleteBucket(projectID, "tenant-a-bucket"),
				w.GCP().PutBucket(projectID, gcp.Bucket{Name: "tenant-a-bucket", Bindings: bind("roles/storage.objectViewer", "serviceAccount:"+accountA)}),
			} {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	wg.Wait()
}
