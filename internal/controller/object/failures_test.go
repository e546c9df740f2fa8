package object_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// A client may have its own timeout, for example for the headers of an answer. This timeout is not
// reported as spec.timeout, because a longer spec.timeout would not help. In net/http, both
// timeouts give [context.DeadlineExceeded].
func TestOwnTimeoutIsToldFromOthers(t *testing.T) {
	for timeout, passed := range map[time.Duration]bool{30 * time.Minute: false, time.Nanosecond: true} {
		w := newWorld(t)
		w.fails(fmt.Errorf("net/http: timeout awaiting response headers: %w", context.DeadlineExceeded))
		o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Timeout = &metav1.Duration{Duration: timeout} })
		w.reconcile(o)
		got := w.ready(o)
		if strings.Contains(got.Message, "spec.timeout") != passed || (got.Reason == "Slow") != passed {
			t.Errorf("after a timeout of %s: %s, %s", timeout, got.Reason, got.Message)
		}
	}
}

// A failure's message has only visible characters, whoever wrote the text: invisible characters
// become spaces.
func TestFailuresShowAllTheirCharacters(t *testing.T) {
	w := newWorld(t)
	w.fails(errors.New("the registry says txt.\u202eexe\u2066\u200b\r\nReady\x1b[2J"))
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	const want = "the registry says txt. exe    Ready [2J; the controller tries again: if the error stays, look at the controller's log"
	for _, c := range w.Get(o).Status.Conditions {
		if c.Message != want {
			t.Errorf("%s: %q, want %q", c.Type, c.Message, want)
		}
	}
	if told := w.Told(); len(told) != 1 || !strings.HasSuffix(told[0], want) {
		t.Errorf("events %q", told)
	}
}

// A failing server may answer with a new text each time. The new texts cause no events and few
// writes, however short the interval is.
func TestOtherWordsAreNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answers := 0
		w.kind.act = func(*v1alpha1.OCIRepository) (string, error) {
			answers++
			return "", fmt.Errorf("answer %d", answers)
		}
		o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: time.Second} })
		began := time.Now()
		for time.Since(began) < time.Hour {
			time.Sleep(w.reconcile(o).RequeueAfter)
		}
		if answers > 45 {
			t.Errorf("%d attempts in an hour", answers)
		}
		if got := w.Told(); len(got) != 1 {
			t.Errorf("events %q", got)
		}

		before, asked := w.Writes.Statuses, answers
		for range 30 { // the object is reconciled before it is due
			w.reconcile(o)
			time.Sleep(time.Second)
		}
		if w.Writes.Statuses-before > 1 {
			t.Errorf("%d writes in half a minute", w.Writes.Statuses-before)
		}
		time.Sleep(object.RewordPause)
		w.reconcile(o)
		if got := w.Get(o); !strings.Contains(controllertest.Ready(got).Message, fmt.Sprint("answer ", asked+31)) {
			t.Errorf("after a minute: %+v", controllertest.Ready(got))
		}

		// After a request to reconcile, the newest message must be written at once. A failure
		// whose reason differs from the last one must make an event.
		w.Request(o, "now")
		w.reconcile(o)
		if got := w.Get(o); got.Status.LastHandledReconcileAt != "now" || !strings.Contains(controllertest.Ready(got).Message, fmt.Sprint("answer ", asked+32)) {
			t.Errorf("after a request: %+v", got.Status)
		}
		w.Told()
		w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", errOdd }
		w.reconcile(o)
		if got := w.Told(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Odd") || w.ready(o).Reason != "Odd" {
			t.Errorf("another reason: events %q, %+v", got, w.ready(o))
		}
	})
}

