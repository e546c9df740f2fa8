package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/internal/certificate"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// certificates has the certificates in the Secret of spec.certSecretRef.
type certificates struct {
	authorities []*x509.Certificate // empty for the system's authorities
	client      []tls.Certificate   // at most one
}

func readCertificates(field string, secret *corev1.Secret) (*certificates, error) {
	c, err := parseSecret(secret)
	if fault, ok := errors.AsType[*certificate.Error](err); ok {
		return nil, &object.SecretError{Field: field, Name: secret.Name, Fix: fault.Fix, Err: errors.New(fault.What)}
	}
	return c, err
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

// either returns a Secret's entry for a data key. If only the key's older name has a value, the
// result is the entry for the older name.
func either(secret *corev1.Secret, name, old string) certificate.Text {
	if len(secret.Data[name]) == 0 && len(secret.Data[old]) > 0 {
		name = old
	}
	return certificate.Text{Name: name, Data: secret.Data[name]}
}

// parseSecret parses the entries of a Secret. An error is a [*certificate.Error].
func parseSecret(secret *corev1.Secret) (*certificates, error) {
	ca, chain, key := either(secret, keyCA, oldKeyCA), either(secret, keyCertificate, oldKeyCertificate), either(secret, keyPrivateKey, oldKeyPrivateKey)
	switch {
	case len(ca.Data) == 0 && len(chain.Data) == 0 && len(key.Data) == 0:
		return nil, &certificate.Error{What: "it holds no certificate", Fix: "set " + keyCA + ", or " + keyCertificate + " and " + keyPrivateKey}
	case (len(chain.Data) == 0) != (len(key.Data) == 0):
		return nil, &certificate.Error{What: "it holds one half of a client certificate", Fix: "set both " + keyCertificate + " and " + keyPrivateKey + ", or neither"}
	}
	c := &certificates{}
	var err error
	if len(ca.Data) > 0 {
		if c.authorities, err = certificate.Authorities(ca); err != nil {
			return nil, err
		}
	}
	if len(chain.Data) > 0 {
		pair, err := certificate.Client(chain, key)
		if err != nil {
			return nil, err
		}
		c.client = []tls.Certificate{pair}
	}
	return c, nil
}
