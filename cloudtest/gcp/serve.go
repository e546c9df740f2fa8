package gcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// maxAPIBody bounds a request to an API, in bytes.
const maxAPIBody = 1 << 20

// ServeCall answers a request to a host that [Cloud.Owns] and fills in what the journal is to say about it, before it writes the answer. Recording the
// call is the caller's. It panics with [http.ErrAbortHandler] to drop the connection when a fault says so.
func (c *Cloud) ServeCall(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	ep, ok := c.endpoint(strings.ToLower(call.Host))
	if !ok {
		refused(http.StatusMisdirectedRequest, "UnknownHost", "not a host of Google Cloud").note(call)
		http.Error(w, "not a host of Google Cloud", http.StatusMisdirectedRequest)
		return
	}
	call.Service = ep.service
	switch ep.service {
	case ServiceSTS:
		c.serveSTS(w, r, ep, call)
	case ServiceIAMCredentials:
		c.serveIAMCredentials(w, r, ep, call)
	case ServiceAccounts:
		c.serveAccounts(w, r, call)
	case ServiceRegistry:
		c.serveRegistry(w, r, ep, call)
	case ServiceStorage:
		c.serveStorage(w, r, ep, call)
	}
}

// begin applies the faults that hit the call. It returns the service's time, and false if the answer was given.
func (c *Cloud) begin(ctx context.Context, w http.ResponseWriter, p protocol, call *journal.Call) (time.Time, bool) {
	return c.faults.Begin(ctx, w, call, faulty{p})
}

// faulty is a protocol in the eyes of package fault.
type faulty struct{ protocol }

// Fail implements [fault.Protocol].
func (f faulty) Fail(w http.ResponseWriter, call *journal.Call, kind fault.Kind) {
	f.refuse(w, call, f.faulted(kind).because("an injected fault"))
}

// Broken implements [fault.Protocol].
func (f faulty) Broken() (contentType, body string) { return f.broken() }

// readBody reads a whole API request.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAPIBody))
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refused(http.StatusRequestEntityTooLarge, codeInvalid, "Request payload size exceeds the limit.")
	}
	return nil, refused(http.StatusBadRequest, codeInvalid, "The request body could not be read.")
}
