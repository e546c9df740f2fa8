package registry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// pullSecret finds the credentials for a repository in a Secret of type kubernetes.io/dockerconfigjson. Nil means that it has
// none for it.
func pullSecret(field string, secret *corev1.Secret, repository oci.Repository) (authn.Authenticator, error) {
	refused := func(fix string, format string, args ...any) (authn.Authenticator, error) {
		return nil, &source.SecretError{Field: field, Name: secret.Name, Fix: fix, Err: fmt.Errorf(format, args...)}
	}
	const fix = "make it with kubectl create secret docker-registry"
	if secret.Type != corev1.SecretTypeDockerConfigJson {
		return refused(fix, "it is of type %q, not %s", secret.Type, corev1.SecretTypeDockerConfigJson)
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config); err != nil {
		// The decoder's error may quote what it could not decode.
		return refused(fix, "its key %s is no Docker configuration", corev1.DockerConfigJsonKey)
	}
	want := registryName(repository.Host()) + "/" + repository.Name()
	var found authn.Authenticator
	longest := -1
	for key, entry := range config.Auths {
		place := configPlace(key)
		if (place == want || strings.HasPrefix(want, place+"/")) && len(place) > longest {
			found, longest = authn.FromConfig(entry), len(place)
		}
	}
	return found, nil
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
