package apply

import (
	"maps"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestCompare checks which fields differ, and how their paths are written.
func TestCompare(t *testing.T) {
	object := func(fields map[string]any) *unstructured.Unstructured {
		o := object1("v1", "ConfigMap", "apps", "a")
		maps.Copy(o.Object, fields)
		return o
	}
	list := func(items ...any) map[string]any { return map[string]any{"spec": items} }
	withMetadata := func(metadata map[string]any) map[string]any { return map[string]any{"metadata": metadata} }
	for name, c := range map[string]struct {
		old, changed map[string]any
		want         []FieldChange
	}{
		"equal":           {list(int64(1), "a", nil), list(int64(1), "a", nil), nil},
		"a value":         {map[string]any{"spec": map[string]any{"replicas": int64(1)}}, map[string]any{"spec": map[string]any{"replicas": int64(2)}}, []FieldChange{{"/spec/replicas", int64(1), int64(2)}}},
		"a type":          {map[string]any{"spec": "1"}, map[string]any{"spec": int64(1)}, []FieldChange{{"/spec", "1", int64(1)}}},
		"a new field":     {nil, map[string]any{"data": map[string]any{"a": "1"}}, []FieldChange{{"/data", nil, map[string]any{"a": "1"}}}},
		"a removed field": {map[string]any{"data": map[string]any{"a": "1", "b": "2"}}, map[string]any{"data": map[string]any{"b": "2"}}, []FieldChange{{"/data/a", "1", nil}}},
		"a longer list":   {list("a"), list("a", "b"), []FieldChange{{"/spec/1", nil, "b"}}},
		"a shorter list":  {list("a", "b"), list("b"), []FieldChange{{"/spec/0", "a", "b"}, {"/spec/1", "b", nil}}},
		"in order": {
			map[string]any{"b": "1", "a": "1", "c": "1"},
			map[string]any{"c": "2", "b": "2", "a": "2"},
			[]FieldChange{{"/a", "1", "2"}, {"/b", "1", "2"}, {"/c", "1", "2"}},
		},
		"special characters": {map[string]any{"data": map[string]any{"a/b~c": "1"}}, map[string]any{"data": map[string]any{"a/b~c": "2"}}, []FieldChange{{"/data/a~1b~0c", "1", "2"}}},
		"what the API server writes": {
			withMetadata(map[string]any{"resourceVersion": "1", "generation": int64(1), "uid": "1", "creationTimestamp": "1", "managedFields": []any{"1"}}),
			withMetadata(map[string]any{"resourceVersion": "2", "generation": int64(2), "uid": "2", "creationTimestamp": "2", "managedFields": []any{"2"}}), nil,
		},
		"the status": {map[string]any{"status": "1"}, map[string]any{"status": "2"}, nil},
		"labels and annotations": {
			withMetadata(map[string]any{"labels": map[string]any{"a": "1"}, "annotations": map[string]any{"a": "1"}}),
			withMetadata(map[string]any{"labels": map[string]any{"a": "2"}, "annotations": map[string]any{}}),
			[]FieldChange{{"/metadata/annotations/a", "1", nil}, {"/metadata/labels/a", "1", "2"}},
		},
	} {
		got, err := compare(object(c.old), object(c.changed))
		must.Succeed(t, err)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestMask asserts that a masked change has no value, and still shows what happens to the field.
func TestMask(t *testing.T) {
	for name, c := range map[string]struct{ change, want FieldChange }{
		"changed": {FieldChange{"/a", "s3cr3t", "s3cr3t2"}, FieldChange{"/a", "***", "*** (changed)"}},
		"added":   {FieldChange{"/a", nil, map[string]any{"s3cr3t": "s3cr3t"}}, FieldChange{"/a", nil, "***"}},
		"removed": {FieldChange{"/a", []any{"s3cr3t"}, nil}, FieldChange{"/a", "***", nil}},
		"short":   {FieldChange{"/a", int64(1), true}, FieldChange{"/a", "***", "*** (changed)"}},
	} {
		if c.change.mask(); !reflect.DeepEqual(c.change, c.want) {
			t.Errorf("%s: %+v", name, c.change)
		}
	}
}
