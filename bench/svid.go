package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/auth/svid"
)

// svidSubject has the contents of the benchmark's SVIDs.
type svidSubject struct {
	id        spiffeid.ID
	audiences []string
	now       time.Time
}

// mintSVIDs compares the number of SVIDs per second with the number of signatures per second. Both
// use the same keys.
func mintSVIDs(context.Context, settings) ([]result, error) {
	domain, err := svid.ParseTrustDomain("example.com")
	if err != nil {
		return nil, err
	}
	s := svidSubject{audiences: []string{"registry.example.com"}, now: time.Now()}
	if s.id, err = svid.ID(domain, "ocirepositories", "production", "my-app"); err != nil {
		return nil, err
	}
	rs256, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	es256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	es384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return nil, err
	}
	results := []result{
		s.jwt("RS256", rs256, crypto.SHA256), s.jwt("ES256", es256, crypto.SHA256), s.jwt("ES384", es384, crypto.SHA384),
	}
	certificates, err := s.certificate(domain, es256)
	return append(results, certificates), err
}

// jwt measures the making of JWT-SVIDs with the given key.
func (s svidSubject) jwt(name string, key crypto.Signer, hash crypto.Hash) result {
	return besideSignature("JWT-SVIDs, beside "+name+" signatures alone", key, hash, func(int) error {
		claims, err := svid.NewClaims("https://spiffe.example.com", s.id, s.audiences, uuid.NewString(), s.now)
		if err != nil {
			return err
		}
		_, err = svid.SignJWT(claims, "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs", key)
		return err
	})
}

// certificate measures X.509-SVIDs that an authority with a P-256 key issues. The time does not
// include making the certificate's key, because the issuer does not make it.
func (s svidSubject) certificate(domain spiffeid.TrustDomain, key *ecdsa.PrivateKey) (result, error) {
	authority, err := svid.NewAuthority(domain, key, 24*time.Hour, s.now)
	if err != nil {
		return result{}, err
	}
	issuer, err := svid.NewIssuer(domain, key, authority, nil)
	if err != nil {
		return result{}, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return result{}, err
	}
	return besideSignature("X.509-SVIDs, beside P-256 signatures alone", key, crypto.SHA256, func(int) error {
		_, err := issuer.Certificate(s.id, &leaf.PublicKey, s.now)
		return err
	}), nil
}

// besideSignature compares the speed of mint with the speed of a signature alone. Each call of mint
// makes one signature.
func besideSignature(name string, key crypto.Signer, hash crypto.Hash, mint func(int) error) result {
	digest := make([]byte, hash.Size())
	best := benchmark(mint, func(int) error {
		_, err := key.Sign(rand.Reader, digest, hash)
		return err
	})
	show := func(ns int64) string { return fmt.Sprintf("%.0f/s", float64(time.Second)/float64(ns)) }
	part := 100 * float64(best[1].NsPerOp()) / float64(best[0].NsPerOp())
	return result{name, show(best[0].NsPerOp()), show(best[1].NsPerOp()), fmt.Sprintf("%.0f %%", part), ">=85 %", part >= 85}
}
