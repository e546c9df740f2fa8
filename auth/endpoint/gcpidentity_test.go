package endpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseGCPServiceAccount(t *testing.T) {
	for _, tt := range []struct {
		address  string
		universe string
		reason   endpoint.Reason
	}{
		// Addresses of the multi-tenant workload identity design (D1 in docs/deviations.md), and
		// the forms in IAM's documentation.
		{address: "tenant-a-bucket@my-org-project.iam.gserviceaccount.com", universe: "googleapis.com"},
		{address: "sa1234@p.iam.gserviceaccount.com", universe: "googleapis.com"},
		{address: "tenant-a@project.example.com.iam.gserviceaccount.com", universe: "googleapis.com"},
		{address: "skia-status@skia-buildbots.google.com.iam.gserviceaccount.com", universe: "googleapis.com"},
		{address: "123456789012-compute@developer.gserviceaccount.com", universe: "googleapis.com"},
		{address: "my-org-project@appspot.gserviceaccount.com", universe: "googleapis.com"},
		{address: "project.example.com@appspot.gserviceaccount.com", universe: "googleapis.com"},
		{address: "tenant-a@project.s3ns.iam.gserviceaccount.com", universe: "s3nsapis.fr"},
		{address: "tenant-a@project.eu0.iam.gserviceaccount.com", universe: "apis-berlin-build0.goog"},
		{address: "1234567-compute@developer.s3ns-system.iam.gserviceaccount.com", universe: "s3nsapis.fr"},

		{address: "", reason: endpoint.ReasonEmpty},
		{address: "tenant-a", reason: endpoint.ReasonMalformed},
		{address: "@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "tenant-a@", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@p.iam.gserviceaccount.com\n", reason: endpoint.ReasonMalformed},
		{address: " tenant-a@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "Tenant-A@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "tenant-a@P.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@p.iam.gserviceaccount.com.", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@@p.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@x@p.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@p.iam.gserviceaccount.com/../tenant-b@p.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
		{address: "tenant-a@p.iam.gserviceaccount.com:generateAccessToken", reason: endpoint.ReasonMalformed},
		{address: "tenant-a%40p.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
		{address: "tenant@a.org", reason: endpoint.ReasonHost},
		{address: "someone@gmail.com", reason: endpoint.ReasonHost},
		{address: "tenant-a@iam.gserviceaccount.com", reason: endpoint.ReasonHost},
		{address: "tenant-a@p.iam.gserviceaccount.com.evil.example", reason: endpoint.ReasonHost},
		{address: "tenant-a@p.xiam.gserviceaccount.com", reason: endpoint.ReasonHost},
		{address: "tenant-a@p.system.gserviceaccount.com", reason: endpoint.ReasonHost},
		{address: "tenant-a@p.iam.gserviceaccount.example", reason: endpoint.ReasonHost},
		{address: "tenant-a@p.evil.iam.gserviceaccount.com", reason: endpoint.ReasonPartition},
		{address: "tenant-a@developer.s3ns-system.iam.gserviceaccount.com", reason: endpoint.ReasonPartition},
		{address: "short@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: strings.Repeat("a", 31) + "@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "1tenant@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "tenant-@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "tenant_a@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "tenant/a@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "t\u0435nant@p.iam.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "compute@developer.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "0123-compute@developer.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "x-compute@developer.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "-project@appspot.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: "project.evil@appspot.gserviceaccount.com", reason: endpoint.ReasonName},
		{address: strings.Repeat("a", 300) + "@p.iam.gserviceaccount.com", reason: endpoint.ReasonMalformed},
	} {
		t.Run(tt.address, func(t *testing.T) {
			got, err := endpoint.ParseGCPServiceAccount(tt.address)
			if tt.reason != "" {
				refused(t, err, tt.reason)
				if got != (endpoint.GCPServiceAccount{}) {
					t.Errorf("refused, yet %+v", got)
				}
				return
			}
			if want := (endpoint.GCPServiceAccount{Email: tt.address, Universe: tt.universe}); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

// FuzzParseGCPServiceAccount checks that an accepted address can be a segment of a URL's path
// without escaping.
func FuzzParseGCPServiceAccount(f *testing.F) {
	f.Add("tenant-a@p.iam.gserviceaccount.com")
	f.Add("tenant-a@project.example.com.iam.gserviceaccount.com")
	f.Add("1-compute@developer.s3ns-system.iam.gserviceaccount.com")
	f.Add("project.example.com@appspot.gserviceaccount.com")
	f.Fuzz(func(t *testing.T, address string) {
		a, err := endpoint.ParseGCPServiceAccount(address)
		if err != nil {
			return
		}
		name, host, _ := strings.Cut(address, "@")
		if a.Email != address || !isPlainHost(name) || !isPlainHost(host) || !strings.HasSuffix(host, ".gserviceaccount.com") {
			t.Fatalf("%q: accepted as %+v", address, a)
		}
	})
}

func TestParseGCPWorkloadProvider(t *testing.T) {
	const name = "projects/123456789012/locations/global/workloadIdentityPools/my-pool/providers/my-cluster"
	want := endpoint.GCPWorkloadProvider{ProjectNumber: "123456789012", Pool: "my-pool", Provider: "my-cluster"}
	for _, form := range []string{name, "//iam.googleapis.com/" + name, "https://iam.googleapis.com/" + name} {
		got, err := endpoint.ParseGCPWorkloadProvider(form)
		if err != nil || got != want || got.String() != name {
			t.Errorf("%s: got %+v, %v", form, got, err)
		}
	}
	if want.Audience() != "https://iam.googleapis.com/"+name || want.FullName() != "//iam.googleapis.com/"+name {
		t.Errorf("audience %s, full name %s", want.Audience(), want.FullName())
	}
	if got := want.Principal("a:b"); got != "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-pool/subject/a:b" {
		t.Errorf("principal %s", got)
	}
	for _, tt := range []struct {
		name   string
		reason endpoint.Reason
	}{
		{"", endpoint.ReasonEmpty},
		{"my-cluster", endpoint.ReasonResource},
		{"/" + name, endpoint.ReasonResource},
		{name + "/", endpoint.ReasonResource},
		{name + "/keys/x", endpoint.ReasonResource},
		{"https:" + name, endpoint.ReasonResource},
		{"//" + name, endpoint.ReasonHost},
		{"http://iam.googleapis.com/" + name, endpoint.ReasonHost},
		{"HTTPS://iam.googleapis.com/" + name, endpoint.ReasonHost},
		{"https://iam.googleapis.com.evil.example/" + name, endpoint.ReasonHost},
		{"https://evil.example/" + name, endpoint.ReasonHost},
		{"https://user:s3cr3t-Pa55@iam.googleapis.com/" + name, endpoint.ReasonHost},
		{"//iam.googleapis.com/https://iam.googleapis.com/" + name, endpoint.ReasonHost},
		{strings.Replace(name, "123456789012", "my-project", 1), endpoint.ReasonAccount},
		{strings.Replace(name, "123456789012", "0123", 1), endpoint.ReasonAccount},
		{strings.Replace(name, "123456789012", "-", 1), endpoint.ReasonAccount},
		{strings.Replace(name, "123456789012", "", 1), endpoint.ReasonAccount},
		{strings.Replace(name, "123456789012", strings.Repeat("1", 20), 1), endpoint.ReasonAccount},
		{strings.Replace(name, "global", "europe-west1", 1), endpoint.ReasonRegion},
		{strings.Replace(name, "my-pool", "abc", 1), endpoint.ReasonName},
		{strings.Replace(name, "my-pool", "My-Pool", 1), endpoint.ReasonName},
		{strings.Replace(name, "my-pool", "my-project.svc.id.goog", 1), endpoint.ReasonName},
		{strings.Replace(name, "my-cluster", "*", 1), endpoint.ReasonName},
		{strings.Replace(name, "my-cluster", "my cluster", 1), endpoint.ReasonName},
		{strings.Replace(name, "my-cluster", strings.Repeat("a", 33), 1), endpoint.ReasonName},
		{name + "\n", endpoint.ReasonName},
		{"projects/1/locations/global/workforcePools/my-pool/providers/my-cluster", endpoint.ReasonResource},
	} {
		got, err := endpoint.ParseGCPWorkloadProvider(tt.name)
		refused(t, err, tt.reason)
		if got != (endpoint.GCPWorkloadProvider{}) {
			t.Errorf("%q: refused, yet %+v", tt.name, got)
		}
	}
}

func FuzzParseGCPWorkloadProvider(f *testing.F) {
	f.Add("https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/prov")
	f.Fuzz(func(t *testing.T, name string) {
		p, err := endpoint.ParseGCPWorkloadProvider(name)
		if err != nil {
			return
		}
		if prefix, ok := strings.CutSuffix(name, p.String()); !ok || !slices.Contains([]string{"", "//iam.googleapis.com/", "https://iam.googleapis.com/"}, prefix) {
			t.Fatalf("%q: accepted as %s", name, p)
		}
		if again, err := endpoint.ParseGCPWorkloadProvider(p.String()); err != nil || again != p {
			t.Fatalf("%q: parses to %+v, that to %+v, %v", name, p, again, err)
		}
	})
}

func TestGKECluster(t *testing.T) {
	universes := map[string]endpoint.GCPUniverse{}
	for _, u := range endpoint.GCPUniverses() {
		universes[u.ProjectPrefix] = u
	}
	for _, tt := range []struct {
		universe, project, pool, url string
	}{
		{"", "my-project", "my-project.svc.id.goog", "https://container.googleapis.com/v1/projects/my-project/locations/europe-west1/clusters/c1"},
		{"", "example.com:p", "example.com:p.svc.id.goog", "https://container.googleapis.com/v1/projects/example.com:p/locations/europe-west1/clusters/c1"},
		{"s3ns", "s3ns:p", "p.s3ns.svc.id.goog", "https://container.s3nsapis.fr/v1/projects/s3ns:p/locations/europe-west1/clusters/c1"},
		{"eu0", "eu0:p", "p.eu0.svc.id.goog", "https://container.apis-berlin-build0.goog/v1/projects/eu0:p/locations/europe-west1/clusters/c1"},
	} {
		c := endpoint.GKECluster{Project: tt.project, Location: "europe-west1", Name: "c1"}
		u := universes[tt.universe]
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", tt.project, err)
		}
		if u.WorkloadPool(tt.project) != tt.pool || c.URL(u) != tt.url || c.FullName(u) != "identitynamespace:"+tt.pool+":"+tt.url {
			t.Errorf("%s: pool %s, URL %s, full name %s", tt.project, u.WorkloadPool(tt.project), c.URL(u), c.FullName(u))
		}
		if got, want := c.Principal(u, "ns", "sa"), "serviceAccount:"+tt.pool+"[ns/sa]"; got != want {
			t.Errorf("%s: principal %s, want %s", tt.project, got, want)
		}
		c.ProjectNumber = "12"
		if got, want := c.Principal(u, "ns", "sa"), "principal://iam.googleapis.com/projects/12/locations/global/workloadIdentityPools/"+tt.pool+"/subject/ns/ns/sa/sa"; got != want {
			t.Errorf("%s: principal %s, want %s", tt.project, got, want)
		}
	}
	good := endpoint.GKECluster{Project: "p", ProjectNumber: "1", Location: "u-france-east1-a", Name: "c"}
	if err := good.Check(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for _, tt := range []struct {
		spoil  func(*endpoint.GKECluster)
		reason endpoint.Reason
	}{
		{func(c *endpoint.GKECluster) { c.Project = "" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Project = "<html>" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Project = "a/b" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Project = "a.b" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Project = ":b" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Project = "a:b:c" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.ProjectNumber = "x" }, endpoint.ReasonAccount},
		{func(c *endpoint.GKECluster) { c.Location = "europe" }, endpoint.ReasonRegion},
		{func(c *endpoint.GKECluster) { c.Location = "europe-west1/x" }, endpoint.ReasonRegion},
		{func(c *endpoint.GKECluster) { c.Location = "" }, endpoint.ReasonRegion},
		{func(c *endpoint.GKECluster) { c.Name = "" }, endpoint.ReasonName},
		{func(c *endpoint.GKECluster) { c.Name = "a/../b" }, endpoint.ReasonName},
		{func(c *endpoint.GKECluster) { c.Name = strings.Repeat("a", 41) }, endpoint.ReasonName},
	} {
		c := good
		tt.spoil(&c)
		refused(t, c.Check(), tt.reason)
	}
}
