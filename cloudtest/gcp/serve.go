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

// begin applies the faults that hit the call. It returns the service's time, and false if the answer was given or the connection must end.
func (c *Cloud) begin(ctx context.Context, w http.ResponseWriter, p protocol, call *journal.Call) (time.Time, bool) {
	effect := c.faults.Take(call.Host, call.Service, call.Operation)
	if err := effect.Wait(ctx); err != nil {
		refused(0, "CallerGone", "the caller went away during an injected delay").note(call)
		panic(http.ErrAbortHandler)
	}
	now := time.Now().Add(effect.Skew)
	if effect.Skew != 0 {
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	}
	call.Fault = effect.ID
	if value := effect.RetryAfterHeader(); value != "" {
		w.Header().Set("Retry-After", value)
	}
	switch effect.Kind {
	case fault.InternalFailure:
		p.refuse(w, call, refused(http.StatusInternalServerError, codeInternal, "Internal error encountered."))
	case fault.Unavailable:
		p.refuse(w, call, refused(http.StatusServiceUnavailable, codeUnavailable, "The service is currently unavailable."))
	case fault.Throttle:
		p.refuse(w, call, refused(http.StatusTooManyRequests, codeExhausted, "Resource has been exhausted (e.g. check quota).").detail(infoRate))
	case fault.Malformed:
		contentType, body := p.broken()
		call.Code, call.Reason = "Malformed", "an injected fault cut the answer off"
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, body)
	case fault.Drop:
		call.Code, call.Reason = "Dropped", "an injected fault closed the connection"
		panic(http.ErrAbortHandler)
	case fault.None, fault.Latency, fault.Refuse, fault.Skew:
		return now, true
	}
	return now, false
}

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
