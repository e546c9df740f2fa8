package gcp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

func TestMembers(t *testing.T) {
	const pool = "iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
	for member, want := range map[string]bool{
		"allUsers":              true,
		"allAuthenticatedUsers": true,
		"serviceAccount:tenant-a@my-org-project.iam.gserviceaccount.com":                                                                                 true,
		"serviceAccount:tenant-a@project.example.com.iam.gserviceaccount.com":                                                                            true,
		"serviceAccount:123456789012-compute@developer.gserviceaccount.com":                                                                              true,
		"serviceAccount:my-org-project@appspot.gserviceaccount.com":                                                                                      true,
		"serviceAccount:my-org-project.svc.id.goog[tenant-a/sa]":                                                                                         true,
		"principal://" + pool + "tenants/subject/system:serviceaccount:a:b":                                                                              true,
		"principal://" + pool + "my-org-project.svc.id.goog/subject/ns/a/sa/b":                                                                           true,
		"principal://" + pool + "my-org-project.svc.id.goog/kubernetes.serviceaccount.uid/u":                                                             true,
		"principalSet://" + pool + "tenants/*":                                                                                                           true,
		"principalSet://" + pool + "tenants/attribute.namespace/tenant-a":                                                                                true,
		"principalSet://" + pool + "my-org-project.svc.id.goog/namespace/tenant-a":                                                                       true,
		"principalSet://" + pool + "my-org-project.svc.id.goog/kubernetes.cluster/https://container.googleapis.com/v1/projects/p/locations/l/clusters/c": true,

		"user:somebody@example.com":                               false,
		"group:people@example.com":                                false,
		"domain:example.com":                                      false,
		"serviceAccount:somebody@example.com":                     false,
		"serviceAccount:my-org-project.svc.id.goog[tenant-a]":     false,
		"serviceAccount:my-org-project.svc.id.goog[tenant-a/sa":   false,
		"serviceAccount:my-org-project.svc.id.goog[a/b/c]":        false,
		"deleted:serviceAccount:x@p.iam.gserviceaccount.com?uid=": false,
		"principal://" + pool + "tenants/*":                       false,
		"principal://" + pool + "tenants/subject/":                false,
		"principalSet://" + pool + "tenants/subject/x":            false,
		"principalSet://" + pool + "tenants/group/x":              false,
		"principalSet://" + pool + "tenants":                      false,
		"principal://iam.googleapis.com/projects/my-org-project/locations/global/workloadIdentityPools/tenants/subject/x": false,
		"principal://iam.apis.example/projects/1/locations/global/workloadIdentityPools/tenants/subject/x":                false,
		"": false,
	} {
		if problem := checkMember(member); (problem == "") != want {
			t.Errorf("%s: %q", member, problem)
		}
	}
}

func TestAddresses(t *testing.T) {
	for email, want := range map[string]bool{
		"tenant-a@my-org-project.iam.gserviceaccount.com":     true,
		"123456789012-compute@developer.gserviceaccount.com":  true,
		"my-org-project@appspot.gserviceaccount.com":          true,
		"short@my-org-project.iam.gserviceaccount.com":        false,
		"tenant-a@other-project.iam.gserviceaccount.com":      false,
		"210987654321-compute@developer.gserviceaccount.com":  false,
		"tenant-a@my-org-project.iam.gserviceaccount.com.com": false,
		"Tenant-A@my-org-project.iam.gserviceaccount.com":     false,
		"tenant-a": false,
	} {
		if got := isAddress(email, "my-org-project", "123456789012"); got != want {
			t.Errorf("%s: %t", email, got)
		}
	}
	if !isAddress("builder@legacy.example.com.iam.gserviceaccount.com", "example.com:legacy", "1") || isAddress("builder@example.com:legacy.iam.gserviceaccount.com", "example.com:legacy", "1") {
		t.Error("a domain-scoped project's address is <name>@<project>.<domain>.iam.gserviceaccount.com")
	}
}

