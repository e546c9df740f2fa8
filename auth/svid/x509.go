package svid

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const pemCertificate = "CERTIFICATE" // RFC 7468 §5

// ErrExpired is the error if an authority, or its intermediate, has expired.
var ErrExpired = errors.New("the authority of X.509-SVIDs, or its intermediate, has expired")

// Issuer signs X.509-SVIDs of one trust domain. It is immutable, and is safe for concurrent use if
// its key is.
type Issuer struct {
	domain   spiffeid.TrustDomain
	key      crypto.Signer
	hash     crypto.Hash
	notAfter time.Time // the earliest NotAfter in the chain
	chain    []byte    // PEM of the intermediates

	// Constant parts of the certificates, in DER.
	algorithm  []byte // the AlgorithmIdentifier
	name       []byte // the Name of the issuer
	extensions []byte // all extensions except subjectAltName
}

// NewIssuer returns an Issuer that signs with the given key. The key must belong to the
// intermediate, and the authority must have signed the intermediate. If intermediate is nil, the
// key must belong to the authority.
func NewIssuer(domain spiffeid.TrustDomain, key crypto.Signer, authority, intermediate *x509.Certificate) (*Issuer, error) {
	signer, notAfter, chain := authority, authority.NotAfter, []byte(nil)
	if intermediate != nil {
		if err := checkSigning(authority, domain); err != nil {
			return nil, err
		}
		if err := checkIssued(intermediate, authority); err != nil {
			return nil, err
		}
		notAfter = slices.MinFunc([]time.Time{authority.NotAfter, intermediate.NotAfter}, time.Time.Compare)
		signer, chain = intermediate, []byte(EncodeCertificate(intermediate))
	}
	if err := checkSigning(signer, domain); err != nil {
		return nil, err
	}
	if !samePublic(key.Public(), signer.PublicKey) {
		return nil, errors.New("the key is not the one of the certificate that signs")
	}
	hash, algorithm, err := signatureAlgorithm(key.Public())
	if err != nil {
		return nil, err
	}
	extensions, err := fixedExtensions(signer.SubjectKeyId)
	return &Issuer{
		domain: domain, key: key, hash: hash, notAfter: notAfter.UTC(), chain: chain,
		algorithm: algorithm, name: signer.RawSubject, extensions: extensions,
	}, err
}

// samePublic reports whether two public keys are the same.
func samePublic(a, b crypto.PublicKey) bool {
	public, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(b)
}

// NotAfter returns when the authority or the intermediate expires, whichever is earlier, UTC.
func (i *Issuer) NotAfter() time.Time { return i.notAfter }

// Certificate is an X.509-SVID.
type Certificate struct {
	// DER is the certificate in DER.
	DER []byte
	// Serial is the certificate's serial number in hexadecimal digits.
	Serial string
	// NotAfter is when the certificate expires, UTC.
	NotAfter time.Time

	intermediates []byte
}

// Chain returns the certificate and the intermediates that lead to the authority, as PEM.
func (c Certificate) Chain() string {
	return string(append(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: c.DER}), c.intermediates...))
}

// Certificate returns an X.509-SVID with this ID for the holder of the public key. The public key
// must be on P-256. The X.509-SVID is valid for [Lifetime], but not longer than the authority and
// the intermediate. If one of them has expired, the error is [ErrExpired].
//
// The certificate has
//
//   - an empty Subject
//   - exactly one URI as critical subjectAltName
//   - CA false
//   - the critical key usage digitalSignature
//   - the extended usages serverAuth and clientAuth
//
// Source: X509-SVID §2 to §4; RFC 5280 §4.1.2.6 for subjectAltName.
//
// Certificate does not call [x509.CreateCertificate]. That function verifies each signature that it
// makes, which takes longer than signing.
func (i *Issuer) Certificate(id spiffeid.ID, public *ecdsa.PublicKey, now time.Time) (Certificate, error) {
	if !id.MemberOf(i.domain) || id.Path() == "" {
		return Certificate{}, fmt.Errorf("%q is not a SPIFFE ID of an object in the trust domain %s", id, i.domain)
	}
	point, err := public.Bytes()
	if err != nil || public.Curve != elliptic.P256() {
		return Certificate{}, errNotP256
	}
	now = now.UTC()
	notAfter := slices.MinFunc([]time.Time{now.Add(Lifetime).Truncate(time.Second), i.notAfter}, time.Time.Compare)
	if !now.Before(notAfter) {
		return Certificate{}, ErrExpired
	}
	serial := newSerial()
	der, err := i.sign(i.body(serial, now.Add(-Backdate), notAfter, point, id.String()))
	return Certificate{DER: der, Serial: hex.EncodeToString(serial), NotAfter: notAfter, intermediates: i.chain}, err
}

// newSerial returns a positive serial number with 126 random bits. Source: RFC 5280 §4.1.2.2.
func newSerial() []byte {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] = serial[0]&0x3f | 0x40
	return serial
}

