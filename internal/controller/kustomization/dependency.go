package kustomization

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// checkDependencies returns an error if a Kustomization of spec.dependsOn is not ready. The revision is
// that of o's artifact.
func (k *kind) checkDependencies(ctx context.Context, o *v1alpha1.Kustomization, revision string) error {
	var self map[string]any // o with all fields
	for i, d := range o.Spec.DependsOn {
		field := fmt.Sprintf("spec.dependsOn[%d]", i)
		says, err := "is the object itself", error(nil)
		switch {
		case d.Name == o.Name:
		case d.ReadyExpr == "":
			says, err = k.lacks(ctx, o, d.Name, revision)
		case len(d.ReadyExpr) > maxExpression:
			return object.Invalid(field+".readyExpr", "write a shorter expression", "it has more than %d bytes", maxExpression)
		default:
			if self == nil {
				self, err = k.whole(ctx, client.ObjectKeyFromObject(o))
			}
			if err == nil {
				says, err = k.fails(ctx, self, o.Namespace, d, field)
			}
		}
		if err != nil {
			return err
		}
		if says != "" {
			return &dependencyError{field: field, name: d.Name, says: says}
		}
	}
	return nil
}

const doesNotExist = "does not exist"

// lacks says what another Kustomization lacks to be ready; empty if it is ready. If its source is that
// of o, it must have applied the revision.
func (k *kind) lacks(ctx context.Context, o *v1alpha1.Kustomization, name, revision string) (string, error) {
	other := &v1alpha1.Kustomization{}
	err := k.Sources.reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: name}, other)
	switch {
	case apierrors.IsNotFound(err):
		return doesNotExist, nil
	case err != nil:
		return "", err
	case !isReady(other):
		return "is not Ready", nil
	case other.Spec.SourceRef == o.Spec.SourceRef && other.Status.LastAppliedRevision != revision:
		return "has not applied revision " + revision + " yet", nil
	default:
		return "", nil
	}
}

// isReady reports whether the object's present spec is fulfilled.
func isReady(o *v1alpha1.Kustomization) bool {
	return o.Generation == o.Status.ObservedGeneration && apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionReady)
}

// whole reads a Kustomization from the API server. Expressions can use all fields, and the program's
// cache has only some.
func (k *kind) whole(ctx context.Context, name client.ObjectKey) (map[string]any, error) {
	o := &v1alpha1.Kustomization{}
	if err := k.Live.Get(ctx, name, o); err != nil {
		return nil, object.Forbidden(err, "get", "kustomizations", name.Namespace)
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// fails says why the expression of a dependency is not true; empty if it is true.
func (k *kind) fails(ctx context.Context, self map[string]any, namespace string, d v1alpha1.KustomizationDependency, field string) (string, error) {
	other, err := k.whole(ctx, client.ObjectKey{Namespace: namespace, Name: d.Name})
	if apierrors.IsNotFound(err) {
		return doesNotExist, nil
	}
	if err != nil {
		return "", err
	}
	results, err := k.Expressions.Evaluate(ctx, expression.Request{
		Tenant: namespace, Tests: []expression.Test{{Expressions: []string{d.ReadyExpr}, Variables: map[string]any{"self": self, "dep": other}}},
	})
	if ended, ok := errors.AsType[*sandbox.Error](err); ok && ended.OfInput() {
		return "cannot be judged, because readyExpr was ended: " + ended.Err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	switch r := results[0]; {
	case r.True == 0:
		return "", nil
	case r.Failure == nil:
		return "is not ready: readyExpr is false", nil
	case r.Failure.Invalid:
		return "", object.Invalid(field+".readyExpr", "correct the expression", "%s", r.Failure.Message)
	default:
		return "is not ready: readyExpr: " + r.Failure.Message, nil
	}
}

// dependencyError says why a Kustomization has to wait for another one.
type dependencyError struct{ field, name, says string }

func (e *dependencyError) Error() string {
	return fmt.Sprintf("%s: Kustomization %s %s; look at its condition Ready, or remove it from spec.dependsOn", e.field, e.name, e.says)
}
