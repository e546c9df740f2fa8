package oci_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string][2]string{
		"oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app": {"123456789123.dkr.ecr.eu-west-1.amazonaws.com", "tenant-a/app"},
		"oci://Registry.Example:5000/a":                                   {"registry.example:5000", "a"},
		"oci://localhost/a/b/c":                                           {"localhost", "a/b/c"},
		"oci://registry/a":                                                {"registry", "a"},
		"oci://127.0.0.1:5000/a_b/c__d/e-f/g.h":                           {"127.0.0.1:5000", "a_b/c__d/e-f/g.h"},
		"oci://[::1]:5000/a":                                              {"[::1]:5000", "a"},
		"oci://registry.example/team/manifests/podinfo":                   {"registry.example", "team/manifests/podinfo"},
		"oci://docker.io/alpine":                                          {"docker.io", "library/alpine"},
	} {
		repo, err := oci.ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if repo.Host() != want[0] || repo.Name() != want[1] || repo.IsZero() {
			t.Errorf("%s: %q %q", raw, repo.Host(), repo.Name())
		}
		if again, err := oci.ParseURL(repo.String()); err != nil || again != repo {
			t.Errorf("%s: %s parses to %v, %v", raw, repo, again, err)
		}
	}
	for raw, fix := range map[string]string{
		"":                             "oci://host/repository",
		"registry.example/a":           "oci://host/repository",
		"https://registry.example/a":   "oci://host/repository",
		"OCI://registry.example/a":     "oci://host/repository",
		"oci://":                       "oci://host/repository",
		"oci:///a":                     "oci://host/repository",
		"oci://registry.example":       "oci://host/repository",
		"oci://registry.example/":      "oci://host/repository",
		"oci://registry.example/a:1.0": "spec.ref.tag",
		"oci://registry.example/a@sha256:" + strings.Repeat("a", 64): "spec.ref.digest",
		"oci://u:p4ssw0rd@registry.example/a":                        "spec.secretRef",
		"oci://registry.example/a?x=1":                               "oci://host/repository",
		"oci://registry.example/a#x":                                 "oci://host/repository",
		"oci://registry.example/../a":                                "oci://host/repository",
		"oci://registry.example/a/../../b":                           "oci://host/repository",
		"oci://registry.example//a":                                  "oci://host/repository",
		"oci://registry.example/a/":                                  "oci://host/repository",
		"oci://registry.example/A":                                   "oci://host/repository",
		"oci://registry.example/a%2fb":                               "oci://host/repository",
		"oci://registry.example/a b":                                 "oci://host/repository",
		"oci://registry.example/a\n":                                 "oci://host/repository",
		"oci://registry.example:/a":                                  "oci://host/repository",
		"oci://registry.example:0/a":                                 "oci://host/repository",
		"oci://registry.example:65536/a":                             "oci://host/repository",
		"oci://registry.example:http/a":                              "oci://host/repository",
		"oci://registry..example/a":                                  "oci://host/repository",
		"oci://-registry.example/a":                                  "oci://host/repository",
		"oci://registry_.example/a":                                  "oci://host/repository",
		"oci://réGistry.example/a":                                   "oci://host/repository",
		"oci://registry.example\\@evil.example/a":                    "spec.secretRef",
		"oci://[::1/a":                                               "oci://host/repository",
		"oci://registry.example/" + strings.Repeat("a", 256):         "oci://host/repository",
		"oci://" + strings.Repeat("a", 2000) + "/a":                  "oci://host/repository",
	} {
		repo, err := oci.ParseURL(raw)
		if origin.CodeOf(err) != origin.CodeInvalidURL || !repo.IsZero() {
			t.Errorf("%q: %v, %v", raw, repo, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "spec.url: ") || !strings.Contains(err.Error(), fix) || strings.Contains(err.Error(), "p4ssw0rd") {
			t.Errorf("%q: %v; want the fix %q", raw, err, fix)
		}
	}
	if (oci.Repository{}).String() != "" {
		t.Error("the zero repository prints")
	}
}

func TestParseImage(t *testing.T) {
	for raw, want := range map[string][3]string{
		"123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app": {
			"123456789123.dkr.ecr.eu-west-1.amazonaws.com", "tenant-a/app", "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app",
		},
		"Registry.Example:5000/a":  {"registry.example:5000", "a", "registry.example:5000/a"},
		"registry:5000/a":          {"registry:5000", "a", "registry:5000/a"},
		"localhost/a/b":            {"localhost", "a/b", "localhost/a/b"},
		"[::1]:5000/a":             {"[::1]:5000", "a", "[::1]:5000/a"},
		"docker.io/alpine":         {"docker.io", "library/alpine", "index.docker.io/library/alpine"},
		"docker.io/library/alpine": {"docker.io", "library/alpine", "index.docker.io/library/alpine"},
	} {
		repo, err := oci.ParseImage(raw)
		if err != nil || repo.Host() != want[0] || repo.Name() != want[1] || repo.Image() != want[2] {
			t.Errorf("%s: %q %q %q, %v", raw, repo.Host(), repo.Name(), repo.Image(), err)
		}
	}
	long := strings.Repeat("a", 256)
	for raw, text := range map[string]string{
		"":                                      "does not begin with a registry's host",
		"alpine":                                "does not begin with a registry's host",
		"team/app":                              "does not begin with a registry's host",
		"oci://registry.example/a":              "scheme",
		"https://registry.example/a":            "scheme",
		"registry.example":                      "no repository",
		"registry.example/":                     "no repository",
		"registry.example/a:1.0":                "it has a tag",
		"registry.example:5000/a:1.0":           "it has a tag",
		"registry.example/a@" + digestOf("x"):   "it has a digest",
		"u:p4ssw0rd@registry.example/a":         "spec.secretRef",
		"registry.example/A":                    "no repository name",
		"registry.example/../a":                 "no repository name",
		"registry.example/a?x=1":                "query",
		"registry.example/" + long:              "no repository name",
		"../a":                                  "no host",
		"registry..example/a":                   "no host",
		"registry.example:0/a":                  "no port",
		"registry.example/" + long + "/" + long: "no repository name",
	} {
		repo, err := oci.ParseImage(raw)
		if origin.CodeOf(err) != origin.CodeInvalidURL || !repo.IsZero() {
			t.Errorf("%q: %v, %v", raw, repo, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "spec.image: ") || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "p4ssw0rd") {
			t.Errorf("%q: %v; want %q", raw, err, text)
		}
	}
}

