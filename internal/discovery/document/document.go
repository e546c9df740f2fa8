// Package document makes the public documents of issuers. The documents contain the public keys
// that verify tokens, and the certificates of a trust domain's authorities.
package document

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
)

// The paths of the discovery document and of the key set, below the issuer's URL. Source of the
// discovery document's path: OpenID Connect Discovery 1.0, section 4.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeySetPath        = "/jwks"
)

// ErrNoKeys says that an issuer has no key to publish yet. An empty document must not be served:
// services would cache it and trust no key.
var ErrNoKeys = errors.New("the issuer has no keys yet")

// MaxAge is the longest time for which services may cache the documents. A service that sees an
// unknown key reads the documents again before this time is over.
const MaxAge = time.Hour

// Set has the public documents of one issuer. It is immutable.
type Set struct {
	// Issuer is the issuer's URL.
	Issuer string
	// Configuration is the discovery document, JSON. Source: OpenID Connect Discovery 1.0, section 3.
	Configuration []byte
	// KeySet is the JSON Web Key Set, JSON. Source: RFC 7517, section 5.
	KeySet []byte
	// KIDs are the IDs of the keys in KeySet.
	KIDs []string
	// Bundle is the SPIFFE bundle, JSON. It is nil for an issuer that has no trust domain. Source:
	// SPIFFE Trust Domain and Bundle §4.
	Bundle []byte
	// BundleIDs are the IDs of the keys and authorities in Bundle.
	BundleIDs []string
	// MaxAge is the time for which services may cache the documents.
	MaxAge time.Duration
}

// configuration is the discovery document: the fields that services need to check tokens.
type configuration struct {
	Issuer        string                    `json:"issuer"`
	JWKSURI       string                    `json:"jwks_uri"`
	ResponseTypes []string                  `json:"response_types_supported"`
	SubjectTypes  []string                  `json:"subject_types_supported"`
	Algorithms    []jose.SignatureAlgorithm `json:"id_token_signing_alg_values_supported"`
}

// New makes the documents of an issuer. The keys must be public keys, each with a kid and an
// algorithm. Services may cache the documents for the given time, but for at most [MaxAge].
func New(issuer string, keys []jose.JSONWebKey, keep time.Duration) (*Set, error) {
	if len(keys) == 0 {
		return nil, ErrNoKeys
	}
	d := &Set{Issuer: issuer, MaxAge: min(max(keep, 0), MaxAge)}
	config := configuration{
		Issuer: issuer, JWKSURI: issuer + KeySetPath, ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
	}
	for i := range keys {
		key := &keys[i]
		if !key.IsPublic() || !key.Valid() || key.KeyID == "" {
			return nil, errors.New("a key of the issuer is not a public key with a kid")
		}
		d.KIDs = append(d.KIDs, key.KeyID)
		if a := jose.SignatureAlgorithm(key.Algorithm); !slices.Contains(config.Algorithms, a) {
			config.Algorithms = append(config.Algorithms, a)
		}
	}
	slices.Sort(config.Algorithms)
	var err error
	if d.Configuration, err = json.Marshal(config); err != nil {
		return nil, err
	}
	d.KeySet, err = json.Marshal(jose.JSONWebKeySet{Keys: keys})
	return d, err
}

// OfRing makes the documents of the issuer whose KeyRing has this status. Services may cache the
// documents for at most a quarter of the publish delay. A new key signs only after the whole delay,
// so services know the key by then.
func OfRing(issuer string, status *identityv1.KeyRingStatus) (*Set, error) {
	if status.Issuer != issuer {
		return nil, ErrNoKeys // the keys were published at another URL, or the status is still empty
	}
	ring, _ := keyring.Parse(status) // ring has the valid keys; ignore the error, because the token server reports invalid keys
	var keys []jose.JSONWebKey
	for _, key := range ring.Public() {
		keys = append(keys, key.JWK())
	}
	if issuer == "" && status.TrustDomain != "" && len(ring.PublicAuthorities()) > 0 { // a trust domain without JWT-SVIDs
		d := &Set{MaxAge: min(status.PublishDelay.Duration/4, MaxAge)}
		return d, d.addBundle(ring, status.Revision)
	}
	d, err := New(issuer, keys, status.PublishDelay.Duration/4)
	if err != nil || status.TrustDomain == "" {
		return d, err
	}
	return d, d.addBundle(ring, status.Revision)
}

// bundle is a SPIFFE bundle. Source: SPIFFE Trust Domain and Bundle §4.1.
type bundle struct {
	Keys []jose.JSONWebKey `json:"keys"`
	// Sequence increases with each change of the ring.
	Sequence int64 `json:"spiffe_sequence"`
	// RefreshHint is the time between two reads of the bundle, in seconds.
	RefreshHint int64 `json:"spiffe_refresh_hint"`
}

// addBundle adds the SPIFFE bundle of a ring. The bundle has entries for the X.509 certificate
// authorities, and for the keys that sign JWTs. An authority's entry has no kid, and its x5c has
// only the authority's certificate. A key's entry has the key's kid. Sources: SPIFFE Trust Domain
// and Bundle §4.2, X509-SVID §6.1, JWT-SVID §6.1.
func (d *Set) addBundle(ring keyring.Ring, sequence int64) error {
	b := bundle{Sequence: sequence, RefreshHint: int64(d.MaxAge / time.Second)}
	for _, a := range ring.PublicAuthorities() {
		b.Keys = append(b.Keys, jose.JSONWebKey{
			Key: a.Certificate.PublicKey, Use: keyring.UseX509, Certificates: []*x509.Certificate{a.Certificate},
		})
		d.BundleIDs = append(d.BundleIDs, a.ID)
	}
	for _, key := range ring.Public() {
		jwk := key.JWK()
		jwk.Use = keyring.UseJWT
		b.Keys = append(b.Keys, jwk)
		d.BundleIDs = append(d.BundleIDs, key.ID)
	}
	var err error
	d.Bundle, err = json.Marshal(b)
	return err
}
