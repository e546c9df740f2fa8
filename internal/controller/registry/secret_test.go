package registry

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
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
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			login, err := pullSecret(secret, repository)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if login != nil {
				config, err := login.Authorization()
				if err != nil {
					t.Fatal(err)
				}
				got = config.Username
			}
			if got != want {
				t.Errorf("%s, %s: user %q, want %q", secret.Type, raw, got, want)
			}
		}
	}
}

// Of two keys for one place the same counts each time: a registry is not asked now as this user, now as that.
func TestPullSecretHasOneEntryForAPlace(t *testing.T) {
	repository, err := oci.ParseURL("oci://reg.example.com/team/app")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{
		"reg.example.com":{"username":"plain","password":"x"},
		"reg.example.com/v2/":{"username":"path","password":"x"},
		"https://reg.example.com":{"username":"url","password":"x"}}`)}}
	for range 100 {
		login, err := pullSecret(secret, repository)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := login.Authorization(); err != nil || config.Username != "url" {
			t.Fatalf("user %q, %v", config.Username, err)
		}
	}
}
