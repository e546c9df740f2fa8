package apply

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/object"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reason says why the API server did not carry out a request.
type Reason string

// The reasons.
const (
	// ReasonForbidden means that the user may not send the request.
	ReasonForbidden Reason = "forbidden"
	// ReasonImpersonation means that the program may not act as the user.
	ReasonImpersonation Reason = "impersonation"
	// ReasonDenied means that an admission policy or a webhook of the cluster refused the object.
	ReasonDenied Reason = "denied"
	// ReasonInvalid means that the manifest is no valid object of its kind.
	ReasonInvalid Reason = "invalid"
	// ReasonImmutable means that a field changed that cannot be changed.
	ReasonImmutable Reason = "immutable"
	// ReasonUnknownKind means that the API server has no such kind.
	ReasonUnknownKind Reason = "unknown kind"
	// ReasonNoNamespace means that the object's namespace is not named or does not exist.
	ReasonNoNamespace Reason = "no namespace"
	// ReasonNoRole means that a RoleBinding names a role that does not exist.
	ReasonNoRole Reason = "no role"
	// ReasonTerminating means that the object's namespace is being deleted.
	ReasonTerminating Reason = "terminating"
	// ReasonOwned means that the object belongs to another owner.
	ReasonOwned Reason = "owned"
	// ReasonConflict means that somebody changed the object at the same time. A later attempt may
	// succeed.
	ReasonConflict Reason = "conflict"
	// ReasonUnavailable means that the API server did not answer, or has too much to do. A later
	// attempt may succeed.
	ReasonUnavailable Reason = "unavailable"
)

// Error says which request for which object failed, and why. The text has no value of a Secret.
type Error struct {
	// Reason is the cause, for programs.
	Reason Reason
	// Verb is what was tried, such as "apply" or "delete".
	Verb string
	// Key names the object. It is zero if the error does not say which object is meant.
	Key object.ObjMetadata
	// User is the user who sent the request.
	User string
	// Err is the API server's answer. It may have values of a Secret, so do not print it.
	Err error
	// Fix is the next step for the user, as a sentence without a full stop.
	Fix string

	text string // what Error says of Err
}

// Error implements error.
func (e *Error) Error() string {
	what := "the manifests"
	if e.Key.Name != "" {
		what = describe(e.Key)
	}
	return fmt.Sprintf("%s %s as %s: %s; %s", e.Verb, what, e.User, e.text, e.Fix)
}

// Unwrap returns the API server's answer.
func (e *Error) Unwrap() error { return e.Err }

// Temporary reports whether a later attempt may succeed without any change.
func (e *Error) Temporary() bool { return e.Reason == ReasonConflict || e.Reason == ReasonUnavailable }

// failure returns the error for a failed request.
func (a *Applier) failure(verb string, key object.ObjMetadata, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	reason, fix := a.explain(verb, key, err)
	return &Error{Reason: reason, Verb: verb, Key: key, User: a.user.Name, Err: err, Fix: fix, text: a.text(key, err)}
}

// owned returns the error for an object that belongs to another owner.
func (a *Applier) owned(key object.ObjMetadata, other Owner) error {
	text := fmt.Sprintf("the object belongs to Kustomization %s/%s", other.Namespace, other.Name)
	return &Error{
		Reason: ReasonOwned, Verb: verbApply, Key: key, User: a.user.Name, Err: errors.New(text), text: text,
		Fix: "remove the object from one of the two; to move it without a gap, set the annotation " + annotation(pruneName) + ": disabled first",
	}
}

// ownedByFlux returns the error for an object that a Kustomization of Flux applies.
func (a *Applier) ownedByFlux(key object.ObjMetadata, flux Owner) error {
	text := fmt.Sprintf("Flux applies the object for its Kustomization %s/%s", flux.Namespace, flux.Name)
	fix := "suspend Flux's Kustomization and delete it, if it is still there; then reconcile this one"
	if flux != a.owner {
		fix = "remove the object from one of the two; if Flux's is gone, remove the labels " + strings.Join(fluxLabels(), " and ") + " from the object"
	}
	return &Error{Reason: ReasonOwned, Verb: verbApply, Key: key, User: a.user.Name, Err: errors.New(text), text: text, Fix: fix}
}

// advisor is an error of a client that knows the user's next step.
type advisor interface {
	error

	NextStep() string
}

