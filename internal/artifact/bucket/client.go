package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/lanyard-dev/lanyard/internal/artifact/retry"
)

// NewClient is what a cloud's client sends its requests with: through next, by https unless insecure. Requests are repeated here and
// nowhere else, answers that are no success become an [*Error] before the cloud's client sees them, redirects are among them,
// and no answer is longer than a page of a listing but for what [Content] asks for. It has no timeout but its contexts'.
func NewClient(next http.RoundTripper, insecure bool) *http.Client {
	return &http.Client{
		Transport:     &session{next: next, insecure: insecure},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type contentKey struct{}

// Content marks the requests for the content of objects, which bound their answers themselves.
func Content(ctx context.Context) context.Context {
	return context.WithValue(ctx, contentKey{}, true)
}

// session holds what must be true of every request, whichever cloud's client makes it.
type session struct {
	next     http.RoundTripper
	insecure bool
}

// RoundTrip implements http.RoundTripper.
func (s *session) RoundTrip(req *http.Request) (*http.Response, error) {
	host := req.URL.Host
	if req.URL.Scheme != "https" && !s.insecure {
		return nil, &Error{Code: CodeProtocol, Host: host, Fix: "use https, or set spec.insecure", Err: errors.New("a request without TLS is refused")}
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		return nil, &Error{Code: CodeProtocol, Host: host, Err: errors.New("a request that is no reading is refused")}
	}
	if req.Header.Get("Accept-Encoding") == "" {
		// Otherwise net/http would accept, and undo, an encoding that is the object's own.
		req = req.Clone(req.Context())
		req.Header.Set("Accept-Encoding", "identity")
	}
	resp, err := retry.RoundTrip(s.next, req)
	if err != nil {
		return nil, connectionError(req.Context(), host, err)
	}
	content, _ := req.Context().Value(contentKey{}).(bool)
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // read only
		e := answerError(resp)
		if content && (e.Code == CodeNotFound || e.Code == CodeChanged) {
			e.Code, e.Field, e.Fix = CodeChanged, "", ""
			e.Err = fmt.Errorf("it has changed since it was listed: %w", e.Err)
		}
		return nil, e
	}
	if !content {
		resp.Body = newPage(resp.Body, host)
	}
	return resp, nil
}
