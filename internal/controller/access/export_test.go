package access

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
)

// ReadProxy reads the Secret of spec.proxySecretRef.
func ReadProxy(secret *corev1.Secret) (*url.URL, error) {
	return readProxy("spec.proxySecretRef", secret)
}

// ReadCertificates reads the Secret of spec.certSecretRef.
func ReadCertificates(secret *corev1.Secret) error {
	_, err := readCertificates("spec.certSecretRef", secret)
	return err
}
