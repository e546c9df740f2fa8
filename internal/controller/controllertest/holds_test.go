package controllertest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

// complaints is a testing.TB that only collects the errors.
type complaints struct {
	testing.TB

	all []string
}

func (*complaints) Helper()                        {}
func (c *complaints) Error(args ...any)            { c.all = append(c.all, fmt.Sprint(args...)) }
func (c *complaints) Fatal(args ...any)            { c.Error(args...); runtime.Goexit() }
func (c *complaints) Fatalf(f string, args ...any) { c.Errorf(f, args...); runtime.Goexit() }
func (c *complaints) Errorf(f string, args ...any) { c.all = append(c.all, fmt.Sprintf(f, args...)) }

func is(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, ObservedGeneration: 3}
}

func TestHolds(t *testing.T) {
	var (
		ready       = is(meta.ConditionReady, metav1.ConditionTrue, meta.ReasonSucceeded)
		failed      = is(meta.ConditionReady, metav1.ConditionFalse, meta.ReasonRegistryRefused)
		unknown     = is(meta.ConditionReady, metav1.ConditionUnknown, meta.ReasonProgressing)
		suspended   = is(meta.ConditionReady, metav1.ConditionFalse, meta.ReasonSuspended)
		reconciling = is(meta.ConditionReconciling, metav1.ConditionTrue, meta.ReasonProgressingWithRetry)
		stalled     = is(meta.ConditionStalled, metav1.ConditionTrue, meta.ReasonInvalidSpec)
		inStorage   = is(meta.ConditionArtifactInStorage, metav1.ConditionTrue, meta.ReasonSucceeded)
		old         = metav1.Condition{Type: meta.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}
		again       = reconcile.Result{RequeueAfter: time.Minute}
	)
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		result     reconcile.Result
		suspended  bool
		stored     bool
		observed   int64
		says       string // part of the error; empty if no rule is broken
	}{
		"ready":                         {[]metav1.Condition{ready, inStorage}, again, false, true, 3, ""},
		"retried":                       {[]metav1.Condition{failed, reconciling}, again, false, false, 3, ""},
		"stalled":                       {[]metav1.Condition{failed, stalled}, reconcile.Result{}, false, false, 3, ""},
		"suspended":                     {[]metav1.Condition{suspended}, reconcile.Result{}, true, false, 3, ""},
		"suspended, not yet published":  {[]metav1.Condition{suspended}, again, true, false, 3, ""},
		"no word of it":                 {nil, again, false, false, 3, "no condition Ready"},
		"undecided":                     {[]metav1.Condition{unknown, reconciling}, again, false, false, 3, "Unknown"},
		"twice":                         {[]metav1.Condition{ready, ready}, again, false, false, 3, "twice"},
		"both":                          {[]metav1.Condition{failed, reconciling, stalled}, again, false, false, 3, "both"},
		"ready and stalled":             {[]metav1.Condition{ready, stalled}, reconcile.Result{}, false, false, 3, "Ready, and"},
		"failed and left":               {[]metav1.Condition{failed}, again, false, false, 3, "neither Reconciling nor Stalled"},
		"stalled and tried again":       {[]metav1.Condition{failed, stalled}, again, false, false, 3, "tried again after"},
		"forgotten":                     {[]metav1.Condition{failed, reconciling}, reconcile.Result{}, false, false, 3, "nor tried again"},
		"ready and forgotten":           {[]metav1.Condition{ready}, reconcile.Result{}, false, false, 3, "nor tried again"},
		"suspended and reconciling":     {[]metav1.Condition{suspended, reconciling}, again, true, false, 3, "suspended, and"},
		"suspended for another reason":  {[]metav1.Condition{failed}, again, true, false, 3, "suspended, and"},
		"a former generation":           {[]metav1.Condition{old}, again, false, false, 3, "speaks of generation 2"},
		"a former generation, observed": {[]metav1.Condition{ready}, again, false, false, 2, "observedGeneration 2"},
		"lost":                          {[]metav1.Condition{ready, inStorage}, again, false, false, 3, "the store says false"},
		"unannounced":                   {[]metav1.Condition{ready}, again, false, true, 3, "the store says true"},
	} {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
		heard := &complaints{}
		view := controllertest.View{
			Status: meta.Status{Conditions: c.conditions, ObservedGeneration: c.observed}, Suspended: c.suspended, Stored: c.stored,
		}
		controllertest.Holds(heard, o, view, c.result)
		if said := strings.Join(heard.all, "\n"); (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: it says %q, want %q", name, said, c.says)
		}
	}
}
