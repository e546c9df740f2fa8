package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const userName = "system:serviceaccount:apps:deployer"

// user returns the user of the tests.
func user() User { return User{Name: userName, Permit: "list the namespace"} }

// adviceError is an error that says what to do.
type adviceError struct{}

func (adviceError) Error() string    { return "address refused" }
func (adviceError) NextStep() string { return "list the host" }

// TestReasons asserts the reason of each answer of an API server.
func TestReasons(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	terminating := apierrors.NewForbidden(maps, "a", errors.New("namespace apps is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	invalid := func(text string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", field.ErrorList{field.Forbidden(field.NewPath("spec"), text)})
	}
	for _, c := range []struct {
		err       error
		reason    Reason
		temporary bool
	}{
		{apierrors.NewForbidden(maps, "a", errors.New("no right")), ReasonForbidden, false},
		{apierrors.NewForbidden(maps, "a", errors.New(`User "p" cannot impersonate resource "serviceaccounts" in API group ""`)), ReasonImpersonation, false},
		{apierrors.NewForbidden(maps, "a", errors.New(`User "p" cannot impersonate-on:serviceaccount:get path "/api"`)), ReasonImpersonation, false},
		{apierrors.NewUnauthorized("no"), ReasonForbidden, false},
		{terminating, ReasonTerminating, false},
		{apierrors.NewForbidden(maps, "a", errors.New(`ValidatingAdmissionPolicy "p" denied request`)), ReasonDenied, false},
		{apierrors.NewBadRequest(`admission webhook "w" denied the request: no`), ReasonDenied, false},
		{invalid("field is immutable"), ReasonImmutable, false},
		{invalid("updates to statefulset spec for fields other than 'replicas' are forbidden"), ReasonImmutable, false},
		{invalid("spec.clusterIPs[0]: may not change once set"), ReasonImmutable, false},
		{invalid("must be positive"), ReasonInvalid, false},
		{apierrors.NewBadRequest("no object"), ReasonInvalid, false},
		{apierrors.NewConflict(maps, "a", errors.New("changed")), ReasonConflict, true},
		{apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "apps"), ReasonNoNamespace, false},
		{apierrors.NewTooManyRequests("wait", 1), ReasonUnavailable, true},
		{apierrors.NewInternalError(errors.New("etcd")), ReasonUnavailable, true},
		{errors.New("connection refused"), ReasonUnavailable, true},
		{adviceError{}, ReasonUnavailable, true},
		{&apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Widget"}}, ReasonUnknownKind, false},
	} {
		a := New(newServer(), user(), Owner{Namespace: "apps", Name: "app"}, false)
		key := EntryOf(object1("v1", "ConfigMap", "apps", "a")).Key
		err := a.failure(verbApply, key, fmt.Errorf("wrapped: %w", c.err))
		got, ok := errors.AsType[*Error](err)
		if !ok || got.Reason != c.reason || got.Temporary() != c.temporary || got.Fix == "" || !errors.Is(err, c.err) {
			t.Errorf("%v: %+v, want %s", c.err, got, c.reason)
		}
		if again := a.failure(verbGet, key, err); !errors.Is(again, err) {
			t.Errorf("the error is explained twice: %v", again)
		}
		if !strings.HasPrefix(err.Error(), "apply ConfigMap/apps/a as "+userName+": ") {
			t.Error(err)
		}
	}
}

// TestErrorsHideSecrets asserts that an error has neither a value of a Secret nor a masked text.
func TestErrorsHideSecrets(t *testing.T) {
	const value = "s3cr3t-value"
	secret := EntryOf(object1("v1", "Secret", "apps", "s")).Key
	plain := EntryOf(object1("v1", "ConfigMap", "apps", "c")).Key
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", field.ErrorList{field.Invalid(field.NewPath("data").Key(value), value, "no "+value)})
	a := New(newServer(), user(), Owner{}, true)
	for name, err := range map[string]error{
		"invalid":            New(newServer(), user(), Owner{}, false).failure(verbApply, secret, invalid),
		"another failure":    New(newServer(), user(), Owner{}, false).failure(verbApply, secret, errors.New(".stringData.key: expected string, got "+value)),
		"a substituted text": a.failure(verbApply, plain, errors.New("bad "+value)),
		"a quoted value":     a.failure(verbApply, plain, apierrors.NewBadRequest(fmt.Sprintf("bad %q", value+"\n"))),
		"a policy":           a.failure(verbApply, plain, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "c", errors.New("admission webhook denied "+value))),
		"a long text":        New(newServer(), user(), Owner{}, false).failure(verbApply, plain, errors.New(strings.Repeat("long ", 1000))),
	} {
		if text := err.Error(); strings.Contains(text, value) || len(text) > 2000 {
			t.Errorf("%s: %s", name, text)
		}
	}
	if text := New(newServer(), user(), Owner{}, false).failure(verbApply, secret, invalid).Error(); !strings.Contains(text, "(data)") {
		t.Errorf("the field is not named: %s", text)
	}
	for _, c := range []struct{ err, says string }{
		{New(newServer(), user(), Owner{}, false).failure(verbApply, plain, adviceError{}).Error(), "address refused; list the host"},
		{New(newServer(), user(), Owner{}, false).failure(verbApply, plain, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "p" cannot impersonate resource`))).Error(), "; list the namespace"},
	} {
		if !strings.HasSuffix(c.err, c.says) {
			t.Errorf("%s, want %q at the end", c.err, c.says)
		}
	}
	if err := a.failure(verbApply, secret, context.DeadlineExceeded); !strings.Contains(err.Error(), "deadline") {
		t.Errorf("a deadline is hidden: %v", err)
	}
}

// TestErrorOfBinding asserts that the advice for a RoleBinding depends on what does not exist.
func TestErrorOfBinding(t *testing.T) {
	a := New(newServer(), user(), Owner{Namespace: "apps", Name: "app"}, false)
	key := EntryOf(object1("rbac.authorization.k8s.io/v1", "RoleBinding", "apps", "a")).Key
	for resource, want := range map[string]Reason{"namespaces": ReasonNoNamespace, "rolebindings": ReasonNoRole} {
		err := a.failure(verbApply, key, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "b"))
		if got, ok := errors.AsType[*Error](err); !ok || got.Reason != want {
			t.Errorf("%s: %v", resource, err)
		}
	}
}
