package tenant_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

func TestBounds(t *testing.T) {
	duration := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, c := range map[string]struct {
		interval time.Duration
		timeout  *metav1.Duration
		says     string // start of the error; empty if there is none
	}{
		"default":           {time.Minute, nil, ""},
		"shortest":          {time.Second, duration(time.Second), ""},
		"longest":           {8760 * time.Hour, duration(30 * time.Minute), ""},
		"interval missing":  {0, nil, "spec.interval"},
		"interval short":    {time.Millisecond, nil, "spec.interval"},
		"interval long":     {9000 * time.Hour, nil, "spec.interval"},
		"interval negative": {-time.Hour, nil, "spec.interval"},
		"timeout short":     {time.Minute, duration(0), "spec.timeout"},
		"timeout long":      {time.Minute, duration(time.Hour), "spec.timeout"},
	} {
		err := tenant.CheckBounds(object.View{Interval: c.interval, Timeout: c.timeout})
		if (err != nil) != (c.says != "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			continue
		}
		if f := object.Explain(err, func(error) (object.Failure, bool) { return object.Failure{}, false }); !f.Stalled || f.Reason != meta.ReasonInvalidSpec {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestView checks for each kind that the view has every field of the schedule, and that the view is
// a copy.
func TestView(t *testing.T) {
	schedule := v1alpha1.Schedule{Suspend: true, Interval: metav1.Duration{Duration: time.Hour}, Timeout: &metav1.Duration{Duration: time.Minute}}
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		o := kind.New().(kinds.Tenant)
		*o.GetSchedule() = *schedule.DeepCopy()
		o.GetAccess().WorkloadIdentityName = "runner"
		want := object.View{Suspend: true, Interval: time.Hour, Timeout: schedule.Timeout, Renewable: true}
		got := tenant.Toolkit[kinds.Tenant]{Entry: kind}.View(o)
		o.GetSchedule().Timeout.Duration = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", kind.Kind, got, want)
		}
	}
}
