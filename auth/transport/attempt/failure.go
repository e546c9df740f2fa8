package attempt

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Cause is the class of a [Failure]. Its values are stable, so programs may compare them.
type Cause string

// The causes of failures.
const (
	// NoSuchHost: the name does not exist in DNS.
	NoSuchHost Cause = "no-such-host"
	// ResolverFailed: DNS could not say whether the name exists.
	ResolverFailed Cause = "resolver-failed"
	// ResolverTimedOut: DNS gave no answer in time.
	ResolverTimedOut Cause = "resolver-timed-out"
	// AddressNotAllowed: the dial guard refused the address; see [endpoint.AddressError].
	AddressNotAllowed Cause = "address-not-allowed"
	// ConnectionRefused: no server listens at the address.
	ConnectionRefused Cause = "connection-refused"
	// NoRoute: the network has no route to the address.
	NoRoute Cause = "no-route"
	// TimedOut: the connection, the handshake or the answer took too long.
	TimedOut Cause = "timed-out"
	// TooSlow: the body of the answer arrived slower than [MinRate].
	TooSlow Cause = "too-slow"
	// ConnectionClosed: the connection was closed or reset before there was an answer.
	ConnectionClosed Cause = "connection-closed"
	// NoTLS: the other side does not speak TLS.
	NoTLS Cause = "no-tls"
	// AuthorityUnknown: the authority that signed the certificate is not trusted.
	AuthorityUnknown Cause = "authority-unknown"
	// CertificateOfOtherHost: the certificate is for other names.
	CertificateOfOtherHost Cause = "certificate-of-other-host"
	// CertificateExpired: the certificate has expired, or is not valid yet.
	CertificateExpired Cause = "certificate-expired"
	// CertificateInvalid: the certificate breaks another rule.
	CertificateInvalid Cause = "certificate-invalid"
	// HandshakeRefused: the other side ended the TLS handshake with an alert (RFC 8446 §6), for
	// example because a client certificate is missing.
	HandshakeRefused Cause = "handshake-refused"
	// HandshakeFailed: this side could not finish the TLS handshake.
	HandshakeFailed Cause = "handshake-failed"
	// ProxyRefused: the proxy answered a CONNECT request with a status other than 200; see
	// [ProxyError].
	ProxyRefused Cause = "proxy-refused"
	// Unknown: none of the above.
	Unknown Cause = "unknown"
)

// Failure says why a request had no answer. Its text is one of a fixed list, except for the name of
// a refused host. So a tenant who chooses a host learns no addresses, no names in certificates and
// no words of a proxy.
//
//nolint:errname // named for what callers ask: why a connection failed.
type Failure struct {
	// Cause is the class of the failure.
	Cause Cause
	// AtProxy is true if the proxy itself could not be reached.
	AtProxy bool
	// ProxyStatus is the HTTP status of a proxy that refused to connect; 0 for any other cause.
	ProxyStatus int

	err error
}

// ProxyError is the error if a proxy refused to connect.
type ProxyError struct {
	// Status is the HTTP status.
	Status int
}

// Error returns a text with the status, but without the proxy's own words, which are untrusted.
func (e *ProxyError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the proxy answered HTTP %d %s", e.Status, http.StatusText(e.Status)))
}

// Explain returns the failure behind the error of a request.
func Explain(err error) *Failure {
	f := &Failure{err: err}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		f.AtProxy, err = true, op.Err
	}
	if refused, ok := errors.AsType[*ProxyError](err); ok {
		f.ProxyStatus = refused.Status
	}
	f.Cause = causeOf(err)
	return f
}

func causeOf(err error) Cause {
	for _, find := range []func(error) (Cause, bool){ofProxy, ofGuard, ofPace, ofDNS, ofCertificate, ofTLS, ofNetwork} {
		if cause, ok := find(err); ok {
			return cause
		}
	}
	return Unknown
}

func ofProxy(err error) (Cause, bool) {
	_, ok := errors.AsType[*ProxyError](err)
	return ProxyRefused, ok
}

