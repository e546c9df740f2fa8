package object

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// Failure describes an error for an object's conditions.
type Failure struct {
	// Reason is the condition's reason. It is stable. For an error about a credential, it is the
	// auth.Error's code.
	Reason string
	// Message says what happened and how to fix it.
	Message string
	// Stalled: retrying does not help.
	Stalled bool
	// RetryAfter is the pause that the server asked for; zero if the server asked for no pause.
	RetryAfter time.Duration
	// AtInterval: do not retry before the next interval, unless the object or one of its
	// dependencies changes. For example, the content that was found is unusable, or a KeyRing is,
	// or a foreign ExternalArtifact has the object's name.
	AtInterval bool
	// Waiting: nothing has failed. The object waits until others have done their work, and is
	// reconciled again after RetryAfter. Ready is Unknown, and no event tells the failure.
	Waiting bool
}

// refusal is the error for a spec that breaks a rule of the schema.
type refusal struct {
	field string // the field that must change
	fix   string
	err   error
}

// Invalid returns the error for a spec in which a field breaks a rule of the schema. The format and
// its arguments say what is wrong. fix tells people what to do next; it may be empty.
func Invalid(field, fix, format string, args ...any) error {
	return &refusal{field: field, fix: fix, err: fmt.Errorf(format, args...)}
}

func (r *refusal) Error() string {
	msg := r.field + ": " + r.err.Error()
	if r.fix != "" {
		msg += "; " + r.fix
	}
	return msg
}

func (r *refusal) Unwrap() error { return r.err }

// SecretError reports a Secret that cannot be used. Its text never contains a value of the Secret.
type SecretError struct {
	// Field is the field that refers to the Secret, such as spec.secretRef.
	Field string
	// Name is the Secret's name.
	Name string
	// Fix says how to fix the Secret, in one sentence.
	Fix string
	// Err says what is wrong with the Secret.
	Err error
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("%s: Secret %s: %v; %s", e.Field, e.Name, e.Err, e.Fix)
}

func (e *SecretError) Unwrap() error { return e.Err }

// LeftoverError is the error of [Kind.Finalize] if something stays that the object has made, such
// as a Secret. Waiting would not help. The object is deleted nevertheless. An Event and the log say
// what stays.
type LeftoverError struct {
	// Message says what stays, why, and what to do.
	Message string
}

func (e *LeftoverError) Error() string { return e.Message }

// ForbiddenError reports a call that the controller's RBAC rules do not allow. Its text does not
// quote the API server, whose message is for the administrator.
type ForbiddenError struct {
	// Verb and Resource are the verb and resource of the missing RBAC rule, such as get and
	// secrets.
	Verb, Resource string
	// Namespace is the namespace in which the RBAC rule is missing; empty for a cluster-scoped
	// resource.
	Namespace string
}

// Forbidden returns a [*ForbiddenError] if err is the API server's answer Forbidden, and otherwise
// err.
func Forbidden(err error, verb, resource, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return &ForbiddenError{Verb: verb, Resource: resource, Namespace: namespace}
}

func (e *ForbiddenError) Error() string {
	where := ""
	if e.Namespace != "" {
		where = " in namespace " + e.Namespace
	}
	return fmt.Sprintf("the Kubernetes API does not let the controller %s %s%s; have the cluster's administrator grant %q on %s%s to the controller's ServiceAccount",
		e.Verb, e.Resource, where, e.Verb, e.Resource, where)
}

// retryableError is an error that is retried, even if its [auth.Code] normally makes an object
// Stalled.
type retryableError struct{ error }

func (e *retryableError) Unwrap() error { return e.error }

// Retryable marks an error that may go away without any event that the controller can watch. Such
// an error never makes an object Stalled.
func Retryable(err error) error { return &retryableError{err} }

// Explain turns an error of a reconciliation into a failure that people can read. The last argument
// explains the errors that only the object's kind has.
func Explain(err error, own func(error) (Failure, bool)) Failure {
	f, known := common(err)
	if !known {
		f, known = own(err)
	}
	if !known {
		f = Internal(err)
	}
	if f.Message == "" {
		f.Message = err.Error()
	}
	f.Message = clip(f.Message, maxMessage)
	return f
}

