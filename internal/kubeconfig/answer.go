package kubeconfig

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errAnswer is the error for an answer that no API server gives. Callers rely on what they have asked
// for: they name objects in a status, and call code that panics for an object of another shape.
var errAnswer = errors.New("the server answers with another object than it was asked for, or with damaged metadata")

// Get reads an object. The answer must be this object.
func (c *Client) Get(ctx context.Context, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
	kind := o.GetObjectKind().GroupVersionKind()
	if err := c.Client.Get(ctx, name, o, options...); err != nil {
		return err
	}
	return checkAnswer(o, kind, name)
}

// Patch changes an object. The answer must be this object.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	kind, name := o.GetObjectKind().GroupVersionKind(), client.ObjectKeyFromObject(o)
	if err := c.Client.Patch(ctx, o, patch, options...); err != nil {
		return err
	}
	return checkAnswer(o, kind, name)
}

// List reads objects. Their metadata must have the lengths that API servers allow.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := c.Client.List(ctx, list, options...); err != nil {
		return err
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
)

func isShort(o client.Object) bool {
	return max(len(o.GetName()), len(o.GetNamespace()), len(o.GetUID()), len(o.GetResourceVersion())) <= maxName
}

// checkAnswer checks that an answer is the object of this kind and name, with metadata of the right types.
func checkAnswer(o client.Object, kind schema.GroupVersionKind, name client.ObjectKey) error {
	if o.GetObjectKind().GroupVersionKind() != kind || client.ObjectKeyFromObject(o) != name || !isShort(o) {
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
	return nil
}
