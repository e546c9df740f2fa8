package oci

import (
	"encoding/base64"
	"errors"
	"fmt"
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

// session is the innermost transport of a client. It decides where each request may go and how
// often it is repeated. This includes go-containerregistry's own requests, for redirects and to
// token servers. session remembers the credentials that were sent, to redact them in a server's
// text.
type session struct {
	field    string        // for errors: the field that names the repository, such as spec.url
	server   origin.Server // for errors: the registry, with the host of the repository's URL
	home     string        // host of the requests; for Docker Hub it differs from server.Host
	insecure bool
	next     http.RoundTripper

	challenges *Challenges // nil for none
	route      string

	mu         sync.Mutex // guards the fields below; never held during I/O
	secrets    []string
	retryAfter time.Duration
	recalled   bool // the current challenge was found in s.challenges
	doubted    bool // a failure makes s.challenges doubtful, so it is no longer read
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

// door returns the map key under which s.challenges remembers the registry's challenge.
func (s *session) door() door { return door{route: s.route, host: s.home, insecure: s.insecure} }

// asksForChallenge reports whether req is go-containerregistry's first request, which has no
// credential.
func (s *session) asksForChallenge(req *http.Request) bool {
	return req.Method == http.MethodGet && req.URL.Path == "/v2/" && req.URL.RawQuery == "" && s.isHome(req.URL)
}

// recall returns the remembered challenge, or nil if the registry must be asked.
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

// doubt forgets the registry's challenge after a failure. It reports whether to try again with a
// new challenge. The first call returns true if the challenge in use came from s.challenges,
// because such a challenge may be outdated. Later calls return false.
func (s *session) doubt() bool {
	s.challenges.drop(s.door())
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.recalled && !s.doubted
	s.doubted = true
	return again
}

// remember adds the credential of an Authorization header to the secrets.
func (s *session) remember(header string) {
	_, credential, _ := strings.Cut(header, " ")
	s.keep(credential)
}

// keep adds secrets in front of the earlier secrets. The oldest beyond maxSecrets are dropped.
func (s *session) keep(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" || slices.Contains(s.secrets, secret) })
	s.secrets = append(fresh, s.secrets...)
	s.secrets = s.secrets[:min(len(s.secrets), maxSecrets)]
}

// redact replaces the session's secrets in a server's text.
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

// parts returns the texts to redact for a secret: the secret itself and, for a Basic credential,
// the decoded user:password and the password. Redact them in this order: once the password is
// replaced, user:password cannot be found. parts is called only for errors, so ordinary requests
// never decode a long credential.
func parts(secret string) []string {
	plain, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return []string{secret}
	}
	_, password, _ := strings.Cut(string(plain), ":")
	return slices.DeleteFunc([]string{secret, string(plain), password}, func(part string) bool { return part == "" })
}

// note stores the pause that a server asks for. The errors of go-containerregistry's authentication
// do not contain it.
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

// admit checks where a request goes. The registry chooses the hosts of its blobs and tokens. A
// hostile registry could choose hosts in the cluster. So every host except the registry's own needs
// https with a valid certificate. If such a host is an IP address, the address must be public. If
// it is a name, the injected transport checks the address when it dials.
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

// isHome reports whether a URL is at the registry's own host.
func (s *session) isHome(u *url.URL) bool { return origin.SameHost(u, s.home) }

// plainError is the error for a request without TLS. If https fails at a host that looks local,
// go-containerregistry also tries http, and returns both errors. The error of https says more. So
// plainError has no Unwrap method, and a search for an *origin.Error passes over it.
type plainError struct{ refused *origin.Error }

func (e *plainError) Error() string { return e.refused.Error() }

// checkRedirect bounds the number of redirects; [session.admit] checks each redirect.
func (s *session) checkRedirect(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return s.refused(fmt.Sprintf("it redirects more than %d times", maxRedirects), "")
	}
	return nil
}

func (s *session) refused(what, fix string) *origin.Error {
	return &origin.Error{Server: s.server, Code: origin.CodeProtocol, Fix: fix, Err: errors.New("the request is refused: " + what)}
}
