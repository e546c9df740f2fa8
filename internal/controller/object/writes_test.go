//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package object_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// run reconciles the objects for the duration d, each object at the time that its last result asked
// for.
func (w *world) run(objects []*v1alpha1.OCIRepository, d time.Duration) {
	w.T.Helper()
	next := make([]time.Time, len(objects))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		for i, o := range objects {
			if !time.Now().Before(next[i]) {
				next[i] = time.Now().Add(w.Attempt(o).RequeueAfter)
			}
		}
	}
}

// everySecond creates a number of objects in a namespace. The spec.interval of each object is one
// second.
func (w *world) everySecond(namespace string, number int) (objects []*v1alpha1.OCIRepository) {
	w.T.Helper()
	for i := range number {
		objects = append(objects, w.create(namespace, fmt.Sprint("app-", i), func(o *v1alpha1.OCIRepository) {
			o.Spec.Interval = metav1.Duration{Duration: time.Second}
		}))
	}
	return objects
}

// A server that answers with new content each second does not cause a status write each second.
// While an object's status may not be written, no content is fetched for the object.
func TestSuccessesThatChangeAreBounded(t *testing.T) {
	const minutes = 4
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answers := 0
		w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
			answers++
			o.Status.ObservedIgnore = new(fmt.Sprint("answer ", answers))
			if answers%3 == 0 {
				// Every third attempt fails. The limit on status writes must hold even so.
				return "", errOdd
			}
			return "", nil
		}
		one := w.everySecond("tenant-a", 1)
		w.run(one, minutes*time.Minute)
		if most := 1 + object.ObjectWrites + minutes*60/10; answers > most || answers < most/2 || w.Writes.Statuses > answers {
			t.Errorf("one object: %d answers and %d writes in %d minutes, want %d at the most", answers, w.Writes.Statuses, minutes, most)
		}
		time.Sleep(time.Hour)

		before := w.Writes.Statuses
		many := w.everySecond("tenant-b", 60)
		w.run(many, minutes*time.Minute)
		wrote := w.Writes.Statuses - before
		if most := len(many) + object.NamespaceWrites + minutes*60; wrote > most || wrote < most/2 {
			t.Errorf("a namespace: %d writes in %d minutes, want %d at the most", wrote, minutes, most)
		}

		// Objects of another namespace do not wait, and neither do changed objects, or objects
		// whose reconciliation was requested.
		acted := answers
		w.Attempt(one[0])
		w.Edit(many[0], func(o *v1alpha1.OCIRepository) { o.Spec.Interval.Duration = time.Hour })
		w.Attempt(many[0])
		w.Request(many[1], "now")
		w.Attempt(many[1])
		if answers != acted+3 {
			t.Errorf("%d of 3 objects were reconciled at once", answers-acted)
		}
		time.Sleep(2 * time.Hour)
		w.Attempt(one[0])
		if objects, namespaces := w.Shared.Wrote(); objects > 1 || namespaces > 1 {
			t.Errorf("who is quiet is remembered: %d objects, %d namespaces", objects, namespaces)
		}
	})
}

// The larger an object is, the less often its status may be written. It does not matter which part
// of the object is large.
func TestLargeObjectsAreWrittenLess(t *testing.T) {
	const minutes, large = 30, 250 << 10
	for name, enlarge := range map[string]func(o *v1alpha1.OCIRepository){
		"annotation": func(o *v1alpha1.OCIRepository) { o.Annotations = map[string]string{"note": strings.Repeat("x", large)} },
		"owners": func(o *v1alpha1.OCIRepository) {
			for i := range large / 250 {
				o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
					APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 200), UID: types.UID(fmt.Sprint(i)),
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				answers := 0
				w.kind.act = func(o *v1alpha1.OCIRepository) (string, error) {
					answers++
					o.Status.ObservedIgnore = new(fmt.Sprint("answer ", answers))
					return "", nil
				}
				o := w.create("tenant-a", "app", func(o *v1alpha1.OCIRepository) {
					o.Spec.Interval = metav1.Duration{Duration: time.Second}
					enlarge(o)
				})
				w.run([]*v1alpha1.OCIRepository{o}, minutes*time.Minute)
				// The object has about 250 KiB, so each write counts as 32 writes of a small
				// object. One small write is allowed every 10 seconds, and so one large write every
				// 320 seconds. Two other writes are allowed at the start: the write of the new
				// object, and one more.
				if most := 1 + 1 + minutes*60/320; answers > most || answers < most/2 || w.Writes.Statuses > answers {
					t.Errorf("%d answers and %d writes in %d minutes, want %d at the most", answers, w.Writes.Statuses, minutes, most)
				}
			})
		})
	}
}

// The limit on writes puts off the reconciliation of an object whose status changes often. If the
// status does not change, nothing is written. The object is then always reconciled at its interval.
func TestWithoutChangesNothingIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(w.everySecond("tenant-a", 1), 10*time.Minute)
		if n := len(w.kind.acted); n < 300 || w.Writes.Statuses != 1 {
			t.Errorf("reconciled %d times in ten minutes, with %d writes", n, w.Writes.Statuses)
		}
	})
}

// A patch of the status contains no metadata or spec that a tenant wrote.
func TestStatusPatchesHaveOnlyTheStatus(t *testing.T) {
	w := newWorld(t)
	var sent []map[string]json.RawMessage
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			data, err := p.Data(o)
			if err != nil {
				return err
			}
			var patch map[string]json.RawMessage
			if err := json.Unmarshal(data, &patch); err != nil {
				return err
			}
			sent = append(sent, patch)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	w.fails(nil, errOdd)
	o := w.create("tenant-a", "app", burdened)
	for range 2 {
		w.reconcile(o)
	}
	if len(sent) != 2 {
		t.Fatalf("%d patches", len(sent))
	}
	for _, patch := range sent {
		var metadata map[string]string
		if err := json.Unmarshal(patch["metadata"], &metadata); err != nil || len(metadata) != 1 || metadata["resourceVersion"] == "" {
			t.Errorf("metadata %s, %v", patch["metadata"], err)
		}
		if keys := slices.Sorted(maps.Keys(patch)); !slices.Equal(keys, []string{"metadata", "status"}) {
			t.Errorf("a patch of %v", keys)
		}
	}
}

// The API server may carry out a write whose request is cut off. In that case, the cache still has
// the status before the write. The controller must not take the old status for the present status.
func TestStatusThatMemoryDoesNotShowYet(t *testing.T) {
	w := newWorld(t)
	o := w.create("tenant-a", "app", nil)
	w.reconcile(o)
	before, behind, cut := w.Get(o), false, true
	w.Shared.Client = interceptor.NewClient(w.Kube, interceptor.Funcs{
		Get: remembering(before, &behind),
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if cut {
				cut, behind = false, true
				return context.Canceled
			}
			return err
		},
	})
	w.fails(errOdd)
	if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a write that is cut off: %v", err)
	}
	w.kind.act = nil
	if result := w.Attempt(o); result.RequeueAfter == 0 || result.RequeueAfter > 2*time.Second {
		t.Errorf("with a memory that is behind: again after %s", result.RequeueAfter)
	}
	behind = false
	w.reconcile(o)
	if got := w.ready(o); got.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", got)
	}
}
