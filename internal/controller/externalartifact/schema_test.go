package externalartifact

import (
	"os"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestFitsFluxsSchema checks that an API server with Flux's CustomResourceDefinition accepts the
// published object, and removes none of its fields.
func TestFitsFluxsSchema(t *testing.T) {
	data, err := os.ReadFile("testdata/source.toolkit.fluxcd.io_externalartifacts.yaml")
	must.Succeed(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.UnmarshalStrict(data, &crd))
	v := crd.Spec.Versions[0]
	if crd.Spec.Group != group || crd.Spec.Names.Kind != kind || crd.Spec.Names.Plural != resource || v.Name != version || v.Subresources.Status == nil {
		t.Fatalf("the definition is of %s/%s, %s", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	}
	var internal apiextensions.JSONSchemaProps
	must.Succeed(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil))
	structural, err := schema.NewStructural(&internal)
	must.Succeed(t, err)
	validator, _, err := validation.NewSchemaValidator(&internal)
	must.Succeed(t, err)
	bare := artifact("v1")
	bare.Metadata = nil
	for what, offer := range map[string]Offer{
		"an artifact":                   {Artifact: artifact("v1")},
		"one without metadata":          {Artifact: bare},
		"one that is an earlier one":    {Artifact: artifact("v1"), Failed: "RegistryUnreachable"},
		"one of a suspended source":     {Artifact: artifact("v1"), Suspended: true},
		"one without anything in it":    {Artifact: &v1alpha1.Artifact{Digest: "sha256:00"}},
		"one of a time of another zone": {Artifact: &v1alpha1.Artifact{Digest: "sha256:00", LastUpdateTime: inAnotherZone()}},
	} {
		o := source().fresh()
		o.SetUID("uid-2")
		source().offer(o, offer)
		if errs := validation.ValidateCustomResource(nil, o.Object, validator); len(errs) > 0 {
			t.Errorf("%s: %v", what, errs.ToAggregate())
		}
		kept := o.DeepCopy()
		pruning.Prune(kept.Object, structural, true)
		if !equality.Semantic.DeepEqual(kept.Object, o.Object) {
			t.Errorf("%s: of %v the API server keeps %v", what, o.Object, kept.Object)
		}
	}
}

func inAnotherZone() metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600)))
}
