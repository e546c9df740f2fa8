package fault

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// Protocol is how a service answers calls that go wrong.
type Protocol interface {
	// Fail writes the service's own answer to [InternalFailure], [Unavailable] or [Throttle], and notes in call the code that the caller sees.
	Fail(w http.ResponseWriter, call *journal.Call, kind Kind)
	// Broken is the beginning of a granted answer, cut off in the middle of its syntax.
	Broken() (contentType, body string)
}

// Begin takes what happens to a call, whose host, service and operation are known, and makes it happen. It returns the service's time; ok is false if the
// answer was given. It panics with [http.ErrAbortHandler] to close the connection.
func (s *Set) Begin(ctx context.Context, w http.ResponseWriter, call *journal.Call, p Protocol) (now time.Time, ok bool) {
	effect := s.Take(call.Host, call.Service, call.Operation)
	call.Fault = effect.ID
	if err := effect.Wait(ctx); err != nil {
		call.Code, call.Reason = "CallerGone", "the caller went away during an injected delay"
		panic(http.ErrAbortHandler)
	}
	now = time.Now().Add(effect.Skew)
	if effect.Skew != 0 {
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat)) // clients correct their clock by it
	}
	switch effect.Kind {
	case InternalFailure, Unavailable, Throttle:
		if after := effect.RetryAfterHeader(); after != "" {
			w.Header().Set("Retry-After", after)
		}
		p.Fail(w, call, effect.Kind)
	case Malformed:
		contentType, body := p.Broken()
		call.Code, call.Reason = "Malformed", "an injected fault cut the answer off"
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, body)
	case Drop:
		call.Code, call.Reason = "Dropped", "an injected fault closed the connection"
		panic(http.ErrAbortHandler)
	case None, Latency, Refuse, Skew:
		return now, true
	}
	return now, false
}
