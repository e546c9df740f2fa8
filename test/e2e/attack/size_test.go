package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/test/e2e/stage"
)

// bigKey returns a text that can be the key of a label, or a finalizer. The text ends with the
// number i, and is almost as long as the API server allows.
func bigKey(i int) string { return fmt.Sprintf("%s.example/%063d", strings.Repeat("a", 240), i) }

// bigLabels returns labels with about the given total size in bytes. The API server itself does not
// limit the number of labels.
func bigLabels(size int) map[string]string {
	all, value := map[string]string{}, strings.Repeat("b", 63)
	for i := range size / (len(bigKey(0)) + len(value)) {
		all[bigKey(i)] = value
	}
	return all
}

// bigFinalizers returns finalizers with about the given total size in bytes.
func bigFinalizers(size int) []string {
	all := make([]string, size/len(bigKey(0)))
	for i := range all {
		all[i] = bigKey(i)
	}
	return all
}

// growMetadata acts as a tenant that writes large labels or finalizers into objects. For each
// namespaced kind, the tenant creates large objects, and makes a small object large. The API server
// must refuse these writes. Accepted objects stay until the end of the attack, so they fill the
// programs' memory. With -short, the labels and finalizers are smaller, but still too large. The
// reason is speed: the API server takes a second for each megabyte.
func growMetadata(tn *tenant) {
	t := tn.t
	number, size := 6, 1_000_000
	if testing.Short() {
		number, size = 1, 40<<10
	}
	labels, finalizers := bigLabels(size), bigFinalizers(size)
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return !k.ClusterScoped }) {
		for field, value := range map[string]any{"labels": labels, "finalizers": finalizers} {
			var accepted int
			note := func(err error) {
				tn.tried++
				if err == nil {
					accepted++
				} else if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
					t.Errorf("%s with large %s: %v", kind.Kind, field, err)
				}
			}
			for i := range number {
				o := stage.Sample(t, kind, tn.namespace)
				o.SetName(fmt.Sprint(field, "-", i))
				if field == "labels" {
					o.SetLabels(labels)
				} else {
					o.SetFinalizers(finalizers)
				}
				err := objects.Create(t.Context(), o)
				if err == nil {
					tn.discard(o)
				}
				note(err)
			}
			small := stage.Sample(t, kind, tn.namespace)
			small.SetName(field + "-small")
			must(t, "create a "+kind.Kind, objects.Create(t.Context(), small))
			tn.discard(small)
			data, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value}})
			must(t, "write a patch", err)
			note(objects.Patch(t.Context(), small.DeepCopy(), client.RawPatch(types.MergePatchType, data)))
			if accepted > 0 {
				t.Errorf("%d objects of kind %s may have %d bytes of %s", accepted, kind.Kind, size, field)
			}
		}
	}
}

// discard deletes an object at the end of the attack, and removes the object's finalizers.
func (tn *tenant) discard(o *unstructured.Unstructured) {
	tn.t.Cleanup(func() {
		ctx := context.WithoutCancel(tn.t.Context())
		must(tn.t, "delete "+o.GetName(), objects.Delete(ctx, o))
		err := objects.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"labels":null}}`)))
		must(tn.t, "take the finalizers from "+o.GetName(), client.IgnoreNotFound(err))
	})
}