// TestErrorsNameTheFieldOfTheRepository checks that an error of a registry begins with the field
// that names the repository.
func TestErrorsNameTheFieldOfTheRepository(t *testing.T) {
	nothing := &fake{override: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/" {
			registryError(w, http.StatusNotFound, "NAME_UNKNOWN", "no such repository")
			return true
		}
		return false
	}}
	n := serve(t, map[string]http.Handler{registryHost: nothing})
	byURL, byImage := repository(t, appURL), func() oci.Repository {
		repo, err := oci.ParseImage(registryHost + "/team/app")
		must.Succeed(t, err)
		return repo
	}()
	for repo, field := range map[oci.Repository]string{byURL: "spec.url", byImage: "spec.image"} {
		client, err := oci.Connect(t.Context(), repo, oci.Options{Transport: n})
		must.Succeed(t, err)
		if _, err := client.Scan(t.Context(), oci.Exclusions{}); origin.CodeOf(err) != origin.CodeNotFound || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%v, want one that begins with %s", err, field)
		}
	}
}

func TestReferenceValidate(t *testing.T) {
	for ref, field := range map[oci.Reference]string{
		{}:            "",
		{Tag: "v1.0"}: "",
		{SemVer: ">=1.0.0 <2", SemVerFilter: ".*-rc.*"}: "",
		{Digest: digestOf("x"), Tag: "1"}:               "",
		{Tag: "a/b"}:                                    "spec.ref.tag",
		{Tag: "../../blobs/x"}:                          "spec.ref.tag",
		{Tag: "1@" + digestOf("x")}:                     "spec.ref.tag",
		{Tag: strings.Repeat("a", 129)}:                 "spec.ref.tag",
		{Tag: "a b", Digest: digestOf("x")}:             "spec.ref.tag",
		{SemVer: "newest"}:                              "spec.ref.semver",
		{SemVer: strings.Repeat(">=1 ", 500)}:           "spec.ref.semver",
		{SemVer: "*", SemVerFilter: "("}:                "spec.ref.semverFilter",
		{SemVer: "*", SemVerFilter: `(?=a)`}:            "spec.ref.semverFilter",
		{SemVerFilter: "a"}:                             "spec.ref.semverFilter",
		{Digest: "sha256:abc"}:                          "spec.ref.digest",
		{Digest: strings.ToUpper(digestOf("x"))}:        "spec.ref.digest",
		{Digest: "sha512:" + strings.Repeat("a", 128)}:  "spec.ref.digest",
		{Digest: strings.Repeat("a", 64)}:               "spec.ref.digest",
	} {
		err := ref.Validate()
		if field == "" {
			if err != nil {
				t.Errorf("%+v: %v", ref, err)
			}
			continue
		}
		if origin.CodeOf(err) != origin.CodeInvalidReference || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%+v: %v, want %s", ref, err, field)
		}
	}
}

// FuzzParseURL checks that the host and the repository name in an accepted URL have no special
// characters. If the repository is printed and parsed again, the result must be equal.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"oci://registry.example/a", "oci://[::1]:5000/a/b", "oci://a@b/c", "oci://a/b:c", "oci://a/b?c", "oci://docker.io/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		repo, err := oci.ParseURL(raw)
		if err != nil {
			if origin.CodeOf(err) != origin.CodeInvalidURL || !repo.IsZero() {
				t.Fatalf("%q: %v, %v", raw, repo, err)
			}
			return
		}
		if strings.ContainsAny(repo.Host(), "@/?#\\ \t\r\n%") || strings.ContainsAny(repo.Name(), "@:?#\\ \t\r\n%") ||
			strings.Contains(repo.Name(), "..") || strings.Contains(repo.Name(), "//") {
			t.Fatalf("%q: host %q, name %q", raw, repo.Host(), repo.Name())
		}
		if again, err := oci.ParseURL(repo.String()); err != nil || again != repo {
			t.Fatalf("%q: %v prints %q: %v", raw, repo, again, err)
		}
		if !strings.EqualFold(strings.TrimPrefix(raw, "oci://")[:len(repo.Host())], repo.Host()) {
			t.Fatalf("%q: host %q", raw, repo.Host())
		}
	})
}
