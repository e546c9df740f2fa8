package apply

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/pkg/ssa/normalize"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FieldChange is a field whose value changes. A value is nil if the object does not have the field.
type FieldChange struct {
	// Path is the JSON pointer of the field (RFC 6901), such as "/spec/replicas".
	Path string `json:"path"`
	// Old and New are the values before and after the change.
	Old any `json:"old,omitempty"`
	New any `json:"new,omitempty"`
}

// What is shown in place of values that may be secret.
const (
	masked        = "***"
	maskedChanged = "*** (changed)"
)

// mask replaces the values. Whether a field appears, changes or disappears can still be seen.
func (c *FieldChange) mask() {
	old := c.Old
	if old != nil {
		c.Old = masked
	}
	switch {
	case c.New != nil && old != nil:
		c.New = maskedChanged
	case c.New != nil:
		c.New = masked
	}
}

// compare returns the fields that differ, in the order of their paths. Of the metadata, only labels
// and annotations count, and the status does not count: [Applier.Apply] compares the same fields.
func compare(before, after *unstructured.Unstructured) (changes []FieldChange, err error) {
	old, err := comparedFields(before)
	if err != nil {
		return nil, err
	}
	changed, err := comparedFields(after)
	if err != nil {
		return nil, err
	}
	compareValues("", old, changed, &changes)
	return changes, nil
}

// comparedFields returns the fields of an object that [compare] compares.
func comparedFields(o *unstructured.Unstructured) (any, error) {
	o = o.DeepCopy()
	metadata := map[string]any{}
	for _, name := range []string{"labels", "annotations"} {
		if field, found, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", name); found {
			metadata[name] = field
		}
	}
	if err := normalize.DryRunUnstructured(o); err != nil {
		return nil, err
	}
	o.Object["metadata"] = metadata
	delete(o.Object, "status")
	return o.Object, nil
}

// compareValues adds the differences of two values. Items of lists are compared by their index.
func compareValues(path string, before, after any, changes *[]FieldChange) {
	oldMap, oldIsMap := before.(map[string]any)
	newMap, newIsMap := after.(map[string]any)
	oldList, oldIsList := before.([]any)
	newList, newIsList := after.([]any)
	switch {
	case oldIsMap && newIsMap:
		keys := maps.Clone(oldMap)
		maps.Copy(keys, newMap)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compareValues(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), oldMap[key], newMap[key], changes)
		}
	case oldIsList && newIsList:
		for i := range max(len(oldList), len(newList)) {
			compareValues(path+"/"+strconv.Itoa(i), item(oldList, i), item(newList, i), changes)
		}
	case !apiequality.Semantic.DeepEqual(before, after):
		*changes = append(*changes, FieldChange{Path: path, Old: before, New: after})
	}
}

// item returns an item of a list; nil behind its end.
func item(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}
