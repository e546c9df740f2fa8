package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

func TestRepeatedFailuresBackOff(t *testing.T) {
	var f failures
	app := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	var got []time.Duration
	for range 9 {
		got = append(got, f.next(app))
	}
	if got[0] != time.Second || got[1] != 2*time.Second || got[6] != 64*time.Second || got[7] != 2*time.Minute || got[8] != 2*time.Minute {
		t.Errorf("pauses %v", got)
	}
	f.over(app)
	if first := f.next(app); first != time.Second {
		t.Errorf("after a success: %s", first)
	}
}

// counting has the world count what is written into statuses.
func (w *world) counting() (writes *int) {
	writes = new(int)
	w.shared.Client = interceptor.NewClient(w.kube, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			*writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	return writes
}

// told are the events since the last call.
func (w *world) told() (all []string) {
	recorder := w.shared.Recorder.(*events.FakeRecorder)
	for len(recorder.Events) > 0 {
		all = append(all, <-recorder.Events)
	}
	return all
}

// Who answers in other words each time makes neither events nor writes of it, however short the interval is.
func TestOtherWordsAreNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		writes, answers := w.counting(), 0
		w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error {
			answers++
			return fmt.Errorf("answer %d", answers)
		}
		o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: time.Second} })
		began := time.Now()
		for time.Since(began) < time.Hour {
			time.Sleep(w.reconcile(o).RequeueAfter)
		}
		if answers > 45 {
			t.Errorf("%d attempts in an hour", answers)
		}
		if got := w.told(); len(got) != 1 {
			t.Errorf("events %q", got)
		}

		before, asked := *writes, answers
		for range 30 { // whatever wakes it
			w.reconcile(o)
			time.Sleep(time.Second)
		}
		if *writes-before > 1 {
			t.Errorf("%d writes in half a minute", *writes-before)
		}
		time.Sleep(rewordPause)
		w.reconcile(o)
		if got := w.get(o); !strings.Contains(ready(&got.Status.Status).Message, fmt.Sprint("answer ", asked+31)) {
			t.Errorf("after a minute: %+v", ready(&got.Status.Status))
		}

		// Whoever asks gets the answer, and another reason is news.
		got := w.get(o)
		got.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: "now"}
		if err := w.kube.Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		w.reconcile(o)
		if got := w.get(o); got.Status.LastHandledReconcileAt != "now" || !strings.Contains(ready(&got.Status.Status).Message, fmt.Sprint("answer ", asked+32)) {
			t.Errorf("after a request: %+v", got.Status)
		}
		w.told()
		w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
		w.reconcile(o)
		if got := w.told(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Odd") || ready(&w.get(o).Status.Status).Reason != "Odd" {
			t.Errorf("another reason: events %q, %+v", got, ready(&w.get(o).Status.Status))
		}
	})
}

// No words stay that are not true any more: nobody tries a stalled object again, and one with a long interval not soon.
func TestOtherWordsAreWrittenInTheEnd(t *testing.T) {
	message := func(w *world, o *v1alpha1.OCIRepository) string { return ready(&w.get(o).Status.Status).Message }
	t.Run("stalled", func(t *testing.T) {
		w := newWorld(t)
		annotation := ""
		w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error {
			return &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Err: fmt.Errorf("%q is no role", annotation)}
		}
		o := w.create("tenant-a", "app", nil)
		for _, annotation = range []string{"rolle/a", "role:a"} {
			result := w.reconcile(o)
			if got := message(w, o); result.RequeueAfter != 0 || !strings.Contains(got, annotation) {
				t.Errorf("annotated with %s: %q, again after %s", annotation, got, result.RequeueAfter)
			}
		}
	})
	t.Run("at the interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			size := ""
			w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error {
				return &archive.Error{Reason: archive.ReasonTooLarge, Err: errors.New(size)}
			}
			o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: 24 * time.Hour} })
			size = "900 MiB"
			w.reconcile(o)
			time.Sleep(10 * time.Second)
			size = "800 MiB"
			again := w.reconcile(o).RequeueAfter // its account has changed
			if got := message(w, o); !strings.Contains(got, "900 MiB") || again > 2*rewordPause {
				t.Errorf("within a minute: %q, again after %s", got, again)
			}
			time.Sleep(again)
			again = w.reconcile(o).RequeueAfter
			if got := message(w, o); !strings.Contains(got, "800 MiB") || again < 22*time.Hour {
				t.Errorf("later: %q, again after %s", got, again)
			}
		})
	})
}

