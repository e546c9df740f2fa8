package gcp_test

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

const (
	ksaAdministrator = "system:serviceaccount:operators:administrator"

	resourceManager = "https://cloudresourcemanager.googleapis.com/v1/projects/"
	serviceUsage    = "https://serviceusage.googleapis.com/v1/projects/"
	iamAPI          = "https://iam.googleapis.com/v1/projects/"
	registryAPI     = "https://artifactregistry.googleapis.com/v1/projects/"
)

// managementRequest returns a request to an API that manages a project. The request is a POST if it
// has a body. An empty token is not sent.
func managementRequest(t *testing.T, token, target, body string) *http.Request {
	t.Helper()
	r := rig.NewRequest(t, http.MethodGet, target, "", "")
	if body != "" {
		r = rig.NewRequest(t, http.MethodPost, target, "application/json", body)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// administer gives roles on the project to an administrator, a ServiceAccount of the GKE cluster.
// It returns an access token of this ServiceAccount.
func (w *world) administer(t *testing.T, roles ...string) string {
	t.Helper()
	var bindings []gcp.Binding
	for _, role := range roles {
		bindings = append(bindings, bind(role, principalOf("operators", "administrator"))...)
	}
	must.Succeed(t, w.GCP().PutBindings(projectID, bindings))
	return w.federated(t, ksaAdministrator)
}

// TestManagementAnswers sets up trust as an administrator does. First, a project comes to trust an
// issuer. Then a repository and a service account come to trust a subject of the issuer. The test
// compares every answer, byte for byte, with golden files.
func TestManagementAnswers(t *testing.T) {
	const (
		pools     = iamAPI + projectID + "/locations/global/workloadIdentityPools"
		providers = pools + "/made/providers"
		made      = "?workloadIdentityPoolId=made"
		oidc      = "?alt=json&workloadIdentityPoolProviderId=oidc"
		provider  = `{"attributeMapping":{"google.subject":"assertion.sub"},"disabled":false,"oidc":{"issuerUri":"` + poolIssuer + `"}}`
		accounts  = iamAPI + projectID + "/serviceAccounts"
		account   = "made-account@" + projectID + ".iam.gserviceaccount.com"
		repo      = registryAPI + projectID + "/locations/europe-west1/repositories/tenant-a"
		inPool    = "projects/" + projectNumber + "/locations/global/workloadIdentityPools/"
		member    = "principal://iam.googleapis.com/" + inPool + "made/subject/" + ksaA
		enable    = serviceUsage + projectID + "/services:batchEnable"
	)
	policyOf := func(etag, role, member string) string {
		return `{"policy":{"bindings":[{"members":["` + member + `"],"role":"` + role + `"}],"etag":"` + etag + `","version":3}}`
	}
	const reader, user = "roles/artifactregistry.reader", "roles/iam.workloadIdentityUser"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.client.CloseIdleConnections()
		must.Succeed(t, w.GCP().PutRepository(projectID, gcp.Repository{Location: "europe-west1", Name: "tenant-a"}))
		w.GCP().ServeRegistry(func(gcp.Registry) http.Handler {
			p := rig.NewPlane()
			p.Put("/v2/"+imageA+"/manifests/1", "an image")
			return p
		})
		tenant := w.federated(t, ksaA)
		admin := w.administer(t, "roles/serviceusage.serviceUsageAdmin", "roles/iam.workloadIdentityPoolAdmin", "roles/iam.serviceAccountAdmin", "roles/artifactregistry.admin")
		f := exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(clusterClaims(ksaAdministrator))))
		f.Set("scope", "https://www.googleapis.com/auth/cloud-platform.read-only")
		narrow := w.exchange(t, f).text(t, "access_token")
		files := rig.Golden{Dir: filepath.Join("testdata", "management"), Update: *update, Mask: func(s string) string {
			return regexp.MustCompile(`(operations/)[\w-]{24}|("uniqueId": "|"oauth2ClientId": ")[0-9]{21}`).ReplaceAllString(s, "$1$2…")
		}}
		exchange := func(provider string) answer {
			audience := "//iam.googleapis.com/" + inPool + "made/providers/" + provider
			claims := poolClaims(ksaA, "tenant-a")
			claims["aud"] = "https:" + audience
			return w.exchange(t, exchangeForm(audience, minted(t)(w.pool.Mint(claims))))
		}
		for _, step := range []struct {
			// A step with a name is a call, whose answer is compared with a golden file. A step
			// without a name sets one of the expected statuses below.
			name, token, target, body string
			exchange                  int // expected status of STS for the new provider
			pull                      int // expected status of the registry
			impersonate               int // expected status of IAM Credentials
		}{
			{name: "project-no-token", target: resourceManager + projectID},
			{name: "project-bad-token", token: "ya29.x", target: resourceManager + projectID},
			{name: "project-scope", token: narrow, target: resourceManager + projectID},
			{name: "project-denied", token: tenant, target: resourceManager + projectID},
			{name: "project-missing", token: admin, target: resourceManager + "no-such-project"},
			{name: "project-query", token: admin, target: resourceManager + projectID + "?fields=projectNumber"},
			{name: "project", token: admin, target: resourceManager + projectID + "?alt=json"},
			{name: "project-by-number", token: admin, target: resourceManager + projectNumber},
			{name: "project-no-method", token: admin, target: resourceManager + projectID + "/none"},

			{name: "enable-no-token", target: enable, body: `{"serviceIds":["sts.googleapis.com"]}`},
			{name: "enable-denied", token: tenant, target: enable, body: `{"serviceIds":["sts.googleapis.com"]}`},
			{name: "enable-none", token: admin, target: enable, body: `{}`},
			{name: "enable-unknown", token: admin, target: enable, body: `{"serviceIds":["compute.googleapis.com"]}`},
			{name: "enable", token: admin, target: enable, body: `{"serviceIds":["sts.googleapis.com","iamcredentials.googleapis.com"]}`},

			{name: "pool-no-token", target: pools + made, body: `{}`},
			{name: "pool-denied", token: tenant, target: pools + made, body: `{}`},
			{name: "pool-other-project", token: admin, target: iamAPI + scopedProject + "/locations/global/workloadIdentityPools" + made, body: `{}`},
			{name: "pool-no-id", token: admin, target: pools, body: `{}`},
			{name: "pool-bad-id", token: admin, target: pools + "?workloadIdentityPoolId=gcp-pool", body: `{}`},
			{name: "pool-field", token: admin, target: pools + made, body: `{"mode":"TRUST_DOMAIN"}`},
			{name: "pool-not-json", token: admin, target: pools + made, body: `{`},
			{name: "provider-no-pool", token: admin, target: providers + oidc, body: provider},
			{name: "pool", token: admin, target: pools + made + "&alt=json", body: `{"disabled":false}`},
			{name: "pool-exists", token: admin, target: pools + made, body: `{}`},

			{exchange: http.StatusBadRequest},
			{name: "provider-no-token", target: providers + oidc, body: provider},
			{name: "provider-denied", token: tenant, target: providers + oidc, body: provider},
			{name: "provider-bad-id", token: admin, target: providers + "?workloadIdentityPoolProviderId=k8s", body: provider},
			{name: "provider-no-oidc", token: admin, target: providers + oidc, body: `{"attributeMapping":{"google.subject":"assertion.sub"}}`},
			{name: "provider-issuer", token: admin, target: providers + oidc, body: strings.Replace(provider, "https:", "http:", 1)},
			{name: "provider-keys", token: admin, target: providers + oidc, body: strings.Replace(provider, `"oidc":{`, `"oidc":{"jwksJson":"{}",`, 1)},
			{name: "provider-mapping", token: admin, target: providers + oidc, body: strings.Replace(provider, "google.subject", "attribute.subject", 1)},
			{name: "provider-expression", token: admin, target: providers + oidc, body: strings.Replace(provider, "assertion.sub", "assertion.", 1)},
			{name: "provider-field", token: admin, target: providers + oidc, body: strings.Replace(provider, "disabled", "enabled", 1)},
			{exchange: http.StatusBadRequest},
			{name: "provider", token: admin, target: providers + oidc, body: provider},
			{exchange: http.StatusOK},
			{name: "provider-exists", token: admin, target: providers + oidc, body: provider},

			{name: "repository-no-token", target: repo + ":getIamPolicy"},
			{name: "repository-denied", token: tenant, target: repo + ":getIamPolicy"},
			{name: "repository-missing", token: admin, target: repo + "-none:getIamPolicy"},
			{name: "repository-missing-denied", token: tenant, target: repo + "-none:getIamPolicy"},
			{name: "repository-version", token: admin, target: repo + ":getIamPolicy?options.requestedPolicyVersion=2"},
			{name: "repository-empty", token: admin, target: repo + ":getIamPolicy?alt=json&options.requestedPolicyVersion=3"},
			{name: "repository-set-no-token", target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, member)},
			{name: "repository-set-denied", token: tenant, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, member)},
			{name: "repository-set-missing", token: admin, target: repo + "-none:setIamPolicy", body: policyOf("ACAB", reader, member)},
			{name: "repository-set-stale", token: admin, target: repo + ":setIamPolicy", body: policyOf("BwXhq0YTRWE=", reader, member)},
			{name: "repository-set-nothing", token: admin, target: repo + ":setIamPolicy", body: `{}`},
			{name: "repository-set-version", token: admin, target: repo + ":setIamPolicy", body: `{"policy":{"version":2}}`},
			{name: "repository-set-mask", token: admin, target: repo + ":setIamPolicy", body: `{"policy":{},"updateMask":"bindings"}`},
			{name: "repository-set-condition", token: admin, target: repo + ":setIamPolicy", body: strings.Replace(policyOf("ACAB", reader, member), `"role"`, `"condition":{"expression":"true"},"role"`, 1)},
			{name: "repository-set-other-role", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", user, member)},
			{name: "repository-set-unknown-role", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", "roles/artifactregistry.none", member)},
			{name: "repository-set-member", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, "tenant-a")},
			{name: "repository-set-no-pool", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, strings.Replace(member, "/made/", "/none/", 1))},
			{name: "repository-set-no-gke-pool", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, "serviceAccount:no-such-project.svc.id.goog[a/b]")},
			{name: "repository-set-no-account", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, "serviceAccount:"+account)},
			{name: "repository-set-many", token: admin, target: repo + ":setIamPolicy", body: policyOf("ACAB", reader, strings.Repeat(member+`","`, 1500)+member)},
			{pull: http.StatusForbidden},
			{name: "repository-set", token: admin, target: repo + ":setIamPolicy?alt=json", body: policyOf("ACAB", reader, member)},
			{pull: http.StatusOK},
			{name: "repository", token: admin, target: repo + ":getIamPolicy"},
			{name: "repository-set-without-reading", token: admin, target: repo + ":setIamPolicy", body: `{"policy":{"bindings":[]}}`},
			{pull: http.StatusForbidden},

			{name: "account-no-token", target: accounts, body: `{"accountId":"made-account","serviceAccount":{}}`},
			{name: "account-denied", token: tenant, target: accounts, body: `{"accountId":"made-account","serviceAccount":{}}`},
			{name: "account-bad-id", token: admin, target: accounts, body: `{"accountId":"made","serviceAccount":{}}`},
			{name: "account-field", token: admin, target: accounts, body: `{"accountId":"made-account","serviceAccount":{"disabled":true}}`},
			{name: "account", token: admin, target: accounts + "?alt=json", body: `{"accountId":"made-account","serviceAccount":{}}`},
			{name: "account-exists", token: admin, target: accounts, body: `{"accountId":"made-account","serviceAccount":{}}`},
			{name: "account-policy-denied", token: tenant, target: accounts + "/" + account + ":getIamPolicy", body: `{}`},
			{name: "account-policy-missing", token: admin, target: accounts + "/none@" + projectID + ".iam.gserviceaccount.com:getIamPolicy", body: `{}`},
			{name: "account-policy-field", token: admin, target: accounts + "/" + account + ":getIamPolicy", body: `{"version":3}`},
			{name: "account-policy", token: admin, target: iamAPI + "-/serviceAccounts/" + account + ":getIamPolicy?options.requestedPolicyVersion=3", body: `{}`},
			{name: "account-policy-set-denied", token: tenant, target: accounts + "/" + account + ":setIamPolicy", body: policyOf("ACAB", user, member)},
			{name: "account-policy-set-role", token: admin, target: accounts + "/" + account + ":setIamPolicy", body: policyOf("ACAB", reader, member)},
			{impersonate: http.StatusForbidden},
			{name: "account-policy-set", token: admin, target: accounts + "/" + account + ":setIamPolicy", body: policyOf("ACAB", user, member)},
			{impersonate: http.StatusOK},
			{name: "account-policy-set-stale", token: admin, target: accounts + "/" + account + ":setIamPolicy", body: policyOf("ACAB", user, member)},
		} {
			if step.name == "" {
				got := exchange("oidc")
				switch {
				case step.pull != 0:
					got = w.do(t, managementRequest(t, got.text(t, "access_token"), "https://"+dockerHost+"/v2/"+imageA+"/manifests/1", ""))
				case step.impersonate != 0:
					got = w.impersonate(t, got.text(t, "access_token"), account, `{"scope":["`+scopeAll+`"]}`)
				}
				if want := step.exchange + step.pull + step.impersonate; got.status != want {
					t.Errorf("%+v: HTTP %d %s", step, got.status, got.body)
				}
				continue
			}
			res, err := w.client.Do(managementRequest(t, step.token, step.target, step.body))
			must.Succeed(t, err)
			files.Answer(t, step.name, res)
		}
		files.Complete(t)
	})
}

