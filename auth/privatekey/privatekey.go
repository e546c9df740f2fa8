// Package privatekey parses private keys from untrusted sources, such as a tenant's Secret.
//
// Parsing an RSA key includes computing with its numbers, because crypto/x509 validates the key. A
// malicious key can make this take minutes, or make crypto/rsa panic. So [Parse] checks the numbers
// before it calls crypto/x509.
package privatekey

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Fix is the fix for a key that [Parse] refuses.
const Fix = "use an RSA key of 2048 to 8192 bits with two primes, as openssl genrsa makes it, or ECDSA"

// Bounds of a key.
const (
	// maxDER bounds the key's DER, in bytes. An RSA key of 8192 bits takes 4.7 KB.
	maxDER = 5 << 10

	minBits = 2048
	maxBits = 8192 // crypto/tls has the same bound for the keys of servers
)

// Find returns the first private key in PEM text, as DER. Its errors do not quote the text.
func Find(text []byte) ([]byte, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return nil, errors.New("the key is encrypted")
		case block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY"):
			return block.Bytes, nil
		}
	}
	return nil, errors.New("there is no private key in PEM")
}

// Parse parses the DER of a private key: PKCS #8 (RFC 5958), PKCS #1 (RFC 8017) or SEC 1 (RFC
// 5915). Its errors do not quote the key.
func Parse(der []byte) (crypto.Signer, error) {
	if len(der) > maxDER {
		return nil, fmt.Errorf("the key has more than %d bytes", maxDER)
	}
	// The names and types of the fields equal those in crypto/x509, so that this package and
	// crypto/x509 parse a key in the same way.
	var wrapped struct {
		Version    int
		Algorithm  pkix.AlgorithmIdentifier
		PrivateKey []byte
	}
	if _, err := asn1.Unmarshal(der, &wrapped); err == nil {
		if wrapped.Algorithm.Algorithm.Equal(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}) { // rsaEncryption
			return parseRSA(wrapped.PrivateKey)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if private, ok := parsed.(crypto.Signer); ok && err == nil {
			return private, nil
		}
		return nil, errUnusable
	}
	if private, err := x509.ParseECPrivateKey(der); err == nil {
		return private, nil
	}
	return parseRSA(der)
}

var errUnusable = errors.New("it is not a private key that can be used")

// parseRSA parses a PKCS #1 key. All numbers of the key are required, as in RFC 8017.
func parseRSA(der []byte) (*rsa.PrivateKey, error) {
	var k struct {
		Version, N, E, D, P, Q, ExponentP, ExponentQ, Coefficient *big.Int
		Others                                                    asn1.RawValue `asn1:"optional"`
	}
	if rest, err := asn1.Unmarshal(der, &k); err != nil || len(rest) > 0 {
		return nil, errUnusable
	}
	bits := k.N.BitLen()
	prime := func(p *big.Int) bool { return p.Sign() > 0 && p.Bit(0) == 1 && p.BitLen() <= (bits+1)/2 }
	below := func(n, bound *big.Int) bool { return n.Sign() > 0 && n.Cmp(bound) < 0 }
	switch {
	case k.Version.Sign() != 0 || len(k.Others.FullBytes) > 0:
		return nil, errors.New("the RSA key has more than two primes")
	case k.N.Sign() <= 0 || bits < minBits || bits > maxBits:
		return nil, fmt.Errorf("the RSA key has %d bits", bits)
	case k.E.Sign() <= 0 || k.E.BitLen() > 31 || k.E.Bit(0) == 0:
		return nil, errors.New("the RSA key has a public exponent that is not an odd number of at most 31 bits")
	case !prime(k.P) || !prime(k.Q) || new(big.Int).Mul(k.P, k.Q).Cmp(k.N) != 0,
		!below(k.D, k.N) || !below(k.ExponentP, k.P) || !below(k.ExponentQ, k.Q) || !below(k.Coefficient, k.P):
		return nil, errors.New("the numbers of the RSA key do not fit together")
	}
	private, err := x509.ParsePKCS1PrivateKey(der)
	if err != nil {
		return nil, errUnusable
	}
	return private, nil
}
