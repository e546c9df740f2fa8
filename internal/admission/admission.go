// Package admission validates custom resources against their CustomResourceDefinition without an
// API server. It calls the API server's own code.
package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// ReadCRD decodes a CRD from YAML or JSON, sets the API server's defaults and converts the CRD to
// the form that the API server validates.
func ReadCRD(data []byte) (*apiextensions.CustomResourceDefinition, error) {
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &v1); err != nil {
		return nil, fmt.Errorf("read a CustomResourceDefinition: %w", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(&v1)
	if len(v1.Spec.Versions) == 0 {
		return nil, fmt.Errorf("CustomResourceDefinition %s has no version", v1.Name)
	}
	// The API server sets this field when it stores the object.
	v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	var crd apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&v1, &crd, nil); err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", v1.Name, err)
	}
	return &crd, nil
}

// Admission validates objects of one kind as the API server does on create and on update.
type Admission struct {
	structural *schema.Structural
	schema     schemavalidation.SchemaValidator
	rules      *cel.Validator
}

// New returns an Admission for the first version of a CRD.
func New(crd *apiextensions.CustomResourceDefinition) (*Admission, error) {
	fail := func(err error) (*Admission, error) {
		return nil, fmt.Errorf("read the schema of CustomResourceDefinition %s: %w", crd.Name, err)
	}
	validation, err := apiextensions.GetSchemaForVersion(crd, crd.Spec.Versions[0].Name)
	if err != nil {
		return fail(err)
	}
	structural, err := schema.NewStructural(validation.OpenAPIV3Schema)
	if err != nil {
		return fail(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(validation.OpenAPIV3Schema)
	if err != nil {
		return fail(err)
	}
	return &Admission{structural: structural, schema: validator, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// Admit applies pruning and defaults to the object, in place. It returns the reasons for which the
// API server would refuse the object. As in the API server, CEL rules are evaluated only if the
// object's types and lengths are valid.
func (a *Admission) Admit(ctx context.Context, object map[string]any) field.ErrorList {
	return a.AdmitUpdate(ctx, object, nil)
}

// AdmitUpdate is like [Admission.Admit], but for an update from old to object. It also evaluates
// transition rules, which compare the two.
func (a *Admission) AdmitUpdate(ctx context.Context, object, old map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, a.structural)
	defaulting.Default(object, a.structural)
	pruning.Prune(object, a.structural, true)
	errs := schemavalidation.ValidateCustomResource(nil, object, a.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, a.structural, object)...)
	blocking := []field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}
	if slices.ContainsFunc(errs, func(err *field.Error) bool { return slices.Contains(blocking, err.Type) }) {
		return errs
	}
	var previous any // stays nil on create: an interface that holds a nil map is not nil
	if old != nil {
		previous = old
	}
	violations, _ := a.rules.Validate(ctx, nil, a.structural, object, previous, celconfig.RuntimeCELCostBudget)
	return append(errs, violations...)
}
