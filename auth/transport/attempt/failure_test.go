package attempt_test

import (
	"context"
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

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

// inside matches addresses and names inside the cluster, which no text may show.
var inside = regexp.MustCompile(`10\.|kubernetes|svc|in-addr|secret|\n`)

// TestExplain checks constructed errors. A real connection does not cause them on every machine.
// For all other errors see attempttest.
func TestExplain(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(10, 96, 0, 1), Port: 443}
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: &os.SyscallError{Syscall: "connect", Err: err}}
	}
	inCluster := &x509.Certificate{DNSNames: []string{"kubernetes.default.svc", "10.96.0.1"}}
	refusal := &endpoint.AddressError{Host: "tenant.example", Kind: "in --deny-cidrs"}
	for name, test := range map[string]struct {
		err     error
		cause   attempt.Cause
		atProxy bool
		again   bool
	}{
		"no route":          {dial(syscall.EHOSTUNREACH), attempt.NoRoute, false, true},
		"slow dial":         {&net.OpError{Op: "dial", Addr: address, Err: os.ErrDeadlineExceeded}, attempt.TimedOut, false, false},
		"unknown dial":      {&net.OpError{Op: "dial", Addr: address, Err: errors.New("10.96.0.1 is odd")}, attempt.Unknown, false, false},
		"guard in a dial":   {&net.OpError{Op: "dial", Addr: address, Err: refusal}, attempt.AddressNotAllowed, false, false},
		"broken pipe":       {&net.OpError{Op: "write", Addr: address, Err: syscall.EPIPE}, attempt.ConnectionClosed, false, true},
		"closed meanwhile":  {&net.OpError{Op: "write", Addr: address, Err: net.ErrClosed}, attempt.ConnectionClosed, false, true},
		"broke off":         {fmt.Errorf("read 10.96.0.1: %w", io.ErrUnexpectedEOF), attempt.ConnectionClosed, false, true},
		"no host":           {&net.DNSError{Err: "no such host", Name: "x.svc", Server: "10.96.0.10:53", IsNotFound: true}, attempt.NoSuchHost, false, false},
		"other name":        {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: inCluster, Host: "tenant.example"}}, attempt.CertificateOfOtherHost, false, false},
		"other fault":       {&tls.CertificateVerificationError{Err: errors.New("x509: kubernetes")}, attempt.CertificateInvalid, false, false},
		"alert of ours":     {&net.OpError{Op: "local error", Err: errors.New("tls: kubernetes")}, attempt.HandshakeFailed, false, false},
		"no record":         {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, attempt.NoTLS, false, false},
		"HTTP":              {&url.Error{Op: "Get", URL: "https://x/?secret", Err: http.ErrSchemeMismatch}, attempt.NoTLS, false, false},
		"proxy":             {&net.OpError{Op: "proxyconnect", Err: dial(syscall.ECONNREFUSED)}, attempt.ConnectionRefused, true, true},
		"proxy's name":      {&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}}, attempt.NoSuchHost, true, false},
		"words of a proxy":  {&url.Error{Op: "Get", URL: "https://x/?secret", Err: errors.New("kubernetes says\nno")}, attempt.Unknown, false, false},
		"status of a proxy": {&url.Error{Op: "Get", URL: "https://x/?secret", Err: &attempt.ProxyError{Status: 599}}, attempt.ProxyRefused, false, false},
		"cancelled":         {context.Canceled, attempt.Unknown, false, false},
		"nothing":           {nil, attempt.Unknown, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := attempt.Explain(test.err)
			if got.Cause != test.cause || got.AtProxy != test.atProxy || got.Again() != test.again {
				t.Errorf("%s, at proxy %t, again %t", got.Cause, got.AtProxy, got.Again())
			}
			for _, side := range []attempt.Side{{Name: "sts.example"}, {Name: "the registry", Certificates: "spec.certSecretRef", Insecure: "spec.insecure"}, {Name: "the endpoint", Proxy: "spec.proxySecretRef"}} {
				fix := got.Fix(side)
				atProxy := got.AtProxy || got.Cause == attempt.Unknown || got.Cause == attempt.ConnectionClosed || got.Cause == attempt.NoRoute || got.Cause == attempt.TimedOut
				if named := strings.Contains(fix, side.Proxy); side.Proxy != "" && atProxy && got.Cause != attempt.AddressNotAllowed && !named {
					t.Errorf("%q does not name the proxy's setting", fix)
				}
				if got.Error() == "" || fix == "" || inside.MatchString(got.Error()+fix) {
					t.Errorf("%q, %q", got, fix)
				}
			}
			if test.err != nil && test.cause != attempt.TimedOut && !errors.Is(got, test.err) {
				t.Error("the error is lost")
			}
		})
	}
}

// TestTimeoutIsNotTheCallers checks that a time-out of the connection does not look like the end of
// the caller's context.
func TestTimeoutIsNotTheCallers(t *testing.T) {
	dialer := net.Dialer{Timeout: 1}
	_, err := dialer.DialContext(t.Context(), "tcp", "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v: the standard library has changed", err)
	}
	if got := attempt.Explain(err); got.Cause != attempt.TimedOut || errors.Is(got, context.DeadlineExceeded) {
		t.Errorf("%s: %v", got.Cause, got)
	}
}
