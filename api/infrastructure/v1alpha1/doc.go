// Package v1alpha1 holds the types of the API group infrastructure.lanyard.dev, version v1alpha1.
// The controllers of these types act in a cloud, with the identity that each object names.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.lanyard.dev
package v1alpha1
