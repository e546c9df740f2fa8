// Package memorytest measures how much memory a program's cache takes for large objects.
package memorytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	// large is about the size of the largest object that etcd stores, in bytes. The limit of etcd
	// is 1.5 MiB.
	large = 1_400_000
	// most is how much memory the cache may take for a large object, in bytes.
	most = 20 << 10
)

// Run checks the memory that a program's cache takes for large objects. For each kind in
// options.ByObject, Run makes several objects. Each object is large in another field of the
// metadata, the spec or the status. The kind's transform reduces each object. A reduced object may
// take at most 20 KiB of memory. Run logs the largest result of each kind.
//
// Some kinds use the default transform, because tenants write no objects of these kinds. For such a
// kind, Run makes only objects with large metadata.
func Run(t *testing.T, options cache.Options) {
	t.Helper()
	big, measured := metadata(), 0
	for o, by := range options.ByObject {
		name := fmt.Sprintf("%T", o)
		if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
			name = kind
		}
		kind, typed := kinds.All().Named(name[strings.LastIndex(name, ".")+1:])
		if _, partial := o.(*metav1.PartialObjectMetadata); !partial && !typed {
			continue // only administrators write the cached objects of such a kind, for example Secrets
		}
		measured++
		t.Run(name, func(t *testing.T) {
			examples := maps.Clone(big)
			transform := options.DefaultTransform
			if by.Transform != nil {
				transform = by.Transform
			}
			if typed && by.Transform != nil {
				content(kind, examples)
			}
			measure(t, o, examples["nothing"], transform) // the first decoding of a type also fills caches of the decoder
			worst, where := uint64(0), ""
			for place, fields := range examples {
				taken := measure(t, o, fields, transform)
				if taken > most {
					taken = min(taken, measure(t, o, fields, transform)) // in the first measurement, the runtime may have allocated memory
				}
				if taken > most {
					t.Errorf("%s: %d bytes of memory for an object, want %d at the most", place, taken, most)
				}
				if taken >= worst {
					worst, where = taken, place
				}
			}
			t.Logf("%s, %d places: at most %d bytes of memory for an object, if %s is large", name, len(examples), worst, where)
		})
	}
	if measured == 0 {
		t.Error("no kind is measured")
	}
}

// measure returns how many bytes of memory an object takes after the transform. The object has the
// Go type of o. The argument fields is the JSON of the object.
func measure(t *testing.T, o client.Object, fields []byte, transform func(any) (any, error)) uint64 {
	t.Helper()
	const copies = 2
	kept := make([]any, copies)
	before := heap()
	for i := range kept {
		read := empty(o)
		must.Succeed(t, json.Unmarshal(fields, read))
		var err error
		kept[i], err = transform(read)
		must.Succeed(t, err)
	}
	after := heap()
	runtime.KeepAlive(kept)
	runtime.KeepAlive(fields)
	return (max(after, before) - before) / copies
}

// heap returns how many bytes of the Go heap are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // an object with a finalizer needs a second garbage collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// empty returns an empty object of the same Go type as o.
func empty(o client.Object) client.Object {
	made := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object) // cannot fail: o has the same type
	if untyped, ok := made.(*unstructured.Unstructured); ok {
		untyped.Object = map[string]any{}
	}
	return made
}

