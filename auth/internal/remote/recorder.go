package remote

import (
	"context"
	"net/http"
	"sync"
)

// Exchange is a request and what came of it.
type Exchange struct {
	// Method and Host are the request's; empty when there was none.
	Method, Host string
	// Answer is what was said, unless Err is set.
	Answer Answer
	// Err is why there was no answer.
	Err error
}

// Recorder has an SDK make requests and remembers how the last one went. What went wrong is told by it: the SDKs' errors hold
// whole answers. It is safe for concurrent use.
type Recorder struct {
	ctx  context.Context //nolint:containedctx // SDKs do not all pass theirs on
	next http.RoundTripper

	mu   sync.Mutex // never held during I/O
	last Exchange
}

// NewRecorder records what goes through next. Requests end with ctx, whatever context the SDK gives them.
func NewRecorder(ctx context.Context, next http.RoundTripper) *Recorder {
	return &Recorder{ctx: ctx, next: next}
}

// Last is the last request.
func (r *Recorder) Last() Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// RoundTrip implements [http.RoundTripper].
func (r *Recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)                                                         // the answer is read by then
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