// TestConfigRefusals: New refuses settings that the local cloud cannot evaluate as Google does. The
// error names the field.
func TestConfigRefusals(t *testing.T) {
	issuer, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	must.Succeed(t, err)
	valid := func() Config {
		provider := Provider{ID: "kubernetes", IssuerURI: issuer.URL(), JWKS: issuer.JWKS(), AttributeMapping: map[string]string{"google.subject": "assertion.sub"}}
		return Config{
			Projects: []Project{{
				ID: "my-org-project", Number: "123456789012",
				Pools:           []Pool{{ID: "tenants", Providers: []Provider{provider}}},
				Clusters:        []Cluster{{Location: "europe-west1", Name: "tenants"}},
				ServiceAccounts: []ServiceAccount{{Email: "tenant-a@my-org-project.iam.gserviceaccount.com"}},
				Repositories:    []Repository{{Location: "us", Name: "gcr.io"}},
				Buckets:         []Bucket{{Name: "tenant-a", Bindings: []Binding{{Role: "roles/storage.legacyBucketReader", Members: []string{"allUsers"}}}}},
				KeyRings:        []KeyRing{{Location: "global", Name: "tenants", Keys: []CryptoKey{{Name: "tenant-a"}}}},
			}},
			Metadata: &Metadata{Project: "my-org-project", ClusterLocation: "europe-west1", ClusterName: "tenants", KubernetesServiceAccount: "a/b"},
		}
	}
	provider := func(c *Config) *Provider { return &c.Projects[0].Pools[0].Providers[0] }
	for _, tt := range []struct {
		name, field string
		change      func(*Config)
	}{
		{"valid", "", func(*Config) {}},
		{"project ID", "projects[0].id", func(c *Config) { c.Projects[0].ID = "My Project" }},
		{"project number", "projects[0].number", func(c *Config) { c.Projects[0].Number = "my-org-project" }},
		{"project twice", "projects[1].id", func(c *Config) { c.Projects = append(c.Projects, c.Projects[0]) }},
		{"number twice", "projects[1].number", func(c *Config) { c.Projects = append(c.Projects, Project{ID: "other-project", Number: "123456789012"}) }},
		{"universe", "projects[0].universeDomain", func(c *Config) { c.Projects[0].UniverseDomain = "https://apis.example" }},
		{"role", "projects[0].bindings[0].role", func(c *Config) {
			c.Projects[0].Bindings = []Binding{{Role: "roles/owner", Members: []string{"allUsers"}}}
		}},
		{"bucket's role on a project", "projects[0].bindings[0].role", func(c *Config) {
			c.Projects[0].Bindings = []Binding{{Role: "roles/storage.legacyBucketReader", Members: []string{"serviceAccount:x@p.iam.gserviceaccount.com"}}}
		}},
		{"everybody on a project", "projects[0].bindings[0].members[0]", func(c *Config) {
			c.Projects[0].Bindings = []Binding{{Role: "roles/storage.objectViewer", Members: []string{"allUsers"}}}
		}},
		{"member", "projects[0].buckets[0].bindings[0].members[0]", func(c *Config) { c.Projects[0].Buckets[0].Bindings[0].Members = []string{"user:x@example.com"} }},
		{"no member", "projects[0].buckets[0].bindings[0].members", func(c *Config) { c.Projects[0].Buckets[0].Bindings[0].Members = nil }},
		{"pool ID", "projects[0].pools[0].id", func(c *Config) { c.Projects[0].Pools[0].ID = "gcp-tenants" }},
		{"pool twice", "projects[0].pools[1]", func(c *Config) { c.Projects[0].Pools = append(c.Projects[0].Pools, c.Projects[0].Pools[0]) }},
		{"provider ID", "projects[0].pools[0].providers[0].id", func(c *Config) { provider(c).ID = "k" }},
		{"provider twice", "projects[0].pools[0].providers[1]", func(c *Config) {
			p := &c.Projects[0].Pools[0]
			p.Providers = append(p.Providers, p.Providers[0])
		}},
		{"issuer", "projects[0].pools[0].providers[0].issuerURI", func(c *Config) { provider(c).IssuerURI = "http://issuer.example" }},
		{"keys", "projects[0].pools[0].providers[0].jwks", func(c *Config) { provider(c).JWKS = json.RawMessage(`{"keys":[]}`) }},
		{"eleven audiences", "projects[0].pools[0].providers[0].allowedAudiences", func(c *Config) { provider(c).AllowedAudiences = make([]string, 11) }},
		{"long audience", "projects[0].pools[0].providers[0].allowedAudiences[0]", func(c *Config) { provider(c).AllowedAudiences = []string{strings.Repeat("a", 257)} }},
		{"no subject", "projects[0].pools[0].providers[0].attributeMapping", func(c *Config) { provider(c).AttributeMapping = map[string]string{"attribute.x": "assertion.sub"} }},
		{"groups", `projects[0].pools[0].providers[0].attributeMapping["google.groups"]`, func(c *Config) { provider(c).AttributeMapping["google.groups"] = "assertion.groups" }},
		{"CEL that is not here", `projects[0].pools[0].providers[0].attributeMapping["attribute.x"]`, func(c *Config) { provider(c).AttributeMapping["attribute.x"] = "assertion.sub.extract('{x}')" }},
		{"condition", "projects[0].pools[0].providers[0].attributeCondition", func(c *Config) { provider(c).AttributeCondition = "assertion.sub.matches('.*'" }},
		{"cluster's location", "projects[0].clusters[0].location", func(c *Config) { c.Projects[0].Clusters[0].Location = "here" }},
		{"cluster's issuer", "projects[0].clusters[0].issuer", func(c *Config) { c.Projects[0].Clusters[0].Issuer = "kubernetes" }},
		{"address", "projects[0].serviceAccounts[0].email", func(c *Config) { c.Projects[0].ServiceAccounts[0].Email = "x@example.com" }},
		{"unique ID", "projects[0].serviceAccounts[0].uniqueID", func(c *Config) { c.Projects[0].ServiceAccounts[0].UniqueID = "1" }},
		{"registry's location", "projects[0].repositories[0].location", func(c *Config) { c.Projects[0].Repositories[0].Location = "mars" }},
		{"gcr.io elsewhere", "projects[0].repositories[0].location", func(c *Config) { c.Projects[0].Repositories[0].Location = "europe" }},
		{"repository", "projects[0].repositories[0].name", func(c *Config) { c.Projects[0].Repositories[0].Name = "A/B" }},
		{"bucket", "projects[0].buckets[0].name", func(c *Config) { c.Projects[0].Buckets[0].Name = "A" }},
		{"bucket like a path of the API", "projects[0].buckets[0].name", func(c *Config) { c.Projects[0].Buckets[0].Name = "storage" }},
		{"bucket of Google", "projects[0].buckets[0].name", func(c *Config) { c.Projects[0].Buckets[0].Name = "my-google-bucket" }},
		{"bucket like an address", "projects[0].buckets[0].name", func(c *Config) { c.Projects[0].Buckets[0].Name = "127.0.0.1" }},
		{"location of another universe", "projects[0].repositories[0].location", func(c *Config) { c.Projects[0].Repositories[0].Location = "u-france-east1" }},
		{"bucket of two projects", "projects[1].buckets[0].name", func(c *Config) {
			c.Projects = append(c.Projects, Project{ID: "other-project", Number: "1", Buckets: []Bucket{{Name: "tenant-a"}}})
		}},
		{"key ring's location", "projects[0].keyRings[0].location", func(c *Config) { c.Projects[0].KeyRings[0].Location = "Europe" }},
		{"key ring's name", "projects[0].keyRings[0].name", func(c *Config) { c.Projects[0].KeyRings[0].Name = "a/b" }},
		{"key ring twice", "projects[0].keyRings[1]", func(c *Config) { c.Projects[0].KeyRings = append(c.Projects[0].KeyRings, c.Projects[0].KeyRings[0]) }},
		{"key ring's role", "projects[0].keyRings[0].bindings[0].role", func(c *Config) { c.Projects[0].KeyRings[0].Bindings = []Binding{{Role: "roles/owner"}} }},
		{"key's name", "projects[0].keyRings[0].keys[0].name", func(c *Config) { c.Projects[0].KeyRings[0].Keys[0].Name = "" }},
		{"key's role", "projects[0].keyRings[0].keys[0].bindings[0].role", func(c *Config) { c.Projects[0].KeyRings[0].Keys[0].Bindings = []Binding{{Role: "roles/owner"}} }},
		{"key twice", "projects[0].keyRings[0].keys[1]", func(c *Config) { c.Projects[0].KeyRings[0].Keys = []CryptoKey{{Name: "a"}, {Name: "a"}} }},
		{"metadata's project", "metadata.project", func(c *Config) { c.Metadata.Project = "other-project" }},
		{"metadata's cluster", "metadata.clusterName", func(c *Config) { c.Metadata.ClusterName = "other" }},
		{"half a cluster", "metadata.clusterName", func(c *Config) { c.Metadata.ClusterLocation = "" }},
		{"metadata's ServiceAccount", "metadata.kubernetesServiceAccount", func(c *Config) { c.Metadata.KubernetesServiceAccount = "b" }},
		{"ServiceAccount without a cluster", "metadata.kubernetesServiceAccount", func(c *Config) { c.Metadata.ClusterLocation, c.Metadata.ClusterName = "", "" }},
		{"node without its account", "metadata.serviceAccount", func(c *Config) { c.Metadata.KubernetesServiceAccount, c.Metadata.ServiceAccount = "", "x@example.com" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := valid()
			tt.change(&c)
			_, err := New(c, http.DefaultTransport)
			var refused *setting.Error
			switch {
			case tt.field == "" && err != nil:
				t.Error(err)
			case tt.field != "" && (!errors.As(err, &refused) || refused.Field != tt.field):
				t.Errorf("%v, want %s", err, tt.field)
			}
		})
	}
}

