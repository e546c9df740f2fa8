package ocirepository

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// The functions below are the only writers of conditions. Each leaves the object in one state of kstatus: Ready is always
// there, Reconciling and Stalled only while they hold and never both.

// markProgressing says that a generation is being worked on for the first time.
func markProgressing(o *v1alpha1.OCIRepository) {
	message := fmt.Sprintf("fetching generation %d of the spec", o.Generation)
	set(o, meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing, message)
	set(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressing, message)
	unset(o, meta.ConditionStalled)
}

// markSuspended says that nothing is done. Ready tells whether there is something to consume.
func markSuspended(o *v1alpha1.OCIRepository, stored bool) {
	if markStored(o, stored); stored {
		set(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSuspended,
			fmt.Sprintf("suspended; revision %s stays served; set spec.suspend to false to go on", o.Status.Artifact.Revision))
	} else {
		set(o, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended,
			"suspended, and no artifact is in the store; set spec.suspend to false to fetch it")
	}
	unset(o, meta.ConditionReconciling)
	unset(o, meta.ConditionStalled)
	o.Status.ObservedGeneration = o.Generation
}

// markFailed says what went wrong. What was fetched before stays.
func markFailed(o *v1alpha1.OCIRepository, f failure, stored bool) {
	markStored(o, stored)
	set(o, meta.ConditionReady, metav1.ConditionFalse, f.reason, f.message)
	if f.stalled {
		set(o, meta.ConditionStalled, metav1.ConditionTrue, f.reason, f.message)
		unset(o, meta.ConditionReconciling)
	} else {
		set(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry, f.message)
		unset(o, meta.ConditionStalled)
	}
	o.Status.ObservedGeneration = o.Generation
}

// markReady says that the artifact in the status is what the spec asks for.
func markReady(o *v1alpha1.OCIRepository) {
	markStored(o, true)
	set(o, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, "stored artifact for revision "+o.Status.Artifact.Revision)
	unset(o, meta.ConditionReconciling)
	unset(o, meta.ConditionStalled)
	o.Status.ObservedGeneration = o.Generation
	o.Status.ObservedIgnore = o.Spec.Ignore
	o.Status.ObservedLayerSelector = o.Spec.LayerSelector
}

func markStored(o *v1alpha1.OCIRepository, stored bool) {
	if stored {
		set(o, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, "stored artifact for revision "+o.Status.Artifact.Revision)
	} else {
		unset(o, meta.ConditionArtifactInStorage)
	}
}

func set(o *v1alpha1.OCIRepository, kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: o.Generation,
	})
}

func unset(o *v1alpha1.OCIRepository, kind string) {
	apimeta.RemoveStatusCondition(&o.Status.Conditions, kind)
}

// ready is the condition Ready, or its zero.
func ready(o *v1alpha1.OCIRepository) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}
