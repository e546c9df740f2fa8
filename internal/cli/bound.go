package cli

import (
	"context"
	"io"
	"net/http"
)

// bound ends requests when its command ends. Discovery asks without the context of who needs it.
type bound struct {
	command context.Context //nolint:containedctx // lives as long as the command
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bound) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(b.command, func() { cancel(context.Cause(b.command)) }) //nolint:contextcheck // the cause of the command's end
	end := func() {
		stop()
		cancel(nil)
	}
	resp, err := b.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &ending{resp.Body, end}
	return resp, nil
}

// ending is the content of an answer, which calls a function when it is closed.
type ending struct {
	io.ReadCloser

	end func()
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}
