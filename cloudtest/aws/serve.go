package aws

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

// maxAPIBody bounds a request to STS or to the ECR API, in bytes.
const maxAPIBody = 1 << 20

// ServeCall answers a request to a host that [Cloud.Owns] and fills in what the journal is to say about it, before it writes the answer. Recording the
// call is the caller's. It panics with [http.ErrAbortHandler] to drop the connection when a fault says so.
func (c *Cloud) ServeCall(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	ep, ok := parseHost(strings.ToLower(call.Host))
	if !ok {
		refused(http.StatusMisdirectedRequest, "UnknownHost", "not a host of AWS").note(call)
		http.Error(w, "not a host of AWS", http.StatusMisdirectedRequest)
		return
	}
	call.Service = ep.service
	switch ep.service {
	case ServiceSTS:
		c.serveSTS(w, r, ep, call)
	case ServiceECR, ServiceECRPublic:
		c.serveECR(w, r, ep, call)
	case ServiceRegistry:
		c.serveRegistry(w, r, ep, call)
	case ServicePublicRegistry:
		c.servePublicRegistry(w, r, ep, call)
	case ServiceS3:
		c.serveS3(w, r, ep, call)
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
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat)) // SDKs correct their clock by it
	}
	call.Fault = effect.ID
	switch effect.Kind {
	case fault.InternalFailure:
		p.refuse(w, call, refused(http.StatusInternalServerError, "InternalFailure",
			"The request processing has failed because of an unknown error, exception or failure."))
	case fault.Unavailable:
		p.refuse(w, call, refused(http.StatusServiceUnavailable, "ServiceUnavailable",
			"The request has failed due to a temporary failure of the server."))
	case fault.Throttle:
		p.refuse(w, call, refused(http.StatusBadRequest, "Throttling", "Rate exceeded"))
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
		return nil, refused(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Request is too large")
	}
	return nil, refused(http.StatusBadRequest, "IncompleteBody", "The request body could not be read")
}
