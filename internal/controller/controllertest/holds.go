package controllertest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// View has the fields of an object that [Holds] checks. Kinds have these fields in different
// places.
type View struct {
	// Status is the object's status.
	Status meta.Status
	// Suspended is spec.suspend.
	Suspended bool
	// Stored says that the store has the complete artifact that the status names. It is false for
	// kinds without artifacts.
	Stored bool
}

// Holds checks an object after a reconciliation that returned this result. The conditions must
// follow kstatus, and have the object's generation. An object that waits for a retry must be queued
// again. The status must agree with the store.
func Holds(tb testing.TB, o client.Object, view View, result reconcile.Result) {
	tb.Helper()
	conditions := map[string]metav1.Condition{}
	for _, c := range view.Status.Conditions {
		if _, twice := conditions[c.Type]; twice {
			tb.Errorf("condition %s is there twice", c.Type)
		}
		conditions[c.Type] = c
		if c.ObservedGeneration != o.GetGeneration() {
			tb.Errorf("condition %s speaks of generation %d, the object is of %d", c.Type, c.ObservedGeneration, o.GetGeneration())
		}
	}
	if observed := view.Status.ObservedGeneration; observed != o.GetGeneration() {
		tb.Errorf("observedGeneration %d, want %d", observed, o.GetGeneration())
	}
	if _, inStorage := conditions[meta.ConditionArtifactInStorage]; inStorage != view.Stored {
		tb.Errorf("ArtifactInStorage is %v, the store says %v", inStorage, view.Stored)
	}
	_, reconciling := conditions[meta.ConditionReconciling]
	_, stalled := conditions[meta.ConditionStalled]
	ready := conditions[meta.ConditionReady]
	switch {
	case ready.Status == "":
		tb.Errorf("no condition Ready: %+v", view.Status.Conditions)
	case ready.Status == metav1.ConditionUnknown && (conditions[meta.ConditionReconciling].Reason != meta.ReasonProgressing || result.RequeueAfter <= 0):
		tb.Errorf("Ready is Unknown after a reconciliation, and nothing is awaited: %+v", ready)
	case reconciling && stalled:
		tb.Error("both Reconciling and Stalled")
	case ready.Status == metav1.ConditionTrue && (reconciling || stalled):
		tb.Error("Ready, and Reconciling or Stalled")
	case view.Suspended && (reconciling || stalled || ready.Reason != meta.ReasonSuspended):
		tb.Errorf("suspended, and the conditions are %+v", view.Status.Conditions)
	case ready.Status == metav1.ConditionFalse && !view.Suspended && !reconciling && !stalled:
		tb.Error("not Ready, and neither Reconciling nor Stalled")
	case stalled && result.RequeueAfter != 0:
		tb.Errorf("stalled, and tried again after %s", result.RequeueAfter)
	case !stalled && !view.Suspended && result.RequeueAfter <= 0:
		tb.Error("neither stalled nor tried again")
	}
}
