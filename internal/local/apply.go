package local

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Apply applies manifests on the server's side as the administrator. It returns how many objects it
// applied. An object that the API server refuses is a *yamlfile.Error.
func (c *Cluster) Apply(ctx context.Context, manifests *Manifests) (int, error) {
	for i, m := range manifests.all {
		if err := c.applyObject(ctx, m.Unstructured); err != nil {
			return i, m.document.At("", err)
		}
	}
	return len(manifests.all), nil
}

// ApplyNamespaces applies the namespaces of manifests, for a chart that has objects in them.
func (c *Cluster) ApplyNamespaces(ctx context.Context, manifests *Manifests) error {
	for _, m := range manifests.all {
		if !isNamespace(m) {
			continue
		}
		if err := c.applyObject(ctx, m.Unstructured); err != nil {
			return m.document.At("", err)
		}
	}
	return nil
}

// expect writes down what must come of an object, so that it can be read off the cluster.
func expect(o *unstructured.Unstructured) error {
	if kind, ok := kinds.All().Named(o.GetKind()); !ok || !kind.Fetches() || o.GroupVersionKind().Group != kind.Group {
		return nil
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[examples.ExpectAnnotation] == "" {
		annotations[examples.ExpectAnnotation] = report.ExpectPulled
	}
	o.SetAnnotations(annotations)
	return report.CheckExpectation(annotations[examples.ExpectAnnotation])
}

// apply applies objects one after the other.
func (c *Cluster) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := c.applyObject(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	return c.await(ctx, nameOf(o), func(ctx context.Context) (bool, error) {
		err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldManager), client.ForceOwnership)
		if apimeta.IsNoMatchError(err) {
			return false, nil // a CRD is established shortly before discovery lists it
		}
		return err == nil, err
	})
}

// await polls for something that the API server is about to do.
func (c *Cluster) await(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	if err := poll(ctx, pollInterval, ask); err != nil {
		return fmt.Errorf("apply %s: %w", what, err)
	}
	return nil
}

func keyOf(namespace, name string) client.ObjectKey {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