// Who was told of a failure is told of its end, also if it was the spec that had to change.
func TestTheEndOfAFailureIsNews(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.told()
	for _, url := range []string{"", "oci://registry.example.com/app", "oci://registry.example.com/app"} {
		got := w.get(o)
		got.Spec.URL, got.Generation = url, got.Generation+1
		if err := w.kube.Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		w.reconcile(o)
	}
	if got := w.told(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning InvalidSpec") || !strings.HasPrefix(got[1], "Normal Succeeded") {
		t.Errorf("events %q", got)
	}
}

// A registry that is now this, now that makes events, and not without end.
func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shared.Recorder = events.NewFakeRecorder(10_000)
		flip := map[string]int{}
		w.kind.fetch = func(o *v1alpha1.OCIRepository, _ Call) error {
			flip[o.Name]++
			return []error{nil, errOdd, errors.New("even")}[flip[o.Name]%3]
		}
		var objects []*v1alpha1.OCIRepository
		for i := range 30 {
			objects = append(objects, w.create("tenant-a", fmt.Sprint("app-", i), nil))
		}
		const seconds = 20
		for range seconds {
			for _, o := range objects {
				w.reconcile(o)
			}
			time.Sleep(time.Second)
		}
		all := w.told()
		if most := namespaceNotices + seconds/10 + 1; len(all) > most || len(all) < namespaceNotices {
			t.Errorf("%d events of a namespace in twenty seconds, want %d at the most", len(all), most)
		}
		other := w.create("tenant-b", "app", nil)
		for range 60 {
			w.reconcile(other)
			time.Sleep(time.Second)
		}
		if got := len(w.told()); got < objectNotices || got > objectNotices+1 {
			t.Errorf("%d events of one object in a minute", got)
		}
		time.Sleep(2 * time.Hour)
		if w.reconcile(other); len(w.shared.notices.objects) > 1 || len(w.shared.notices.namespaces) > 1 {
			t.Errorf("who is quiet is remembered: %v", w.shared.notices.objects)
		}
	})
}

// What a retry cannot heal is fetched again no more often than what is well, and at once when somebody asks.
func TestWhatDoesNotDoIsLookedForAtTheInterval(t *testing.T) {
	w := newWorld(t)
	refused := fmt.Errorf("x: %w", &archive.Error{Reason: archive.ReasonTooLarge, Err: errors.New("900 MiB")})
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return refused }
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: 24 * time.Hour} })
	for range 3 {
		if again := w.reconcile(o).RequeueAfter; again < 22*time.Hour {
			t.Errorf("again after %s, want the interval of a day", again)
		}
	}
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
	if again := w.reconcile(o).RequeueAfter; again > time.Minute {
		t.Errorf("another failure: again after %s", again)
	}

	short := w.create("tenant-a", "short", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: time.Second} })
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return refused }
	for range 7 {
		w.reconcile(short)
	}
	if again := w.reconcile(short).RequeueAfter; again < lastPause*9/10 {
		t.Errorf("with an interval of a second: again after %s", again)
	}
}

// A pause that the other side asks for is not cut short.
func TestAPauseIsKept(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	for range 100 {
		if got := w.r.pause(o, Failure{RetryAfter: time.Hour}); got != time.Hour {
			t.Fatalf("again after %s, asked for was an hour", got)
		}
	}
}
