package meta

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Status is the common part of the status of every object that Lanyard reconciles.
type Status struct {
	// observedGeneration is the metadata.generation that the conditions describe, or -1 before the
	// first reconciliation.
	//
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions describe the state of the object. Ready is always present. Reconciling and
	// Stalled are present while they are true.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastHandledReconcileAt is the last request for a reconciliation that the controller has
	// handled. It is the value of the annotation lanyard.dev/reconcile-requested-at, or of Flux's
	// reconcile.fluxcd.io/requestedAt, shortened to 256 bytes.
	//
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// FetchStatus is the common part of the status of every object for which the controller gets a
// credential. Kinds that keep artifacts also have two other conditions. They have ArtifactInStorage
// while the artifact is in the store, and ExternalArtifactPublished if spec.externalArtifact is
// set.
type FetchStatus struct {
	Status `json:",inline"`

	// identity says whose credential the controller last sent to the server that the spec names,
	// even if the server did not accept that credential. The field is absent if no credential was
	// used, or if no credential was granted.
	//
	// +optional
	Identity *Identity `json:"identity,omitempty"`
}
