package gcp_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	projectID     = "my-org-project"
	projectNumber = "123456789012"
	scopedProject = "example.com:legacy-project"
	scopedNumber  = "210987654321"

	// The cluster has the issuer of a local control plane, not GKE's default issuer.
	clusterIssuer = "https://issuer.cluster.example"
	clusterName   = "https://container.googleapis.com/v1/projects/" + projectID + "/locations/europe-west1/clusters/tenants"
	gkePool       = projectID + ".svc.id.goog"
	gkeAudience   = "identitynamespace:" + gkePool + ":" + clusterName

	poolIssuer   = "https://issuer.elsewhere.example"
	poolAudience = "//iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/tenants/providers/kubernetes"

	ksaA = "system:serviceaccount:tenant-a:tenant-a-bucket-sa"
	ksaB = "system:serviceaccount:tenant-b:tenant-b-bucket-sa"

	accountA   = "tenant-a-bucket@" + projectID + ".iam.gserviceaccount.com"
	accountB   = "tenant-b-bucket@" + projectID + ".iam.gserviceaccount.com"
	controller = projectNumber + "-compute@developer.gserviceaccount.com"

	scopeAll = "https://www.googleapis.com/auth/cloud-platform"
)

// principalOf returns a Kubernetes ServiceAccount as a principal of the project's own pool.
func principalOf(namespace, name string) string {
	return "principal://iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/" + gkePool + "/subject/ns/" + namespace + "/sa/" + name
}

func bind(role string, members ...string) []gcp.Binding {
	return []gcp.Binding{{Role: role, Members: members}}
}

func worldConfig() cloudtest.Config {
	const user, tokenCreator = "roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"
	pool := "principal://iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/tenants/subject/"
	return cloudtest.Config{GCP: gcp.Config{
		Projects: []gcp.Project{
			{
				ID: projectID, Number: projectNumber,
				Clusters: []gcp.Cluster{{Location: "europe-west1", Name: "tenants", Issuer: clusterIssuer}},
				Pools: []gcp.Pool{{ID: "tenants", Providers: []gcp.Provider{{
					ID: "kubernetes", IssuerURI: poolIssuer,
					AttributeMapping: map[string]string{
						"google.subject":      "assertion.sub",
						"attribute.namespace": "assertion['kubernetes.io']['namespace']",
					},
					AttributeCondition: "attribute.namespace in ['tenant-a', 'tenant-b']",
				}}}},
				ServiceAccounts: []gcp.ServiceAccount{
					{Email: accountA, UniqueID: "100000000000000000001", Bindings: bind(user, "serviceAccount:"+gkePool+"[tenant-a/tenant-a-bucket-sa]", pool+ksaA)},
					{Email: accountB, UniqueID: "100000000000000000002", Bindings: bind(user, principalOf("tenant-b", "tenant-b-bucket-sa"), pool+ksaB)},
					{Email: controller, UniqueID: "100000000000000000003", Bindings: bind(tokenCreator, "serviceAccount:"+accountA)},
				},
			},
			{
				ID: scopedProject, Number: scopedNumber,
				ServiceAccounts: []gcp.ServiceAccount{{
					Email:    "builder@legacy-project.example.com.iam.gserviceaccount.com",
					Bindings: bind(user, "principalSet://iam.googleapis.com/projects/"+projectNumber+"/locations/global/workloadIdentityPools/tenants/attribute.namespace/tenant-a"),
				}},
			},
		},
		Metadata: &gcp.Metadata{Project: projectID, ClusterLocation: "europe-west1", ClusterName: "tenants", ServiceAccount: controller},
	}}
}

// world is a cloud with two tenants. Each tenant has ServiceAccounts in two clusters. One is a GKE
// cluster. The other's issuer is trusted by a provider of a workload identity pool.
type world struct {
	*cloudtest.Cloud

	cluster *oidc.Issuer // the GKE cluster's issuer
	pool    *oidc.Issuer // the issuer that the pool's provider trusts
	client  *http.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cloudtest.New(worldConfig())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	transport := c.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{Cloud: c, client: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	for _, i := range []struct {
		url       string
		algorithm oidc.Algorithm
		to        **oidc.Issuer
	}{{clusterIssuer, oidc.ES256, &w.cluster}, {poolIssuer, oidc.RS256, &w.pool}} {
		issuer, err := oidc.NewIssuer(i.url, i.algorithm)
		must.Succeed(t, err)
		must.Succeed(t, c.HandleIssuer(issuer))
		*i.to = issuer
	}
	return w
}

// clusterClaims returns the claims of a Kubernetes token for the GKE cluster's pool.
func clusterClaims(subject string) oidc.Claims {
	return oidc.Claims{"sub": subject, "aud": []string{gkePool}}
}

// poolClaims returns the claims of a Kubernetes token for the provider of the pool "tenants".
func poolClaims(subject, namespace string) oidc.Claims {
	return oidc.Claims{
		"sub": subject, "aud": []string{"https:" + poolAudience}, "kubernetes.io": map[string]any{"namespace": namespace},
	}
}

func minted(t *testing.T) func(string, error) string {
	t.Helper()
	return func(s string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func exchangeForm(audience, token string) url.Values {
	return url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {audience}, "scope": {scopeAll},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token": {token},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	}
}

// answer is the answer of an API of Google Cloud.
type answer struct {
	status int
	header http.Header
	body   string
}

// text returns a field of the answer's JSON.
func (a answer) text(t *testing.T, name string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(a.body), &fields); err != nil {
		t.Fatalf("HTTP %d %s: %v", a.status, a.body, err)
	}
	s, _ := fields[name].(string)
	return s
}

func (w *world) do(t *testing.T, r *http.Request) answer {
	t.Helper()
	res, err := w.client.Do(r)
	must.Succeed(t, err)
	return answer{status: res.StatusCode, header: res.Header, body: rig.ReadAll(t, res)}
}

func (w *world) exchange(t *testing.T, form url.Values) answer {
	t.Helper()
	return w.do(t, rig.NewRequest(t, http.MethodPost, "https://sts.googleapis.com/v1/token", "application/x-www-form-urlencoded", form.Encode()))
}

// federated returns an access token of a ServiceAccount of the GKE cluster.
func (w *world) federated(t *testing.T, subject string) string {
	t.Helper()
	a := w.exchange(t, exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(clusterClaims(subject)))))
	if a.status != http.StatusOK {
		t.Fatalf("HTTP %d %s", a.status, a.body)
	}
	return a.text(t, "access_token")
}

func (w *world) impersonate(t *testing.T, token, account, body string) answer {
	t.Helper()
	r := rig.NewRequest(t, http.MethodPost, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+account+":generateAccessToken", "application/json", body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return w.do(t, r)
}

// accountToken returns an access token of a service account that a ServiceAccount of the GKE
// cluster may impersonate.
func (w *world) accountToken(t *testing.T, subject, account string) string {
	t.Helper()
	a := w.impersonate(t, w.federated(t, subject), account, `{"scope":["`+scopeAll+`"],"lifetime":"3600s"}`)
	if a.status != http.StatusOK {
		t.Fatalf("HTTP %d %s", a.status, a.body)
	}
	return a.text(t, "accessToken")
}
