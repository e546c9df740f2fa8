// Package meta holds the types and names that Lanyard's API groups share: references between
// objects, the identity that a status reports, condition types and their reasons, and names of
// annotations and finalizers.
//
// +kubebuilder:object:generate=true
package meta