// explain returns the reason for an API server's answer, and the next step.
func (a *Applier) explain(verb string, key object.ObjMetadata, err error) (reason Reason, fix string) {
	text := err.Error()
	immutable := isImmutable(text)
	advises, ok := errors.AsType[advisor](err)
	switch {
	case ok:
		return ReasonUnavailable, advises.NextStep()
	case apimeta.IsNoMatchError(err):
		return ReasonUnknownKind, "install the CustomResourceDefinition of " + key.GroupKind.String() + ", or add it to the same artifact"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ReasonTerminating, "wait until namespace " + key.Namespace + " is deleted, and create it again"
	case apierrors.IsForbidden(err) && cannotImpersonate.MatchString(text):
		return ReasonImpersonation, a.user.Permit
	case isAdmission(text):
		return ReasonDenied, "change the object so that the cluster's admission policies allow it"
	case apierrors.IsUnauthorized(err):
		return ReasonForbidden, fmt.Sprintf("give a valid credential to %s", a.user.Name)
	case apierrors.IsForbidden(err):
		return ReasonForbidden, fmt.Sprintf("let a Role and a RoleBinding give %s the missing right, or remove the object", a.user.Name)
	case immutable:
		return ReasonImmutable, `set spec.force, or the annotation ` + annotation(forceName) + `: Enabled on the object, to delete and create the object anew`
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ReasonConflict, "wait for the next attempt"
	case apierrors.IsNotFound(err) && verb == verbApply && isBinding(key.GroupKind) && !isOfNamespace(err):
		return ReasonNoRole, "create the role that roleRef names, or correct roleRef"
	case apierrors.IsNotFound(err) && verb != verbDelete:
		return ReasonNoNamespace, fmt.Sprintf("create namespace %q, or set spec.targetNamespace", key.Namespace)
	case isMalformed(text):
		return ReasonInvalid, "correct the manifest"
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsInternalError(err),
		apierrors.IsServiceUnavailable(err), apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return ReasonUnavailable, "wait for the next attempt; if it lasts, look at the API server"
	default:
		return ReasonInvalid, "correct the manifest"
	}
}

// isBinding reports whether the objects of a kind bind a role.
func isBinding(kind schema.GroupKind) bool {
	return kind.Group == rbacv1.GroupName && (kind.Kind == "RoleBinding" || kind.Kind == "ClusterRoleBinding")
}

// isOfNamespace reports whether an answer is about a namespace.
func isOfNamespace(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Kind == "namespaces"
}

// cannotImpersonate matches the API server's answer to a program that may not act as a user. The second
// form is that of API servers with constrained impersonation (KEP-5284).
var cannotImpersonate = regexp.MustCompile(`User "[^"]*" cannot impersonate(-on:[a-z:]+)? `)

// immutableField matches what API servers and admission policies say of fields that cannot change.
var immutableField = regexp.MustCompile(
	`is immutable|immutable field|may not (be changed|be updated|change)|cannot (be changed|be updated|change)|updates to .* are forbidden`)

func isImmutable(text string) bool { return immutableField.MatchString(text) }

// isMalformed reports whether the text is of an API server that could not decode an object. The
// answer has the status 500, like the answers of an API server that has failed itself.
func isMalformed(text string) bool {
	return strings.Contains(text, "failed to create typed patch object") || strings.Contains(text, "failed to convert new object") ||
		strings.Contains(text, "cannot be handled as a")
}

// isAdmission reports whether the text is of an admission webhook or policy.
func isAdmission(text string) bool {
	return strings.Contains(text, "admission webhook") || strings.Contains(text, "ValidatingAdmissionPolicy")
}

// maxText bounds what an [Error] says of an API server's answer, in bytes.
const maxText = 1000

// isHarmless reports whether an error has no value of the object that a request had.
func isHarmless(text string, err error) bool {
	_, connection := errors.AsType[*url.Error](err)
	throttled := apierrors.IsTooManyRequests(err) && !isAdmission(text)
	forbidden := apierrors.IsForbidden(err) && !isAdmission(text) && noRight.MatchString(text)
	return connection || forbidden || throttled || apimeta.IsNoMatchError(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// noRight matches the API server's answer to a request for which the user lacks a right. It names the
// user, the verb and the resource, and no value of the object.
var noRight = regexp.MustCompile(`^[a-z0-9.-]+ ("[^"]*" )?is forbidden: User "[^"]*" cannot [a-z]+ resource "`)

// text returns what may be said of an API server's answer. An answer about a Secret can repeat the
// Secret's values, and so can an answer about another object with such values. Only the names of the
// fields are said then.
func (a *Applier) text(key object.ObjMetadata, err error) string {
	text := err.Error()
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	if a.hides(key) && !isHarmless(text, err) {
		text = "the API server does not accept the object" + fieldsOf(err) + "; its answer is not shown, since it may have values of Secrets"
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}

// hides reports whether the values of an object may be secret: those of a Secret, and those of each
// object if its manifest has values of Secrets.
func (a *Applier) hides(key object.ObjMetadata) bool {
	return a.secret || key.GroupKind.Kind == "Secret"
}

// fieldsOf returns the fields that an API server's answer names.
func fieldsOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		if field, _, _ := strings.Cut(cause.Field, "["); field != "" { // a key of data may follow
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return " (" + string(apierrors.ReasonForError(err)) + ")"
	}
	return " (" + strings.Join(fields, ", ") + ")"
}
