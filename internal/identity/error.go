package identity

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
)

// Error says why an identity gives no credential. It is returned before any exchange, wrapped in an
// [*auth.Error].
type Error struct {
	// Subject is the identity at fault: one of the identities of the chain.
	Subject auth.Subject

	reason  string
	message string
}

func (e *Error) Error() string { return e.message }

// Reason returns the reason for conditions: a constant of package api/meta or an [auth.Code].
func (e *Error) Reason() string { return e.reason }

// refuse makes an error about one identity of a chain.
func refuse(code auth.Code, reason string, subject auth.Subject, fix, format string, args ...any) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: code, Fix: fix,
		Err: &Error{Subject: subject, reason: reason, message: fmt.Sprintf(format, args...)},
	}
}

// IsUsageRefused reports whether err says that a namespace may not use an AWS identity, or one of
// the sources in the identity's chain.
func IsUsageRefused(err error) bool { return auth.CodeOf(err) == auth.CodeNotGranted }

// IsAdmitted reports whether err is about a complete chain whose grants all admit the namespace. If
// so, the cause of the error is not a grant, but for example a missing Secret.
func IsAdmitted(err error) bool {
	switch ReasonOf(err) {
	case meta.ReasonSecretRefused, meta.ReasonSecretNamespaceRefused,
		meta.ReasonStaticIdentityNotForSources, string(auth.CodeIdentityInvalid):
		return true
	default:
		return false
	}
}

// ReasonOf returns the reason of the [*Error] that err wraps; empty if err wraps no such error.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.reason
	}
	return ""
}

// withoutConsumer replaces a refusal with an error that does not name the refused namespace.
// Several namespaces, each with a grant, may wait for one exchange. The exchange is refused if the
// namespace that began it has just lost its grant. All waiting namespaces get this error, so it
// must not name a namespace. When they try again, each gets its own answer.
func withoutConsumer(subject auth.Subject, err error) error {
	if IsUsageRefused(err) {
		return errReplaced(subject)
	}
	return err
}

// errReplaced is the error of an identity that changed during an exchange.
func errReplaced(subject auth.Subject) error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeSubjectReplaced, Fix: "try again",
		Err: fmt.Errorf("%s, or who may use it, changed while its credential was got", nameOf(subject)),
	}
}

// errNotSynced returns the error for a use of an identity before all watches have synced.
func errNotSynced() error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeUnavailable, Fix: "wait: the program has just started",
		Err: errors.New("the AWS identities are not all known yet"),
	}
}

// missing returns the error for an identity that does not exist, or for a source of an unknown
// kind. If the program's own identity does not exist, the error's Fix has a manifest for it.
func missing(subject auth.Subject, from *link) error {
	if subject.Kind() == kindController && subject.Name() == v1alpha1.DefaultControllerIdentity {
		return refuse(auth.CodeSubjectNotFound, meta.ReasonControllerIdentityMissing, subject, fmt.Sprintf(
			`apply, with the namespaces that may use the identity of Lanyard's own programs: {"apiVersion":"identity.lanyard.dev/v1alpha1","kind":"AWSClusterControllerIdentity","metadata":{"name":%q},"spec":{"allowedNamespaces":{"list":["<namespace>"]}}}`,
			subject.Name()), "there is no %s", nameOf(subject))
	}
	name, fix, problem := nameOf(subject), "create it, or name another identity", "does not exist"
	if from != nil {
		name = from.request.Source + ", the source of " + from.String()
	}
	if from != nil && len(from.sources) > 1 {
		subject, fix, problem = from.subject, "correct spec.sourceIdentityRef.kind of "+from.String(), "is of an unknown kind"
	}
	return refuse(auth.CodeSubjectNotFound, string(auth.CodeSubjectNotFound), subject, fix, "%s %s", name, problem)
}

// notGranted returns the error for a namespace that a link does not admit. The error says which
// part of the grant decided, but must not quote the grant.
func notGranted(l *link, depth int, namespace, why string) error {
	reason, role := meta.ReasonPrincipalUsageUnauthorized, "it"
	if depth > 0 {
		reason, role = meta.ReasonSourcePrincipalUsageUnauthorized, "this source of the chain"
	}
	return refuse(auth.CodeNotGranted, reason, l.subject,
		"have the administrator admit the namespace in spec.allowedNamespaces of "+l.String(),
		"namespace %s may not use %s: %s does not admit the namespace (%s)", namespace, l, role, why)
}
