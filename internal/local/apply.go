package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// Apply applies the manifests at the root of a file system (*.yaml) on the server's side as the administrator, namespaces
// first. Objects that fetch and do not say what must come of them are marked as expected to be pulled. It returns how many
// objects it applied.
func (w *World) Apply(ctx context.Context, files fs.FS) (int, error) {
	objects, err := manifests(files)
	if err != nil {
		return 0, err
	}
	for _, o := range objects {
		if err := expect(o); err != nil {
			return 0, err
		}
	}
	return len(objects), w.apply(ctx, objects)
}

// manifests reads all objects of a file system's root, namespaces first, else in the order of the files' names.
func manifests(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the manifests: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("there are no manifests (*.yaml); name a folder that holds some with --examples")
	}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
		found, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return rank(a) - rank(b)
	})
	return objects, nil
}

func rank(o *unstructured.Unstructured) int {
	if o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1" {
		return 0
	}
	return 1
}

func decode(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		switch {
		case len(o.Object) == 0: // comments only
		case o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "":
			return nil, fmt.Errorf("document %d: an object needs apiVersion, kind and metadata.name", n)
		default:
			objects = append(objects, o)
		}
	}
}

// expect writes down what must come of an object, so that it can be read off the cluster.
func expect(o *unstructured.Unstructured) error {
	if !slices.Contains(report.Kinds(), o.GetKind()) || o.GroupVersionKind().Group != v1alpha1.GroupVersion().Group {
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
	if err := report.CheckExpectation(annotations[examples.ExpectAnnotation]); err != nil {
		return fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// apply applies objects one after the other.
func (w *World) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		what := o.GetKind() + " " + o.GetName()
		if o.GetNamespace() != "" {
			what = o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		}
		err := w.await(ctx, what, func(ctx context.Context) (bool, error) {
			err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldManager), client.ForceOwnership)
			if apimeta.IsNoMatchError(err) {
				return false, nil // a CRD is established shortly before discovery lists it
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await polls for something that the API server is about to do.
func (w *World) await(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	if err := poll(ctx, ask); err != nil {
		return fmt.Errorf("apply %s: %w", what, err)
	}
	return nil
}

func keyOf(namespace, name string) client.ObjectKey {
	return types.NamespacedName{Namespace: namespace, Name: name}
}