// An outdated message is replaced in the end. This happens at once for a stalled object, because it
// is not tried again. It happens within minutes for an object with a long interval.
func TestOtherWordsAreWrittenInTheEnd(t *testing.T) {
	message := func(w *world, o *v1alpha1.OCIRepository) string { return w.ready(o).Message }
	t.Run("stalled", func(t *testing.T) {
		w := newWorld(t)
		annotation := ""
		w.kind.act = func(*v1alpha1.OCIRepository) (string, error) {
			return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Err: fmt.Errorf("%q is no role", annotation)}
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
			w.kind.act = func(*v1alpha1.OCIRepository) (string, error) {
				return "", fmt.Errorf("%w: %s", errUnusable, size)
			}
			o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: 24 * time.Hour} })
			size = "900 MiB"
			w.reconcile(o)
			time.Sleep(10 * time.Second)
			size = "800 MiB"
			// An object is reconciled before the interval has passed if, for example, its account
			// changes.
			again := w.reconcile(o).RequeueAfter
			if got := message(w, o); !strings.Contains(got, "900 MiB") || again > 2*object.RewordPause {
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

// The end of a failure makes an event, even if a change of the spec has ended the failure.
func TestTheEndOfAFailureIsNews(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	w.Told()
	for _, url := range []string{"", "oci://registry.example.com/app", "oci://registry.example.com/app"} {
		w.Edit(o, func(o *v1alpha1.OCIRepository) { o.Spec.URL = url })
		w.reconcile(o)
	}
	if got := w.Told(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning InvalidSpec") || !strings.HasPrefix(got[1], "Normal Succeeded") {
		t.Errorf("events %q", got)
	}
}

// A warning makes an event of its own, with or without other news, and also after a failure.
func TestWarning(t *testing.T) {
	w := newWorld(t)
	w.kind.warning = object.Warning{Reason: "Odd", Note: "look at it"}
	o := w.create("tenant-a", "app", nil)
	var results []error
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) {
		err := results[0]
		results = results[1:]
		return "", err
	}
	w.Told()
	for name, err := range map[string]error{"success": nil, "failure": errOdd} {
		results = []error{err}
		w.reconcile(o)
		if got := w.Told(); !slices.Contains(got, "Warning Odd look at it") {
			t.Errorf("%s: events %q", name, got)
		}
	}
}

// A registry with alternating results causes only a limited number of events.
func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		flip := map[string]int{}
		w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
			flip[o.Name]++
			return "", []error{nil, errOdd, errors.New("even")}[flip[o.Name]%3]
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
		all := w.Told()
		if most := object.NamespaceNotices + seconds/10 + 1; len(all) > most || len(all) < object.NamespaceNotices {
			t.Errorf("%d events of a namespace in twenty seconds, want %d at the most", len(all), most)
		}
		other := w.create("tenant-b", "app", nil)
		for range 60 {
			w.reconcile(other)
			time.Sleep(time.Second)
		}
		if got := len(w.Told()); got < object.ObjectNotices || got > object.ObjectNotices+1 {
			t.Errorf("%d events of one object in a minute", got)
		}
		time.Sleep(2 * time.Hour)
		w.reconcile(other)
		if objects, namespaces := w.Shared.Noticed(); objects > 1 || namespaces > 1 {
			t.Errorf("who is quiet is remembered: %d objects, %d namespaces", objects, namespaces)
		}
	})
}

// A retry cannot make unusable content usable. So the object is reconciled again only after its
// interval, or after the backoff if the backoff is longer.
func TestWhatDoesNotDoIsLookedForAtTheInterval(t *testing.T) {
	w := newWorld(t)
	refused := fmt.Errorf("x: %w", errUnusable)
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", refused }
	o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: 24 * time.Hour} })
	for range 3 {
		if again := w.reconcile(o).RequeueAfter; again < 22*time.Hour {
			t.Errorf("again after %s, want the interval of a day", again)
		}
	}
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", errOdd }
	if again := w.reconcile(o).RequeueAfter; again > time.Minute {
		t.Errorf("another failure: again after %s", again)
	}

	short := w.create("tenant-a", "short", func(o *v1alpha1.OCIRepository) { o.Spec.Interval = metav1.Duration{Duration: time.Second} })
	w.kind.act = func(*v1alpha1.OCIRepository) (string, error) { return "", refused }
	for range 7 {
		w.reconcile(short)
	}
	if again := w.reconcile(short).RequeueAfter; again < object.LastPause*9/10 {
		t.Errorf("with an interval of a second: again after %s", again)
	}
}
