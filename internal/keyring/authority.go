package keyring

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// Authority is a CA that signs X.509-SVIDs.
type Authority struct {
	// ID is the SHA-256 digest of the certificate's DER, in hexadecimal digits.
	ID string
	// Key is the ring's key that signs for this authority. It is the key in Intermediate, or in
	// Certificate if Intermediate is nil.
	Key Key
	// Certificate is the CA certificate that verifiers trust.
	Certificate *x509.Certificate
	// Intermediate is the certificate of Key, signed by the imported CA. It is nil unless the
	// authority is imported.
	Intermediate *x509.Certificate
}

// NewAuthority returns the Authority of a certificate. The intermediate is nil for an authority
// that the ring made itself. NewAuthority fails if [NewKey] refuses the public key of the
// intermediate or, without an intermediate, of the certificate.
func NewAuthority(certificate, intermediate *x509.Certificate) (Authority, error) {
	signs := certificate
	if intermediate != nil {
		signs = intermediate
	}
	key, err := NewKey(signs.PublicKey)
	if err != nil {
		return Authority{}, err
	}
	return Authority{ID: svid.AuthorityID(certificate), Key: key, Certificate: certificate, Intermediate: intermediate}, nil
}

// Entry returns the authority as a new entry of a ring, in the state Pending. CreatedAt is not set.
func (a Authority) Entry() v1alpha1.Authority {
	entry := v1alpha1.Authority{
		ID: a.ID, KID: a.Key.ID, Certificate: svid.EncodeCertificate(a.Certificate), Imported: a.Intermediate != nil,
		KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyPending},
	}
	if a.Intermediate != nil {
		entry.Intermediate = svid.EncodeCertificate(a.Intermediate)
	}
	return entry
}

// NotAfter returns the time at which the authority expires, UTC: when the certificate or the
// intermediate expires, whichever is first.
func (a Authority) NotAfter() time.Time {
	if a.Intermediate != nil && a.Intermediate.NotAfter.Before(a.Certificate.NotAfter) {
		return a.Intermediate.NotAfter.UTC()
	}
	return a.Certificate.NotAfter.UTC()
}

// ParseAuthority reads the certificates of an entry. The entry's ID must be the digest of the
// certificate. The entry's KID must be the kid of the key in the intermediate. Without an
// intermediate, it must be the kid of the key in the certificate. ParseAuthority does not check
// whether the certificates are valid now.
func ParseAuthority(entry *v1alpha1.Authority) (Authority, error) {
	certificate, err := decodeCertificate(entry.Certificate)
	if err != nil {
		return Authority{}, fmt.Errorf("the certificate of authority %s: %w", entry.ID, err)
	}
	var intermediate *x509.Certificate
	if entry.Imported {
		if intermediate, err = decodeCertificate(entry.Intermediate); err != nil {
			return Authority{}, fmt.Errorf("the intermediate of authority %s: %w", entry.ID, err)
		}
	}
	a, err := NewAuthority(certificate, intermediate)
	switch {
	case err != nil:
		return Authority{}, fmt.Errorf("the key of authority %s: %w", entry.ID, err)
	case a.ID != entry.ID:
		return Authority{}, fmt.Errorf("the certificate of authority %s has another digest: %s", entry.ID, a.ID)
	case a.Key.ID != entry.KID:
		return Authority{}, fmt.Errorf("the certificate of authority %s is for the key %s, not %s", entry.ID, a.Key.ID, entry.KID)
	}
	return a, nil
}

// certifiedKey returns the thumbprint of the public key in an authority's certificate. For an
// imported authority this is the CA's key, and not the ring's key. The result is empty for an entry
// without a certificate, and for a certificate that cannot be parsed.
func certifiedKey(e Entry) string {
	if e.Authority == nil {
		return ""
	}
	certificate, err := decodeCertificate(e.Authority.Certificate)
	if err != nil {
		return ""
	}
	thumbprint, err := Thumbprint(certificate.PublicKey)
	if err != nil {
		return ""
	}
	return thumbprint
}

func decodeCertificate(text string) (*x509.Certificate, error) {
	chain, err := svid.ParseChain(text)
	if err != nil {
		return nil, err
	}
	if len(chain) != 1 {
		return nil, errors.New("there is more than one certificate")
	}
	return chain[0], nil
}
