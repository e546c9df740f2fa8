package source

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// TestView checks that the frame sees every field that it looks at, of each kind.
func TestView(t *testing.T) {
	schedule := v1alpha1.Schedule{Suspend: true, Interval: metav1.Duration{Duration: time.Hour}, Timeout: &metav1.Duration{Duration: time.Minute}}
	artifact := &v1alpha1.Artifact{Revision: "v1@sha256:0a"}
	for _, kind := range kinds.All().Where(kinds.Kind.Fetches) {
		o := kind.New().(Object)
		*o.GetSchedule() = *schedule.DeepCopy()
		want := view{View: object.View{Suspend: true, Interval: time.Hour, Timeout: schedule.Timeout}, fields: kind.Fields(o)}
		keeper, keeps := o.(kinds.Keeper)
		if keeps {
			keeper.GetPublication().ExternalArtifact = true
			want.publish, want.Finalizer = true, true
			if got := viewOf(&kind, o); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, nothing fetched: %+v, want %+v", kind.Kind, got, want)
			}
			keeper.GetArtifactStatus().Artifact, want.artifact = artifact.DeepCopy(), artifact
		}
		got := viewOf(&kind, o)
		o.GetSchedule().Timeout.Duration = 0 // the view is a copy
		if keeps {
			keeper.GetArtifactStatus().Artifact.Revision = ""
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", kind.Kind, got, want)
		}
	}
}
