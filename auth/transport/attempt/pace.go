package attempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Bounds of how slowly an answer may arrive. A server may be slow on purpose, to occupy its client.
const (
	// MinRate is the least average rate of an answer's body, in bytes per second.
	MinRate = 1 << 10
	// Grace is how long a body may fall behind [MinRate]. Time in which nobody reads the body does
	// not count.
	Grace = 30 * time.Second
)

// errTooSlow is the cause for which a request ends if its answer is slower than [MinRate].
var errTooSlow = errors.New("the answer is slower than 1 KiB/s")

// roundTrip sends a request through next. The answer's body ends with an error when it has fallen
// behind [MinRate] for [Grace]. [Explain] returns the cause [TooSlow] for the error.
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

// paced is the body of an answer. It ends the request if the body is too slow.
type paced struct {
	ctx  context.Context //nolint:containedctx // of the request; io.Reader takes none
	body io.ReadCloser
	end  context.CancelCauseFunc
	late *time.Timer   // ends the request; it runs only during Read
	left time.Duration // how long reads may still wait; bytes that arrive add time
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

// Close closes the body and ends the request.
func (p *paced) Close() error {
	err := p.body.Close()
	p.end(nil)
	return err
}
