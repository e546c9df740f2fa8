package ocirepository

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// Keys of Secrets, which are Flux's and kubernetes.io/tls's.
const (
	keyCA            = "ca.crt"
	keyCertificate   = "tls.crt"
	keyPrivateKey    = "tls.key"
	keyProxyAddress  = "address"
	keyProxyUser     = "username"
	keyProxyPassword = "password"
)

// secret reads one Secret of the object's namespace, live: no copy of anybody's Secrets is kept.
func (r *Reconciler) secret(ctx context.Context, field, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &secretError{field, name, "create it in namespace " + namespace + ", or correct the name", errors.New("does not exist")}
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s of %s: %w", namespace, name, field, err)
	}
	return secret, nil
}

// pullSecret finds the credentials for a repository in a Secret of type kubernetes.io/dockerconfigjson. Nil means that it has
// none for it.
func pullSecret(field string, secret *corev1.Secret, repository oci.Repository) (authn.Authenticator, error) {
	refused := func(fix string, format string, args ...any) (authn.Authenticator, error) {
		return nil, &secretError{field, secret.Name, fix, fmt.Errorf(format, args...)}
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

// certificates is what spec.certSecretRef holds.
type certificates struct {
	authorities []byte            // PEM; nil for the system's
	client      []tls.Certificate // at most one
}

func readCertificates(field string, secret *corev1.Secret) (*certificates, error) {
	refused := func(fix, what string) (*certificates, error) {
		return nil, &secretError{field, secret.Name, fix, errors.New(what)}
	}
	ca, certificate, key := secret.Data[keyCA], secret.Data[keyCertificate], secret.Data[keyPrivateKey]
	c := &certificates{}
	switch {
	case len(ca) == 0 && len(certificate) == 0 && len(key) == 0:
		return refused("set "+keyCA+", or "+keyCertificate+" and "+keyPrivateKey, "it holds no certificate")
	case (len(certificate) == 0) != (len(key) == 0):
		return refused("set both "+keyCertificate+" and "+keyPrivateKey+", or neither", "it holds one half of a client certificate")
	}
	if len(ca) > 0 {
		if !x509.NewCertPool().AppendCertsFromPEM(ca) {
			return refused("write PEM certificates into "+keyCA, keyCA+" holds no certificate")
		}
		c.authorities = bytes.Clone(ca)
	}
	if len(certificate) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			// Not quoted: the error may come from a parser of the key.
			return refused("write a PEM certificate and its own key", keyCertificate+" and "+keyPrivateKey+" are no pair")
		}
		c.client = []tls.Certificate{pair}
	}
	return c, nil
}

func readProxy(field string, secret *corev1.Secret) (*url.URL, error) {
	refused := func(what string) (*url.URL, error) {
		return nil, &secretError{
			field, secret.Name,
			"write " + keyProxyAddress + " as http://host:port, and user and password into " + keyProxyUser + " and " + keyProxyPassword,
			errors.New(what),
		}
	}
	address := string(secret.Data[keyProxyAddress])
	if address == "" {
		return refused("it has no key " + keyProxyAddress)
	}
	// Never quoted: people write passwords into it.
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return refused(keyProxyAddress + " is no URL with a host")
	case u.Scheme != "http" && u.Scheme != "https":
		return refused("the scheme of " + keyProxyAddress + " is neither http nor https")
	case u.User != nil:
		return refused(keyProxyAddress + " holds a user or password")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return refused(keyProxyAddress + " has a path, query or fragment")
	}
	proxy := &url.URL{Scheme: u.Scheme, Host: u.Host}
	user, password := string(secret.Data[keyProxyUser]), string(secret.Data[keyProxyPassword])
	switch {
	case user == "" && password != "":
		return refused("it has a " + keyProxyPassword + " and no " + keyProxyUser)
	case user != "":
		proxy.User = url.UserPassword(user, password)
	}
	return proxy, nil
}
