// Package admissiontest helps to test a ValidatingAdmissionPolicy. It reads the policy from a file
// and evaluates it with the API server's code.
package admissiontest

import (
	"bytes"
	"os"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// Policy is a compiled ValidatingAdmissionPolicy.
type Policy struct {
	validator validating.Validator
	resource  schema.GroupVersionResource
}

// New compiles the policy in the first document of the file. [Policy.Admit] will judge objects of
// the first resource that the policy's rules name, in the given API version.
func New(tb testing.TB, file, version string) Policy {
	tb.Helper()
	data, err := os.ReadFile(file) //nolint:gosec // a test names its file
	must.Succeed(tb, err)
	var policy admissionv1.ValidatingAdmissionPolicy
	first, _, _ := bytes.Cut(data, []byte("\n---\n"))
	must.Succeed(tb, yaml.UnmarshalStrict(first, &policy))
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	must.Succeed(tb, err)
	var (
		variables                        []cel.NamedExpressionAccessor
		conditions, validations, message []cel.ExpressionAccessor
		options                          cel.OptionalVariableDeclarations
	)
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		message = append(message, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	compiler.CompileAndStoreVariables(variables, options, environment.NewExpressions)
	compile := func(expressions []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(expressions, options, environment.NewExpressions)
	}
	failure := policy.Spec.FailurePolicy
	matcher := matchconditions.NewMatcher(compile(conditions), failure, "policy", "validate", policy.Name)
	rule := policy.Spec.MatchConstraints.ResourceRules[0]
	return Policy{
		validator: validating.NewValidator(compile(validations), matcher, compile(nil), compile(message), failure, nil),
		resource:  schema.GroupVersionResource{Group: rule.APIGroups[0], Version: version, Resource: rule.Resources[0]},
	}
}

// Admit returns the messages with which the policy refuses to create the object. If old is not nil,
// the policy judges an update from old to object.
func (p Policy) Admit(tb testing.TB, object, old map[string]any) []string {
	tb.Helper()
	o := &unstructured.Unstructured{Object: object}
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	var before runtime.Object
	if old != nil {
		before = &unstructured.Unstructured{Object: old}
		operation, options = admission.Update, &metav1.UpdateOptions{}
	}
	attributes := admission.NewAttributesRecord(o, before, o.GroupVersionKind(), o.GetNamespace(), o.GetName(), p.resource, "", operation, options, false, &user.DefaultInfo{})
	result := p.validator.Validate(tb.Context(), p.resource, &admission.VersionedAttributes{
		Attributes: attributes, VersionedObject: o, VersionedOldObject: before, VersionedKind: o.GroupVersionKind(),
	}, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var refusals []string
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			tb.Errorf("the policy cannot judge: %s", d.Message)
		}
		if d.Action == validating.ActionDeny {
			refusals = append(refusals, d.Message)
		}
	}
	return refusals
}
