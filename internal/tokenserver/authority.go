package tokenserver

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// How long certificates live, and when they are replaced.
const (
	// An authority gets a successor in the second half of its life.
	authorityLife = 365 * 24 * time.Hour
	// trustDelay is how old a successor must be before it signs, so that every API server trusts
	// the successor by then.
	trustDelay = time.Hour
	// A leaf, which is a serving certificate, is replaced in the second half of its life.
	leafLife = 7 * 24 * time.Hour
	// clockMargin is how long before its creation a certificate becomes valid, for API servers
	// whose clock is behind.
	clockMargin = 5 * time.Minute
)

// authority is a certificate authority that belongs to the token server.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "lanyard-token-server-ca"},
		NotBefore: now.Add(-clockMargin), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert: cert, key: key}, err
}

// parseAuthority reads an authority from PEM, and checks that certificate and key belong together.
func parseAuthority(cert, key []byte) (authority, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return authority{}, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return authority{}, errors.New("the certificate is not that of an authority")
	}
	return authority{cert: pair.Leaf, key: signer}, nil
}

// leaf returns a serving certificate for the host names, and its key, both as PEM.
func (a authority) leaf(hosts []string, now time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	expires := now.Add(leafLife)
	if expires.After(a.cert.NotAfter) {
		expires = a.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "lanyard-token-server"}, DNSNames: hosts,
		NotBefore: now.Add(-clockMargin), NotAfter: expires,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return encodeCert(der), key, err
}

func (a authority) valid(now time.Time) bool {
	return !now.Before(a.cert.NotBefore) && now.Before(a.cert.NotAfter)
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// authorities are shared by all replicas. The current authority signs. The next authority waits
// until the API servers trust it. API servers still trust the former authority, because another
// replica may still serve with a leaf that the former authority signed.
type authorities struct {
	former  *x509.Certificate
	current authority
	next    *authority
}

// The authorities are in a Secret, under these keys of its data.
const (
	formerCert  = "former.crt"
	currentCert = "tls.crt"
	currentKey  = "tls.key"
	nextCert    = "next.crt"
	nextKey     = "next.key"
)

func parseAuthorities(data map[string][]byte) (a authorities, err error) {
	if a.current, err = parseAuthority(data[currentCert], data[currentKey]); err != nil {
		return authorities{}, fmt.Errorf("%s: %w", currentCert, err)
	}
	if len(data[nextCert]) > 0 {
		next, err := parseAuthority(data[nextCert], data[nextKey])
		if err != nil {
			return authorities{}, fmt.Errorf("%s: %w", nextCert, err)
		}
		a.next = &next
	}
	if block, _ := pem.Decode(data[formerCert]); block != nil {
		if a.former, err = x509.ParseCertificate(block.Bytes); err != nil {
			return authorities{}, fmt.Errorf("%s: %w", formerCert, err)
		}
	}
	return a, nil
}

func (a authorities) encode() (map[string][]byte, error) {
	data := map[string][]byte{currentCert: encodeCert(a.current.cert.Raw)}
	var err error
	if data[currentKey], err = encodeKey(a.current.key); err != nil {
		return nil, err
	}
	if a.next != nil {
		data[nextCert] = encodeCert(a.next.cert.Raw)
		if data[nextKey], err = encodeKey(a.next.key); err != nil {
			return nil, err
		}
	}
	if a.former != nil {
		data[formerCert] = encodeCert(a.former.Raw)
	}
	return data, nil
}

// bundle returns the certificates that API servers must trust, as PEM.
func (a authorities) bundle(now time.Time) []byte {
	bundle := encodeCert(a.current.cert.Raw)
	if a.next != nil {
		bundle = append(bundle, encodeCert(a.next.cert.Raw)...)
	}
	if a.former != nil && now.Before(a.former.NotAfter) {
		bundle = append(bundle, encodeCert(a.former.Raw)...)
	}
	return bundle
}

// step returns the authorities after the change that is due now, and whether a change was due. The
// next authority becomes current only if it is in the bundle that API servers trust.
func (a authorities) step(now time.Time, trusted []byte) (authorities, bool, error) {
	half := a.current.cert.NotBefore.Add(authorityLife / 2)
	switch {
	case !a.current.valid(now): // no replica ran for months, or a clock was wrong
		fresh, err := newAuthority(now)
		return authorities{current: fresh}, true, err
	case a.next == nil && now.After(half):
		next, err := newAuthority(now)
		a.next = &next
		return a, true, err
	case a.next != nil && now.After(a.next.cert.NotBefore.Add(clockMargin+trustDelay)) &&
		bytes.Contains(trusted, encodeCert(a.next.cert.Raw)):
		return authorities{former: a.current.cert, current: *a.next}, true, nil
	}
	return a, false, nil
}
