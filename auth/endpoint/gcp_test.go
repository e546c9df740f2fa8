package endpoint_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

func TestParseGAR(t *testing.T) {
	const public, s3ns, berlin = "googleapis.com", "s3nsapis.fr", "apis-berlin-build0.goog"
	registry := func(host, universe, location string) endpoint.Registry {
		return endpoint.Registry{Host: host, Provider: endpoint.GCP, Partition: universe, Region: location}
	}
	for _, tt := range []struct {
		image  string
		want   endpoint.Registry
		reason endpoint.Reason
	}{
		// Cases of fluxcd/pkg/auth v0.54.3, gcp/provider_test.go. That package accepts any name
		// under gcr.io; here only documented names are accepted.
		{image: "gcr.io/foo/bar:v1", want: registry("gcr.io", public, "us")},
		{image: "gcr.io/foo/bar", want: registry("gcr.io", public, "us")},
		{image: "us.gcr.io/foo/bar", want: registry("us.gcr.io", public, "us")},
		{image: "eu.gcr.io/foo/bar", want: registry("eu.gcr.io", public, "europe")},
		{image: "asia.gcr.io/foo/bar", want: registry("asia.gcr.io", public, "asia")},
		{image: "us-docker.pkg.dev/foo/bar/baz", want: registry("us-docker.pkg.dev", public, "us")},
		{image: "us-central1-docker.pkg.dev/foo/bar/baz:v1", want: registry("us-central1-docker.pkg.dev", public, "us-central1")},
		{image: "europe-west12-docker.pkg.dev", want: registry("europe-west12-docker.pkg.dev", public, "europe-west12")},
		{image: "012345678901.dkr.ecr.us-east-1.amazonaws.com/foo:v1", reason: endpoint.ReasonHost},
		{image: "foo.azurecr.io/bar", reason: endpoint.ReasonHost},
		{image: "ghcr.io/foo/bar", reason: endpoint.ReasonHost},
		{image: "marketplace.gcr.io/foo/bar", want: registry("marketplace.gcr.io", public, "us")},
		{image: "mirror.gcr.io/library/alpine", reason: endpoint.ReasonHost},

		// Further hosts of Google Cloud.
		{image: "oci://europe-docker.pkg.dev/p/r/i", want: registry("europe-docker.pkg.dev", public, "europe")},
		{image: "asia-docker.pkg.dev/p/r/i@sha256:" + strings.Repeat("0", 64), want: registry("asia-docker.pkg.dev", public, "asia")},
		{image: "Northamerica-NorthEast1-Docker.PKG.dev/p/r/I", want: registry("northamerica-northeast1-docker.pkg.dev", public, "northamerica-northeast1")},
		{image: "me-central2-docker.pkg.dev/p/r/i", want: registry("me-central2-docker.pkg.dev", public, "me-central2")},
		{image: "docker.me-central2.rep.pkg.dev/p/r/i", want: registry("docker.me-central2.rep.pkg.dev", public, "me-central2")},
		{image: "GCR.io/foo/bar", want: registry("gcr.io", public, "us")},
		{image: "u-france-east1-docker.s3nsregistry.fr/s3ns/p/r/i", want: registry("u-france-east1-docker.s3nsregistry.fr", s3ns, "u-france-east1")},
		{image: "u-germany-northeast1-docker.pkg-berlin-build0.goog/p/r", want: registry("u-germany-northeast1-docker.pkg-berlin-build0.goog", berlin, "u-germany-northeast1")},
		{image: "docker.s3nsregistry.fr/s3ns/p/r/i", want: registry("docker.s3nsregistry.fr", s3ns, "u-france-east1")},
		{image: "docker.pkg-berlin-build0.goog/eu0/p/r/i", want: registry("docker.pkg-berlin-build0.goog", berlin, "u-germany-northeast1")},
		// A region that does not exist yet.
		{image: "antarctica-south3-docker.pkg.dev/p/r/i", want: registry("antarctica-south3-docker.pkg.dev", public, "antarctica-south3")},

		// Other hosts under Google's domains, and invalid locations.
		{image: "docker.pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "-docker.pkg.dev/p/r/i", reason: endpoint.ReasonMalformed},
		{image: "evil-docker.pkg.dev/p/r/i", reason: endpoint.ReasonRegion},
		{image: "us-central-docker.pkg.dev/p/r/i", reason: endpoint.ReasonRegion},
		{image: "us-central1-a-docker.pkg.dev/p/r/i", reason: endpoint.ReasonRegion},
		{image: "us-central1-npm.pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "us-docker.rep.pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "docker.us.rep.pkg.dev/p/r/i", reason: endpoint.ReasonRegion},
		{image: "docker.us-east1.rep.s3nsregistry.fr/p/r/i", reason: endpoint.ReasonHost},
		{image: "evil.us-docker.pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "evil.gcr.io/foo/bar", reason: endpoint.ReasonHost},
		{image: "gcr.io.s3nsregistry.fr/foo", reason: endpoint.ReasonHost},
		{image: "us-east1-docker.googleapis.com/p/r/i", reason: endpoint.ReasonHost},
		{image: "storage.googleapis.com/p/r/i", reason: endpoint.ReasonHost},

		// Look-alikes.
		{image: "docker.s3nsregistry.fr.evil.example/p/r/i", reason: endpoint.ReasonHost},
		{image: "docker.evil.s3nsregistry.fr/p/r/i", reason: endpoint.ReasonHost},
		{image: "docker.xpkg-berlin-build0.goog/p/r/i", reason: endpoint.ReasonHost},
		{image: "xmarketplace.gcr.io/foo/bar", reason: endpoint.ReasonHost},
		{image: "gcr.io.evil.example/foo/bar", reason: endpoint.ReasonHost},
		{image: "xgcr.io/foo/bar", reason: endpoint.ReasonHost},
		{image: "us-gcr.io/foo/bar", reason: endpoint.ReasonHost},
		{image: "europe-docker.pkg.dev.evil/p/r/i", reason: endpoint.ReasonHost},
		{image: "europe-docker.pkg.device/p/r/i", reason: endpoint.ReasonHost},
		{image: "europe-docker.xpkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "europe-dockerpkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "europe-docker-pkg.dev/p/r/i", reason: endpoint.ReasonHost},
		{image: "evil.example/gcr.io/foo", reason: endpoint.ReasonHost},
		{image: "localhost/us-docker.pkg.dev", reason: endpoint.ReasonHost},
		{image: "169.254.169.254/us-docker.pkg.dev", reason: endpoint.ReasonHost},
		{image: "[::1]/gcr.io", reason: endpoint.ReasonHost},
		{image: "xn--gcr-io-docker.pkg.dev/foo", reason: endpoint.ReasonRegion},

		// Texts that are not host[/path].
		{image: "", reason: endpoint.ReasonEmpty},
		{image: "oci://", reason: endpoint.ReasonEmpty},
		{image: "https://gcr.io/foo", reason: endpoint.ReasonScheme},
		{image: "gcr.io:443/foo", reason: endpoint.ReasonPort},
		{image: "us-docker.pkg.dev:5000/foo", reason: endpoint.ReasonPort},
		{image: "gcr.io./foo", reason: endpoint.ReasonMalformed},
		{image: "us-docker..pkg.dev/foo", reason: endpoint.ReasonMalformed},
		{image: "gcr.io@evil.example/foo", reason: endpoint.ReasonCredentials},
		{image: "oauth2accesstoken:s3cr3t-Pa55@gcr.io/foo", reason: endpoint.ReasonCredentials},
		{image: "gcr.io%2f.evil.example/foo", reason: endpoint.ReasonMalformed},
		{image: `gcr.io\.evil.example/foo`, reason: endpoint.ReasonMalformed},
		{image: "gcr.io?.evil.example", reason: endpoint.ReasonPath},
		{image: "gcr.io#.evil.example", reason: endpoint.ReasonPath},
		{image: "gcr.io /foo", reason: endpoint.ReasonMalformed},
		// Look-alikes of ASCII characters: a Cyrillic es, a Kelvin sign and a full-width dot.
		{image: "g\u0441r.io/foo", reason: endpoint.ReasonMalformed},
		{image: "us-doc\u212aer.pkg.dev/foo", reason: endpoint.ReasonMalformed},
		{image: "us-docker.pkg\uff0edev/foo", reason: endpoint.ReasonMalformed},
	} {
		t.Run(tt.image, func(t *testing.T) {
			got, err := endpoint.ParseGAR(tt.image)
			parsed(t, got, tt.want, err, tt.reason)
		})
	}
}

// inGCPTable reports whether the host is in the tables of Google Cloud's registries, or is a
// subdomain of a domain in these tables.
func inGCPTable(host string) bool {
	switch host {
	case "gcr.io", "us.gcr.io", "eu.gcr.io", "asia.gcr.io", "marketplace.gcr.io",
		"docker.s3nsregistry.fr", "docker.pkg-berlin-build0.goog":
		return true
	}
	for _, u := range endpoint.GCPUniverses() {
		if label, domain, _ := strings.Cut(host, "."); domain == u.RegistryDomain && strings.HasSuffix(label, "-docker") {
			return true
		}
		if u.RegionalRegistryDomain != "" && strings.HasPrefix(host, "docker.") && strings.HasSuffix(host, "."+u.RegionalRegistryDomain) {
			return true
		}
	}
	return false
}

func FuzzParseGAR(f *testing.F) {
	for _, seed := range []string{
		"gcr.io/foo/bar:v1", "oci://europe-west1-docker.pkg.dev/p/r/i@sha256:00", "docker.me-central2.rep.pkg.dev/a", "us-docker.pkg.dev.evil/a",
		"u-france-east1-docker.s3nsregistry.fr/a", "US.gcr.io", "gcr.io:443/a", "a:b@gcr.io", "oci://[::1]:5000/a", "gcr.io./",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		r, err := endpoint.ParseGAR(image)
		if err != nil {
			if r != (endpoint.Registry{}) {
				t.Fatalf("%q: refused, yet a registry %+v", image, r)
			}
			return
		}
		if !isPlainHost(r.Host) || !inGCPTable(r.Host) || r.Provider != endpoint.GCP || r.Region == "" {
			t.Fatalf("%q: accepted as %+v", image, r)
		}
		if _, err := endpoint.ParseGCPUniverse(r.Partition); err != nil {
			t.Fatalf("%q: of universe %q: %v", image, r.Partition, err)
		}
		// A second parser of the string, which is simpler than ParseGAR, must find the same host.
		_, rest, hasScheme := strings.Cut(image, "://")
		if !hasScheme {
			rest = image
		}
		if host, _, _ := strings.Cut(rest, "/"); !strings.EqualFold(host, r.Host) {
			t.Fatalf("%q: accepted as %q, but reads as %q", image, r.Host, host)
		}
		if again, err := endpoint.ParseGAR(r.String()); err != nil || again != r {
			t.Fatalf("%q: parses to %+v, its host to %+v, %v", image, r, again, err)
		}
	})
}

func TestParseGCS(t *testing.T) {
	for _, tt := range []struct {
		endpoint string
		want     endpoint.GCS
		reason   endpoint.Reason
	}{
		{endpoint: "storage.googleapis.com", want: endpoint.GCS{Host: "storage.googleapis.com", Universe: "googleapis.com"}},
		{endpoint: "https://storage.googleapis.com", want: endpoint.GCS{Host: "storage.googleapis.com", Universe: "googleapis.com"}},
		{endpoint: "https://Storage.GoogleAPIs.com:443/", want: endpoint.GCS{Host: "storage.googleapis.com", Universe: "googleapis.com"}},
		{endpoint: "storage.s3nsapis.fr", want: endpoint.GCS{Host: "storage.s3nsapis.fr", Universe: "s3nsapis.fr"}},
		{
			endpoint: "storage.me-central2.rep.googleapis.com",
			want:     endpoint.GCS{Host: "storage.me-central2.rep.googleapis.com", Universe: "googleapis.com", Region: "me-central2"},
		},
		{endpoint: "", reason: endpoint.ReasonEmpty},
		{endpoint: "http://storage.googleapis.com", reason: endpoint.ReasonScheme},
		{endpoint: "storage.googleapis.com:80", reason: endpoint.ReasonPort},
		{endpoint: "storage.googleapis.com/bucket", reason: endpoint.ReasonPath},
		{endpoint: "user@storage.googleapis.com", reason: endpoint.ReasonCredentials},
		{endpoint: "evil.storage.googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "storage.googleapis.com.evil.example", reason: endpoint.ReasonHost},
		{endpoint: "xstorage.googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "storage.evil.googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "storage.evil.rep.googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "storage.us-east1.rep.s3nsapis.fr", reason: endpoint.ReasonHost},
		{endpoint: "sts.googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "googleapis.com", reason: endpoint.ReasonHost},
		{endpoint: "127.0.0.1", reason: endpoint.ReasonHost},
		{endpoint: "storage.googleapis.com.", reason: endpoint.ReasonMalformed},
	} {
		t.Run(tt.endpoint, func(t *testing.T) {
			got, err := endpoint.ParseGCS(tt.endpoint)
			parsed(t, got, tt.want, err, tt.reason)
			if tt.reason == "" && got.URL() != "https://"+got.Host {
				t.Errorf("got URL %s", got.URL())
			}
		})
	}
}

func TestParseGCPUniverse(t *testing.T) {
	for _, u := range endpoint.GCPUniverses() {
		if got, err := endpoint.ParseGCPUniverse(u.Domain); err != nil || got != u {
			t.Errorf("%s: got %+v, %v", u.Domain, got, err)
		}
	}
	for _, domain := range []string{"", "googleapis.com.evil.example", "Googleapis.com", "evil.example", "sts.googleapis.com"} {
		_, err := endpoint.ParseGCPUniverse(domain)
		refused(t, err, endpoint.ReasonPartition)
	}
}
