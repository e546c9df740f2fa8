// Package v1alpha1 holds the types of the API group identity.lanyard.dev, version v1alpha1. They
// describe:
//   - identities for which Lanyard issues credentials
//   - the keys that Lanyard signs with
//   - AWS identities that administrators lend to namespaces
//
// +kubebuilder:object:generate=true
// +groupName=identity.lanyard.dev
package v1alpha1
