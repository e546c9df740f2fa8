package object

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestRetryNow(t *testing.T) {
	request := func(o *v1alpha1.OCIRepository, value string) {
		o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: value}
	}
	for name, c := range map[string]struct {
		edit func(*v1alpha1.OCIRepository)
		want bool
	}{
		"new object":                {func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration = 0 }, false},
		"new object by default":     {func(o *v1alpha1.OCIRepository) { o.Status.ObservedGeneration = -1 }, false},
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
			markFailed(o, Failure{Reason: "SubjectNotFound", Stalled: true})
		}, true},
	} {
		o := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		o.Status.ObservedGeneration = 7
		c.edit(o)
		if got := RetryNow(o); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRequestsOfBothNames checks that Flux's annotation requests a reconciliation too. If an object
// has both annotations, the later request counts.
func TestRequestsOfBothNames(t *testing.T) {
	const early, late = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00.123456789+01:00"
	for name, c := range map[string]struct{ own, flux, want string }{
		"none":                       {},
		"ours":                       {own: "x", want: "x"},
		"Flux's":                     {flux: "y", want: "y"},
		"Flux's is later":            {own: early, flux: late, want: late},
		"ours is later":              {own: late, flux: early, want: late},
		"ours in seconds is later":   {own: "1767225601", flux: early, want: "1767225601"},
		"ours in seconds is earlier": {own: "1767225599", flux: early, want: early},
		"ours is no time":            {own: "x", flux: early, want: early},
		"Flux's is no time":          {own: early, flux: "y", want: early},
		"neither is a time":          {own: "x", flux: "y", want: "x"},
	} {
		o := &v1alpha1.OCIRepository{}
		o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: c.own, meta.FluxReconcileRequestedAnnotation: c.flux}
		if got := requested(o); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		remembered, err := Remember(o.DeepCopy())
		if err != nil || requested(remembered.(*v1alpha1.OCIRepository)) != c.want {
			t.Errorf("%s, remembered: %v, %v", name, remembered, err)
		}
	}
}
