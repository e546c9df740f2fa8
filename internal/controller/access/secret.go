package access

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Data keys of Secrets. Flux and the Secret type kubernetes.io/tls use the same keys.
const (
	keyCA            = "ca.crt"
	keyCertificate   = "tls.crt"
	keyPrivateKey    = "tls.key"
	keyProxyAddress  = "address"
	keyProxyUser     = "username"
	keyProxyPassword = "password"
)

// Flux's older data keys for the certificates and the private key. If a Secret has both an older
// and a newer key, the newer key wins.
const (
	oldKeyCA          = "caFile"
	oldKeyCertificate = "certFile"
	oldKeyPrivateKey  = "keyFile"
)

// Secret reads a Secret from the API server, because the controller stores no copies of Secrets.
// The namespace must be the object's, because no object may use Secrets of another namespace.
// Errors contain the path of the field that names the Secret, such as "spec.secretRef". If the
// Secret does not exist, the error is an [*object.SecretError].
func (a *Access) Secret(ctx context.Context, field, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := a.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &object.SecretError{Field: field, Name: name, Fix: "create it in namespace " + namespace + ", or correct the name", Err: errors.New("does not exist")}
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s of %s: %w", namespace, name, field, object.Forbidden(err, "get", "secrets", namespace))
	}
	return secret, nil
}

// named reads the Secret with the given name in the namespace of the call's object, and parses it.
// If the name is empty, the result is nil. Errors contain the path of the field with the name.
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

func readProxy(field string, secret *corev1.Secret) (*url.URL, error) {
	refused := func(what string) (*url.URL, error) {
		return nil, &object.SecretError{
			Field: field, Name: secret.Name,
			Fix: "write " + keyProxyAddress + " as http://host:port, and user and password into " + keyProxyUser + " and " + keyProxyPassword,
			Err: errors.New(what),
		}
	}
	address := string(secret.Data[keyProxyAddress])
	if address == "" {
		return refused("it has no key " + keyProxyAddress)
	}
	// Errors never quote the address, because people write passwords into it.
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
