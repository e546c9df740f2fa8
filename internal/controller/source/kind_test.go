package source

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestLimit(t *testing.T) {
	duration := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, c := range map[string]struct {
		interval time.Duration
		timeout  *metav1.Duration
		want     time.Duration
		says     string
	}{
		"default":           {time.Minute, nil, time.Minute, ""},
		"shortest":          {time.Second, duration(time.Second), time.Second, ""},
		"longest":           {8760 * time.Hour, duration(30 * time.Minute), 30 * time.Minute, ""},
		"interval missing":  {0, nil, 0, "spec.interval"},
		"interval short":    {time.Millisecond, nil, 0, "spec.interval"},
		"interval long":     {9000 * time.Hour, nil, 0, "spec.interval"},
		"interval negative": {-time.Hour, nil, 0, "spec.interval"},
		"timeout short":     {time.Minute, duration(0), 0, "spec.timeout"},
		"timeout long":      {time.Minute, duration(time.Hour), 0, "spec.timeout"},
	} {
		got, err := View{Interval: metav1.Duration{Duration: c.interval}, Timeout: c.timeout}.limit()
		if got != c.want || (err != nil) != (c.says != "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if err == nil {
			continue
		}
		if f := explain(err, (&still{}).Explain); !f.Stalled || f.Reason != meta.ReasonInvalidSpec {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestRetryNow(t *testing.T) {
	request := func(o *v1alpha1.OCIRepository, value string) {
		o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: value}
	}
	for name, c := range map[string]struct {
		edit func(*v1alpha1.OCIRepository)
		want bool
	}{
		"new object":                {func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration = 0 }, false},
		"new object with a request": {func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration = 0; request(o, "1") }, false},
		"nothing changed":           {func(*v1alpha1.OCIRepository) {}, false},
		"new generation":            {func(o *v1alpha1.OCIRepository) { o.Generation = 8 }, true},
		"request":                   {func(o *v1alpha1.OCIRepository) { request(o, "1") }, true},
		"request that was handled":  {func(o *v1alpha1.OCIRepository) { request(o, "1"); o.Status.LastHandledReconcileAt = "1" }, false},
		"long request that was handled": {func(o *v1alpha1.OCIRepository) {
			request(o, strings.Repeat("x", 9999))
			o.Status.LastHandledReconcileAt = requested(o)
		}, false},
		"waits for its account": {func(o *v1alpha1.OCIRepository) {
			markFailed(o, View{Status: &o.Status.Status}, Failure{Reason: "SubjectNotFound", Stalled: true}, false)
		}, true},
	} {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		o.Status.ObservedGeneration = 7
		c.edit(o)
		if got := retryNow(o, &o.Status.Status); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Suspension wins over nonsense, and nonsense is refused before anybody is asked.
func TestWhatIsDoneFirst(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		edit   func(*v1alpha1.OCIRepository)
		reason string
	}{
		"fetched":            {func(*v1alpha1.OCIRepository) {}, meta.ReasonSucceeded},
		"suspended-nonsense": {func(o *v1alpha1.OCIRepository) { o.Spec.Suspend, o.Spec.URL = true, "" }, meta.ReasonSuspended},
		"nonsense":           {func(o *v1alpha1.OCIRepository) { o.Spec.URL, o.Spec.ServiceAccountName = "", "" }, meta.ReasonInvalidSpec},
		"nobody":             {func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" }, "NotGranted"},
	} {
		o := w.create("tenant-a", name, c.edit)
		w.reconcile(o)
		if got := ready(&w.get(o).Status.Status); got.Reason != c.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(w.kind.fetched) != 1 || w.kind.fetched[0] != "fetched" {
		t.Errorf("fetched %v", w.kind.fetched)
	}
}
