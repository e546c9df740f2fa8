package sandbox

import "fmt"

// Reason says why a child did not answer a request.
type Reason string

// The reasons.
const (
	// ReasonMemory means that the child needed more memory than it may have.
	ReasonMemory Reason = "memory"
	// ReasonTime means that the child did not answer before its deadline, or used up its processor
	// time.
	ReasonTime Reason = "time"
	// ReasonDepth means that the stack of the child became too large, for example because the input
	// is nested too deeply.
	ReasonDepth Reason = "depth"
	// ReasonSize means that the request or the answer is larger than allowed.
	ReasonSize Reason = "size"
	// ReasonCrash means that the child ended for another cause.
	ReasonCrash Reason = "crash"
	// ReasonUnavailable means that no child could be started, or that the child could not give up
	// its rights. The request is not the cause.
	ReasonUnavailable Reason = "unavailable"
)

// Error says that a request has no answer. The text contains nothing of the request.
type Error struct {
	// Reason is the cause, for programs.
	Reason Reason
	// Err describes the cause.
	Err error
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%v; %s", e.Err, e.Fix) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// OfInput reports whether the request itself is the cause, and not the machine or the program. For
// example, the work on its input needs too much memory.
func (e *Error) OfInput() bool { return e.Reason != ReasonUnavailable && e.Reason != ReasonCrash }
