// Package crd embeds the part of Lanyard's CustomResourceDefinitions that programs read.
package crd

import (
	_ "embed" // for the CRD of Kustomizations
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

//go:embed toolkit.lanyard.dev_kustomizations.yaml
var kustomizations []byte

// schema has the parts of an OpenAPI schema that list the values of a field.
type schema struct {
	Properties map[string]schema `json:"properties"`
	Enum       []string          `json:"enum"`
}

// SourceKinds returns the kinds that spec.sourceRef of a Kustomization can name. It reads them from
// the schema, which is what the API server decides by.
func SourceKinds() ([]string, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					Whole schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(kustomizations, &crd); err != nil {
		return nil, fmt.Errorf("CRD of Kustomizations: %w", err)
	}
	for _, version := range crd.Spec.Versions {
		spec := version.Schema.Whole.Properties["spec"]
		kinds := spec.Properties["sourceRef"].Properties["kind"].Enum
		if version.Name == v1alpha1.Version && len(kinds) > 0 {
			return kinds, nil
		}
	}
	return nil, errors.New("the CRD of Kustomizations lists no kinds of sources")
}
