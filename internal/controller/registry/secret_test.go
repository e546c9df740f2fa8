package registry

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestPullSecretChoosesTheClosestEntry(t *testing.T) {
	entries := `{
		"reg.example.com":{"username":"host","password":"x"},
		"https://reg.example.com/team":{"username":"team","password":"x"},
		"reg.example.com/team/app2":{"username":"app2","password":"x"},
		"reg.example.com:5000":{"username":"port","password":"x"},
		"example.com":{"username":"parent","password":"x"},
		"https://index.docker.io/v1/":{"auth":"aHViOng="}}`
	secrets := []*corev1.Secret{
		{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":` + entries + `}`)}},
		{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(entries)}},
	}
	for raw, want := range map[string]string{
		"oci://reg.example.com/other/app":      "host",
		"oci://REG.example.com/team/app":       "team",
		"oci://reg.example.com/team/app2":      "app2",
		"oci://reg.example.com/teammate/app":   "host",
		"oci://reg.example.com:5000/team/app":  "port",
		"oci://docker.io/library/app":          "hub",
		"oci://evil.reg.example.com/team/app":  "",
		"oci://reg.example.com.evil.org/a/app": "",
	} {
		repository, err := oci.ParseURL(raw)
		must.Succeed(t, err)
		for _, secret := range secrets {
			login, err := pullSecret(secret, repository)
			must.Succeed(t, err)
			got := ""
			if login != nil {
				got = login.Basic.User
			}
			if got != want {
				t.Errorf("%s, %s: user %q, want %q", secret.Type, raw, got, want)
			}
		}
	}
}

// TestPullSecretMayHaveHostPatterns checks that patterns match as in a kubelet, and as in Flux's
// keychain.
func TestPullSecretMayHaveHostPatterns(t *testing.T) {
	secret := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{
		"*.example.com":{"username":"any","password":"x"},
		"*.example.com/team":{"username":"any team","password":"x"},
		"https://*.example.com:5000/v2/":{"username":"any port","password":"x"},
		"reg.example.com":{"username":"own","password":"x"},
		"reg-?.*.org":{"username":"letter","password":"x"},
		"[.example.net":{"username":"no pattern","password":"x"}}`)}}
	for raw, want := range map[string]string{
		"oci://other.example.com/app":          "any",
		"oci://OTHER.example.com/team/app":     "any team",
		"oci://other.example.com/teammate/app": "any",
		"oci://other.example.com:5000/app":     "any port",
		"oci://other.example.com:443/app":      "",
		"oci://reg.example.com/team/app":       "own",
		"oci://reg-a.b.org/app":                "letter",
		"oci://example.com/app":                "",
		"oci://a.b.example.com/app":            "",
		"oci://other.example.com.evil.org/app": "",
		"oci://evil-example.com/app":           "",
		"oci://x.example.net/app":              "",
		"oci://[fd00::1]:5000/app":             "",
	} {
		repository, err := oci.ParseURL(raw)
		must.Succeed(t, err)
		login, err := pullSecret(secret, repository)
		must.Succeed(t, err)
		got := ""
		if login != nil {
			got = login.Basic.User
		}
		if got != want {
			t.Errorf("%s: user %q, want %q", raw, got, want)
		}
	}
}

// Several keys of a Docker configuration may mean the same host and path. The same key must be used
// each time. Otherwise the user at the registry would change at random.
func TestPullSecretHasOneEntryForAPlace(t *testing.T) {
	repository, err := oci.ParseURL("oci://reg.example.com/team/app")
	must.Succeed(t, err)
	secret := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{
		"reg.example.com":{"username":"plain","password":"x"},
		"reg.example.com/v2/":{"username":"path","password":"x"},
		"https://reg.example.com":{"username":"url","password":"x"}}`)}}
	for range 100 {
		login, err := pullSecret(secret, repository)
		must.Succeed(t, err)
		if login.Basic.User != "url" {
			t.Fatalf("user %q", login.Basic.User)
		}
	}
}

// An entry may have a token instead of a password: a token for the registry's token endpoint, or a
// token for the registry itself.
func TestPullSecretMayHoldATokenInstead(t *testing.T) {
	repository, err := oci.ParseURL("oci://reg.example.com/app")
	must.Succeed(t, err)
	for entry, want := range map[string]authn.AuthConfig{
		`{"username":"u","password":"p"}`:                  {Username: "u", Password: "p"},
		`{"username":"<token>","identitytoken":"refresh"}`: {Username: "<token>", IdentityToken: "refresh"},
		`{"registrytoken":"bearer"}`:                       {Username: "token", RegistryToken: "bearer"},
	} {
		secret := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"reg.example.com":` + entry + `}`)}}
		found, err := pullSecret(secret, repository)
		must.Succeed(t, err)
		got, err := authenticator(access.Login{Credential: *found}).Authorization()
		must.Succeed(t, err)
		if *got != want {
			t.Errorf("%s: %+v", entry, got)
		}
	}
}
