package kubeconfig

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errAnswer refuses an answer that no API server gives. Callers write the names of objects into a
// status. They also call code that needs very long for some objects.
var errAnswer = errors.New("the server answers with another object than it was asked for, or with metadata that no API server accepts")

// Get reads an object. The answer must be this object.
func (c *Client) Get(ctx context.Context, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := c.Client.Get(ctx, name, o, options...); err != nil {
		return shortened(err)
	}
	return checkAnswer(o, name)
}

// Patch changes an object. The answer must be this object.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	name := client.ObjectKeyFromObject(o)
	if err := c.Client.Patch(ctx, o, patch, options...); err != nil {
		return shortened(err)
	}
	return checkAnswer(o, name)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return shortened(c.Client.Delete(ctx, o, options...))
}

// List reads objects. Their metadata must have the lengths that API servers allow.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.Client.List(ctx, list, options...); err != nil {
		return shortened(err)
	}
	if len(list.GetContinue()) > maxContinue {
		return errAnswer
	}
	if page, ok := list.(*metav1.PartialObjectMetadataList); ok {
		for i := range page.Items {
			if o := &page.Items[i]; !isShort(o) {
				return errAnswer
			}
		}
	}
	return nil
}

// Bounds of texts that callers keep, in bytes.
const (
	maxName     = 253     // of a name; of a namespace, UID or version, which are shorter
	maxContinue = 8 << 10 // of the token for the next page
	maxMessage  = 4 << 10 // of a failure
)

// Bounds of lists whose items are compared in pairs, or sorted into each other.
const (
	maxManagers = 100    // of metadata.managedFields
	maxFields   = 20_000 // of all fields in metadata.managedFields
	maxMetrics  = 100    // of spec.metrics of a HorizontalPodAutoscaler
	maxCauses   = 20     // of a failure
)

// shortened bounds the texts of an API server's failure. Callers keep the failures of many objects.
func shortened(err error) error {
	failure, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return err
	}
	short := *failure
	short.ErrStatus.Message = cut(short.ErrStatus.Message)
	if details := short.ErrStatus.Details; details != nil {
		kept := *details
		kept.Name, kept.Group, kept.Kind = cut(kept.Name), cut(kept.Group), cut(kept.Kind)
		kept.Causes = slices.Clone(kept.Causes[:min(len(kept.Causes), maxCauses)])
		for i, c := range kept.Causes {
			kept.Causes[i] = metav1.StatusCause{Type: metav1.CauseType(cut(string(c.Type))), Message: cut(c.Message), Field: cut(c.Field)}
		}
		short.ErrStatus.Details = &kept
	}
	return &short
}

// cut returns the begin of a text. The result does not keep the whole text in memory.
func cut(text string) string { return strings.Clone(text[:min(len(text), maxMessage)]) }

func isShort(o client.Object) bool {
	return max(len(o.GetName()), len(o.GetNamespace()), len(o.GetUID()), len(o.GetResourceVersion())) <= maxName
}

// checkAnswer checks that an answer is the object of this name, with metadata of the right types,
// and without lists that an API server would not accept.
func checkAnswer(o client.Object, name client.ObjectKey) error {
	if client.ObjectKeyFromObject(o) != name || !isShort(o) {
		return errAnswer
	}
	whole, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil // the decoder has checked the types
	}
	metadata, ok := whole.Object["metadata"].(map[string]any)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(metadata, &metav1.ObjectMeta{}) != nil {
		return errAnswer
	}
	managers, _, _ := unstructured.NestedFieldNoCopy(metadata, "managedFields")
	if list, _ := managers.([]any); len(list) > maxManagers || count(managers) > maxFields {
		return errAnswer
	}
	metrics, _, _ := unstructured.NestedFieldNoCopy(whole.Object, "spec", "metrics")
	if list, _ := metrics.([]any); whole.GetKind() == "HorizontalPodAutoscaler" && len(list) > maxMetrics {
		return errAnswer
	}
	return nil
}

// count returns the number of values in a value of JSON.
func count(value any) int {
	n := 1
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			n += count(inner)
		}
	case []any:
		for _, inner := range v {
			n += count(inner)
		}
	}
	return n
}
