package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// NewClient returns the HTTP client for a cloud's client library. It sends requests through next,
// and requires HTTPS unless insecure is set. It retries requests, so the library must not retry
// them. An answer other than success, including a redirect, becomes an [*origin.Error] before the
// library sees it. Only answers to [Content] requests may be longer than a page of a listing. The
// HTTP client has no timeout: each request's context bounds it.
func NewClient(next http.RoundTripper, insecure bool, caller origin.Caller) *http.Client {
	return &http.Client{
		Transport:     &session{next: next, insecure: insecure, caller: caller},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type contentKey struct{}

// Content returns a context that marks a request for the content of an object. The client does not
// bound the answer, because the reader of the content does.
func Content(ctx context.Context) context.Context {
	return context.WithValue(ctx, contentKey{}, true)
}

// session is the transport that enforces the rules of [NewClient] for every cloud's client.
type session struct {
	next     http.RoundTripper
	insecure bool
	caller   origin.Caller

	mu    sync.Mutex // guards taken
	taken int64      // bytes of the program's pool for the last page
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(req *http.Request) (*http.Response, error) {
	server := Server(req.URL.Host, s.caller)
	refused := func(what, fix string) error {
		return &origin.Error{Server: server, Code: origin.CodeProtocol, Fix: fix, Err: errors.New(what + " is refused")}
	}
	if req.URL.Scheme != "https" && !s.insecure {
		return nil, refused("a request without TLS", "use https, or set spec.insecure")
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, refused("a request that does not only read", "report this as a fault of lanyard-controller")
	}
	if req.Header.Get("Accept-Encoding") == "" {
		// Without the header, net/http would accept gzip and also decode an object that is stored
		// compressed.
		req = req.Clone(req.Context())
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := attempt.RoundTrip(s.next, req)
	if err != nil {
		return nil, server.NoAnswer(req.Context(), err)
	}
	content, _ := req.Context().Value(contentKey{}).(bool)
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // read only
		e := answerError(resp, s.caller)
		if content && (e.Code == origin.CodeNotFound || e.Code == origin.CodeChanged) {
			e.Code, e.Field, e.Fix = origin.CodeChanged, "", ""
			e.Err = fmt.Errorf("it has changed since it was listed: %w", e.Err)
		}
		return nil, e
	}
	if content {
		s.freePage(req.Context()) // the whole list is decoded
	} else {
		defer resp.Body.Close() //nolint:errcheck // read only
		page, err := s.nextPage(req.Context(), resp.Body, server)
		if err != nil {
			return nil, server.NoAnswer(req.Context(), err)
		}
		resp.Body = io.NopCloser(bytes.NewReader(page))
	}
	return resp, nil
}

// nextPage reads a page. Before, it gives the previous page's memory back to the program's pool. A
// library may close a page before the library decodes the page, so the end of the page's body would
// be too early. For a large page, nextPage waits for a turn to decode the page. Each [Storage] ends
// the turn after the page is decoded.
func (s *session) nextPage(ctx context.Context, answer io.Reader, server origin.Server) ([]byte, error) {
	s.freePage(ctx)
	page, taken, err := readPage(ctx, answer, server)
	s.mu.Lock()
	s.taken = taken
	s.mu.Unlock()
	if err == nil && taken > reserve.Large {
		err = reserve.Compute(ctx)
	}
	return page, err
}

// freePage gives the memory of the last page back to the program's pool.
func (s *session) freePage(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reserve.Free(ctx, s.taken)
	s.taken = 0
}
