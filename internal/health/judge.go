package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// State says how far an object has come.
type State string

// The states.
const (
	// Current means that the object is what its manifest asks for.
	Current State = "Current"
	// InProgress means that the object is not Current yet, but can become Current without help.
	InProgress State = "InProgress"
	// Failed means that the object does not become Current without help.
	Failed State = "Failed"
)

// Status is the state of an object.
type Status struct {
	// State is how far the object has come.
	State State
	// Message says why the object is not Current. It may be empty.
	Message string
}

// Check has expressions for the objects of a kind. They are evaluated in the order of the fields.
// The first expression that is true decides. If none is true, the object is InProgress. The
// variables of an expression are the fields of the object, such as "status".
type Check struct {
	// Group is the API group of the kind, such as "bitnami.com".
	Group string
	// Kind is the kind. Empty means all kinds of the group for which there is no other check.
	Kind string
	// InProgress, Failed and Current are CEL expressions. InProgress and Failed may be empty.
	InProgress, Failed, Current string
}

// expressions returns the expressions that are set, and the state that each means.
func (c Check) expressions() (texts []string, states []State) {
	for _, e := range []struct {
		text  string
		state State
	}{{c.InProgress, InProgress}, {c.Failed, Failed}, {c.Current, Current}} {
		if e.text != "" {
			texts, states = append(texts, e.text), append(states, e.state)
		}
	}
	return texts, states
}

// field returns the name of the field with the expression for a state.
func field(state State) string {
	return map[State]string{InProgress: "inProgress", Failed: "failed", Current: "current"}[state]
}

// Judge says of objects whether they are ready. It is safe for concurrent use.
type Judge struct {
	evaluator *expression.Evaluator
	tenant    string
	checks    []Check
	secret    bool
}

// New returns a judge with the checks of a tenant. If secret is true, values of Secrets can be in
// objects of any kind. Then no message repeats what an object's status says.
func New(evaluator *expression.Evaluator, tenant string, checks []Check, secret bool) *Judge {
	return &Judge{evaluator, tenant, checks, secret}
}

// InvalidError says that an expression is no CEL, or is too complex.
type InvalidError struct {
	// Field is the field of the spec, such as "healthCheckExprs[0].current".
	Field string
	// Message says what is wrong.
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Parse parses the expressions of all checks. The error is an [*InvalidError] for the first
// expression that is no CEL or too complex, or an error of [expression.Evaluator.Evaluate].
func (j *Judge) Parse(ctx context.Context) error {
	if len(j.checks) == 0 {
		return nil
	}
	request := expression.Request{Tenant: j.tenant}
	for _, c := range j.checks {
		texts, _ := c.expressions()
		request.Tests = append(request.Tests, expression.Test{Expressions: texts})
	}
	results, err := j.evaluator.Evaluate(ctx, request)
	if failure, ok := errors.AsType[*sandbox.Error](err); ok && failure.OfInput() {
		return &InvalidError{Field: "healthCheckExprs", Message: failure.Err.Error()}
	}
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Failure != nil {
			_, states := j.checks[i].expressions()
			return &InvalidError{Field: fmt.Sprintf("healthCheckExprs[%d].%s", i, field(states[r.Failure.Index])), Message: r.Failure.Message}
		}
	}
	return nil
}

// check returns the check for a kind; nil if there is none.
func (j *Judge) check(kind schema.GroupKind) *Check {
	for _, name := range []string{kind.Kind, ""} {
		if i := slices.IndexFunc(j.checks, func(c Check) bool { return c.Group == kind.Group && c.Kind == name }); i >= 0 {
			return &j.checks[i]
		}
	}
	return nil
}

