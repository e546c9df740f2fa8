package service

import (
	"maps"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Server answers requests to services, applies faults, and records the calls.
type Server struct {
	// Faults are the faults and quotas in force. Required.
	Faults *fault.Set
	// Journal records the calls. Required.
	Journal *journal.Journal
}

// Serve answers a request to a service. If a fault drops the call, Serve panics with
// [http.ErrAbortHandler] to close the connection.
func (s *Server) Serve(w http.ResponseWriter, httpRequest *http.Request, read Service) {
	call := &journal.Call{Time: time.Now(), Host: wire.Host(httpRequest.Host)}
	rec := &recorder{ResponseWriter: w, journal: s.Journal, call: call}
	defer func() {
		p := recover()
		if p != nil && call.Code == "" {
			call.Code, call.Reason = "Dropped", "the handler gave up"
		}
		rec.record()
		if p != nil {
			panic(p)
		}
	}()
	r := &Request{Request: httpRequest, Call: call, Now: time.Now(), Reply: rec.Header(), writer: rec}
	var handle Handler
	r.protocol, handle = read(r)
	answer, refusal := s.decide(r, handle)
	if refusal == nil {
		refusal = answer(rec)
	}
	if refusal != nil {
		answer = r.protocol.Refuse(r, refusal)
		call.Code, call.Reason = refusal.Code, refusal.Reason
		if call.Reason == "" {
			call.Reason = refusal.Message
		}
		_ = answer(rec)
	}
	if !rec.done {
		call.Status = http.StatusOK // as net/http does for a handler that wrote nothing
	}
}

// decide applies the faults that match the request. If no fault refuses the request, the handler
// decides.
func (s *Server) decide(r *Request, handle Handler) (Answer, *Refusal) {
	effect := s.Faults.Take(r.Call.Host, r.Call.Service, r.Call.Operation)
	r.Call.Fault = effect.ID
	if err := effect.Wait(r.Context()); err != nil {
		r.drop("CallerGone", "the caller went away during an injected delay")
	}
	r.Now = time.Now().Add(effect.Skew)
	if effect.Skew != 0 {
		// Clients adjust their clock to this header, so it must have the skewed time.
		r.Reply.Set("Date", r.Now.UTC().Format(http.TimeFormat))
	}
	if after := effect.RetryAfterHeader(); after != "" {
		r.Reply.Set("Retry-After", after)
	}
	const injected = "an injected fault"
	switch effect.Kind {
	case fault.InternalFailure:
		return nil, r.protocol.Failure.Because(injected)
	case fault.Unavailable:
		return nil, r.protocol.Unavailable.Because(injected)
	case fault.Throttle:
		return nil, r.protocol.Throttled.Because(injected)
	case fault.Malformed:
		r.Call.Code, r.Call.Reason = "Malformed", "an injected fault cut the answer off"
		return r.protocol.Broken, nil
	case fault.Drop:
		r.drop("Dropped", "an injected fault closed the connection")
	case fault.None, fault.Latency, fault.Refuse, fault.Skew:
	}
	return handle(r)
}

// drop closes the connection without an answer.
func (r *Request) drop(code, reason string) {
	r.Call.Code, r.Call.Reason = code, reason
	panic(http.ErrAbortHandler)
}

// recorder writes the call into the journal when the answer's header is written. So a caller who
// has the answer finds the call in the journal.
type recorder struct {
	http.ResponseWriter

	journal *journal.Journal
	call    *journal.Call
	done    bool
}

func (r *recorder) record() {
	if !r.done {
		r.done = true
		r.journal.Record(*r.call)
	}
}

// WriteHeader records the call with its status.
func (r *recorder) WriteHeader(status int) {
	if status >= 200 && !r.done {
		r.call.Status = status
		r.record()
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write writes the header first, if necessary.
func (r *recorder) Write(b []byte) (int, error) {
	if !r.done {
		r.WriteHeader(http.StatusOK)
	}
	return r.ResponseWriter.Write(b)
}

// Flush lets data planes stream.
func (r *recorder) Flush() {
	if !r.done {
		r.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// hidingWriter forwards a data plane's answer, but discards a "not found" answer.
type hidingWriter struct {
	to             http.ResponseWriter
	header         http.Header
	passed, hidden bool
}

// Header returns the header that the data plane fills. WriteHeader and Write copy it into the
// answer, unless the answer is hidden.
func (h *hidingWriter) Header() http.Header { return h.header }

// WriteHeader forwards every final status except 404. It drops statuses below 200, because a 404
// may follow them.
func (h *hidingWriter) WriteHeader(status int) {
	switch {
	case status < http.StatusOK || h.hidden:
	case status == http.StatusNotFound && !h.passed:
		h.hidden = true
	default:
		h.pass()
		h.to.WriteHeader(status)
	}
}

// pass copies the data plane's headers into the answer, once.
func (h *hidingWriter) pass() {
	if h.passed {
		return
	}
	h.passed = true
	clear(h.to.Header())
	maps.Copy(h.to.Header(), h.header)
}

// Write discards the body of a hidden answer.
func (h *hidingWriter) Write(b []byte) (int, error) {
	if h.hidden {
		return len(b), nil
	}
	h.pass()
	return h.to.Write(b) // unwrapped error, as callers of an http.ResponseWriter expect
}
