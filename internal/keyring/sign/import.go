package sign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// authorityAlgorithm is the algorithm of the keys of authorities and intermediates.
const authorityAlgorithm = v1alpha1.ES256

// CA is the CA in a Secret from which authorities are imported. If the Secret has the private
// key too, the program keeps the key in memory only while a step runs.
type CA struct {
	// Problem tells people why the Secret has no usable CA; empty for a usable CA.
	Problem     string
	certificate *x509.Certificate
	key         crypto.Signer
}

// observation returns the CA as an input of keyring.Next; nil for a nil CA.
func (c *CA) observation() *keyring.Import {
	switch {
	case c == nil:
		return nil
	case c.Problem != "":
		return &keyring.Import{Problem: c.Problem}
	}
	thumbprint, err := keyring.Thumbprint(c.certificate.PublicKey)
	if err != nil {
		return &keyring.Import{Problem: "the key of the CA has no thumbprint: " + err.Error()}
	}
	return &keyring.Import{ID: svid.AuthorityID(c.certificate), Key: thumbprint, NotAfter: c.certificate.NotAfter.UTC()}
}

// String returns the CA's ID, without its key.
func (c *CA) String() string { return "CA " + c.observation().ID }

// GoString returns the text of String, because %#v must not print the key either.
func (c *CA) GoString() string { return c.String() }

// ImportFrom returns a function that reads the CA of a trust domain from a Secret of the type
// kubernetes.io/tls. Another program, such as cert-manager, writes the Secret. The function only
// reads it. The function fails if a temporary error prevents the read. If the Secret itself is
// wrong, the CA has a Problem.
func ImportFrom(reader client.Reader, secret client.ObjectKey, domain spiffeid.TrustDomain) func(ctx context.Context) (*CA, error) {
	return func(ctx context.Context) (*CA, error) {
		data, ca, err := readSecret(ctx, reader, secret)
		if data == nil {
			return ca, err
		}
		certificate, key, err := svid.ParseAuthority(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], domain, time.Now())
		if err != nil {
			return unusable(secret, err), nil // the ring's condition shows the Problem
		}
		return &CA{certificate: certificate, key: key}, nil
	}
}

// ImportWithKey is like ImportFrom, for a CA whose private key is in another place, such as AWS
// KMS. The Secret has the CA's certificate, and its tls.key is ignored. The function open returns
// the key, and name describes the key in errors. The returned function checks each new tls.crt
// against the key: it signs one temporary certificate. It is not for concurrent use.
func ImportWithKey(
	reader client.Reader, secret client.ObjectKey, domain spiffeid.TrustDomain,
	name string, open func(ctx context.Context) (crypto.Signer, error),
) func(ctx context.Context) (*CA, error) {
	var known *CA
	var checked []byte // the tls.crt of the last accepted CA
	return func(ctx context.Context) (*CA, error) {
		data, ca, err := readSecret(ctx, reader, secret)
		if data == nil {
			return ca, err
		}
		now := time.Now()
		if known != nil && bytes.Equal(checked, data[corev1.TLSCertKey]) && now.Before(known.certificate.NotAfter) {
			return known, nil
		}
		key, err := open(ctx)
		if err != nil {
			return &CA{Problem: fmt.Sprintf("the key of the CA in Secret %s cannot be used: %v", secret, err)}, nil
		}
		certificate, err := svid.ParseAuthorityOf(data[corev1.TLSCertKey], key, name, domain, now)
		if err != nil {
			return unusable(secret, err), nil // the ring's condition shows the Problem
		}
		known, checked = &CA{certificate: certificate, key: key}, data[corev1.TLSCertKey]
		return known, nil
	}
}

// readSecret returns the data of a CA's Secret. If the Secret cannot be used, the data is nil. In
// this case, readSecret returns a CA with a Problem, or an error.
func readSecret(ctx context.Context, reader client.Reader, secret client.ObjectKey) (map[string][]byte, *CA, error) {
	var read corev1.Secret
	err := reader.Get(ctx, secret, &read)
	switch {
	case apierrors.IsNotFound(err):
		return nil, problem(secret, "does not exist: create it, or remove --spiffe-secret-name"), nil
	case apierrors.IsForbidden(err):
		return nil, problem(secret, "must not be read: grant lanyard-token-server get of this Secret (spiffe.secretName)"), nil
	case err != nil:
		return nil, nil, fmt.Errorf("read Secret %s: %w", secret, err)
	case read.Type != corev1.SecretTypeTLS:
		return nil, problem(secret, fmt.Sprintf("has the type %s: it must be %s", read.Type, corev1.SecretTypeTLS)), nil
	case read.Data == nil:
		return map[string][]byte{}, nil, nil
	}
	return read.Data, nil, nil
}

func unusable(secret client.ObjectKey, why error) *CA {
	return problem(secret, "has no CA that can be used: "+why.Error())
}

func problem(secret client.ObjectKey, what string) *CA {
	return &CA{Problem: fmt.Sprintf("Secret %s %s", secret, what)}
}

// adopt makes a key of the ring, and signs an intermediate for it with the imported CA. Then adopt
// adds both to the plan as an authority. With this key, the ring can still sign after the Secret's
// CA has been replaced.
func (r *Rotator) adopt(ctx context.Context, ring *v1alpha1.KeyRing, plan *keyring.Plan, ca *CA, now time.Time) error {
	key, err := r.Store.Create(ctx, ring.UID, authorityAlgorithm)
	if err != nil {
		return err
	}
	authority, err := r.intermediate(ca, key.Public, now)
	if err != nil {
		return err
	}
	plan.AddAuthority(authority, now)
	return nil
}

// renew uses the imported CA to sign a new intermediate. The intermediate is for the authority
// whose ID is plan.Renew. This authority keeps its key.
func (r *Rotator) renew(plan *keyring.Plan, ca *CA, now time.Time) error {
	entry, found := keyring.Find(&plan.Status, plan.Renew)
	if !found {
		return errors.New("the authority to renew is not in the ring")
	}
	former, err := keyring.ParseAuthority(entry.Authority)
	if err != nil {
		return err
	}
	authority, err := r.intermediate(ca, former.Key.Public, now)
	if err != nil {
		return err
	}
	plan.Renewed(authority)
	return nil
}

func (r *Rotator) intermediate(ca *CA, public crypto.PublicKey, now time.Time) (keyring.Authority, error) {
	certificate, err := svid.NewIntermediate(r.Policy.TrustDomain, ca.certificate, ca.key, public, r.Policy.IntermediateLife(), now)
	if err != nil {
		return keyring.Authority{}, err
	}
	return keyring.NewAuthority(ca.certificate, certificate)
}
