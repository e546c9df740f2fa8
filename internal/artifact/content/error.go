package content

import "fmt"

// Reason says why an artifact could not be downloaded.
type Reason string

// The reasons.
const (
	// ReasonRefused means that the reference names something that must not be downloaded. The
	// reference must change.
	ReasonRefused Reason = "refused"
	// ReasonTooLarge means that the artifact is larger than allowed.
	ReasonTooLarge Reason = "too large"
	// ReasonGone means that the server has no such artifact any more. The source will name another
	// artifact soon.
	ReasonGone Reason = "gone"
	// ReasonDamaged means that the content does not have the digest or the size of the reference.
	ReasonDamaged Reason = "damaged"
	// ReasonUnreachable means that the server did not answer as expected. A later attempt may
	// succeed.
	ReasonUnreachable Reason = "unreachable"
)

// Error says that an artifact could not be downloaded. Its text has the host of the URL, but not the
// path, because a URL of Lanyard is a capability.
type Error struct {
	// Reason is the cause, for programs.
	Reason Reason
	// Err describes the cause.
	Err error
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("download the artifact: %v; %s", e.Err, e.Fix) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// refuse returns an error with ReasonRefused.
func refuse(fix, format string, arguments ...any) *Error {
	return &Error{Reason: ReasonRefused, Err: fmt.Errorf(format, arguments...), Fix: fix}
}
