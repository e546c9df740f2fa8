package endpoint_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseCloudKMSKey(t *testing.T) {
	const name = "projects/my-project/locations/europe-west1/keyRings/sops/cryptoKeys/tenant-a"
	long := strings.Repeat("k", 63)
	for _, tt := range []struct {
		name   string
		want   endpoint.CloudKMSKey
		reason endpoint.Reason
	}{
		{name: name, want: endpoint.CloudKMSKey{Project: "my-project", Location: "europe-west1", KeyRing: "sops", Key: "tenant-a"}},
		{
			name: "projects/123456789012/locations/global/keyRings/So_Ps-1/cryptoKeys/_",
			want: endpoint.CloudKMSKey{Project: "123456789012", Location: "global", KeyRing: "So_Ps-1", Key: "_"},
		},
		{
			name: "projects/example.com:my-project/locations/eur4/keyRings/r/cryptoKeys/k",
			want: endpoint.CloudKMSKey{Project: "example.com:my-project", Location: "eur4", KeyRing: "r", Key: "k"},
		},
		{
			name: "projects/s3ns:my-project/locations/u-france-east1/keyRings/r/cryptoKeys/k",
			want: endpoint.CloudKMSKey{Project: "s3ns:my-project", Location: "u-france-east1", KeyRing: "r", Key: "k"},
		},
		{
			name: "projects/p/locations/nam-eur-asia1/keyRings/" + long + "/cryptoKeys/" + long,
			want: endpoint.CloudKMSKey{Project: "p", Location: "nam-eur-asia1", KeyRing: long, Key: long},
		},

		{name: "", reason: endpoint.ReasonEmpty},
		{name: "tenant-a", reason: endpoint.ReasonResource},
		{name: "/" + name, reason: endpoint.ReasonResource},
		{name: name + "/", reason: endpoint.ReasonResource},
		{name: name + "/cryptoKeyVersions/1", reason: endpoint.ReasonResource},
		{name: name + "/cryptoKeyVersions", reason: endpoint.ReasonResource},
		{name: name + ":decrypt", reason: endpoint.ReasonName},
		{name: name + "?alt=media", reason: endpoint.ReasonName},
		{name: name + "#", reason: endpoint.ReasonName},
		{name: name + "\n", reason: endpoint.ReasonName},
		{name: " " + name, reason: endpoint.ReasonResource},
		{name: "Projects" + strings.TrimPrefix(name, "projects"), reason: endpoint.ReasonResource},
		{name: "//cloudkms.googleapis.com/" + name, reason: endpoint.ReasonResource},
		{name: "https://cloudkms.googleapis.com/v1/" + name, reason: endpoint.ReasonResource},
		{name: "https://user:s3cr3t-Pa55@evil.example/" + name, reason: endpoint.ReasonResource},
		{name: "../" + name, reason: endpoint.ReasonResource},
		{name: "projects/p/locations/global/keyRings/r", reason: endpoint.ReasonResource},
		{name: "projects/p/locations/global/keyRings/r/importJobs/k", reason: endpoint.ReasonResource},
		{name: strings.Repeat("projects/", 1000), reason: endpoint.ReasonResource},

		{name: strings.Replace(name, "my-project", "", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "..", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "-", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "My-Project", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "my_project", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "example.com", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", ":p", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "example.com:", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "a:b:c", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "p%2f", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", "p\u0435", 1), reason: endpoint.ReasonAccount},
		{name: strings.Replace(name, "my-project", strings.Repeat("p", 64), 1), reason: endpoint.ReasonAccount},

		{name: strings.Replace(name, "europe-west1", "", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "-", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "..", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "Europe-West1", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "evil.example", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "europe west1", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", "europe%2dwest1", 1), reason: endpoint.ReasonRegion},
		{name: strings.Replace(name, "europe-west1", strings.Repeat("e", 64), 1), reason: endpoint.ReasonRegion},

		{name: strings.Replace(name, "sops", "", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "sops", "..", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "sops", "so ps", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "sops", "s\u043eps", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "sops", long+"k", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", "", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", ".", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", `a\b`, 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", "%2e%2e", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", "*", 1), reason: endpoint.ReasonName},
		{name: strings.Replace(name, "tenant-a", long+"k", 1), reason: endpoint.ReasonName},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := endpoint.ParseCloudKMSKey(tt.name)
			parsed(t, got, tt.want, err, tt.reason)
			if tt.reason == "" && got.String() != tt.name {
				t.Errorf("got %s back", got)
			}
		})
	}
}

func TestCloudKMSVersionHasAFix(t *testing.T) {
	_, err := endpoint.ParseCloudKMSKey("projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/7")
	if err == nil || !strings.Contains(err.Error(), "remove /cryptoKeyVersions") {
		t.Errorf("got %v", err)
	}
}

func TestCloudKMSHost(t *testing.T) {
	var hosts []string
	for _, u := range endpoint.GCPUniverses() {
		hosts = append(hosts, u.CloudKMSHost())
	}
	if got := strings.Join(hosts, " "); got != "cloudkms.googleapis.com cloudkms.s3nsapis.fr cloudkms.apis-berlin-build0.goog" {
		t.Errorf("got %s", got)
	}
}

// FuzzParseCloudKMSKey checks that an accepted name can be a part of a URL's path without escaping,
// and that it has the form that SOPS expects.
func FuzzParseCloudKMSKey(f *testing.F) {
	for _, seed := range []string{
		"projects/my-project/locations/europe-west1/keyRings/sops/cryptoKeys/tenant-a",
		"projects/example.com:p/locations/global/keyRings/R_1/cryptoKeys/K-2",
		"projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
		"projects/../locations/global/keyRings/r/cryptoKeys/k", "https://a:b@evil.example/projects/p",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k, err := endpoint.ParseCloudKMSKey(name)
		if err != nil {
			if k != (endpoint.CloudKMSKey{}) {
				t.Fatalf("%q: refused, yet a key %+v", name, k)
			}
			return
		}
		if k.String() != name || strings.Count(name, "/") != 7 || strings.Contains(name, "//") {
			t.Fatalf("%q: accepted as %q", name, k)
		}
		for part := range strings.SplitSeq(name, "/") {
			// Only a project can have a dot, in the domain before its ID.
			if part == "" || part[0] == '.' || strings.Contains(part, ".") && part != k.Project ||
				strings.ContainsFunc(part, func(r rune) bool {
					return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:", r)
				}) {
				t.Fatalf("%q: accepted with %q", name, part)
			}
		}
	})
}
