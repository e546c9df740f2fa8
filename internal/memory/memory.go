package memory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
)

// Bounds of an object, in bytes. The admission policy lanyard-metadata has the same MaxMetadata and
// EntryCost.
const (
	// MaxMetadata bounds the labels of an object. The same bound applies separately to the object's
	// finalizers. The size of the labels is their text, plus EntryCost for each label. The size of
	// the finalizers is computed in the same way.
	MaxMetadata = 16 << 10
	// EntryCost is the memory that a label or a finalizer takes in addition to its text.
	EntryCost = 80
	// MaxContent bounds the spec of an object, and also the object's status. It leaves room for the
	// largest field of all kinds, a providerConfig with certificates.
	MaxContent = 80 << 10
)

// Metadata removes metadata from an object: labels, annotations, finalizers, owners and managed
// fields. It returns the same object. It is a transform for objects whose metadata nobody reads.
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

// Kept says which metadata a cache keeps of the objects of a kind. The zero value keeps no more
// than [Metadata].
type Kept struct {
	// Labels says that the program reads the labels.
	Labels bool
	// Finalizers says that the program writes the finalizers. Its merge patches then need the whole
	// list, because a merge patch replaces a list.
	Finalizers bool
	// Annotations returns a new map of the annotations that the program reads, each with a bounded
	// value. Nil if the program reads no annotations.
	Annotations func(metav1.Object) map[string]string
}

// Remember reduces an object to the metadata that k keeps, and to the spec and the status. It
// returns the same object. If a field of the object is too large, the result is a stub: it has no
// spec, none of the labels, and only Lanyard's own finalizer. A status that is too large is cut
// down to its conditions. [Refused] tells a stub from other objects. Remember is a transform for
// objects of Go types.
func (k Kept) Remember(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone: the watch has missed the object's deletion
	}
	if Refused(o) != nil {
		return o, nil // an informer may call a transform twice, and a stub must stay a stub
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

// stub removes the spec of an object, and what is too large in the status.
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
type Excess struct {
	// Field is the path of the field, such as metadata.labels.
	Field string
	// Bytes is the size that Max bounds. If Field is the labels or the finalizers, Bytes is their
	// size. If Field lies in the spec or the status, Bytes is the size of the whole spec or status.
	Bytes int
	// Max is the bound, in bytes.
	Max int
}

// Error says what is too large, and by how much. It does not name the field.
func (e *Excess) Error() string {
	if e.Max == MaxMetadata {
		return fmt.Sprintf("the field has %d bytes, and at most %d are accepted; each entry counts %d bytes more than its text", e.Bytes, e.Max, EntryCost)
	}
	return fmt.Sprintf("the spec or status with the field takes %d bytes of memory, and at most %d are accepted", e.Bytes, e.Max)
}

// Fix returns the next step for people, in a few words.
func (e *Excess) Fix() string {
	switch e.Field {
	case "metadata.labels":
		return "remove labels"
	case "metadata.finalizers":
		return "remove finalizers"
	}
	if strings.HasPrefix(e.Field, "status") { // only controllers write the status
		return "delete the object, and create it again"
	}
	return "shorten the field, or delete the object"
}

// tooLarge is the key of an annotation that only stubs have. The API server stores no such key,
// because the key contains a space. So nobody can make a stub by writing an annotation.
const tooLarge = "too large"

func (e *Excess) mark() string { return fmt.Sprintf("%d %d %s", e.Bytes, e.Max, e.Field) }

// Refused returns the field for which [Kept.Remember] has made a stub of the object. It returns nil
// for an object that is not a stub.
func Refused(o metav1.Object) *Excess {
	text, ok := o.GetAnnotations()[tooLarge]
	if !ok {
		return nil
	}
	e := &Excess{}
	_, _ = fmt.Sscanf(text, "%d %d %s", &e.Bytes, &e.Max, &e.Field) // cannot fail: only the method mark makes this text
	return e
}

// judge returns the first field of a whole object that is too large, or nil.
func judge(o metav1.Object) *Excess {
	labels, finalizers := 0, 0
	for key, value := range o.GetLabels() {
		labels += len(key) + len(value) + EntryCost
	}
	for _, name := range o.GetFinalizers() {
		finalizers += len(name) + EntryCost
	}
	// Lanyard's finalizer does not count: otherwise the controller's own write could exceed the
	// bound. The API server accepts the same finalizer several times. The repetitions count.
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
