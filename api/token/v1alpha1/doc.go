// Package v1alpha1 holds the types of the API group token.lanyard.dev, version v1alpha1. Lanyard's
// token server serves the group behind the API server (aggregation). Objects of the group are
// requests, which are never stored.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.lanyard.token.v1alpha1
// +groupName=token.lanyard.dev
package v1alpha1
