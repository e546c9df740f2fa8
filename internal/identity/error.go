package identity

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
)

// Error says why an identity gives no credential before any exchange. It is in the chain of an
// [*auth.Error].
type Error struct {
	// Subject is the identity of the chain that is at fault.
	Subject auth.Subject

	reason  string
	message string
}

func (e *Error) Error() string { return e.message }

// Reason is the reason for conditions: one of package api/meta.
func (e *Error) Reason() string { return e.reason }

// refuse makes an error about one identity of a chain.
func refuse(code auth.Code, reason string, subject auth.Subject, fix, format string, args ...any) error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: code, Fix: fix,
		Err: &Error{Subject: subject, reason: reason, message: fmt.Sprintf(format, args...)},
	}
}

// IsUsageRefused reports whether err says that a namespace may not use an identity, or one of its
// chain.
func IsUsageRefused(err error) bool { return auth.CodeOf(err) == auth.CodeNotGranted }

// IsAdmitted reports whether err is a refusal of a complete chain, all of whose grants admit the
// namespace. What refuses is then no grant, such as a Secret that is missing.
func IsAdmitted(err error) bool {
	switch ReasonOf(err) {
	case meta.ReasonSecretRefused, meta.ReasonSecretNamespaceRefused, meta.ReasonStaticIdentityNotForSources, string(auth.CodeIdentityInvalid):
		return true
	default:
		return false
	}
}

// ReasonOf is the reason of an [*Error] in err's chain, or empty.
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.reason
	}
	return ""
}

// withoutConsumer replaces the refusal of one consumer by an error that others may read. Several
// namespaces wait for one exchange, and each asked its own grant before. So a refusal here means
// that the grant of the first one was withdrawn meanwhile. When they try again, each gets its own
// answer.
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

// errNotSynced is the error of a use before memory is complete.
func errNotSynced() error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeUnavailable, Fix: "wait: the program has just started",
		Err: errors.New("the AWS identities are not all known yet"),
	}
}

// missing is the error for an identity that does not exist. For the program's own identity the fix
// is the manifest that lends it.
func missing(subject auth.Subject, from *link) error {
	if subject.Kind() == kindController && subject.Name() == v1alpha1.DefaultControllerIdentity {
		return refuse(auth.CodeSubjectNotFound, meta.ReasonControllerIdentityMissing, subject, fmt.Sprintf(
			`apply, with the namespaces that may use the identity of Lanyard's own programs: {"apiVersion":"identity.lanyard.dev/v1alpha1","kind":"AWSClusterControllerIdentity","metadata":{"name":%q},"spec":{"allowedNamespaces":{"list":["<namespace>"]}}}`,
			subject.Name()), "there is no %s", nameOf(subject))
	}
	by := ""
	if from != nil {
		by = ", the source of " + from.String()
	}
	return refuse(auth.CodeSubjectNotFound, string(auth.CodeSubjectNotFound), subject,
		"create it, or name another identity", "%s%s does not exist", nameOf(subject), by)
}

// notGranted is the error for a namespace that a link does not admit. The link of the grant that
// decided repeats nothing of the grant.
func notGranted(l *link, depth int, namespace, why string) error {
	reason, role := meta.ReasonPrincipalUsageUnauthorized, "it"
	if depth > 0 {
		reason, role = meta.ReasonSourcePrincipalUsageUnauthorized, "this source of the chain"
	}
	return refuse(auth.CodeNotGranted, reason, l.subject,
		"have the administrator admit the namespace in spec.allowedNamespaces of "+l.String(),
		"namespace %s may not use %s: %s does not admit the namespace (%s)", namespace, l, role, why)
}
