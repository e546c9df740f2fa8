package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
)

// dockerRegistryFix is the fix for a Secret without a Docker configuration.
const dockerRegistryFix = "make it with kubectl create secret docker-registry"

// readSecret looks in a Secret, which spec.secretRef names, and returns the credential for a
// repository. If the Secret has none, fix says how to correct the Secret.
func readSecret(secret *corev1.Secret, repository oci.Repository) (shown access.Credential, fix string, err error) {
	found, err := pullSecret(secret, repository)
	switch {
	case err != nil:
		return access.Credential{}, dockerRegistryFix, err
	case found == nil:
		return access.Credential{}, dockerRegistryFix + " --docker-server=" + repository.Host(), fmt.Errorf("it has no entry for %s", repository.Host())
	default:
		return *found, "", nil
	}
}

// pullSecret finds the credential for a repository in a Secret with a Docker configuration; nil if
// the configuration has no entry for the repository. If the Secret has no valid Docker
// configuration, the error says why.
func pullSecret(secret *corev1.Secret, repository oci.Repository) (*access.Credential, error) {
	entries, err := entriesOf(secret)
	if err != nil {
		return nil, err
	}
	host := registryName(repository.Host())
	var found *access.Credential
	closest := -1
	// Two keys may mean the same host and path. The keys are sorted, so that the same key is used
	// each time.
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if how := closeness(configPlace(key), host, repository.Name()); how > closest {
			found, closest = credentialOf(entries[key]), how
		}
	}
	return found, nil
}

// closeness returns how closely a place matches a repository; -1 if it does not match. A place has
// the form host[:port][/path], and its host may be a pattern. A place with the repository's exact
// host is closer than any pattern. Otherwise the longer place is closer.
func closeness(place, host, repository string) int {
	// own is more than the length of any place. So a place with the exact host is closer than any
	// pattern.
	const own = 1 << 20
	pattern, folder, _ := strings.Cut(place, "/")
	switch {
	case folder != "" && repository != folder && !strings.HasPrefix(repository, folder+"/"):
		return -1
	case pattern == host:
		return own + len(place)
	case matchesHost(pattern, host):
		return len(place)
	default:
		return -1
	}
}

// matchesHost reports whether a host fits a pattern such as *.example.com. As in Kubernetes, each
// label is matched by itself, and the port must be the same. Source: Kubernetes, "Images",
// "Interpretation of config.json".
func matchesHost(pattern, host string) bool {
	pattern, port, _ := strings.Cut(pattern, ":")
	host, hostPort, _ := strings.Cut(host, ":")
	patterns, labels := strings.Split(pattern, "."), strings.Split(host, ".")
	if port != hostPort || len(patterns) != len(labels) {
		return false
	}
	for i, label := range labels {
		if ok, err := path.Match(patterns[i], label); err != nil || !ok {
			return false
		}
	}
	return true
}

// credentialOf returns the credential in an entry of a Docker configuration.
func credentialOf(entry authn.AuthConfig) *access.Credential {
	if entry.RegistryToken != "" {
		return &access.Credential{Bearer: auth.NewSecret(entry.RegistryToken)}
	}
	return &access.Credential{Basic: &access.Basic{
		User: entry.Username, Password: auth.NewSecret(entry.Password), Refresh: auth.NewSecret(entry.IdentityToken),
	}}
}

// entriesOf returns the entries in a Secret of one of the two types that a kubelet accepts. The
// older type has no field auths around the entries. OpenShift makes a Secret of the older type for
// every ServiceAccount.
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
		// The decoder's error is left out, because it may quote a part of the Secret.
		return nil, fmt.Errorf("its key %s is not a Docker configuration", key)
	}
	return config.Auths, nil
}

// configPlace converts a key of a Docker configuration to host[:port][/path]. Some keys are URLs of
// the registry's API.
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

// registryName returns the host; for all hosts of Docker Hub, it returns the same name.
func registryName(host string) string {
	switch host {
	case "docker.io", "registry-1.docker.io":
		return "index.docker.io"
	default:
		return host
	}
}
