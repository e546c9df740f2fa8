package oci

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// Bounds of a session's patience. A wait also ends with its context.
const (
	maxAttempts  = 3
	firstBackoff = 100 * time.Millisecond
	maxRedirects = 5
	maxSecrets   = 8
)

// session is the bottom of a client's transport. It holds what must be true of every request, whoever makes it, the library's
// handshake included: https unless the repository is insecure, bounded retries, and knowledge of the credentials that were
// sent, so that no text which a server echoes can reveal them.
type session struct {
	field    string // of the object, that names the repository
	host     string
	insecure bool
	next     http.RoundTripper

	mu         sync.Mutex // guards the fields below; never held during I/O
	secrets    []string
	retryAfter time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !s.insecure {
		return nil, s.refused(req.URL.Host, "it asks for plain http", "use https, or set spec.insecure")
	}
	s.remember(req.Header.Get("Authorization"))
	backoff := firstBackoff
	for attempt := 1; ; attempt++ {
		resp, err := s.next.RoundTrip(req)
		if attempt == maxAttempts || !repeatable(req) || !transient(req.Context(), resp, err) {
			s.note(resp)
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // lets the connection be used again
			_ = resp.Body.Close()
		}
		if err := retry.Pause(req.Context(), backoff+rand.N(backoff/4)); err != nil { //nolint:gosec // jitter, not a secret
			return nil, err
		}
		backoff *= 3
	}
}

// repeatable reports whether a request may be sent twice.
func repeatable(req *http.Request) bool {
	return (req.Method == http.MethodGet || req.Method == http.MethodHead) && req.Body == nil
}

// transient reports whether another attempt is worth its time. Throttling is not: only the caller knows what else it
// could do meanwhile.
func transient(ctx context.Context, resp *http.Response, err error) bool {
	if err != nil {
		var refused *Error
		return ctx.Err() == nil && !errors.As(err, &refused) && retry.Lost(err)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return resp.Header.Get("Retry-After") == ""
	default:
		return false
	}
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

// checkRedirect lets blobs be served from elsewhere. Addresses behind names are checked when dialling, which is the
// injected transport's part.
func (s *session) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return s.refused(via[0].URL.Host, fmt.Sprintf("it redirects more than %d times", maxRedirects), "")
	}
	if req.URL.Hostname() == via[0].URL.Hostname() {
		return nil
	}
	addr, err := netip.ParseAddr(req.URL.Hostname())
	if err != nil {
		return nil //nolint:nilerr // a name, not an address
	}
	if addr = addr.Unmap(); !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return s.refused(via[0].URL.Host, fmt.Sprintf("it redirects to the address %s, which is not public", addr), "")
	}
	return nil
}

func (s *session) refused(host, what, fix string) *Error {
	return &Error{Code: CodeProtocol, Host: host, Fix: fix, Err: errors.New("the request is refused: " + what)}
}