// p256 is the beginning of the SubjectPublicKeyInfo of a key on P-256. The uncompressed point
// follows. Source: RFC 5480 §2.
const p256 = "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00"

// sanOID is the beginning of the extension subjectAltName: its OID, and critical TRUE.
const sanOID = "\x06\x03\x55\x1d\x11\x01\x01\xff"

// Fixed parts of a certificate, in DER.
const (
	version3  = "\xa0\x03\x02\x01\x02"
	noSubject = "\x30\x00"
)

// Tags of DER; source: X.690 §8.
const (
	tagInteger         = 0x02
	tagBitString       = 0x03
	tagOctetString     = 0x04
	tagUTCTime         = 0x17
	tagGeneralizedTime = 0x18
	tagSequence        = 0x30
	tagURI             = 0x86 // [6] of GeneralName
	tagExtensions      = 0xa3 // [3] of TBSCertificate
)

// body returns a TBSCertificate; source: RFC 5280 §4.1.
func (i *Issuer) body(serial []byte, notBefore, notAfter time.Time, point []byte, uri string) []byte {
	names := element(tagOctetString, element(tagSequence, element(tagURI, []byte(uri))))
	return element(tagSequence,
		[]byte(version3),
		element(tagInteger, serial),
		i.algorithm,
		i.name,
		element(tagSequence, timeElement(notBefore), timeElement(notAfter)),
		[]byte(noSubject),
		[]byte(p256), point,
		element(tagExtensions, element(tagSequence, i.extensions, element(tagSequence, []byte(sanOID), names))),
	)
}

// element returns a DER element: tag, length and content; source: X.690 §8.1.
func element(tag byte, parts ...[]byte) []byte {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	der := append(make([]byte, 0, n+4), tag)
	switch {
	case n < 0x80:
		der = append(der, byte(n))
	case n < 0x100:
		der = append(der, 0x81, byte(n))
	default: // n < 64 KiB: the longest part of a certificate is a SPIFFE ID, of at most 2 KiB
		der = append(der, 0x82, byte(n>>8), byte(n))
	}
	for _, part := range parts {
		der = append(der, part...)
	}
	return der
}

// timeElement encodes a time in seconds, in one of two forms; source: RFC 5280 §4.1.2.5.
func timeElement(t time.Time) []byte {
	if t.Year() >= 2050 {
		return element(tagGeneralizedTime, t.AppendFormat(nil, "20060102150405Z"))
	}
	return element(tagUTCTime, t.AppendFormat(nil, "060102150405Z"))
}

// sign signs a TBSCertificate and returns the certificate.
func (i *Issuer) sign(body []byte) ([]byte, error) {
	hash := i.hash.New()
	hash.Write(body)
	signature, err := i.key.Sign(rand.Reader, hash.Sum(nil), i.hash)
	if err != nil {
		return nil, err
	}
	return element(tagSequence, body, i.algorithm, element(tagBitString, []byte{0}, signature)), nil
}

// signatureAlgorithm returns the hash with which a key signs certificates, and the
// AlgorithmIdentifier. Sources: RFC 5758 §3.2, RFC 4055 §5.
func signatureAlgorithm(public crypto.PublicKey) (crypto.Hash, []byte, error) {
	alg, err := algorithmOf(public)
	if err != nil {
		return 0, nil, err
	}
	oids := map[string]pkix.AlgorithmIdentifier{
		"ES256": {Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}},
		"ES384": {Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}},
		"RS256": {Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
	}
	der, err := asn1.Marshal(oids[alg.name])
	return alg.hash, der, err
}

// fixedExtensions returns, in DER, the extensions that all X.509-SVIDs of an issuer have. Sources:
// X509-SVID §4.1 and §4.3 to §4.4; RFC 5280 §4.2.1.
func fixedExtensions(issuerKeyID []byte) ([]byte, error) {
	var (
		serverAuth = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
		clientAuth = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 2}
	)
	var all []byte
	for _, e := range []struct {
		id       int // the last number of the OID, which follows id-ce (2.5.29)
		critical bool
		value    any
	}{
		{15, true, asn1.BitString{Bytes: []byte{0x80}, BitLength: 1}}, // keyUsage: digitalSignature
		{37, false, []asn1.ObjectIdentifier{serverAuth, clientAuth}},  // extKeyUsage
		{19, true, struct{}{}}, // basicConstraints: cA is FALSE by default
		{35, false, struct { // authorityKeyIdentifier
			ID []byte `asn1:"optional,tag:0"`
		}{issuerKeyID}},
	} {
		value, err := asn1.Marshal(e.value)
		if err != nil {
			return nil, err
		}
		der, err := asn1.Marshal(pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, e.id}, Critical: e.critical, Value: value})
		if err != nil {
			return nil, err
		}
		all = append(all, der...)
	}
	return all, nil
}

var errNotP256 = errors.New("the public key must be a key on the curve P-256, as DER of a SubjectPublicKeyInfo")

// maxPublicKey bounds the DER of a public key, in bytes. A key on P-256 has 91 bytes.
const maxPublicKey = 256

