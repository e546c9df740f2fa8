package source

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Secret reads one Secret of the object's namespace, live: no copy of anybody's Secrets is kept. field is what names it. The
// error is a [*SecretError] when there is none.
func (a *Access) Secret(ctx context.Context, field, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := a.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &SecretError{field, name, "create it in namespace " + namespace + ", or correct the name", errors.New("does not exist")}
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s of %s: %w", namespace, name, field, Forbidden(err, "get", "secrets", namespace))
	}
	return secret, nil
}

// named is what the Secret holds that a field of the object names; nil where it names none.
func named[T any](
	ctx context.Context, a *Access, call Call, field, name string, read func(field string, secret *corev1.Secret) (*T, error),
) (*T, error) {
	if name == "" {
		return nil, nil
	}
	secret, err := a.Secret(ctx, field, call.Object.Namespace, name)
	if err != nil {
		return nil, err
	}
	return read(field, secret)
}

// certificates is what spec.certSecretRef holds.
type certificates struct {
	authorities []byte            // PEM; nil for the system's
	client      []tls.Certificate // at most one
}

func readCertificates(field string, secret *corev1.Secret) (*certificates, error) {
	refused := func(fix, what string) (*certificates, error) {
		return nil, &SecretError{field, secret.Name, fix, errors.New(what)}
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
		return nil, &SecretError{
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
