package meta

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Status is what the status of every object that Lanyard reconciles has.
type Status struct {
	// observedGeneration is the metadata.generation that the conditions speak
	// of.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions tell the state of the object. Ready is always there;
	// Reconciling and Stalled are there while they are true. Kinds with
	// artifacts also have ArtifactInStorage while it is true, and
	// ExternalArtifactPublished where spec.externalArtifact is set.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastHandledReconcileAt repeats the value of the annotation
	// lanyard.dev/reconcile-requested-at that was last honoured, shortened to
	// 256 bytes.
	//
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// identity is whose credential was last shown to what the object fetches
	// from, whether or not it was accepted. It is absent when no credential
	// was used, or when none was granted.
	//
	// +optional
	Identity *Identity `json:"identity,omitempty"`
}
