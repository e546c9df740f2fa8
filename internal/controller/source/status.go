package source

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// The functions below are the only writers of conditions. Each leaves the object in one state of kstatus: Ready is always
// there, Reconciling and Stalled only while they hold and never both.

// markProgressing says that a generation is being worked on for the first time.
func markProgressing(o client.Object, status *meta.Status) {
	message := fmt.Sprintf("fetching generation %d of the spec", o.GetGeneration())
	set(o, status, meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing, message)
	set(o, status, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressing, message)
	unset(status, meta.ConditionStalled)
}

// markSuspended says that nothing is done. Ready tells whether there is something to consume.
func markSuspended(o client.Object, v View, stored bool) {
	markStored(o, v, stored)
	if v.Found != "" && (v.Artifact == nil || stored) {
		set(o, v.Status, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSuspended,
			"suspended; what was found last stays: "+v.Found+"; set spec.suspend to false to go on")
	} else {
		set(o, v.Status, meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended,
			"suspended, and there is nothing from before; set spec.suspend to false to fetch it")
	}
	unset(v.Status, meta.ConditionReconciling)
	unset(v.Status, meta.ConditionStalled)
	v.Status.ObservedGeneration = o.GetGeneration()
}

// markFailed says what went wrong. What was fetched before stays.
func markFailed(o client.Object, v View, f Failure, stored bool) {
	markStored(o, v, stored)
	set(o, v.Status, meta.ConditionReady, metav1.ConditionFalse, f.Reason, f.Message)
	if f.Stalled {
		set(o, v.Status, meta.ConditionStalled, metav1.ConditionTrue, f.Reason, f.Message)
		unset(v.Status, meta.ConditionReconciling)
	} else {
		set(o, v.Status, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry, f.Message)
		unset(v.Status, meta.ConditionStalled)
	}
	v.Status.ObservedGeneration = o.GetGeneration()
}

// markReady says that the status has what the spec asks for.
func markReady(o client.Object, v View) {
	markStored(o, v, v.Artifact != nil)
	set(o, v.Status, meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded, v.Found)
	unset(v.Status, meta.ConditionReconciling)
	unset(v.Status, meta.ConditionStalled)
	v.Status.ObservedGeneration = o.GetGeneration()
}

func markStored(o client.Object, v View, stored bool) {
	if stored {
		set(o, v.Status, meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded, v.Found)
	} else {
		unset(v.Status, meta.ConditionArtifactInStorage)
	}
}

func set(o client.Object, status *meta.Status, kind string, value metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: clip(message, maxMessage), ObservedGeneration: o.GetGeneration(),
	})
}

func unset(status *meta.Status, kind string) {
	apimeta.RemoveStatusCondition(&status.Conditions, kind)
}

// ready is the condition Ready, or its zero.
func ready(status *meta.Status) metav1.Condition {
	if c := apimeta.FindStatusCondition(status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}
