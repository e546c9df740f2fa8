// Package v1alpha1 holds the types of the API group infrastructure.lanyard.dev, version v1alpha1.
// Their controllers act in a cloud. Each object names the identity that its controller uses there.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.lanyard.dev
package v1alpha1
