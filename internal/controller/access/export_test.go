package access

import (
	"crypto/tls"
	"net/url"

	corev1 "k8s.io/api/core/v1"
)

// ReadProxy reads the Secret of spec.proxySecretRef.
func ReadProxy(secret *corev1.Secret) (*url.URL, error) {
	return readProxy("spec.proxySecretRef", secret)
}

// ReadCertificates reads the Secret of spec.certSecretRef. It returns the client certificates and
// the number of certificate authorities.
func ReadCertificates(secret *corev1.Secret) ([]tls.Certificate, int, error) {
	c, err := readCertificates("spec.certSecretRef", secret)
	if err != nil {
		return nil, 0, err
	}
	return c.client, len(c.authorities), nil
}

// Explain exports explain.
func (c Call) Explain(err error) error { return c.explain(err) }
