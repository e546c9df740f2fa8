// Package meta holds what Lanyard's API groups have in common: references
// between objects, the identity that a status reports, condition types and
// their reasons, and the names of annotations, labels and finalizers.
//
// +kubebuilder:object:generate=true
package meta
