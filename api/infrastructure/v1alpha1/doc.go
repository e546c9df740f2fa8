// Package v1alpha1 holds the types of the API group infrastructure.lanyard.dev, version v1alpha1.
// They are objects whose controllers act at a cloud with an identity that the objects name.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.lanyard.dev
package v1alpha1
