package access

import (
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/auth/privatekey"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Bounds of the certificates in spec.certSecretRef. One operation with an RSA key of 65,536 bits
// takes minutes, and nothing can cancel an operation. Package privatekey bounds the client's key.
const (
	// maxRSABits bounds an RSA key. crypto/tls has the same bound for the keys of servers.
	maxRSABits = 8192
	// maxCertificate bounds a certificate's DER, in bytes. A certificate with the largest RSA key
	// and signature takes 3 KB.
	maxCertificate = 16 << 10
	// maxAuthorities bounds the number of certificates in ca.crt. Operating systems trust about
	// 150.
	maxAuthorities = 256
	// maxChain bounds the number of certificates in tls.crt.
	maxChain = 16
)

// fixRSA says what to do about a certificate whose key costs too much CPU time.
const fixRSA = "use RSA of at most 8192 bits, or ECDSA"

// certificates has the certificates in the Secret of spec.certSecretRef.
type certificates struct {
	authorities []*x509.Certificate // empty for the system's authorities
	client      []tls.Certificate   // at most one
}

func readCertificates(field string, secret *corev1.Secret) (*certificates, error) {
	c, fault := parseSecret(secret)
	if fault != nil {
		return nil, &object.SecretError{Field: field, Name: secret.Name, Fix: fault.fix, Err: errors.New(fault.what)}
	}
	return c, nil
}

// readAuthorities reads only the authorities of spec.certSecretRef.
func readAuthorities(field string, secret *corev1.Secret) (*certificates, error) {
	c, err := readCertificates(field, secret)
	switch {
	case err != nil:
		return nil, err
	case len(c.authorities) == 0:
		return nil, &object.SecretError{
			Field: field, Name: secret.Name, Fix: "set " + keyCA + ", or remove " + field,
			Err: errors.New("it holds no authority, and the client certificate is that of spec.credential"),
		}
	}
	c.client = nil
	return c, nil
}

// fault says why a Secret cannot be used, and what to do. It does not quote a parser's error,
// because the error may contain a part of a key.
type fault struct{ what, fix string }

// entry is one entry of a Secret's data: the data key's name, and the value.
type entry struct {
	name string
	data []byte
}

// either returns a Secret's entry for a data key. If only the key's older name has a value, the
// result is the entry for the older name.
func either(secret *corev1.Secret, name, old string) entry {
	if len(secret.Data[name]) == 0 && len(secret.Data[old]) > 0 {
		name = old
	}
	return entry{name, secret.Data[name]}
}

func parseSecret(secret *corev1.Secret) (*certificates, *fault) {
	ca, certificate, key := either(secret, keyCA, oldKeyCA), either(secret, keyCertificate, oldKeyCertificate), either(secret, keyPrivateKey, oldKeyPrivateKey)
	switch {
	case len(ca.data) == 0 && len(certificate.data) == 0 && len(key.data) == 0:
		return nil, &fault{"it holds no certificate", "set " + keyCA + ", or " + keyCertificate + " and " + keyPrivateKey}
	case (len(certificate.data) == 0) != (len(key.data) == 0):
		return nil, &fault{"it holds one half of a client certificate", "set both " + keyCertificate + " and " + keyPrivateKey + ", or neither"}
	}
	c := &certificates{}
	var f *fault
	if len(ca.data) > 0 {
		if c.authorities, f = parseCertificates(ca, maxAuthorities); f != nil {
			return nil, f
		}
	}
	if len(certificate.data) > 0 {
		if c.client, f = parseClient(certificate, key); f != nil {
			return nil, f
		}
	}
	return c, nil
}

// parseClient parses a client certificate and its key. The result has only parts that were checked.
// So parseClient does not call [tls.X509KeyPair], which would parse the text again, by other rules.
func parseClient(certificate, key entry) ([]tls.Certificate, *fault) {
	chain, f := parseCertificates(certificate, maxChain)
	if f != nil {
		return nil, f
	}
	der, err := privatekey.Find(key.data)
	if err != nil {
		return nil, &fault{key.name + ": " + err.Error(), "write a PEM key without a password into " + key.name}
	}
	private, err := privatekey.Parse(der)
	if err != nil {
		return nil, &fault{key.name + ": " + err.Error(), privatekey.Fix}
	}
	public, ok := chain[0].PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(private.Public()) {
		return nil, &fault{certificate.name + " and " + key.name + " are no pair", "write a PEM certificate and its own key"}
	}
	pair := tls.Certificate{PrivateKey: private, Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return []tls.Certificate{pair}, nil
}

// parseCertificates parses the PEM certificates of an entry. It returns a fault if there are more
// than the allowed number. Certificates with headers or with invalid content are left out, as in
// [x509.CertPool.AppendCertsFromPEM].
func parseCertificates(e entry, most int) ([]*x509.Certificate, *fault) {
	var parsed []*x509.Certificate
	for block, rest := pem.Decode(e.data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if len(block.Bytes) > maxCertificate {
			return nil, &fault{fmt.Sprintf("%s holds a certificate of more than %d bytes", e.name, maxCertificate), fixRSA + ", and fewer names"}
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if public, ok := certificate.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() > maxRSABits {
			return nil, &fault{fmt.Sprintf("%s holds a certificate with an RSA key of %d bits", e.name, public.N.BitLen()), fixRSA}
		}
		if parsed = append(parsed, certificate); len(parsed) > most {
			return nil, &fault{fmt.Sprintf("%s holds more than %d certificates", e.name, most), "leave only those that the server needs in " + e.name}
		}
	}
	if len(parsed) == 0 {
		return nil, &fault{e.name + " holds no certificate", "write PEM certificates into " + e.name}
	}
	return parsed, nil
}
