package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
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
				o := large(t, kind, tn.namespace, field, labels, finalizers)
				o.SetName(fmt.Sprint(field, "-", i))
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

// large returns a sample object of a kind, with the given labels or with the given finalizers. The
// parameter field says which: labels or finalizers.
func large(t *testing.T, kind kinds.Kind, namespace, field string, labels map[string]string, finalizers []string) *unstructured.Unstructured {
	t.Helper()
	o := stage.Sample(t, kind, namespace)
	if field == "labels" {
		o.SetLabels(labels)
	} else {
		o.SetFinalizers(finalizers)
	}
	return o
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

// metadataPolicy is the name of the admission policy that refuses large labels and finalizers, and
// of the policy's binding.
const metadataPolicy = "lanyard-metadata"

// storeGiants acts as a tenant whose objects were stored before the chart had its admission policy.
// The objects of all namespaced kinds take 1.4 MB, because of their labels or finalizers. The
// programs must remember only a small part of each object. Kubernetes must be able to delete the
// namespace of the objects.
func storeGiants(tn *tenant) {
	t := tn.t
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace + "-giants"}}
	createNamespace(t, namespace.Name)
	t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), namespace) })
	for _, account := range []string{controllerAccount, identityAccount} {
		create(t, tenantBinding(namespace.Name, account))
	}
	const number = 3 // of each kind and field
	restore := removeMetadataPolicy(t, namespace.Name)
	// The API server adds managed fields of the same size. Together, this is about the largest
	// object that etcd can store.
	labels, finalizers := bigLabels(700_000), bigFinalizers(680_000)
	var stuck []*unstructured.Unstructured // the objects with finalizers of the tenant
	var seen []client.Object               // the objects of the kinds whose status says what is wrong
	for _, kind := range kinds.All().Where(func(k kinds.Kind) bool { return !k.ClusterScoped }) {
		for _, field := range []string{"labels", "finalizers"} {
			for i := range number {
				tn.tried++
				o := large(t, kind, namespace.Name, field, labels, finalizers)
				o.SetName(fmt.Sprint(field, "-giant-", i))
				if field == "finalizers" {
					stuck = append(stuck, o)
				}
				if kind.Fetches() {
					o.SetFinalizers(append(o.GetFinalizers(), meta.Finalizer))
					known := kind.New()
					known.SetNamespace(o.GetNamespace())
					known.SetName(o.GetName())
					seen = append(seen, known)
				}
				must(t, "create a "+kind.Kind, objects.Create(t.Context(), o))
			}
		}
	}
	restore()
	for _, o := range seen {
		await(t, o, "the refusal", func() error {
			return wantf(condition(o).Reason == meta.ReasonInvalidSpec, "%+v", condition(o))
		})
	}
	pause(t, lasting(time.Second, 10*time.Second)) // so that all programs have read all objects
	must(t, "delete the namespace", objects.Delete(t.Context(), namespace))
	for _, o := range stuck {
		var keep []string // the controller itself removes its finalizer
		if slices.Contains(o.GetFinalizers(), meta.Finalizer) {
			keep = []string{meta.Finalizer}
		}
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": keep}})
		must(t, "write a patch", err)
		must(t, "take the finalizers from "+o.GetName(), client.IgnoreNotFound(objects.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, data))))
	}
	// For each object, the API server needs up to two seconds per write. The namespace controller
	// pauses for up to 15 seconds between its attempts.
	awaitGone(t, namespace, 4*patience)
}

// removeMetadataPolicy removes the binding of the admission policy, and waits until large labels
// are accepted in the namespace. The function restore adds the binding again, and waits until large
// labels are refused. At the latest, the binding is restored at the end of the test.
func removeMetadataPolicy(t *testing.T, namespace string) (restore func()) {
	t.Helper()
	binding := &unstructured.Unstructured{}
	binding.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding",
	})
	must(t, "read the policy's binding", objects.Get(t.Context(), client.ObjectKey{Name: metadataPolicy}, binding))
	must(t, "delete the policy's binding", objects.Delete(t.Context(), binding))
	binding.SetResourceVersion("")
	binding.SetUID("")
	binding.SetManagedFields(nil)
	restored := sync.OnceValue(func() error { return objects.Create(context.WithoutCancel(t.Context()), binding.DeepCopy()) })
	t.Cleanup(func() { must(t, "restore the policy's binding", restored()) })
	kind := kinds.OCIRepository()
	wait := func(what string, accepted bool) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		poll(ctx, t, what, func() error {
			o := stage.Sample(t, kind, namespace)
			o.SetName("policy")
			o.SetLabels(bigLabels(40 << 10))
			err := objects.Create(ctx, o, client.DryRunAll)
			return wantf((err == nil) == accepted, "the answer to large labels: %v", err)
		})
	}
	wait("large labels are accepted", true)
	return func() {
		must(t, "restore the policy's binding", restored())
		wait("large labels are refused", false)
	}
}