// metadata returns objects as JSON. In each object, one field of the metadata is large. The
// object's key in the map is the path of this field. The object with the key "nothing" has no large
// field.
func metadata() map[string][]byte {
	named := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: types.UID(strings.Repeat("u", 36)), Finalizers: []string{meta.Finalizer}}
	}
	labels, finalizers, annotations, owners, managed := named(), named(), named(), named(), named()
	labels.Labels, annotations.Annotations = map[string]string{}, map[string]string{
		meta.ReconcileRequestedAnnotation: strings.Repeat("x", 50<<10), meta.FluxReconcileRequestedAnnotation: strings.Repeat("x", 50<<10),
		meta.AllowAccountChangeAnnotation: strings.Repeat("x", 50<<10), "note": strings.Repeat("x", 50<<10),
		"lanyard.dev/registry-username": strings.Repeat("x", 50<<10),
	}
	for i := range large / 300 {
		name := fmt.Sprint(strings.Repeat("x", 240), ".example.com/", i)
		labels.Labels[name], finalizers.Finalizers = "value", append(finalizers.Finalizers, name)
		owners.OwnerReferences = append(owners.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 200), UID: types.UID(fmt.Sprint(i))})
		managed.ManagedFields = append(managed.ManagedFields, metav1.ManagedFieldsEntry{Manager: strings.Repeat("x", 200)})
	}
	examples := map[string][]byte{}
	for place, o := range map[string]metav1.ObjectMeta{
		"nothing": named(), "metadata.labels": labels, "metadata.finalizers": finalizers, "metadata.annotations": annotations,
		"metadata.ownerReferences": owners, "metadata.managedFields": managed,
	} {
		examples[place] = []byte(`{"apiVersion":"v1","kind":"X","metadata":` + text(o) + `}`)
	}
	return examples
}

// content adds objects of a kind to the map examples, as JSON. In each object, one field of the
// spec or the status is large. The object's key in the map is the path of this field.
func content(kind kinds.Kind, examples map[string][]byte) {
	for _, part := range []string{"Spec", "Status"} {
		root := reflect.TypeOf(kind.New()).Elem()
		field, ok := root.FieldByName(part)
		if !ok {
			continue
		}
		for place, indexes := range places(field.Type, strings.ToLower(part), field.Index) {
			o := kind.New()
			o.SetNamespace("tenant-a")
			o.SetName("app")
			if fill(at(reflect.ValueOf(o).Elem(), indexes), large) {
				examples[place] = []byte(`{"apiVersion":"` + kind.GroupVersion().String() + `","kind":"` + kind.Kind + `",` + text(o)[1:])
			}
		}
	}
}

// places returns the fields of the type t, and of all structs inside t. The keys of the result are
// the fields' paths, such as spec.URL. The values are indexes for the function "at". The arguments
// path and index are the path and the indexes of t itself. places does not look inside lists, maps
// and times.
func places(t reflect.Type, path string, index []int) map[string][]int {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.Time]() {
		return map[string][]int{path: index}
	}
	found := map[string][]int{}
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue
		}
		below := path + "." + t.Field(i).Name
		maps.Copy(found, places(t.Field(i).Type, below, append(append([]int{}, index...), i)))
	}
	return found
}

// at returns a field of the struct v, or of a struct inside v. The indexes are those of
// [reflect.Value.FieldByIndex]. If a pointer to an inner struct is nil, at makes the struct.
func at(v reflect.Value, indexes []int) reflect.Value {
	for _, i := range indexes {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// fill sets v to a value that takes about the given number of bytes as JSON. fill returns false if
// v cannot hold such a value, for example because v is a number.
func fill(v reflect.Value, bytes int) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("x", bytes))
		return true
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), bytes)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"x":"` + strings.Repeat("x", bytes) + `"}`)) // the bytes of a RawExtension must be valid JSON
			return true
		}
		elements := bytes / 100
		v.Set(reflect.MakeSlice(v.Type(), elements, elements))
		for i := range elements {
			fill(v.Index(i), 50)
		}
		return elements > 0
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range bytes / 100 {
			value := reflect.New(v.Type().Elem()).Elem()
			fill(value, 50)
			v.SetMapIndex(reflect.ValueOf(fmt.Sprint("key-", i)).Convert(v.Type().Key()), value)
		}
		return true
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() && fill(field, bytes) {
				return true
			}
		}
	default: // numbers and booleans have a fixed size
	}
	return false
}

func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "{" + err.Error() // this text is invalid JSON, so the test fails when it decodes the text
	}
	return string(data)
}
