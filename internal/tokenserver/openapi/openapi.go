// Package openapi describes the kinds that the token server serves. The API server's library needs
// the descriptions to read requests, and the API server publishes them.
package openapi

import (
	"strings"

	kubernetes "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Definitions returns the descriptions of the kinds of token.lanyard.dev, and of the Kubernetes
// types that these kinds contain.
func Definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := kubernetes.GetOpenAPIDefinitions(ref)
	ours := GetOpenAPIDefinitions(func(name string) spec.Ref { return ref(modelName(name)) })
	for name, definition := range ours {
		for i, dependency := range definition.Dependencies {
			definition.Dependencies[i] = modelName(dependency)
		}
		definitions[name] = definition
	}
	return definitions
}

// modelName returns the name of a type's description. The generated code refers to Kubernetes types
// by their Go names, such as k8s.io/apimachinery/pkg/apis/meta/v1.Time. Kubernetes describes this
// type under the name io.k8s.apimachinery.pkg.apis.meta.v1.Time.
func modelName(name string) string {
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}