// TestManagementNeedsItsRole: for each method, exactly one of the tested roles has the permission.
// A role on one resource applies to that resource only.
func TestManagementNeedsItsRole(t *testing.T) {
	w := newWorld(t)
	must.Succeed(t, w.GCP().PutRepository(projectID, gcp.Repository{
		Location: "europe-west1", Name: "tenant-a", Bindings: bind("roles/artifactregistry.admin", principalOf("tenant-a", "tenant-a-bucket-sa")),
	}))
	must.Succeed(t, w.GCP().PutRepository(projectID, gcp.Repository{Location: "europe-west1", Name: "tenant-b"}))
	repositories := registryAPI + projectID + "/locations/europe-west1/repositories/"
	roles := []string{"roles/serviceusage.serviceUsageAdmin", "roles/iam.workloadIdentityPoolAdmin", "roles/iam.serviceAccountAdmin", "roles/artifactregistry.admin"}
	for _, call := range []struct{ role, target, body string }{
		{roles[0], serviceUsage + projectID + "/services:batchEnable", `{"serviceIds":["sts.googleapis.com"]}`},
		{roles[1], iamAPI + projectID + "/locations/global/workloadIdentityPools?workloadIdentityPoolId=made", `{}`},
		{
			roles[1], iamAPI + projectID + "/locations/global/workloadIdentityPools/tenants/providers?workloadIdentityPoolProviderId=made",
			`{"attributeMapping":{"google.subject":"assertion.sub"},"oidc":{"issuerUri":"` + poolIssuer + `"}}`,
		},
		{roles[2], iamAPI + projectID + "/serviceAccounts", `{"accountId":"made-account"}`},
		{roles[2], iamAPI + projectID + "/serviceAccounts/" + accountA + ":getIamPolicy", `{}`},
		{roles[2], iamAPI + projectID + "/serviceAccounts/" + accountA + ":setIamPolicy", `{"policy":{}}`},
		{roles[3], repositories + "tenant-b:getIamPolicy", ""},
		{roles[3], repositories + "tenant-b:setIamPolicy", `{"policy":{}}`},
	} {
		var others []string
		for _, role := range append([]string{"roles/browser", "roles/artifactregistry.repoAdmin", "roles/iam.serviceAccountTokenCreator"}, roles...) {
			if role != call.role {
				others = append(others, role)
			}
		}
		if a := w.do(t, managementRequest(t, w.administer(t, others...), call.target, call.body)); a.status != http.StatusForbidden {
			t.Errorf("%s, without %s: HTTP %d %s", call.target, call.role, a.status, a.body)
		}
		if a := w.do(t, managementRequest(t, w.administer(t, call.role), call.target, call.body)); a.status != http.StatusOK {
			t.Errorf("%s, with %s: HTTP %d %s", call.target, call.role, a.status, a.body)
		}
	}
	tenant := w.federated(t, ksaA)
	for name, want := range map[string]int{"tenant-a": http.StatusOK, "tenant-b": http.StatusForbidden} {
		if a := w.do(t, managementRequest(t, tenant, repositories+name+":getIamPolicy", "")); a.status != want {
			t.Errorf("%s, with a role on tenant-a: HTTP %d %s", name, a.status, a.body)
		}
	}
	// A caller may send an etag in either alphabet of base64. The loop makes an etag that has both
	// characters in which the alphabets differ.
	admin, seen := w.administer(t, "roles/artifactregistry.admin"), ""
	for i := 0; !strings.Contains(seen, "+") || !strings.Contains(seen, "/"); i++ {
		body := `{"policy":{"etag":"` + seen + `","bindings":[{"role":"roles/artifactregistry.reader","members":["` +
			principalOf("tenant-a", "reader-"+strings.Repeat("a", i+1)) + `"]}]}}`
		seen = w.do(t, managementRequest(t, admin, repositories+"tenant-b:setIamPolicy", body)).text(t, "etag")
	}
	body := `{"policy":{"etag":"` + strings.NewReplacer("+", "-", "/", "_").Replace(seen) + `"}}`
	if a := w.do(t, managementRequest(t, admin, repositories+"tenant-b:setIamPolicy", body)); a.status != http.StatusOK {
		t.Errorf("etag %s in the other alphabet: HTTP %d %s", seen, a.status, a.body)
	}
}
