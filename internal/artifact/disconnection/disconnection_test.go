package disconnection_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/disconnection"
)

// Addresses and names of the cluster's that must never be shown.
var inside = regexp.MustCompile(`10\.|kubernetes|svc|in-addr|secret|\n`)

func TestWords(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(10, 96, 0, 1), Port: 443}
	closed := &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}}
	inCluster := &x509.Certificate{DNSNames: []string{"kubernetes.default.svc", "10.96.0.1"}}
	for name, test := range map[string]struct {
		err        error
		words, fix string // the beginning of what is shown
	}{
		"refused":          {closed, "the connection was refused", ""},
		"refused by proxy": {&net.OpError{Op: "proxyconnect", Err: closed}, "the proxy cannot be reached: the connection was refused", ""},
		"guard":            {&net.OpError{Op: "dial", Addr: address, Err: errors.New("10.96.0.1 is refused")}, "the connection failed", ""},
		"no host":          {&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x.svc", Server: "10.96.0.10:53", IsNotFound: true}}, "there is no such host", ""},
		"no resolver":      {&net.DNSError{Err: "server misbehaving", Name: "x", Server: "10.96.0.10:53"}, "the host's name could not be resolved", ""},
		"slow":             {&net.OpError{Op: "dial", Addr: address, Err: os.ErrDeadlineExceeded}, "no answer in time", ""},
		"closed":           {fmt.Errorf("read 10.96.0.1: %w", io.ErrUnexpectedEOF), "the connection was closed", ""},
		"reset":            {&net.OpError{Op: "read", Addr: address, Err: syscall.ECONNRESET}, "the connection was closed", ""},
		"other name":       {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: inCluster, Host: "tenant.example"}}, "the certificate is for another host", "name a host that the registry's certificate is for"},
		"other authority":  {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{Cert: inCluster}}, "the certificate is signed by an unknown authority", "set spec.certSecretRef to the registry's CA"},
		"expired":          {&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: inCluster, Reason: x509.Expired, Detail: "kubernetes"}}, "the certificate has expired", "set spec.certSecretRef"},
		"other fault":      {&tls.CertificateVerificationError{Err: errors.New("x509: kubernetes")}, "the certificate is not valid", "set spec.certSecretRef"},
		"alert":            {&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "the other side refuses the TLS handshake", ""},
		"no TLS":           {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "the other side does not speak TLS", "the registry does not speak TLS"},
		"HTTP":             {&url.Error{Op: "Get", URL: "https://x/?secret", Err: http.ErrSchemeMismatch}, "the other side does not speak TLS", "the registry does not speak TLS"},
		"proxy's refusal":  {&url.Error{Op: "Get", URL: "https://x/?secret", Err: errors.New("Forbidden")}, "the proxy answered HTTP 403 Forbidden", "have the proxy allow the registry"},
		"proxy's user":     {&url.Error{Op: "Get", URL: "https://x/?secret", Err: errors.New("Proxy Authentication Required")}, "the proxy answered HTTP 407", "name the proxy's user in the Secret of spec.proxySecretRef"},
		"proxy's fault":    {errors.New("Bad Gateway"), "the proxy answered HTTP 502 Bad Gateway", ""},
		"proxy's words":    {errors.New("kubernetes says no"), "the connection failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			words, fix := disconnection.Words(test.err), disconnection.Fix(test.err, "registry")
			if !strings.HasPrefix(words, test.words) || !strings.HasPrefix(fix, test.fix) || fix != "" && test.fix == "" {
				t.Errorf("%q, %q", words, fix)
			}
			if inside.MatchString(words + fix) {
				t.Errorf("%q, %q show what is inside", words, fix)
			}
			hidden := disconnection.Hide(test.err)
			if hidden.Error() != words || !errors.Is(hidden, test.err) {
				t.Errorf("hidden: %v", hidden)
			}
		})
	}
}
