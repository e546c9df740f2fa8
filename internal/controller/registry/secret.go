package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// dockerRegistryFix is what to do about a Secret that is none for a registry.
const dockerRegistryFix = "make it with kubectl create secret docker-registry"

// pullSecret finds the credentials for a repository in a Secret with a Docker configuration. Nil means that it has none for it.
// The error says why the Secret is no such one.
func pullSecret(secret *corev1.Secret, repository oci.Repository) (authn.Authenticator, error) {
	entries, err := entriesOf(secret)
	if err != nil {
		return nil, err
	}
	want := registryName(repository.Host()) + "/" + repository.Name()
	var found authn.Authenticator
	longest := -1
	for _, key := range slices.Sorted(maps.Keys(entries)) { // two keys may be one place: it is always the same that counts
		place, entry := configPlace(key), entries[key]
		if (place == want || strings.HasPrefix(want, place+"/")) && len(place) > longest {
			found, longest = authn.FromConfig(entry), len(place)
		}
	}
	return found, nil
}

// entriesOf reads the two types of Secrets that a kubelet knows. The older one, which OpenShift makes for every ServiceAccount, holds
// the entries alone.
func entriesOf(secret *corev1.Secret) (map[string]authn.AuthConfig, error) {
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	var key string
	var into any
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		key, into = corev1.DockerConfigJsonKey, &config
	case corev1.SecretTypeDockercfg:
		key, into = corev1.DockerConfigKey, &config.Auths
	default:
		return nil, fmt.Errorf("it is of type %q, neither %s nor %s", secret.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	if err := json.Unmarshal(secret.Data[key], into); err != nil {
		// The decoder's error may quote what it could not decode.
		return nil, fmt.Errorf("its key %s is no Docker configuration", key)
	}
	return config.Auths, nil
}

// configPlace is a key of a Docker configuration as host[:port][/path]. Keys are also written as URLs of the registry's API.
func configPlace(key string) string {
	_, rest, hasScheme := strings.Cut(key, "://")
	if !hasScheme {
		rest = key
	}
	host, path, _ := strings.Cut(strings.TrimRight(rest, "/"), "/")
	host = registryName(strings.ToLower(host))
	if path == "" || path == "v1" || path == "v2" {
		return host
	}
	return host + "/" + path
}

// registryName is one name for each of Docker Hub's.
func registryName(host string) string {
	switch host {
	case "docker.io", "registry-1.docker.io":
		return "index.docker.io"
	default:
		return host
	}
}
