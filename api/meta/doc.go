// Package meta holds what Lanyard's API groups have in common. These are references between
// objects, the identity that a status reports, condition types and their reasons, and names of
// annotations and finalizers.
//
// +kubebuilder:object:generate=true
package meta
