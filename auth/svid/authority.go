package svid

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

// AuthorityID returns the ID of an authority: the SHA-256 digest of its certificate in 64
// hexadecimal digits.
func AuthorityID(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}

// EncodeCertificate returns a certificate as PEM.
func EncodeCertificate(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: certificate.Raw}))
}

// NewAuthority returns a self-signed CA of the trust domain. The CA signs X.509-SVIDs directly. Its
// validity begins [Backdate] before now and ends at now plus life.
func NewAuthority(domain spiffeid.TrustDomain, key crypto.Signer, life time.Duration, now time.Time) (*x509.Certificate, error) {
	template, err := signing(domain, "authority", key.Public(), now.Add(life), now)
	if err != nil {
		return nil, err
	}
	return create(template, template, key.Public(), key)
}

// NewIntermediate returns a CA of the trust domain for the holder of the public key. The authority
// signs the CA. The CA's validity begins [Backdate] before now and ends at now plus life. If the
// authority expires earlier, the validity ends with the authority.
func NewIntermediate(
	domain spiffeid.TrustDomain, authority *x509.Certificate, key crypto.Signer, public crypto.PublicKey, life time.Duration, now time.Time,
) (*x509.Certificate, error) {
	end := slices.MinFunc([]time.Time{now.Add(life), authority.NotAfter}, time.Time.Compare)
	template, err := signing(domain, "intermediate", public, end, now)
	if err != nil {
		return nil, err
	}
	return create(template, authority, public, key)
}

// signing returns a template for the certificate of a CA. The CA may sign X.509-SVIDs, but no other
// CA. Its SPIFFE ID is that of the trust domain, without a path; source: X509-SVID §3.2.
func signing(domain spiffeid.TrustDomain, role string, public crypto.PublicKey, end, now time.Time) (*x509.Certificate, error) {
	if err := checkSigningKey(public); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(der)
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(newSerial()),
		// Some verifiers find an authority by its name, so two authorities of one trust domain have
		// different names.
		Subject:   pkix.Name{Organization: []string{"Lanyard"}, CommonName: "SPIFFE " + role + " " + hex.EncodeToString(id[:8])},
		URIs:      []*url.URL{domain.ID().URL()},
		NotBefore: now.Add(-Backdate).UTC(), NotAfter: end.UTC(),
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		KeyUsage:     x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId: id[:20],
	}, nil
}

func create(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// maxKeyPEM bounds the PEM text of a key, in bytes. An RSA key of 8192 bits has 6.4 KiB in PEM.
const maxKeyPEM = 16 << 10

// ParseAuthority returns the CA in a Secret of the type kubernetes.io/tls: the first certificate in
// tls.crt, and the key in tls.key. The key must belong to the certificate. The CA must be able to
// sign intermediates of the trust domain now. Errors say what to change, and do not quote the key.
func ParseAuthority(certificate, key []byte, domain spiffeid.TrustDomain, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	authority, err := firstCertificate(certificate)
	if err != nil {
		return nil, nil, err
	}
	private, err := parseKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("tls.key: %w", err)
	}
	if err := checkPair(authority, private, "tls.key", domain, now); err != nil {
		return nil, nil, err
	}
	return authority, private, nil
}

// ParseAuthorityOf is like ParseAuthority, for a CA whose key is not in the Secret. Errors refer to
// the key by the given name.
func ParseAuthorityOf(
	certificate []byte, key crypto.Signer, name string, domain spiffeid.TrustDomain, now time.Time,
) (*x509.Certificate, error) {
	authority, err := firstCertificate(certificate)
	if err != nil {
		return nil, err
	}
	if err := checkPair(authority, key, name, domain, now); err != nil {
		return nil, err
	}
	return authority, nil
}

// firstCertificate returns the first certificate in tls.crt.
func firstCertificate(text []byte) (*x509.Certificate, error) {
	if len(text) == 0 {
		return nil, errors.New("tls.crt is missing")
	}
	chain, err := ParseChain(string(text))
	if err != nil {
		return nil, fmt.Errorf("tls.crt: %w", err)
	}
	return chain[0], nil
}

// checkPair returns an error that says why a CA and its key cannot sign.
func checkPair(authority *x509.Certificate, key crypto.Signer, name string, domain spiffeid.TrustDomain, now time.Time) error {
	if !samePublic(key.Public(), authority.PublicKey) {
		return fmt.Errorf("%s is not the key of the certificate in tls.crt", name)
	}
	if err := CheckAuthority(authority, key, domain, now); err != nil {
		return fmt.Errorf("tls.crt: %w", err)
	}
	return nil
}

// CheckAuthority returns an error that says why a CA cannot sign intermediates of the trust domain
// now. It checks the CA's fields. Then it signs an intermediate and an X.509-SVID for temporary
// keys, and verifies both certificates as other programs will do.
func CheckAuthority(authority *x509.Certificate, key crypto.Signer, domain spiffeid.TrustDomain, now time.Time) error {
	switch {
	case !now.Before(authority.NotAfter):
		return fmt.Errorf("the CA has expired at %s", authority.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(authority.NotBefore):
		return fmt.Errorf("the CA is not valid before %s", authority.NotBefore.UTC().Format(time.RFC3339))
	}
	if err := checkSigning(authority, domain); err != nil {
		return err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	intermediate, err := NewIntermediate(domain, authority, key, private.Public(), Lifetime, now)
	if err != nil {
		return err
	}
	issuer, err := NewIssuer(domain, private, authority, intermediate)
	if err != nil {
		return err
	}
	id, err := ID(domain, "probe", "probe", "probe")
	if err != nil {
		return err
	}
	probe, err := issuer.Certificate(id, &private.PublicKey, now)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(probe.DER)
	if err != nil {
		return err
	}
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	options.Roots.AddCert(authority)
	options.Intermediates.AddCert(intermediate)
	if _, err := leaf.Verify(options); err != nil {
		return fmt.Errorf("verifiers would refuse what the CA signs for %s: %w", domain.IDString(), err)
	}
	return nil
}

// parseKey parses a private key in PEM: PKCS #8, PKCS #1 or SEC 1. Its errors do not quote the
// text.
func parseKey(text []byte) (crypto.Signer, error) {
	types := []string{"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"} // RFC 5958, 8017, 5915
	block, rest := pem.Decode(text)
	if len(text) > maxKeyPEM || block == nil || len(bytes.TrimSpace(rest)) > 0 || !slices.Contains(types, block.Type) {
		return nil, errors.New("it must have one private key in PEM")
	}
	private, err := privatekey.Parse(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, privatekey.Fix)
	}
	return private, nil
}
