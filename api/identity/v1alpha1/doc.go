// Package v1alpha1 holds the types of the API group identity.lanyard.dev, version v1alpha1. They
// are identities that Lanyard vouches for, the keys with which it does, and identities of AWS that
// administrators lend to namespaces.
//
// +kubebuilder:object:generate=true
// +groupName=identity.lanyard.dev
package v1alpha1
