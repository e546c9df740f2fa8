// Package v1alpha1 holds the types of the API group toolkit.lanyard.dev, version v1alpha1. Each
// object is a source, which the controller fetches with a credential of the object's own tenant.
//
// +kubebuilder:object:generate=true
// +groupName=toolkit.lanyard.dev
package v1alpha1
