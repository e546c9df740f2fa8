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

// Older data keys of Flux for the same values. The newer data key wins if a Secret has both.
const (
	oldKeyCA          = "caFile"
	oldKeyCertificate = "certFile"
	oldKeyPrivateKey  = "keyFile"
)

// Secret reads one Secret of the object's namespace from the API server: the controller stores no
// copy of Secrets. field is the path of the field with the Secret's name. If the Secret does not
// exist, the error is an [*object.SecretError].
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

// named returns the parsed Secret whose name is in a field of the object. If name is empty, the
// result is nil.
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
	// The address is never quoted, because people write passwords into it.
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
