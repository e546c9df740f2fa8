package oci

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// Bounds of a session.
const (
	maxRedirects = 5
	maxSecrets   = 8
)

// session is the bottom of a client's transport. It holds what must be true of every request, whoever makes it, the library's
// handshake with its redirects and token servers included: where it may go, bounded retries, and knowledge of the credentials that
// were sent, so that no text which a server echoes can reveal them.
type session struct {
	field    string // of the object, that names the repository
	host     string // as the object names it
	home     string // as it is asked, which differs for Docker Hub
	insecure bool
	next     http.RoundTripper

	mu         sync.Mutex // guards the fields below; never held during I/O
	secrets    []string
	retryAfter time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := s.admit(req.URL); err != nil {
		return nil, err
	}
	s.remember(req.Header.Get("Authorization"))
	resp, err := retry.RoundTrip(s.next, req)
	s.note(resp)
	return resp, err
}

// remember keeps the credential of an Authorization header and, for Basic, the password in it.
func (s *session) remember(header string) {
	_, credential, ok := strings.Cut(header, " ")
	if !ok {
		return
	}
	fresh := []string{credential}
	if plain, err := base64.StdEncoding.DecodeString(credential); err == nil {
		_, password, _ := strings.Cut(string(plain), ":")
		fresh = append(fresh, string(plain), password)
	}
	s.keep(fresh...)
}

// keep adds secrets, the whole before its parts: what is replaced first must not hide the rest.
func (s *session) keep(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" || slices.Contains(s.secrets, secret) })
	s.secrets = append(fresh, s.secrets...)
	s.secrets = s.secrets[:min(len(s.secrets), 3*maxSecrets)]
}

func (s *session) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return text
}

// note keeps the pause a server asks for: the handshake's errors do not carry it.
func (s *session) note(resp *http.Response) {
	if resp == nil {
		return
	}
	after := retry.After(resp.Header.Get("Retry-After"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retryAfter = after
}

func (s *session) lastRetryAfter() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retryAfter
}

// admit judges where a request goes. The registry says where blobs, tokens and its own root are, and it may be its tenant's who would
// have the controller ask on his behalf: every host but the object's own is asked by https, whose certificate must be the name's, and
// an address in place of a name must be public. What a name resolves to is judged when it is dialled, by the injected transport.
// Registries that people use need no more: their token servers and storage are at the same host, or at others with certificates.
//
// The error is an *Error or a [*plainError].
func (s *session) admit(u *url.URL) error {
	home := authority(u.Scheme, u.Host) == authority(u.Scheme, s.home)
	switch {
	case u.Scheme == "https":
	case u.Scheme != "http" || !home:
		return s.refused("it leads to "+s.clean(u.Host)+" without TLS", "have it lead to https, or answer itself")
	case !s.insecure:
		return &plainError{s.refused("it asks for plain http", "use https, or set spec.insecure")}
	}
	if home {
		return nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name, not an address
	}
	if addr = addr.Unmap(); !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return s.refused(fmt.Sprintf("it leads to the address %s, which is not public", addr), "")
	}
	return nil
}

// plainError is the refusal of a request without TLS. It is found by nobody who looks for an *Error: once https has failed at a host that
// looks local, the library tries http by itself, and what counts is why https has.
type plainError struct{ refused *Error }

func (e *plainError) Error() string { return e.refused.Error() }

// authority is host:port in lower case, with the scheme's own port where there is none.
func authority(scheme, host string) string {
	u := url.URL{Host: strings.ToLower(host)}
	port := u.Port()
	switch {
	case port != "":
	case scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// checkRedirect bounds what [session.admit] judges one by one.
func (s *session) checkRedirect(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return s.refused(fmt.Sprintf("it redirects more than %d times", maxRedirects), "")
	}
	return nil
}

func (s *session) refused(what, fix string) *Error {
	return &Error{Code: CodeProtocol, Host: s.host, Fix: fix, Err: errors.New("the request is refused: " + what)}
}