// TestChangesOfNothing checks that objects that do not exist cannot be changed or deleted. It also
// checks that AddProject accepts a refused project after the project is corrected.
func TestChangesOfNothing(t *testing.T) {
	c, err := New(Config{Projects: []Project{{ID: "my-org-project", Number: "1"}}}, http.DefaultTransport)
	must.Succeed(t, err)
	for name, err := range map[string]error{
		"project": c.PutBindings("other-project", nil), "pool": c.DeletePool("my-org-project", "tenants"),
		"cluster": c.DeleteCluster("my-org-project", "us-east1", "x"), "account": c.DeleteServiceAccount("my-org-project", "x"),
		"repository": c.DeleteRepository("my-org-project", "us", "x"), "bucket": c.DeleteBucket("my-org-project", "x"),
	} {
		if !errors.Is(err, setting.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := Project{
		ID: "other-project", Number: "2", ServiceAccounts: []ServiceAccount{{Email: "tenant-a@other-project.iam.gserviceaccount.com"}},
		Buckets: []Bucket{{Name: "tenant-a"}, {Name: "A"}},
	}
	if err := c.AddProject(bad); err == nil {
		t.Fatal("a bucket named A was taken")
	}
	bad.Buckets = bad.Buckets[:1]
	if err := c.AddProject(bad); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}
