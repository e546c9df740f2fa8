package gcp_test

import (
	"flag"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mask hides tokens, which differ from run to run.
func mask(s string) string {
	return regexp.MustCompile(`(ya29\.[cd]\.|AJAD5v)[\w-]+`).ReplaceAllString(s, "$1…")
}

// TestAnswers compares every kind of answer of the local Google Cloud, byte for byte, with golden
// files.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.withData(t)
		form := func(audience, token string) *http.Request {
			return rig.NewRequest(t, http.MethodPost, "https://sts.googleapis.com/v1/token", "application/x-www-form-urlencoded", exchangeForm(audience, token).Encode())
		}
		mint := func(change ...any) string {
			claims := clusterClaims(ksaA)
			for i := 0; i < len(change); i += 2 {
				claims[change[i].(string)] = change[i+1]
			}
			return minted(t)(w.cluster.Mint(claims))
		}
		inPool := func(namespace string) string { return minted(t)(w.pool.Mint(poolClaims(ksaA, namespace))) }
		as := func(r *http.Request, token string) *http.Request {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return r
		}
		federated, account := w.federated(t, ksaA), w.accountToken(t, ksaA, accountA)
		old := w.impersonate(t, federated, accountA, `{"scope":["`+scopeAll+`"],"lifetime":"1s"}`).text(t, "accessToken")
		f := exchangeForm(gkeAudience, mint())
		f.Set("scope", "https://www.googleapis.com/auth/devstorage.read_only")
		narrow := w.exchange(t, f).text(t, "access_token")
		time.Sleep(2 * time.Second)
		generate := func(token, email, body string) *http.Request {
			return as(rig.NewRequest(t, http.MethodPost, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+email+":generateAccessToken", "application/json", body), token)
		}
		get := func(target, token string) *http.Request {
			return as(rig.NewRequest(t, http.MethodGet, target, "", ""), token)
		}
		metadata := func(path string) *http.Request {
			r := get("http://metadata.google.internal/computeMetadata/v1/"+path, "")
			r.Header.Set("Metadata-Flavor", "Google")
			return r
		}
		const all, registry, storage = `{"scope":["` + scopeAll + `"]}`, "https://" + dockerHost + "/v2/", "https://storage.googleapis.com/"
		tests := map[string]*http.Request{
			"sts":                          form(gkeAudience, mint()),
			"sts-not-a-token":              form(gkeAudience, "hello world"),
			"sts-bad-audience":             form("https:"+poolAudience, inPool("tenant-a")),
			"sts-unknown-target":           form(poolAudience+"2", inPool("tenant-a")),
			"sts-wrong-issuer":             form(poolAudience, mint()),
			"sts-wrong-audience":           form(gkeAudience, mint("aud", "sts.amazonaws.com")),
			"sts-forged":                   form(gkeAudience, minted(t)(w.cluster.Forge(clusterClaims(ksaA)))),
			"sts-expired":                  form(gkeAudience, mint("iat", 946684800, "nbf", 946684800, "exp", time.Now().Add(-time.Hour).Unix())),
			"sts-condition":                form(poolAudience, inPool("tenant-c")),
			"sts-long-subject":             form(poolAudience, minted(t)(w.pool.Mint(poolClaims(ksaA+strings.Repeat("a", 128), "tenant-a")))),
			"sts-not-found":                get("https://sts.googleapis.com/v1/token", ""),
			"iamcredentials":               generate(federated, accountA, all),
			"iamcredentials-denied":        generate(federated, accountB, all),
			"iamcredentials-no-account":    generate(federated, "nobody@my-org-project.iam.gserviceaccount.com", all),
			"iamcredentials-no-token":      generate("", accountA, all),
			"iamcredentials-bad-token":     generate("ya29.x", accountA, all),
			"iamcredentials-old-token":     generate(old, accountA, all),
			"iamcredentials-scope":         generate(narrow, accountA, all),
			"iamcredentials-lifetime":      generate(federated, accountA, `{"scope":["x"],"lifetime":"3601s"}`),
			"metadata-token":               metadata("instance/service-accounts/default/token"),
			"metadata-account":             metadata("instance/service-accounts/default/?recursive=true"),
			"metadata-cluster-name":        metadata("instance/attributes/cluster-name"),
			"metadata-directory":           metadata(""),
			"metadata-not-found":           metadata("instance/attributes/none"),
			"metadata-no-header":           get("http://metadata.google.internal/computeMetadata/v1/project/project-id", ""),
			"registry-ping":                get(registry, account),
			"registry-no-credentials":      get(registry, ""),
			"registry-no-credentials-pull": get(registry+imageA+"/manifests/1", ""),
			"registry-bad-token":           get(registry, "x"),
			"registry-denied":              get(registry+imageB+"/manifests/1", account),
			"registry-token":               get(registry+"token?service="+dockerHost+"&scope=repository:"+imageA+":pull", account),
			"registry-token-anonymous":     get(registry+"token?scope=repository:"+imageA+":pull", ""),
			"storage-denied":               get(storage+"storage/v1/b/tenant-b-bucket/o/a", account),
			"storage-denied-list":          get(storage+"storage/v1/b/tenant-b-bucket/o", federated),
			"storage-anonymous":            get(storage+"storage/v1/b/tenant-b-bucket/o/a", ""),
			"storage-bad-token":            get(storage+"storage/v1/b/tenant-b-bucket/o/a", "x"),
			"storage-no-bucket":            get(storage+"storage/v1/b/no-bucket/o/a", account),
			"storage-xml-denied":           get(storage+"tenant-b-bucket/a", account),
			"storage-xml-anonymous":        get(storage+"tenant-b-bucket/a", ""),
			"storage-xml-bad-token":        get(storage+"tenant-b-bucket/a", "x"),
			"storage-xml-no-bucket":        get(storage+"no-bucket/a", account),
			"storage-xml-unknown":          get(storage+"tenant-b-bucket?acl", account),
		}
		files := rig.Golden{Dir: filepath.Join("testdata", "answers"), Update: *update, Mask: mask}
		check := func(tests map[string]*http.Request) {
			t.Helper()
			for name, r := range tests {
				res, err := w.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				files.Answer(t, name, res)
			}
		}
		check(tests)
		for service, kind := range map[string]fault.Kind{
			gcp.ServiceSTS: fault.Throttle, gcp.ServiceIAMCredentials: fault.Unavailable, gcp.ServiceRegistry: fault.Throttle, gcp.ServiceStorage: fault.Throttle,
			gcp.ServiceMetadata: fault.Malformed,
		} {
			if _, err := w.Faults().Add(fault.Fault{Service: service, Kind: kind}); err != nil {
				t.Fatal(err)
			}
		}
		check(map[string]*http.Request{
			"sts-throttled": form(gkeAudience, mint()), "iamcredentials-unavailable": generate(federated, accountA, all), "registry-throttled": get(registry, account),
			"storage-throttled": get(storage+"storage/v1/b/x/o", account), "storage-xml-throttled": get(storage+"xxx", account), "metadata-html": metadata("project/project-id"),
		})
		files.Complete(t)
		w.client.CloseIdleConnections()
	})
}
