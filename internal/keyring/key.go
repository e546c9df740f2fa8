package keyring

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// rsaBits is the length of an RSA key's modulus. RFC 7518 §3.3 requires at least 2048.
const rsaBits = 2048

// pemType is the PEM label of a public key; source: RFC 7468 §13.
const pemType = "PUBLIC KEY"

// Key is a public key with its kid and its algorithm.
type Key struct {
	// ID is the kid: the SHA-256 thumbprint of Public in base64url; source: RFC 7638.
	ID string
	// Algorithm is the signature algorithm. It fits the type of Public.
	Algorithm v1alpha1.Algorithm
	// Public is an *rsa.PublicKey or an *ecdsa.PublicKey.
	Public crypto.PublicKey
}

// NewKey returns the Key of a public half: *rsa.PublicKey of 2048 bits, or *ecdsa.PublicKey on
// P-256 or P-384. Other keys are an error.
func NewKey(public crypto.PublicKey) (Key, error) {
	algorithm, err := algorithmOf(public)
	if err != nil {
		return Key{}, err
	}
	id, err := Thumbprint(public)
	if err != nil {
		return Key{}, err
	}
	return Key{ID: id, Algorithm: algorithm, Public: public}, nil
}

// Thumbprint returns the kid of a public key: its SHA-256 thumbprint in base64url; source: RFC 7638.
// Thumbprint also accepts keys that NewKey refuses: an imported CA may have such a key.
func Thumbprint(public crypto.PublicKey) (string, error) {
	thumbprint, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("keyring: thumbprint: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(thumbprint), nil
}

// JWK returns the key as an entry of a JSON Web Key Set; source: RFC 7517 §4. The entry has the
// members kty, kid, use and alg, and those of the public key.
func (k Key) JWK() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.Public, KeyID: k.ID, Algorithm: string(k.Algorithm), Use: "sig"}
}

// Entry returns the key as a new entry of a ring, in the state Pending. CreatedAt is not set.
func (k Key) Entry() (v1alpha1.RingKey, error) {
	der, err := x509.MarshalPKIXPublicKey(k.Public)
	if err != nil {
		return v1alpha1.RingKey{}, fmt.Errorf("keyring: encode the public key %s: %w", k.ID, err)
	}
	return v1alpha1.RingKey{
		KID: k.ID, Algorithm: k.Algorithm, PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})),
		KeyLife: v1alpha1.KeyLife{State: v1alpha1.KeyPending},
	}, nil
}

// parseKey returns the Key of an entry. The public half must have the entry's algorithm and kid.
func parseKey(entry *v1alpha1.RingKey) (Key, error) {
	block, rest := pem.Decode([]byte(entry.PublicKey))
	if block == nil || block.Type != pemType || len(rest) > 0 {
		return Key{}, fmt.Errorf("the public key of %s is not one PEM block of the type %s", entry.KID, pemType)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("the public key of %s is not a SubjectPublicKeyInfo", entry.KID)
	}
	key, err := NewKey(public)
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("the public key of %s: %w", entry.KID, err)
	case key.ID != entry.KID:
		return Key{}, fmt.Errorf("the public key of %s has another thumbprint: %s", entry.KID, key.ID)
	case key.Algorithm != entry.Algorithm:
		return Key{}, fmt.Errorf("the public key of %s is for %s, not %s", entry.KID, key.Algorithm, entry.Algorithm)
	}
	return key, nil
}

// algorithmOf returns the algorithm of a key. Rings use each type of key with only one algorithm.
func algorithmOf(public crypto.PublicKey) (v1alpha1.Algorithm, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() == rsaBits {
			return v1alpha1.RS256, nil
		}
		return "", fmt.Errorf("keyring: an RSA key must have %d bits, not %d", rsaBits, k.N.BitLen())
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return v1alpha1.ES256, nil
		case elliptic.P384():
			return v1alpha1.ES384, nil
		}
	}
	return "", fmt.Errorf("keyring: no algorithm for keys of type %T", public)
}
