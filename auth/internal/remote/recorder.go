package remote

import (
	"context"
	"net/http"
	"sync"
)

// Exchange is a request and its outcome.
type Exchange struct {
	// Method and Host are those of the request. They are empty if there was no request.
	Method, Host string
	// Answer is the response, unless Err is set.
	Answer Answer
	// Err is why there was no answer.
	Err error
}

// Recorder is a transport that records the last exchange of an SDK. Failures describe this exchange
// instead of the SDK's error. The SDKs' errors repeat whole answers, which may contain secrets. A
// Recorder is safe for concurrent use.
type Recorder struct {
	ctx  context.Context //nolint:containedctx // SDKs do not all pass theirs on
	next http.RoundTripper

	mu   sync.Mutex // never held during I/O
	last Exchange
}

// NewRecorder makes a recorder that sends requests through next. Requests end when ctx ends,
// whatever context the SDK uses.
func NewRecorder(ctx context.Context, next http.RoundTripper) *Recorder {
	return &Recorder{ctx: ctx, next: next}
}

// Last returns the last exchange.
func (r *Recorder) Last() Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// RoundTrip implements [http.RoundTripper].
func (r *Recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	// Cancel ctx only on return: read(response) below still reads the response with ctx.
	defer cancel(nil)
	stop := context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) }) //nolint:contextcheck // both contexts count
	defer stop()
	x := Exchange{Method: request.Method, Host: request.URL.Hostname()}
	response, err := r.next.RoundTrip(request.WithContext(ctx))
	if err == nil {
		x.Answer, err = read(response)
	}
	x.Err = err
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last = x; err != nil {
		return nil, err
	}
	return response, nil
}
