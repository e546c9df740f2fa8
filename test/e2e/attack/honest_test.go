package attack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

const (
	// honestNamespace is the namespace of the demonstration's tenant-a.
	honestNamespace = "tenant-a"
	// honestPause is the pause between two reconciliations of an honest object.
	honestPause = 400 * time.Millisecond
)

// honest is the honest tenant. It requests reconciliations of its objects all the time, and watches
// the objects.
type honest struct {
	mu      sync.Mutex // guards the fields below
	asked   map[types.UID]asked
	faults  []string                    // what went wrong since the last call of take
	rounds  []span                      // reconciliations since the last call of take
	objects map[types.UID]client.Object // last known state of each object, by UID
}

// asked is a request for a reconciliation.
type asked struct {
	value string
	at    time.Time
	done  chan struct{}
}

// startHonest starts the honest tenant's work. The work ends with the test.
func startHonest(t *testing.T) *honest {
	t.Helper()
	h := &honest{asked: map[types.UID]asked{}, objects: map[types.UID]client.Object{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for _, kind := range kinds.All().Where(kinds.Kind.KeepsArtifacts) {
		list := kind.NewList()
		must(t, "list the honest objects", objects.List(ctx, list, client.InNamespace(honestNamespace)))
		watch, err := objects.Watch(ctx, list, client.InNamespace(honestNamespace))
		must(t, "watch the honest objects", err)
		running.Go(func() {
			defer watch.Stop()
			for e := range watch.ResultChan() {
				if o, ok := e.Object.(report.Resource); ok {
					h.see(o)
				}
			}
			if ctx.Err() == nil {
				h.fault("the watch of the honest objects ended")
			}
		})
		items, err := apimeta.ExtractList(list)
		must(t, "list the honest objects", err)
		for _, item := range items {
			o := item.(report.Resource) // cannot fail: all objects of Lanyard's kinds implement Resource
			h.see(o)
			running.Go(func() { h.work(ctx, o) })
		}
	}
	if len(h.objects) < 3 {
		t.Fatalf("the honest tenant has %d objects", len(h.objects))
	}
	return h
}

// see records the current state of an object.
func (h *honest) see(o report.Resource) {
	ready := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		h.fault(fmt.Sprintf("the honest tenant's %s is not Ready: %+v", o.GetName(), ready))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[o.GetUID()] = o
	if a, ok := h.asked[o.GetUID()]; ok && o.GetStatus().LastHandledReconcileAt == a.value {
		delete(h.asked, o.GetUID())
		h.rounds = append(h.rounds, span{a.at, time.Now()})
		close(a.done)
	}
}

// work asks the controller to reconcile the object, waits for the result, and repeats this until
// ctx ends. If a request fails, or a reconciliation takes longer than patience, work records a
// fault.
func (h *honest) work(ctx context.Context, o report.Resource) {
	for ctx.Err() == nil {
		a := asked{value: time.Now().UTC().Format(time.RFC3339Nano), at: time.Now(), done: make(chan struct{})}
		h.mu.Lock()
		h.asked[o.GetUID()] = a
		h.mu.Unlock()
		if err := request(ctx, o, a.value); err != nil && ctx.Err() == nil {
			h.fault("the honest tenant asks for a reconciliation: " + err.Error())
		}
		select {
		case <-a.done:
		case <-time.After(patience):
			h.fault(fmt.Sprintf("the honest tenant's %s is not reconciled within %s", o.GetName(), patience))
		case <-ctx.Done():
		}
		select {
		case <-time.After(honestPause):
		case <-ctx.Done():
		}
	}
}

// request asks the controller to reconcile an object. The value distinguishes this request from
// others.
func request(ctx context.Context, o client.Object, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestedAnnotation, value)
	// The conversion cannot fail: the copy of a client.Object is a client.Object too.
	return objects.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch))
}

func (h *honest) fault(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, text)
}

// take returns the reconciliations and the faults since the last call. Reconciliations that still
// run are included.
func (h *honest) take() ([]span, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for _, text := range h.faults {
		err = errors.Join(err, errors.New(text))
	}
	rounds := h.rounds
	for _, a := range h.asked {
		rounds = append(rounds, span{a.at, time.Now()})
	}
	h.rounds, h.faults = nil, nil
	return rounds, err
}

// digests returns the digests of the honest tenant's artifacts.
func (h *honest) digests() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]bool{}
	for _, o := range h.objects {
		if a := artifact(o); a != nil {
			all[a.Digest] = true
		}
	}
	return all
}

// artifact returns the artifact in an object's status, or nil.
func artifact(o client.Object) *v1alpha1.Artifact {
	if keeper, ok := o.(kinds.Keeper); ok {
		return keeper.GetArtifactStatus().Artifact
	}
	return nil
}
