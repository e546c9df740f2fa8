package stage

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AwaitObjects waits until n objects of the list's type fulfill a condition together. AwaitObjects
// watches the objects: repeated lists would need as much CPU as a controller. After some time, the
// API server ends the watch, and AwaitObjects starts a new watch.
func (w *World) AwaitObjects(
	ctx context.Context, c client.WithWatch, list *unstructured.UnstructuredList, n int,
	fulfills func(*unstructured.Unstructured) bool,
) error {
	return w.Await(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		watcher, err := c.Watch(ctx, list) // the watch sends the present objects first
		if err != nil {
			return err
		}
		defer watcher.Stop()
		good := map[string]bool{}
		for event := range watcher.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return apierrors.FromObject(event.Object)
			}
			name := o.GetNamespace() + "/" + o.GetName()
			if delete(good, name); event.Type != watch.Deleted && fulfills(o) {
				good[name] = true
			}
			if len(good) == n {
				return nil
			}
		}
		return fmt.Errorf("%d of %d objects are as awaited", len(good), n)
	})
}

// IsReady reports whether an object's condition Ready is true.
func IsReady(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == "Ready" && fields["status"] == "True"
	})
}
