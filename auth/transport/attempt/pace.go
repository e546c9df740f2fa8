package attempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits for a slow answer. A hostile server may send an answer slowly to keep its client busy.
const (
	// MinRate is the lowest permitted average rate of an answer's body, in bytes per second.
	MinRate = 1 << 10
	// Grace is the longest permitted delay of a body, compared with a body that arrives at
	// [MinRate]. Only the time during calls of Read counts.
	Grace = 30 * time.Second
	// StreamBuffer is how many bytes of an HTTP/2 answer are stored before the program reads them.
	// The default of package net/http is 4 MiB. Hostile servers could then fill much memory with
	// answers that the program reads slowly.
	StreamBuffer = 1 << 20
)

// errTooSlow says that an answer's body arrives more slowly than [MinRate] and [Grace] permit. The
// request's context is then canceled with this cause, and Read of the body returns this error.
var errTooSlow = errors.New("the answer is slower than 1 KiB/s")

// roundTrip sends a request through next, and returns the answer. Reading the answer's body fails
// if the body arrives more slowly than [MinRate] and [Grace] permit. [Explain] returns [TooSlow]
// for this error.
func roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancelCause(req.Context())
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil || resp.Body == http.NoBody {
		end(nil)
		return resp, err
	}
	late := time.AfterFunc(Grace, func() { end(errTooSlow) })
	late.Stop()
	resp.Body = &paced{ctx: ctx, body: resp.Body, end: end, late: late, left: Grace}
	return resp, nil
}

// paced is the body of an answer. Read ends the request if the body arrives too slowly.
type paced struct {
	ctx  context.Context //nolint:containedctx // the context of the request; io.Reader has no parameter for it
	body io.ReadCloser
	end  context.CancelCauseFunc
	late *time.Timer   // the timer that ends the request; runs only during Read
	left time.Duration // how long Read may still wait; each byte that arrives adds time
}

func (p *paced) Read(b []byte) (int, error) {
	began := time.Now()
	p.late.Reset(p.left)
	n, err := p.body.Read(b)
	p.late.Stop()
	p.left = min(Grace, max(0, p.left-time.Since(began))+time.Duration(n)*time.Second/MinRate)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(p.ctx), errTooSlow) {
		err = errTooSlow
	}
	return n, err
}

// Close closes the body and cancels the context of the request.
func (p *paced) Close() error {
	err := p.body.Close()
	p.end(nil)
	return err
}
