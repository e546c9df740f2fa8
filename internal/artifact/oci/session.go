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

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// Bounds of a session.
const (
	maxRedirects = 5
	maxSecrets   = 24
)

// session is the bottom of a client's transport. It holds what must be true of every request, also
// of those that the library makes by itself for redirects and token servers: where a request may
// go, and how often it is tried again. It remembers the credentials that were sent, so that no text
// which a server echoes can reveal them.
type session struct {
	field    string        // of the object, that names the repository
	server   origin.Server // by the host that the object names
	home     string        // as it is asked, which differs for Docker Hub
	insecure bool
	next     http.RoundTripper

	challenges *Challenges // nil for none
	route      string

	mu         sync.Mutex // guards the fields below; never held during I/O
	secrets    []string
	retryAfter time.Duration
	recalled   bool // the registry's challenge comes from memory
	doubted    bool // what is remembered is not used
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(req *http.Request) (*http.Response, error) {
	asking := s.asksForChallenge(req)
	if asking {
		if known := s.recall(); known != nil {
			return known.response(req), nil
		}
	}
	if err := s.admit(req.URL); err != nil {
		return nil, err
	}
	s.remember(req.Header.Get("Authorization"))
	resp, err := attempt.RoundTrip(s.next, req)
	s.note(resp)
	if asking && err == nil {
		s.challenges.put(s.door(), req, resp)
	}
	return resp, err
}

// door is where the session asks for the registry's challenge.
func (s *session) door() door { return door{route: s.route, host: s.home, insecure: s.insecure} }

// asksForChallenge reports whether req is the library's first one, which carries no credential.
func (s *session) asksForChallenge(req *http.Request) bool {
	return req.Method == http.MethodGet && req.URL.Path == "/v2/" && req.URL.RawQuery == "" && s.isHome(req.URL)
}

// recall returns the remembered challenge, or nil where the registry must be asked.
func (s *session) recall() *challenge {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doubted {
		return nil
	}
	known := s.challenges.get(s.door())
	s.recalled = known != nil
	return known
}

// doubt forgets the registry's challenge. It reports whether the session should ask for the
// challenge and try again: once at most, and only if the session's challenge came from memory.
func (s *session) doubt() bool {
	s.challenges.drop(s.door())
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.recalled && !s.doubted
	s.doubted = true
	return again
}

// remember keeps the credential of an Authorization header.
func (s *session) remember(header string) {
	_, credential, _ := strings.Cut(header, " ")
	s.keep(credential)
}

// keep adds secrets, the last in front.
func (s *session) keep(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" || slices.Contains(s.secrets, secret) })
	s.secrets = append(fresh, s.secrets...)
	s.secrets = s.secrets[:min(len(s.secrets), maxSecrets)]
}

// redact takes what was kept out of a text of somebody else.
func (s *session) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.secrets {
		for _, part := range parts(secret) {
			text = strings.ReplaceAll(text, part, "[redacted]")
		}
	}
	return text
}

// parts returns a secret and, if it is user and password as Basic sends them, their plain text and
// the password alone. The whole comes before its parts: what is replaced first must not hide the
// rest. Only errors need the parts, so no request has to decode a password of kilobytes.
func parts(secret string) []string {
	plain, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return []string{secret}
	}
	_, password, _ := strings.Cut(string(plain), ":")
	return slices.DeleteFunc([]string{secret, string(plain), password}, func(part string) bool { return part == "" })
}

// note keeps the pause a server asks for: the handshake's errors do not carry it.
func (s *session) note(resp *http.Response) {
	if resp == nil {
		return
	}
	after := attempt.RetryAfter(resp.Header)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retryAfter = after
}

func (s *session) lastRetryAfter() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retryAfter
}

// admit judges where a request goes. The registry says where its blobs and tokens are. A hostile
// registry would name hosts of the cluster. So every host but the object's own is asked by https,
// and its certificate must be valid for its name. An address in place of a name must be public.
// What a name resolves to is judged when it is dialled, by the injected transport. Registries that
// people use need no more: their token servers and storage are at the same host, or at others with
// certificates.
//
// The error is an *origin.Error or a [*plainError].
func (s *session) admit(u *url.URL) error {
	home := s.isHome(u)
	switch {
	case u.Scheme == "https":
	case u.Scheme != "http" || !home:
		return s.refused("it leads to "+s.clean(u.Host)+" without TLS", "have it lead to https, or answer itself")
	case !s.insecure:
		return &plainError{s.refused("it asks for plain http", "use https, or set "+s.server.Insecure())}
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

// isHome reports whether a URL is at the object's own host. Folding is for comparison alone:
// strings.ToLower would make an i of the letter İ, and with it the home of another host.
func (s *session) isHome(u *url.URL) bool {
	return strings.EqualFold(authority(u.Scheme, u.Host), authority(u.Scheme, s.home))
}

// plainError is the refusal of a request without TLS. It is found by nobody who looks for an
// *origin.Error: once https has failed at a host that looks local, the library tries http by
// itself, and what counts is why https has.
type plainError struct{ refused *origin.Error }

func (e *plainError) Error() string { return e.refused.Error() }

// authority is host:port, with the scheme's own port where there is none.
func authority(scheme, host string) string {
	u := url.URL{Host: host}
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

func (s *session) refused(what, fix string) *origin.Error {
	return &origin.Error{Server: s.server, Code: origin.CodeProtocol, Fix: fix, Err: errors.New("the request is refused: " + what)}
}
