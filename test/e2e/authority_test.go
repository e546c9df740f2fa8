package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a certificate authority that no program trusts by default, like a company's internal
// one.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, "make a certificate", err)
	certificate, err := x509.ParseCertificate(der)
	must(t, "read a certificate", err)
	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue issues a certificate for a server at 127.0.0.1, and for further DNS names and IP addresses.
// It returns the certificate and its key in PEM.
func (a *authority) issue(t *testing.T, names ...string) (certificate, key []byte) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &own.PublicKey, a.key)
	must(t, "make a certificate", err)
	encoded, err := x509.MarshalPKCS8PrivateKey(own)
	must(t, "write a key", err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// client returns an HTTP client that trusts only this authority.
func (a *authority) client() *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		Timeout:   direct.Timeout,
	}
}

// serve starts an HTTPS server on this machine, and returns its host:port.
func (a *authority) serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	return a.serveAt(t, listen(t), h)
}

// serveAt is like serve, with the caller's listener. The certificate has the listener's IP address.
func (a *authority) serveAt(t *testing.T, l net.Listener, h http.Handler) (address string) {
	t.Helper()
	host, _, err := net.SplitHostPort(l.Addr().String())
	must(t, "read an address", err)
	certificate, err := tls.X509KeyPair(a.issue(t, host))
	must(t, "read a certificate", err)
	server := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: patience}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return l.Addr().String()
}

// trusted returns the environment of a controller that trusts this authority in addition to the
// local cloud's authority.
func (a *authority) trusted(t *testing.T) []any {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	must(t, "write the CAs", os.WriteFile(bundle, bytes.Join([][]byte{world.Cloud().CAPEM(), a.pem}, nil), 0o600))
	return environment("SSL_CERT_FILE="+bundle, "AWS_CA_BUNDLE="+bundle)
}
