package sign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

// ErrGone says that a Secret has no usable private half. The key was deleted or disabled, or the
// Secret is damaged. The error is not temporary.
var ErrGone = errors.New("there is no usable private key")

// A Vault makes and stores private halves, for example in a key management service. For each key,
// it returns data for the key's Secret. With this data, it finds the private half later. A Vault is
// safe for concurrent use.
type Vault interface {
	// SecretType is the type of the Secrets of this vault's keys.
	SecretType() corev1.SecretType

	// Create makes a key for the KeyRing with the given UID. It returns the data for the key's
	// Secret.
	Create(ctx context.Context, ring types.UID, algorithm v1alpha1.Algorithm) (data map[string][]byte, private crypto.Signer, err error)

	// Open returns the private half of a key. The argument data has the content of the key's
	// Secret, as Create returned it. The private half may be used after ctx has ended. If there is
	// no private half, the error wraps ErrGone. Other errors are temporary.
	Open(ctx context.Context, data map[string][]byte) (crypto.Signer, error)

	// Destroy destroys the private half. It succeeds if there is no private half.
	Destroy(ctx context.Context, data map[string][]byte) error
}

// The type of a Secret that contains a private half, and the name of the data entry that holds it.
const (
	secretType corev1.SecretType = "identity.lanyard.dev/signing-key"
	dataKey    string            = "key.der" // PKCS #8, RFC 5958
)

// inSecret is a Vault that uses no other service: the private half of each key is in the key's
// Secret.
type inSecret struct{}

// SecretType implements [Vault].
func (inSecret) SecretType() corev1.SecretType { return secretType }

// Create implements [Vault].
func (inSecret) Create(_ context.Context, _ types.UID, algorithm v1alpha1.Algorithm) (map[string][]byte, crypto.Signer, error) {
	private, err := generate(algorithm)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, errors.New("encode a private key") // omits err, which could quote the key
	}
	return map[string][]byte{dataKey: der}, private, nil
}

// Open implements [Vault]. Its errors do not quote the data.
func (inSecret) Open(_ context.Context, data map[string][]byte) (crypto.Signer, error) {
	private, err := privatekey.Parse(data[dataKey])
	if err != nil {
		return nil, fmt.Errorf("%s is not a private key: %w", dataKey, ErrGone)
	}
	return private, nil
}

// Destroy implements [Vault]. It does nothing: the private half is deleted with its Secret.
func (inSecret) Destroy(context.Context, map[string][]byte) error { return nil }

func generate(algorithm v1alpha1.Algorithm) (crypto.Signer, error) {
	switch algorithm {
	case v1alpha1.RS256:
		return rsa.GenerateKey(rand.Reader, 2048)
	case v1alpha1.ES256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case v1alpha1.ES384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	}
	return nil, fmt.Errorf("no keys for the algorithm %q", algorithm)
}
