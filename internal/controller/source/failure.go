package source

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// Failure is an error as an object's conditions show it.
type Failure struct {
	// Reason is stable; for a credential it is the auth.Error's code.
	Reason string
	// Message says what happened and how to fix it.
	Message string
	// Stalled: retrying does not help.
	Stalled bool
	// RetryAfter is the pause that the other side asked for, zero for none.
	RetryAfter time.Duration
	// AtInterval: it is what was found that does not do, and looked for again when the next would be looked for: at the interval,
	// or when somebody changes the object or asks for it.
	AtInterval bool
}

// refusal is a spec that is not carried out, whatever the world answers.
type refusal struct {
	field string // that must change
	fix   string
	err   error
}

// Invalid refuses a spec: the field breaks a rule of the schema. What is wrong with it is the format's, the fix may be empty.
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

// SecretError is a Secret that does not serve. Its text never holds a value of the Secret.
type SecretError struct {
	// Field is what names the Secret, such as spec.secretRef.
	Field string
	// Name is the Secret's.
	Name string
	// Fix is what to do, one sentence.
	Fix string
	// Err says what is wrong with it.
	Err error
}

func (e *SecretError) Error() string {
	return fmt.Sprintf("%s: Secret %s: %v; %s", e.Field, e.Name, e.Err, e.Fix)
}

func (e *SecretError) Unwrap() error { return e.Err }

// ForbiddenError is a call that the Kubernetes API does not let the controller make. It holds nothing of the API server's words, which
// are for the administrator.
type ForbiddenError struct {
	// Verb and Resource are those of the rule that is missing, such as get and secrets.
	Verb, Resource string
	// Namespace is where it is missing; empty for what is in no namespace.
	Namespace string
}

// Forbidden is a [*ForbiddenError] if err says that the controller may not do this, and err otherwise.
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

// ownError says that the controller has no identity of its own. A node may be given one without our being told, and a metadata service
// that starts may have none yet.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }
func (e *ownError) Unwrap() error { return e.err }

// storeError is a failure of the artifact store, told apart from those of what is written to it.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// explain turns an error of a reconciliation into what people are told; own knows those of one kind.
func explain(err error, own func(error) (Failure, bool)) Failure {
	f, known := common(err)
	if !known {
		f, known = own(err)
	}
	if !known {
		f = Failure{Reason: meta.ReasonInternalError}
	}
	if f.Message == "" {
		f.Message = err.Error()
	}
	f.Message = clip(f.Message, maxMessage)
	return f
}

// common explains what may happen to every kind.
func common(err error) (Failure, bool) {
	var (
		refused  *refusal
		secret   *SecretError
		identity *auth.Error
		address  *endpoint.AddressError
		content  *archive.Error
		storage  *storeError
		external *publishError
		lacking  *ForbiddenError
		own      *ownError
	)
	switch {
	case errors.As(err, &lacking):
		return Failure{Reason: meta.ReasonControllerForbidden}, true
	case errors.As(err, &external):
		return external.failure(), true
	case errors.As(err, &refused):
		return Failure{Reason: meta.ReasonInvalidSpec, Stalled: true}, true
	case errors.As(err, &secret):
		return Failure{Reason: meta.ReasonSecretRefused}, true
	case errors.As(err, &identity):
		stalled := spec.Terminal(err) && !errors.As(err, &own)
		return Failure{Reason: credentialReason(err, identity.Code), Stalled: stalled, RetryAfter: identity.RetryAfter}, true
	case errors.As(err, &address):
		return Failure{Reason: string(auth.CodeEndpointRefused)}, true
	case errors.Is(err, store.ErrFull):
		limit := "--artifact-store-max-size"
		if errors.Is(err, store.ErrNamespaceFull) {
			limit = "--artifact-namespace-max-size"
		}
		return Failure{
			Reason: meta.ReasonStorageFull,
			Message: "the artifact was not stored: " + err.Error() +
				"; have the administrator raise " + limit + ", or publish a smaller artifact",
		}, true
	case errors.Is(err, store.ErrVolume):
		return Failure{
			Reason: meta.ReasonStorageFull,
			Message: "the artifact was not stored: " + err.Error() +
				"; have the administrator enlarge the volume, or set --artifact-store-max-size below its size",
		}, true
	case errors.As(err, &content):
		return Failure{Reason: meta.ReasonArchiveRefused, AtInterval: true}, true
	case errors.As(err, &storage):
		return Failure{Reason: meta.ReasonStorageFailed}, true
	default:
		return Failure{}, false
	}
}

// credentialReason is the error's code, except for what the object's own fields say.
func credentialReason(err error, code auth.Code) string {
	_, refused := errors.AsType[*spec.Refusal](err)
	switch {
	case refused && code == auth.CodeOptionInvalid:
		return meta.ReasonInvalidSpec
	case refused && code == auth.CodeOptionUnsupported:
		return meta.ReasonUnsupportedProvider
	default:
		return string(code)
	}
}

// TimedOut is the failure of calls that did not end within spec.timeout; reason is the kind's for what is unreachable.
func TimedOut(reason string, err error) Failure {
	return Failure{
		Reason:  reason,
		Message: "spec.timeout has passed: " + err.Error() + "; raise spec.timeout, or find out why the answers are slow",
	}
}

// Bounds of what goes into a condition and into an event (events.k8s.io/v1 allows 1024 bytes), in bytes.
const (
	maxMessage = 2048
	maxNote    = 1000
)

// clip shortens text to at most limit bytes.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, " ")
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}
