package cluster

import (
	"context"
	"io"
	"net/http"
)

// bound cancels the requests of a command when the command ends. This is needed because Kubernetes'
// discovery client sends its requests without the caller's context.
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

// ending is the body of a response. Its Close method also calls the function end.
type ending struct {
	io.ReadCloser

	end func()
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}
