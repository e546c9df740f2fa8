// Package pki makes the keys, certificates and kubeconfig files of the embedded control plane.
// Authorities and the ServiceAccount signing key are made once and kept. Otherwise, existing
// certificates and tokens would become invalid. Each call of [Prepare] issues all other
// certificates anew, so none expires in use.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// ServiceCIDR is the range of Service addresses. No network routes these addresses.
	ServiceCIDR = "10.0.0.0/24"
	// FrontProxyName is the common name of the aggregator's certificate. With this certificate, the
	// aggregator may tell aggregated API servers who the caller of a request is. These servers read
	// this common name from the ConfigMap kube-system/extension-apiserver-authentication.
	FrontProxyName = "front-proxy-client"
	// AdminName is the user name in admin.kubeconfig; its group is
	// system:masters, which RBAC never refuses.
	AdminName = "kubernetes-admin"

	// controllerManagerName is the user name of kube-controller-manager in RBAC's default roles.
	controllerManagerName = "system:kube-controller-manager"

	authorityLife = 10 * 365 * 24 * time.Hour
	// leafLife is how long serving and client certificates are valid. No serve process runs for a
	// year, and the next serve process issues new certificates.
	leafLife = 365 * 24 * time.Hour
	// backdate moves the start of a certificate's validity into the past, for clients whose clocks
	// are behind.
	backdate = time.Hour
)

// Files are the absolute paths of files in the directory given to [Prepare].
type Files struct {
	// CACert is the authority for serving and client certificates.
	CACert string
	// ServingCert and ServingKey are kube-apiserver's serving certificate and key.
	ServingCert, ServingKey string
	// FrontProxyCACert is the authority for FrontProxyCert and nothing else: whoever has a
	// certificate of this authority may send requests as any user.
	FrontProxyCACert string
	// FrontProxyCert and FrontProxyKey are the aggregator's client certificate and key.
	FrontProxyCert, FrontProxyKey string
	// ServiceAccountKey is the RSA key that signs ServiceAccount tokens.
	ServiceAccountKey string
	// ControllerCert and ControllerKey are kube-controller-manager's client certificate and key.
	// ControllerKubeconfig contains both.
	ControllerCert, ControllerKey, ControllerKubeconfig string
	// AdminKubeconfig is for people and tests.
	AdminKubeconfig string
	// AuditPolicy is the path of the audit policy; Prepare does not write this file.
	AuditPolicy string
}

// Prepare makes the authorities and keys that are missing in dir. It issues all other certificates
// again, and counts their validity from now. It also writes kubeconfigs for the API server at the
// given URL.
func Prepare(dir, server string, now time.Time) (Files, error) {
	path := func(name string) string { return filepath.Join(dir, name) }
	f := Files{
		CACert:               path("ca.crt"),
		ServingCert:          path("serving.crt"),
		ServingKey:           path("serving.key"),
		FrontProxyCACert:     path("front-proxy-ca.crt"),
		FrontProxyCert:       path("front-proxy.crt"),
		FrontProxyKey:        path("front-proxy.key"),
		ServiceAccountKey:    path("sa.key"),
		ControllerCert:       path("controller-manager.crt"),
		ControllerKey:        path("controller-manager.key"),
		ControllerKubeconfig: path("controller-manager.kubeconfig"),
		AdminKubeconfig:      path("admin.kubeconfig"),
		AuditPolicy:          path("audit-policy.yaml"),
	}
	ca, err := openAuthority(f.CACert, path("ca.key"), "lanyard-controlplane-ca", now)
	if err != nil {
		return Files{}, err
	}
	frontProxyCA, err := openAuthority(f.FrontProxyCACert, path("front-proxy-ca.key"), "lanyard-front-proxy-ca", now)
	if err != nil {
		return Files{}, err
	}
	if err := ensureSigningKey(f.ServiceAccountKey); err != nil {
		return Files{}, err
	}

	serving, err := ca.issue(servingTemplate(), now)
	if err != nil {
		return Files{}, err
	}
	frontProxy, err := frontProxyCA.issue(clientTemplate(FrontProxyName), now)
	if err != nil {
		return Files{}, err
	}
	controller, err := ca.issue(clientTemplate(controllerManagerName), now)
	if err != nil {
		return Files{}, err
	}
	admin, err := ca.issue(clientTemplate(AdminName, "system:masters"), now)
	if err != nil {
		return Files{}, err
	}
	return f, errors.Join(
		WriteFile(f.ServingCert, serving.cert), WriteFile(f.ServingKey, serving.key),
		WriteFile(f.FrontProxyCert, frontProxy.cert), WriteFile(f.FrontProxyKey, frontProxy.key),
		WriteFile(f.ControllerCert, controller.cert), WriteFile(f.ControllerKey, controller.key),
		ca.writeKubeconfig(f.ControllerKubeconfig, server, controller), ca.writeKubeconfig(f.AdminKubeconfig, server, admin),
	)
}

// servingTemplate returns a template with all names and addresses of the API server. Some are used
// by programs on this machine. The others belong to the Service "kubernetes".
func servingTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		// The Service "kubernetes" gets the first address of ServiceCIDR, 10.0.0.1.
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// clientTemplate names a Kubernetes user (common name) and its groups
// (organizations).
func clientTemplate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is a certificate and its key, PEM.
type pair struct{ cert, key []byte }

// openAuthority reads an authority, or makes it if its certificate does not exist. The certificate
// is written after the key, so if the certificate exists, the key exists too.
func openAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	certPEM, err := os.ReadFile(certFile) //nolint:gosec // in the operator's own directory
	if errors.Is(err, os.ErrNotExist) {
		return makeAuthority(certFile, keyFile, name, now)
	}
	if err != nil {
		return nil, err
	}
	certs, err := certutil.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: holds no PEM block of a valid certificate: %w", certFile, err)
	}
	parsed, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: holds a key that is not ECDSA", keyFile)
	}
	if end := certs[0].NotAfter; now.Add(leafLife).After(end) {
		return nil, fmt.Errorf("%s expires on %s, too soon to issue under: delete the data directory",
			certFile, end.Format(time.DateOnly))
	}
	return &authority{cert: certs[0], key: key}, nil
}

func makeAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	if err := WriteFile(keyFile, keyPEM); err != nil {
		return nil, err
	}
	return a, WriteFile(certFile, a.pem())
}

func (a *authority) pem() []byte { return encodeCert(a.cert.Raw) }

// issue makes a key, and a certificate for it from the template. The certificate is valid for
// leafLife.
func (a *authority) issue(template *x509.Certificate, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(leafLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: encodeCert(der), key: keyPEM}, nil
}

// ensureSigningKey makes the ServiceAccount signing key unless it exists. It is an RSA key, because
// every cloud that federates accepts RS256, and some accept no other algorithm.
func ensureSigningKey(file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return WriteFile(file, keyPEM)
}

// WriteFile replaces the file at path in one step, so that no reader sees a part of the new file.
// The file's mode is 0600.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}
