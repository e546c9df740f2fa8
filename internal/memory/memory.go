package memory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// These constants limit the size of an object that a cache stores whole, in bytes. The admission
// policy lanyard-metadata must have the same values for MaxMetadata and EntryCost.
const (
	// MaxMetadata is the maximum size of all labels of an object. It is also the maximum size of
	// all its finalizers. The size is the text of the entries, plus EntryCost for each entry.
	MaxMetadata = 16 << 10
	// EntryCost is added to the text size of each label or finalizer, in bytes. An entry of a Go
	// map or list takes more memory than its text.
	EntryCost = 80
	// MaxContent is the maximum size of the spec of an object, and also of its status. This is
	// enough for the largest field of all kinds, a providerConfig with certificates.
	MaxContent = 80 << 10
)

// Metadata is a transform for objects whose metadata the program does not read. It removes the
// labels, annotations, finalizers, owners and managed fields of an object. Metadata returns the
// same object. If the watch has missed a deletion, the cache passes a tombstone to the transform.
// The transforms of this package return a tombstone unchanged.
func Metadata(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		reduce(o)
	}
	return object, nil
}

func reduce(o metav1.Object) {
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	o.SetManagedFields(nil)
	o.SetGenerateName("")
	o.SetSelfLink("")
}

// Kept says which metadata a cache stores of the objects of a kind. The zero value stands for the
// metadata that [Metadata] keeps, such as the name.
type Kept struct {
	// Labels is true if the program reads the labels.
	Labels bool
	// Finalizers is true if the program writes the finalizers. The program then needs the whole
	// list, because its merge patches replace the list.
	Finalizers bool
	// Annotations returns a new map with those annotations of an object that the program reads. The
	// function must limit the length of each value: tenants can write long values. Annotations is
	// nil if the program reads no annotations.
	Annotations func(metav1.Object) map[string]string
}

// Remember is a transform for objects of Go structs, but not for unstructured objects. It keeps the
// spec, the status, and the metadata that k selects. Remember changes and returns the same object.
//
// If the labels, finalizers, spec or status are too large, the result is a stub. A stub has no spec
// and no labels. A stub keeps no finalizer except Lanyard's own. If the status is too large, a stub
// keeps at most the fields of [meta.Status]. [Refused] reports whether an object is a stub.
func (k Kept) Remember(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone: the watch has missed the object's deletion
	}
	if Refused(o) != nil {
		return o, nil //nolint:nilerr // an informer may call a transform twice, and a stub must stay a stub
	}
	labels, finalizers := o.GetLabels(), o.GetFinalizers()
	excess, ours := judge(o), slices.Contains(o.GetFinalizers(), meta.Finalizer)
	var annotations map[string]string
	if k.Annotations != nil {
		annotations = k.Annotations(o)
	}
	reduce(o)
	if excess != nil {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tooLarge] = excess.mark()
		if labels, finalizers = nil, nil; ours {
			finalizers = []string{meta.Finalizer}
		}
		stub(o)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	if k.Labels {
		o.SetLabels(labels)
	}
	if k.Finalizers && len(finalizers) > 0 {
		o.SetFinalizers(finalizers)
	}
	return o, nil
}

// stub removes the spec of an object. If the status is too large, stub leaves at most the fields of
// [meta.Status].
func stub(o metav1.Object) {
	content(o, "Spec").SetZero()
	if size(content(o, "Status")) <= MaxContent {
		return
	}
	var common meta.Status
	shown, ok := o.(interface{ GetStatus() *meta.Status })
	if ok {
		common = *shown.GetStatus()
		common.Conditions = slices.DeleteFunc(slices.Clone(common.Conditions), func(c metav1.Condition) bool {
			return !slices.Contains([]string{meta.ConditionReady, meta.ConditionReconciling, meta.ConditionStalled}, c.Type)
		})
	}
	content(o, "Status").SetZero()
	if ok && size(reflect.ValueOf(common)) <= MaxMetadata {
		*shown.GetStatus() = common
	}
}

// Excess says which field of an object is too large for the cache.
//
//nolint:errname // the name says what the object has
type Excess struct {
	// Field is the path of the field that is too large, such as metadata.labels.
	Field string
	// Bytes is the size that is greater than Max. For metadata.labels, Bytes is the size of all
	// labels, and for metadata.finalizers of all finalizers. Otherwise, Bytes is the size of the
	// whole spec or status that contains the field.
	Bytes int
	// Max is the bound of Bytes.
	Max int
}

// Error returns a text with the size and the maximum, but without the name of the field.
func (e *Excess) Error() string {
	if e.Max == MaxMetadata {
		return fmt.Sprintf("the field has %d bytes, and at most %d are accepted; each entry counts %d bytes more than its text", e.Bytes, e.Max, EntryCost)
	}
	return fmt.Sprintf("the spec or status with the field takes %d bytes of memory, and at most %d are accepted", e.Bytes, e.Max)
}

// Fix returns the next step for a person, such as "remove labels".
func (e *Excess) Fix() string {
	switch e.Field {
	case "metadata.labels":
		return "remove labels"
	case "metadata.finalizers":
		return "remove finalizers"
	}
	if strings.HasPrefix(e.Field, "status") { // people cannot shorten the status: only controllers write it
		return "delete the object, and create it again"
	}
	return "shorten the field, or delete the object"
}

// tooLarge is the key of an annotation that only stubs have. The API server stores no such key,
// because the key contains a space. So nobody can make a stub by writing an annotation.
const tooLarge = "too large"

func (e *Excess) mark() string { return fmt.Sprintf("%d %d %s", e.Bytes, e.Max, e.Field) }

// Refused returns the field that is too large if the object is a stub of [Kept.Remember]. It
// returns nil for every other object.
func Refused(o metav1.Object) *Excess {
	text, ok := o.GetAnnotations()[tooLarge]
	if !ok {
		return nil
	}
	e := &Excess{}
	_, _ = fmt.Sscanf(text, "%d %d %s", &e.Bytes, &e.Max, &e.Field) // cannot fail: only the method mark makes this text
	return e
}

// judge returns the first field of an object that is too large, or nil. The object must not be a
// stub.
func judge(o metav1.Object) *Excess {
	labels, finalizers := 0, 0
	for key, value := range o.GetLabels() {
		labels += len(key) + len(value) + EntryCost
	}
	for _, name := range o.GetFinalizers() {
		finalizers += len(name) + EntryCost
	}
	// Do not count the first entry of Lanyard's finalizer. Otherwise, the object could become too
	// large when the controller adds this finalizer. Count further entries of the same finalizer:
	// the API server accepts any number of them.
	if slices.Contains(o.GetFinalizers(), meta.Finalizer) {
		finalizers -= len(meta.Finalizer) + EntryCost
	}
	switch {
	case labels > MaxMetadata:
		return &Excess{"metadata.labels", labels, MaxMetadata}
	case finalizers > MaxMetadata:
		return &Excess{"metadata.finalizers", finalizers, MaxMetadata}
	}
	for _, field := range []string{"Spec", "Status"} {
		value := content(o, field)
		if bytes := size(value); bytes > MaxContent {
			return &Excess{largest(value, strings.ToLower(field)), bytes, MaxContent}
		}
	}
	return nil
}

// content returns the value of the object's field with the given Go name, such as Spec. If the
// object's type has no such field, content returns an empty struct that is not part of the object.
func content(o metav1.Object, field string) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	if found := v.FieldByName(field); found.IsValid() {
		return found
	}
	return reflect.New(reflect.TypeFor[struct{}]()).Elem()
}
