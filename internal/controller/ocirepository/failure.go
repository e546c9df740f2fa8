package ocirepository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

// refusal is a spec that is not carried out, whatever the world answers.
type refusal struct {
	reason string // of the condition
	field  string // that must change
	fix    string
	err    error
}

func (r *refusal) Error() string {
	msg := r.field + ": " + r.err.Error()
	if r.fix != "" {
		msg += "; " + r.fix
	}
	return msg
}

func (r *refusal) Unwrap() error { return r.err }

// secretError is a Secret that does not serve. Its text never holds a value of the Secret.
type secretError struct {
	field string // that names the Secret
	name  string
	fix   string
	err   error
}

func (e *secretError) Error() string {
	return fmt.Sprintf("%s: Secret %s: %v; %s", e.field, e.name, e.err, e.fix)
}

func (e *secretError) Unwrap() error { return e.err }

// storeError is a failure of the artifact store, told apart from those of what is written to it.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// nameLimit adds to the refusal of a layer's size which flag it comes from: neither the registry's client nor the archive's
// reader knows.
func nameLimit(err error) error {
	content, isContent := errors.AsType[*archive.Error](err)
	if isContent && content.Reason == archive.ReasonTooLarge || oci.CodeOf(err) == oci.CodeTooLarge {
		return fmt.Errorf("%w (--artifact-max-decompressed-size)", err)
	}
	return err
}

// failure is an error as an object's conditions show it.
type failure struct {
	// reason is stable; for a credential it is the auth.Error's code.
	reason string
	// message says what happened and how to fix it.
	message string
	// stalled: retrying does not help.
	stalled bool
	// after is the pause that the other side asked for, zero for none.
	after time.Duration
}

// explain turns an error of a reconciliation into what people are told.
func explain(err error) failure {
	f := failure{message: clip(err.Error(), maxMessage)}
	var (
		refused  *refusal
		address  *endpoint.AddressError
		identity *auth.Error
		registry *oci.Error
		content  *archive.Error
		secret   *secretError
		storage  *storeError
	)
	switch {
	case errors.As(err, &refused):
		f.reason, f.stalled = refused.reason, true
	case errors.As(err, &secret):
		f.reason = meta.ReasonSecretRefused
	case errors.As(err, &identity):
		f.reason, f.stalled, f.after = credentialReason(err, identity.Code), spec.Terminal(err), identity.RetryAfter
	case errors.As(err, &address):
		f.reason = string(auth.CodeEndpointRefused)
	case errors.Is(err, store.ErrFull):
		f.reason = meta.ReasonStorageFull
		limit := "--artifact-store-max-size"
		if errors.Is(err, store.ErrNamespaceFull) {
			limit = "--artifact-namespace-max-size"
		}
		f.message = clip("the artifact was not stored: "+err.Error()+
			"; have the administrator raise "+limit+", or publish a smaller artifact", maxMessage)
	case errors.As(err, &content):
		f.reason = meta.ReasonArchiveRefused
	case errors.As(err, &registry):
		f.reason, f.stalled = registryReason(registry.Code)
		f.after = registry.RetryAfter
	case errors.As(err, &storage):
		f.reason = meta.ReasonStorageFailed
	case errors.Is(err, context.DeadlineExceeded):
		f.reason = meta.ReasonRegistryUnreachable
		f.message = clip("spec.timeout has passed: "+err.Error()+"; raise spec.timeout, or find out why the answers are slow", maxMessage)
	default:
		f.reason = meta.ReasonInternalError
	}
	return f
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

func registryReason(code oci.Code) (reason string, stalled bool) {
	switch code {
	case oci.CodeInvalidURL:
		return meta.ReasonInvalidURL, true
	case oci.CodeInvalidReference:
		return meta.ReasonInvalidSpec, true
	case oci.CodeUnreachable, oci.CodeThrottled, oci.CodeServer:
		return meta.ReasonRegistryUnreachable, false
	case oci.CodeTagNotFound, oci.CodeNoMatch:
		return meta.ReasonReferenceNotFound, false
	case oci.CodeDigestMismatch, oci.CodeTruncated:
		return meta.ReasonDigestMismatch, false
	case oci.CodeUnsupportedMediaType:
		return meta.ReasonLayerNotFound, false
	case oci.CodeTooLarge:
		return meta.ReasonArchiveRefused, false
	default: // 401, 403, 404, and what is no registry
		return meta.ReasonRegistryRefused, false
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