// Internal returns the failure for an error without a known reason.
func Internal(err error) Failure {
	return Failure{
		Reason: meta.ReasonInternalError, Message: err.Error() + "; the controller tries again: if the error stays, look at the controller's log",
	}
}

// common explains the errors that can occur in every kind.
func common(err error) (Failure, bool) {
	var (
		refused  *refusal
		secret   *SecretError
		identity *auth.Error
		address  *endpoint.AddressError
		lacking  *ForbiddenError
		passing  *retryableError
	)
	switch {
	case errors.As(err, &lacking):
		return Failure{Reason: meta.ReasonControllerForbidden}, true
	case errors.As(err, &refused):
		return Failure{Reason: meta.ReasonInvalidSpec, Stalled: true}, true
	case errors.As(err, &secret):
		return Failure{Reason: meta.ReasonSecretRefused}, true
	case errors.As(err, &identity):
		stalled := spec.Terminal(err) && !errors.As(err, &passing)
		return Failure{Reason: credentialReason(err, identity.Code), Stalled: stalled, RetryAfter: identity.RetryAfter}, true
	case errors.As(err, &address):
		return Failure{Reason: string(auth.CodeEndpointRefused)}, true
	default:
		return Failure{}, false
	}
}

// reasoned is an error with its own reason. The condition shows this reason instead of the error's
// code.
type reasoned interface {
	error
	// Reason is one of the reasons in package api/meta.
	Reason() string
}

// credentialReason returns the condition's reason for a credential error. It is the code, unless
// the error has its own reason or refuses a field of the spec.
func credentialReason(err error, code auth.Code) string {
	_, refused := errors.AsType[*spec.Refusal](err)
	own, hasOwn := errors.AsType[reasoned](err)
	switch {
	case hasOwn:
		return own.Reason()
	case refused && code == auth.CodeOptionInvalid:
		return meta.ReasonInvalidSpec
	case refused && code == auth.CodeOptionUnsupported:
		return meta.ReasonUnsupportedProvider
	default:
		return string(code)
	}
}

// endedEarly is an error of [Kind.Act] that occurred because the Reconciler ended Act early.
//
//nolint:errname // the name says what happened
type endedEarly struct {
	error

	// why is the reason: [context.DeadlineExceeded] if spec.timeout has passed, errCrowdedOut if
	// another namespace needed the place of the work, or [reserve.ErrEnded] if another namespace
	// needed the memory.
	why error
}

func (e *endedEarly) Unwrap() error { return e.error }

// OutOfTime marks an error as caused by spec.timeout. Do not mark every error that matches
// [context.DeadlineExceeded]: the error of a net/http client's own timeout matches it too.
func OutOfTime(err error) error { return &endedEarly{err, context.DeadlineExceeded} }

// TimedOut returns the failure for an error that the Reconciler has caused: it has ended the work
// on the object early. The caller gives the reason, which differs between kinds.
func TimedOut(err error, reason string) (Failure, bool) {
	early, ok := errors.AsType[*endedEarly](err)
	if !ok {
		return Failure{}, false
	}
	f := Failure{Reason: reason}
	switch {
	case errors.Is(early.why, errCrowdedOut):
		f.Message = "the object took long, and objects of other namespaces needed the controller: " + err.Error() + "; find out why the answers are slow"
	case errors.Is(early.why, reserve.ErrEnded):
		// Leave out the error's own text, which blames the server.
		f.Message = "the answers were large, and the controller has no more memory for this namespace; " +
			"fetch less at once, or ask the administrator for a higher memory limit of the controller"
	default:
		f.Message = "spec.timeout has passed: " + err.Error() + "; raise spec.timeout, or find out why the answers are slow"
	}
	return f, true
}

// Bounds of the message in a condition and in an event, in bytes (events.k8s.io/v1 allows 1024).
const (
	maxMessage = 2048
	maxNote    = 1000
)

// clip returns text as one line, for a condition, an event or a log. The result has at most limit
// bytes. All characters of the result are visible, whoever wrote the text.
func clip(text string, limit int) string {
	text = plain.Text(text)
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis // drops a cut character
}
