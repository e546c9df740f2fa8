// Package service answers requests to the services of the local cloud. A cloud reads a request in a
// [Service] and decides about it in a [Handler]. A [Server] does the rest for all clouds. It
// applies faults and quotas, records the call in the journal, and writes refusals in the service's
// error format.
//
// A cloud must write three things for a service: a function that reads requests, the handlers that
// the function returns, and a [Protocol]:
//
//	func read(r *service.Request) (service.Protocol, service.Handler) {
//		r.Call.Service, r.Call.Operation = "notes", "ReadNote"
//		return notesProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
//			if _, ok := wire.Bearer(r.Request); !ok {
//				return nil, service.Refuse(http.StatusUnauthorized, "NoToken", "Send a token.")
//			}
//			return service.Whole(http.StatusOK, "text/plain", []byte("a note")), nil
//		}
//	}
package service

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// Service reads a request. It sets the service and the operation in r.Call, because faults and
// quotas select calls by these fields. It returns the service's error format and the handler that
// decides. A Service itself never refuses a request, because an injected fault takes precedence
// over a refusal. Only the handler refuses, and it runs after the faults.
type Service func(r *Request) (Protocol, Handler)

// Handler decides about a request. It returns either an answer or a refusal. It also sets the
// fields of r.Call that describe the caller.
type Handler func(r *Request) (Answer, *Refusal)

// Request is a request to a service.
type Request struct {
	*http.Request

	// Call is the request's line in the journal. It is written when the answer begins.
	Call *journal.Call
	// Now is the time on the service's clock. In handlers and in [Protocol.Refuse], it includes the
	// shift by an injected fault of the kind Skew of package fault. While a [Service] reads the
	// request, the shift is still missing.
	Now time.Time
	// Reply holds the headers of the answer or refusal. Handlers may add headers.
	Reply http.Header

	writer   http.ResponseWriter
	protocol Protocol
}

// ReadBody reads the whole body. If the body is longer than limit bytes, the error is an
// [*http.MaxBytesError].
func (r *Request) ReadBody(limit int64) ([]byte, error) {
	// Return the error unwrapped, because each service has its own error message.
	return io.ReadAll(http.MaxBytesReader(r.writer, r.Body, limit))
}

// Forward returns a data plane's answer to a copy of an allowed request. If hidden is not nil, it
// replaces a "not found" answer. Without a data plane, the service is unavailable.
func (r *Request) Forward(to http.Handler, out *http.Request, hidden *Refusal) (Answer, *Refusal) {
	if to == nil {
		return nil, r.protocol.Unavailable.Because("no data plane was handed in for the service " + r.Call.Service)
	}
	return func(w http.ResponseWriter) *Refusal {
		if hidden == nil {
			to.ServeHTTP(w, out)
			return nil
		}
		h := &hidingWriter{to: w, header: w.Header().Clone()}
		to.ServeHTTP(h, out)
		if h.hidden {
			return hidden
		}
		h.pass()
		return nil
	}, nil
}

// Answer writes an answer. If it returns a refusal instead, it has not written anything.
type Answer func(w http.ResponseWriter) *Refusal

// Whole returns an answer with a complete body and its length. The body must come from an encoder,
// so that text from the client is escaped.
func Whole(status int, contentType string, body []byte) Answer {
	return func(w http.ResponseWriter) *Refusal {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return nil
	}
}

// Empty returns an answer without a body.
func Empty(status int) Answer {
	return func(w http.ResponseWriter) *Refusal {
		w.WriteHeader(status)
		return nil
	}
}

// Refusal is an error answer of a service.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Code is the service's error code. The journal has it too.
	Code string
	// Message is the text for the caller.
	Message string
	// Reason is for the journal only. It may contain facts that the caller must not learn. If it is
	// empty, the journal has Message.
	Reason string
	// Detail has further values that the service's protocol puts into the error. The protocol
	// decides the type of Detail.
	Detail any
}

// Refuse makes a refusal.
func Refuse(status int, code, message string) *Refusal {
	return &Refusal{Status: status, Code: code, Message: message}
}

// Because sets the reason and returns the refusal.
func (e *Refusal) Because(reason string) *Refusal {
	e.Reason = reason
	return e
}

// With sets the detail and returns the refusal.
func (e *Refusal) With(detail any) *Refusal {
	e.Detail = detail
	return e
}

// Handle refuses every request with e. Use it as a [Handler].
func (e *Refusal) Handle(*Request) (Answer, *Refusal) { return nil, e }

// Protocol is the error format of a service.
//
// A [Service] must make a new Protocol, with new refusals, for each request. Package service itself
// refuses some requests with Failure, Unavailable or Throttled, for example to inject a fault. It
// then sets the field Reason of that refusal. If two requests shared the refusal, one request could
// overwrite the Reason of the other.
type Protocol struct {
	// Refuse writes a refusal in the service's error format. It may replace the refusal's code by
	// the one that this protocol uses.
	Refuse func(r *Request, e *Refusal) Answer
	// Failure, Unavailable and Throttled are the refusals for faults of the kinds InternalFailure,
	// Unavailable and Throttle of package fault.
	Failure, Unavailable, Throttled *Refusal
	// Broken is the answer for faults of the kind Malformed of package fault. It has the status of
	// a success. Its body is cut off in the middle of its syntax.
	Broken Answer
}
