// Package disconnection says why a request had no answer, in words of its own. What the standard library says instead holds addresses
// that a name resolves to in the cluster, the names in the certificate of whoever answers there, and what a proxy wrote: nothing
// for a tenant who chose the name.
package disconnection

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// Hide keeps the chain of err, for errors.Is and errors.As, and shows [Words] alone.
func Hide(err error) error { return &hidden{err} }

type hidden struct{ err error }

func (h *hidden) Error() string { return Words(h.err) }
func (h *hidden) Unwrap() error { return h.err }

// Words says why there was no answer. They are of a closed list, and the same each time.
func Words(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch op.Op {
		case "proxyconnect":
			return "the proxy cannot be reached: " + Words(op.Err)
		case "remote error": // an alert of TLS (RFC 8446 §6)
			return "the other side refuses the TLS handshake"
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "there is no such host"
		}
		return "the host's name could not be resolved"
	}
	if words := certificate(err); words != "" {
		return words
	}
	switch {
	case withoutTLS(err):
		return "the other side does not speak TLS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case isTimeout(err):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the connection was closed"
	}
	if status := proxyStatus(err); status != 0 {
		return fmt.Sprintf("the proxy answered HTTP %d %s", status, http.StatusText(status))
	}
	return "the connection failed"
}

// Fix is what can be done about it in the object's own fields, or at the other side, such as "registry"; empty for nothing.
func Fix(err error, side string) string {
	switch _, ofOther := errors.AsType[x509.HostnameError](err); {
	case proxyStatus(err) == http.StatusProxyAuthRequired:
		return "name the proxy's user in the Secret of spec.proxySecretRef, or have the administrator correct the controller's proxy"
	case proxyStatus(err) == http.StatusForbidden:
		return "have the proxy allow the " + side
	case ofOther:
		return "name a host that the " + side + "'s certificate is for, or correct the certificate"
	case certificate(err) != "":
		return "set spec.certSecretRef to the " + side + "'s CA, or correct the " + side + "'s certificate"
	case withoutTLS(err):
		return "the " + side + " does not speak TLS: give it a certificate, or set spec.insecure"
	default:
		return ""
	}
}

// certificate says why a certificate was not accepted; empty if that is not why.
func certificate(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the certificate has expired or is not yet valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	// Go checks the name before the chain: anybody's certificate ends here.
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another host"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not valid"
	}
	return ""
}

func withoutTLS(err error) bool {
	_, noRecord := errors.AsType[tls.RecordHeaderError](err)
	return noRecord || errors.Is(err, http.ErrSchemeMismatch)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

// proxyStatus is the status with which a proxy refused to connect, 0 for none. Of it net/http only keeps the reason phrase, as
// whoever answered wrote it; the known phrases are safe to repeat.
func proxyStatus(err error) int {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	for status := http.StatusMultipleChoices; status < 600; status++ {
		if text := http.StatusText(status); text != "" && text == err.Error() {
			return status
		}
	}
	return 0
}
