package object

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// The functions below are the only writers of the conditions Ready, Reconciling and Stalled. Each
// leaves the object in one state of kstatus. The condition Ready is always there. Reconciling and
// Stalled are there only while they are true, and never both.

// markProgressing sets the conditions while a generation is worked on for the first time.
func markProgressing(o Object) {
	message := fmt.Sprintf("working on generation %d of the spec", o.GetGeneration())
	SetCondition(o, meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing, message)
	SetCondition(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressing, message)
	RemoveCondition(o, meta.ConditionStalled)
}

// markSuspended sets the conditions of a suspended object. Ready is true if the status offers an
// earlier result.
func markSuspended(o Object, found string) {
	if found != "" {
		settle(o, metav1.ConditionTrue, meta.ReasonSuspended,
			"suspended; the last result stays: "+found+"; set spec.suspend to false to resume")
	} else {
		settle(o, metav1.ConditionFalse, meta.ReasonSuspended,
			"suspended, and there is no earlier result; set spec.suspend to false to resume")
	}
}

// markFailed sets the conditions of a failure, or of waiting. An earlier result stays in the status.
func markFailed(o Object, f Failure) {
	ready := metav1.ConditionFalse
	if f.Waiting {
		ready = metav1.ConditionUnknown
	}
	SetCondition(o, meta.ConditionReady, ready, f.Reason, f.Message)
	switch {
	case f.Waiting:
		SetCondition(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressing, f.Message)
		RemoveCondition(o, meta.ConditionStalled)
	case f.Stalled:
		SetCondition(o, meta.ConditionStalled, metav1.ConditionTrue, f.Reason, f.Message)
		RemoveCondition(o, meta.ConditionReconciling)
	default:
		SetCondition(o, meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry, f.Message)
		RemoveCondition(o, meta.ConditionStalled)
	}
	o.GetStatus().ObservedGeneration = o.GetGeneration()
}

// settle sets the conditions of an object that needs no work now: only Ready stays.
func settle(o Object, ready metav1.ConditionStatus, reason, message string) {
	SetCondition(o, meta.ConditionReady, ready, reason, message)
	RemoveCondition(o, meta.ConditionReconciling)
	RemoveCondition(o, meta.ConditionStalled)
	o.GetStatus().ObservedGeneration = o.GetGeneration()
}

// SetCondition sets a condition for the object's present generation. This package sets Ready,
// Reconciling and Stalled for all kinds. A kind sets the conditions that only this kind has.
func SetCondition(o Object, kind string, value metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&o.GetStatus().Conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: clip(message, maxMessage), ObservedGeneration: o.GetGeneration(),
	})
}

// RemoveCondition removes a condition that does not apply.
func RemoveCondition(o Object, kind string) {
	apimeta.RemoveStatusCondition(&o.GetStatus().Conditions, kind)
}

// ready returns the condition Ready, or the zero value if there is none.
func ready(status *meta.Status) metav1.Condition {
	if c := apimeta.FindStatusCondition(status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// reworded reports whether two versions of an object are equal except for the messages of
// conditions.
func reworded[O Object](before, o O) bool {
	before, o = clone(before), clone(o)
	for _, status := range []*meta.Status{before.GetStatus(), o.GetStatus()} {
		for i := range status.Conditions {
			status.Conditions[i].Message = ""
		}
	}
	return equality.Semantic.DeepEqual(before, o)
}