func ofGuard(err error) (Cause, bool) {
	_, ok := errors.AsType[*endpoint.AddressError](err)
	return AddressNotAllowed, ok
}

func ofPace(err error) (Cause, bool) { return TooSlow, errors.Is(err, errTooSlow) }

func ofDNS(err error) (Cause, bool) {
	dns, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
		return "", false
	case dns.IsNotFound:
		return NoSuchHost, true
	case dns.IsTimeout:
		return ResolverTimedOut, true
	default:
		return ResolverFailed, true
	}
}

func ofCertificate(err error) (Cause, bool) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return CertificateExpired, true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return AuthorityUnknown, true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return CertificateOfOtherHost, true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return CertificateInvalid, ok
}

func ofTLS(err error) (Cause, bool) {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return NoTLS, true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch op.Op {
		case "remote error":
			return HandshakeRefused, true
		case "local error":
			return HandshakeFailed, true
		}
	}
	// Recognize the remaining errors of crypto/tls by their text, because they have no type.
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if strings.HasPrefix(inner.Error(), "tls: ") {
			return HandshakeFailed, true
		}
	}
	return "", false
}

func ofNetwork(err error) (Cause, bool) {
	switch {
	case isAny(err, syscall.ECONNREFUSED):
		return ConnectionRefused, true
	case isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN):
		return NoRoute, true
	// If the other side ends a connection, net/http closes the connection too. A request that is
	// being sent at that moment fails with net.ErrClosed.
	case isAny(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE):
		return ConnectionClosed, true
	default:
		return TimedOut, isTimeout(err)
	}
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

// Again reports whether another attempt may follow the failure.
func (f *Failure) Again() bool {
	switch f.Cause {
	case ResolverFailed, ConnectionRefused, NoRoute, ConnectionClosed:
		return true
	case ProxyRefused:
		return isPassing(f.ProxyStatus)
	default:
		return false
	}
}

// Error describes the failure for people. [Failure.Fix] says what they can do.
func (f *Failure) Error() string {
	if f.AtProxy {
		return "the proxy cannot be reached: " + f.words()
	}
	return f.words()
}

// Unwrap returns the explained error, but nil for a time-out. The time-out is the transport's own,
// and would look like the end of the caller's context ([context.DeadlineExceeded]).
func (f *Failure) Unwrap() error {
	if f.Cause == TimedOut || f.Cause == ResolverTimedOut {
		return nil
	}
	return f.err
}

func (f *Failure) words() string {
	switch f.Cause {
	case AddressNotAllowed:
		return f.refusal().Detail()
	case ProxyRefused:
		return (&ProxyError{f.ProxyStatus}).Error()
	default:
		return cmp.Or(map[Cause]string{
			NoSuchHost:             "the host's name does not exist",
			ResolverFailed:         "the host's name could not be resolved",
			ResolverTimedOut:       "the host's name could not be resolved in time",
			ConnectionRefused:      "the connection was refused",
			NoRoute:                "there is no route to the host",
			TimedOut:               "no answer in time",
			TooSlow:                "the answer arrived slower than 1 KiB/s",
			ConnectionClosed:       "the connection was closed",
			NoTLS:                  "the other side does not speak TLS",
			AuthorityUnknown:       "the certificate is signed by an unknown authority",
			CertificateOfOtherHost: "the certificate is for another host",
			CertificateExpired:     "the certificate has expired or is not yet valid",
			CertificateInvalid:     "the certificate is not valid",
			HandshakeRefused:       "the other side refused the TLS handshake",
			HandshakeFailed:        "the TLS handshake failed",
		}[f.Cause], "the connection failed")
	}
}

// refusal returns the dial guard's refusal, or an empty error if the guard did not refuse.
func (f *Failure) refusal() *endpoint.AddressError {
	if refused, ok := errors.AsType[*endpoint.AddressError](f.err); ok {
		return refused
	}
	return &endpoint.AddressError{}
}
