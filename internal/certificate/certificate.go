// Package certificate parses certificates of strangers, with the private key of a client.
//
// One operation with an RSA key of 65,536 bits takes minutes, and nothing can cancel an operation.
// So the package bounds the keys and the number of certificates.
package certificate

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

// Bounds of certificates. Package privatekey bounds the client's key.
const (
	// maxRSABits bounds an RSA key. crypto/tls has the same bound for the keys of servers.
	maxRSABits = 8192
	// maxCertificate bounds a certificate's DER, in bytes. A certificate with the largest RSA key
	// and signature takes 3 KB.
	maxCertificate = 16 << 10
	// maxAuthorities bounds the number of authorities. Operating systems trust about 150.
	maxAuthorities = 256
	// maxChain bounds the number of certificates of a client.
	maxChain = 16
)

// fixRSA says what to do about a certificate whose key costs too much CPU time.
const fixRSA = "use RSA of at most 8192 bits, or ECDSA"

// Error says why certificates or a key cannot be used. Its text does not quote a parser's error,
// because the error may contain a part of a key.
type Error struct {
	// What says what is wrong, and names the text with the mistake.
	What string
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string { return e.What + "; " + e.Fix }

// Text is a text with PEM blocks.
type Text struct {
	// Name is the name of the text in errors, such as "tls.crt".
	Name string
	// Data is the content.
	Data []byte
}

// Authorities parses certificate authorities. There is at least one of them. An error is an
// [*Error].
func Authorities(t Text) ([]*x509.Certificate, error) { return parse(t, maxAuthorities) }

// Client parses a client certificate and its key. The result has only parts that were checked. So
// Client does not call [tls.X509KeyPair], which would parse the text again, by other rules. An
// error is an [*Error].
func Client(certificate, key Text) (tls.Certificate, error) {
	chain, err := parse(certificate, maxChain)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := privatekey.Find(key.Data)
	if err != nil {
		return tls.Certificate{}, &Error{key.Name + ": " + err.Error(), "write a PEM key without a password into " + key.Name}
	}
	private, err := privatekey.Parse(der)
	if err != nil {
		return tls.Certificate{}, &Error{key.Name + ": " + err.Error(), privatekey.Fix}
	}
	public, ok := chain[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(private.Public()) {
		return tls.Certificate{}, &Error{certificate.Name + " and " + key.Name + " are no pair", "write a PEM certificate and its own key"}
	}
	pair := tls.Certificate{PrivateKey: private, Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}

// parse parses PEM certificates. It returns an [*Error] if there are none, or more than the allowed
// number. Certificates with headers or with invalid content are left out, as in
// [x509.CertPool.AppendCertsFromPEM].
func parse(t Text, most int) ([]*x509.Certificate, error) {
	var parsed []*x509.Certificate
	for block, rest := pem.Decode(t.Data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if len(block.Bytes) > maxCertificate {
			return nil, &Error{fmt.Sprintf("%s holds a certificate of more than %d bytes", t.Name, maxCertificate), fixRSA + ", and fewer names"}
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if public, ok := certificate.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() > maxRSABits {
			return nil, &Error{fmt.Sprintf("%s holds a certificate with an RSA key of %d bits", t.Name, public.N.BitLen()), fixRSA}
		}
		if parsed = append(parsed, certificate); len(parsed) > most {
			return nil, &Error{fmt.Sprintf("%s holds more than %d certificates", t.Name, most), "leave only those that the server needs in " + t.Name}
		}
	}
	if len(parsed) == 0 {
		return nil, &Error{t.Name + " holds no certificate", "write PEM certificates into " + t.Name}
	}
	return parsed, nil
}