// ParsePublicKey parses the DER of a public key's SubjectPublicKeyInfo. It accepts only keys on the
// curve P-256.
func ParsePublicKey(der []byte) (*ecdsa.PublicKey, error) {
	if len(der) > maxPublicKey {
		return nil, errNotP256
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	public, ok := parsed.(*ecdsa.PublicKey)
	if err != nil || !ok || public.Curve != elliptic.P256() {
		return nil, errNotP256
	}
	return public, nil
}

// Bounds of a chain in PEM.
const (
	maxChain      = 64 << 10 // bytes of PEM
	maxChainLinks = 8
)

// ParseChain parses certificates in PEM. It fails if the text has no certificate, or has anything
// besides certificates.
func ParseChain(text string) ([]*x509.Certificate, error) {
	if len(text) > maxChain {
		return nil, fmt.Errorf("the certificates have more than %d bytes", maxChain)
	}
	var chain []*x509.Certificate
	for rest := []byte(text); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != pemCertificate {
			return nil, errors.New("the text is not a list of certificates in PEM")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("a certificate cannot be read")
		}
		if chain = append(chain, certificate); len(chain) > maxChainLinks {
			return nil, fmt.Errorf("there are more than %d certificates", maxChainLinks)
		}
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return chain, nil
}

// CheckChain checks that a received chain is the requested X.509-SVID, with this ID and this public
// key. It also checks that the X.509-SVID is valid now. The chain is the SVID and its
// intermediates, each signed by the next certificate. CheckChain does not check the authority: a
// program that requests a certificate trusts the server that answers.
func CheckChain(chain []*x509.Certificate, id spiffeid.ID, public *ecdsa.PublicKey, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	if err := checkLeaf(chain[0], id, now); err != nil {
		return err
	}
	if !public.Equal(chain[0].PublicKey) {
		return errors.New("the X.509-SVID has another key than was asked for")
	}
	for i, certificate := range chain[1:] {
		if err := checkSigning(certificate, id.TrustDomain()); err != nil {
			return err
		}
		if err := checkIssued(chain[i], certificate); err != nil {
			return err
		}
		if chain[0].NotAfter.After(certificate.NotAfter) {
			return errors.New("the X.509-SVID outlives a certificate of its chain")
		}
	}
	return nil
}

// checkIssued checks that the second certificate signed the first.
func checkIssued(certificate, by *x509.Certificate) error {
	if !bytes.Equal(certificate.RawIssuer, by.RawSubject) {
		return errors.New("a certificate names another issuer than the certificate that follows it")
	}
	if err := certificate.CheckSignatureFrom(by); err != nil {
		return fmt.Errorf("a certificate is not signed by the one that follows it: %w", err)
	}
	return nil
}

// checkLeaf checks an X.509-SVID by the rules of SPIFFE's standard X509-SVID, §2 to §5.2.
func checkLeaf(leaf *x509.Certificate, id spiffeid.ID, now time.Time) error {
	switch {
	case len(leaf.URIs) != 1 || len(leaf.DNSNames)+len(leaf.EmailAddresses)+len(leaf.IPAddresses) > 0:
		return errors.New("the X.509-SVID must have one URI as its only name")
	case leaf.URIs[0].String() != id.String():
		return fmt.Errorf("the X.509-SVID is not for %s", id)
	case !leaf.BasicConstraintsValid || leaf.IsCA:
		return errors.New("the X.509-SVID must not be a CA")
	case leaf.KeyUsage != x509.KeyUsageDigitalSignature:
		return errors.New("the X.509-SVID must have the key usage digitalSignature and no other")
	case now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) || leaf.NotAfter.After(now.Add(Lifetime+Backdate)):
		return fmt.Errorf("the X.509-SVID expires at %s, which is not within the next hour", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkSigning checks a CA certificate by the rules of SPIFFE's standard X509-SVID, §2 and §4. If
// the certificate has a SPIFFE ID, it must be that of the trust domain.
func checkSigning(certificate *x509.Certificate, domain spiffeid.TrustDomain) error {
	switch {
	case !certificate.BasicConstraintsValid || !certificate.IsCA:
		return errors.New("the certificate is not a CA: basicConstraints must say cA TRUE")
	case certificate.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the certificate is not a CA: it must have the key usage keyCertSign")
	case len(certificate.URIs) > 1:
		return errors.New("a CA must have at most one URI as subjectAltName")
	case len(certificate.URIs) == 1 && certificate.URIs[0].String() != domain.IDString():
		return fmt.Errorf("the CA is for %q, not for %s", certificate.URIs[0], domain.IDString())
	}
	return checkSigningKey(certificate.PublicKey)
}

// maxRSABits bounds the work to verify or make a signature.
const maxRSABits = 8192

func checkSigningKey(public crypto.PublicKey) error {
	if key, ok := public.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return fmt.Errorf("an RSA key must have at most %d bits", maxRSABits)
	}
	if _, err := algorithmOf(public); err != nil {
		return errors.New("the key of a CA must be RSA of at least 2048 bits, P-256 or P-384")
	}
	return nil
}
