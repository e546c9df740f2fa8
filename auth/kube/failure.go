package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/auth"
)

// ownLimit is a part of the error text that client-go (rest.Request) returns if the client's rate
// limiter refuses a call. The error has no type, so it is recognized by this text. The rate limiter
// refuses a call at once if the call would have to wait until after its deadline.
const ownLimit = "client rate limiter Wait returned an error"

const reachDirectly = "check that no proxy between this program and the API server changes the answers"

// caller describes this program and its permissions at the API server, for error texts.
type caller struct {
	// self is the user name of this program; empty if it is unknown.
	self string
	// read and token are the RBAC resources that are needed to read accounts and to request tokens.
	read, token string
}

// accountCaller returns a caller for errors about ServiceAccounts. It names the RBAC resources that
// are needed to read ServiceAccounts and to request their tokens.
func accountCaller() caller {
	return caller{read: "serviceaccounts", token: "serviceaccounts/token"}
}

// failure turns the error of a call with ctx into an [*auth.Error].
//
// The error repeats only the API server's own Status. Any other part of an answer may contain a
// secret. Examples are the page of a proxy, or an answer that cannot be decoded.
func (c caller) failure(ctx context.Context, err error, stage auth.Stage, subject auth.Subject) *auth.Error {
	failed := &auth.Error{Stage: stage}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		failed.RetryAfter = time.Duration(seconds) * time.Second
	}
	var status apierrors.APIStatus
	var transport *url.Error
	switch {
	case errors.As(err, &status):
		c.refusal(failed, err, status.Status(), subject)
	case ctx.Err() != nil:
		failed.Code = auth.CodeUnreachable
		failed.Fix = "check that the API server answers in time"
		failed.Err = fmt.Errorf("no answer from the API server for %s: %w", subject, context.Cause(ctx))
	case strings.Contains(err.Error(), ownLimit):
		failed.Code = auth.CodeThrottled
		failed.Fix = "raise the limit of this program's client (QPS and Burst of its rest.Config)"
		failed.Err = fmt.Errorf("the API server was not asked for %s: this program makes too many calls", subject)
	case errors.As(err, &transport):
		failed.Code = auth.CodeUnreachable
		failed.Fix = "check the connection to the API server"
		failed.Err = fmt.Errorf("no answer from the API server for %s: %w", subject, transport)
	default:
		failed.Code = auth.CodeResponseInvalid
		failed.Fix = reachDirectly
		failed.Err = fmt.Errorf("the answer of the API server for %s cannot be read (%T)", subject, err)
	}
	return failed
}

func (c caller) refusal(failed *auth.Error, err error, status metav1.Status, subject auth.Subject) {
	foreign := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) // true if the answer was not the API server's Status
	said := fmt.Sprintf("HTTP %d %s", status.Code, status.Reason)
	if !foreign && status.Code < http.StatusInternalServerError {
		said += ": " + status.Message
	}
	failed.Err = fmt.Errorf("the API server refused the call for %s: %s", subject, said)
	switch {
	case apierrors.IsTooManyRequests(err):
		failed.Code = auth.CodeThrottled
		failed.Fix = "wait, or give this program its own priority level (FlowSchema)"
	case apierrors.IsUnauthorized(err):
		// The API server did not authenticate this program. This says nothing about the subject,
		// whose tokens stay valid.
		failed.Code = auth.CodeUnavailable
		failed.Fix = "check this program's own credentials for the API server"
	case status.Code >= http.StatusInternalServerError:
		failed.Code = auth.CodeUnavailable
		failed.Fix = "check the health of the API server"
	case foreign:
		failed.Code = auth.CodeResponseInvalid
		failed.Fix = reachDirectly
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		*failed = *notFound(failed.Stage, subject, "is being deleted with its namespace")
	case apierrors.IsNotFound(err):
		*failed = *notFound(failed.Stage, subject, "does not exist")
	case apierrors.IsConflict(err):
		*failed = *replaced(subject, "before its token was requested")
	case apierrors.IsForbidden(err):
		failed.Code = auth.CodeProofDenied
		failed.Fix = c.rbacFix(failed.Stage, subject)
	default:
		failed.Code = auth.CodeRefused
		failed.Fix = fmt.Sprintf("check the rules of the cluster's admission control for %ss and their tokens", subject.Kind())
	}
}

// rbacFix returns the fix for a missing RBAC rule: which rule to grant, and how to bind it.
func (c caller) rbacFix(stage auth.Stage, subject auth.Subject) string {
	verb, resource := "get", c.read
	if stage == auth.StageTokenRequest {
		verb, resource = "create", c.token
	}
	return fmt.Sprintf("grant %q on %s in namespace %s to %s, with a RoleBinding in the namespace or a ClusterRoleBinding",
		verb, resource, subject.Namespace(), cmp.Or(c.self, "the ServiceAccount of this program"))
}

func notFound(stage auth.Stage, subject auth.Subject, how string) *auth.Error {
	return &auth.Error{
		Stage: stage, Code: auth.CodeSubjectNotFound,
		Fix: fmt.Sprintf("create %s %s/%s", subject.Kind(), subject.Namespace(), subject.Name()),
		Err: fmt.Errorf("%s %s", subject, how),
	}
}

func replaced(subject auth.Subject, when string) *auth.Error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeSubjectReplaced,
		Fix: "try again: the next attempt uses the new account",
		Err: fmt.Errorf("%s was deleted and created again %s", subject, when),
	}
}
