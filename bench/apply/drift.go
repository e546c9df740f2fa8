package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// partOf is a label of all applied objects.
const partOf = "app.kubernetes.io/part-of"

// timeUndo changes a label of each object that the first Kustomization applies. Then it asks for one
// reconciliation of the Kustomization, and returns how long the reconciliation took. Afterwards, each
// object must have its label again.
func (w *world) timeUndo(ctx context.Context, watching client.WithWatch) (time.Duration, error) {
	o := object(w.applyVersion, w.applyKind, 0)
	if err := watching.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return 0, err
	}
	applied, err := inventoryOf(o)
	if err != nil {
		return 0, err
	}
	change := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"changed"}}}`, partOf))
	for _, a := range applied {
		if err := watching.Patch(ctx, a, change); err != nil {
			return 0, err
		}
	}
	took, err := w.reconcile(ctx, watching, o, "undo")
	if err != nil {
		return 0, err
	}
	for _, a := range applied {
		if err := watching.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return 0, err
		}
		if got := a.GetLabels()[partOf]; got != nameOf(0) {
			return 0, fmt.Errorf("%s %s has the label %q after a reconciliation", a.GetKind(), a.GetName(), got)
		}
	}
	return took, nil
}

// inventoryOf returns the objects that the status of an object lists.
func inventoryOf(o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	entries, _, err := unstructured.NestedSlice(o.Object, "status", "inventory", "entries")
	if err != nil {
		return nil, err
	}
	var listed []*unstructured.Unstructured
	for _, e := range entries {
		fields, _ := e.(map[string]any)
		// The text is <namespace>_<name>_<group>_<kind>.
		id, version := fmt.Sprint(fields["id"]), fmt.Sprint(fields["v"])
		parts := strings.Split(id, "_")
		if len(parts) != 4 {
			return nil, fmt.Errorf("the inventory has the entry %q", id)
		}
		applied := &unstructured.Unstructured{}
		applied.SetGroupVersionKind(schema.GroupVersionKind{Group: parts[2], Version: version, Kind: parts[3]})
		applied.SetNamespace(parts[0])
		applied.SetName(parts[1])
		listed = append(listed, applied)
	}
	if len(listed) != objectsPerArtifact {
		return nil, fmt.Errorf("the inventory has %d entries, want %d", len(listed), objectsPerArtifact)
	}
	return listed, nil
}