// Quick returns the status of an object if no expression is needed. Otherwise the result is false.
// The object must have all its fields.
func (j *Judge) Quick(o *unstructured.Unstructured) (found Status, known bool) {
	// Package kstatus panics for some statuses of Pods. No API server stores such a status, but the
	// server of another cluster can send it.
	defer func() {
		if recover() != nil {
			found, known = unreadable(), true
		}
	}()
	if o.GetDeletionTimestamp() != nil {
		return Status{InProgress, "the object is being deleted"}, true
	}
	if j.check(o.GroupVersionKind().GroupKind()) != nil {
		return behind(o)
	}
	if isSuspendedJob(o) {
		return Status{State: Current}, true
	}
	result, err := status.Compute(o)
	if err != nil {
		return unreadable(), true
	}
	message := "its status is " + string(result.Status)
	if !j.secret {
		message = cmp.Or(strings.Clone(result.Message[:min(len(result.Message), maxMessage)]), message)
	}
	switch {
	case result.Status == status.FailedStatus:
		return Status{Failed, message}, true
	case result.Status != status.CurrentStatus || IsJob(o) && !isComplete(o):
		return Status{InProgress, message}, true
	default:
		return Status{State: Current}, true
	}
}

// unreadable is the status of an object whose status does not have the shape that the kind
// promises. Its controller may correct the status.
func unreadable() Status { return Status{InProgress, "the object's status cannot be read"} }

// maxMessage is how much of an object's status a message repeats, in bytes.
const maxMessage = 500

// IsJob reports whether an object is a Job.
func IsJob(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"}
}

// isSuspendedJob reports whether an object is a Job that waits until somebody lets it begin.
func isSuspendedJob(o *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	return IsJob(o) && suspended
}

// isComplete reports whether a Job has succeeded. For kstatus, a Job that has begun is Current. But
// whoever waits for a Job waits for its end.
func isComplete(o *unstructured.Unstructured) bool {
	conditions, err := status.GetObjectWithConditions(o.Object)
	return err == nil && slices.ContainsFunc(conditions.Status.Conditions, func(c status.BasicCondition) bool {
		return c.Type == "Complete" && c.Status == "True"
	})
}

// behind returns the status of an object whose controller has not seen the last change yet.
func behind(o *unstructured.Unstructured) (Status, bool) {
	generation, ok, err := unstructured.NestedInt64(o.Object, "metadata", "generation")
	if !ok || err != nil {
		return Status{}, false
	}
	observed, ok, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if !ok || err != nil || observed == generation {
		return Status{}, false
	}
	return Status{InProgress, fmt.Sprintf("its controller has seen generation %d, and the last one is %d", observed, generation)}, true
}

// Status returns the status of an object. The object must have all its fields. An error is one of
// [expression.Evaluator.Evaluate].
func (j *Judge) Status(ctx context.Context, o *unstructured.Unstructured) (Status, error) {
	if known, ok := j.Quick(o); ok {
		return known, nil
	}
	texts, states := j.check(o.GroupVersionKind().GroupKind()).expressions()
	results, err := j.evaluator.Evaluate(ctx, expression.Request{
		Tenant: j.tenant, Tests: []expression.Test{{Expressions: texts, Variables: o.Object}}, Secret: j.secret || o.GetKind() == "Secret",
	})
	if failure, ok := errors.AsType[*sandbox.Error](err); ok && failure.OfInput() {
		return Status{Failed, "its expressions were ended: " + failure.Err.Error() + "; simplify them"}, nil
	}
	if err != nil {
		return Status{}, err
	}
	switch r := results[0]; {
	case r.Failure != nil:
		// The object may get the missing fields later, as its controller writes its status.
		return Status{InProgress, fmt.Sprintf("the expression %s: %s", field(states[r.Failure.Index]), r.Failure.Message)}, nil
	case r.True < 0:
		return Status{InProgress, "the expressions " + strings.Join(fields(states), ", ") + " are false"}, nil
	case states[r.True] == Current:
		return Status{State: Current}, nil
	default:
		return Status{states[r.True], "the expression " + field(states[r.True]) + " is true"}, nil
	}
}

func fields(states []State) []string {
	names := make([]string, 0, len(states))
	for _, s := range states {
		names = append(names, field(s))
	}
	return names
}
