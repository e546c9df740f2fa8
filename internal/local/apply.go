package local

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Apply applies manifests by server-side apply as the administrator. It returns the number of
// applied objects. If the API server refuses an object, the error is a *yamlfile.Error.
func (c *Cluster) Apply(ctx context.Context, manifests *Manifests) (int, error) {
	for i, m := range manifests.all {
		if err := c.applyObject(ctx, m.Unstructured); err != nil {
			return i, m.document.At("", err)
		}
	}
	return len(manifests.all), nil
}

// ApplyNamespaces applies only the namespaces of manifests, so that a chart with objects in these
// namespaces can be installed.
func (c *Cluster) ApplyNamespaces(ctx context.Context, manifests *Manifests) error {
	_, err := c.Apply(ctx, &Manifests{all: manifests.namespaces()})
	return err
}

// expect does nothing for an object whose kind neither fetches ([kinds.Kind.Fetches]) nor applies. For
// other objects, it completes the annotation with the expected result, which reports read from the
// cluster. If the annotation is missing or empty, expect sets it to "pulled". If the annotation is
// invalid, expect returns an error.
func expect(o *unstructured.Unstructured) error {
	kind, ok := kinds.All().Named(o.GetKind())
	if !ok || !kind.Fetches() && kind.Account == nil || o.GroupVersionKind().Group != kind.Group {
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

func (c *Cluster) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	return c.await(ctx, nameOf(o), func(ctx context.Context) (bool, error) {
		err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldManager), client.ForceOwnership)
		if apimeta.IsNoMatchError(err) {
			return false, nil // retry: discovery lists a new CRD with a delay
		}
		return err == nil, err
	})
}

// await calls a function repeatedly until it returns true or an error, or until establishTimeout is
// over.
func (c *Cluster) await(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	if err := poll(ctx, pollInterval, ask); err != nil {
		return fmt.Errorf("apply %s: %w", what, err)
	}
	return nil
}
