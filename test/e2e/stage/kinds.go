package stage

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

//go:embed kinds.yaml
var samples []byte

// Sample returns a new object of a kind, from kinds.yaml. If the kind is namespaced, the object is
// in the given namespace. The test fails if kinds.yaml has no object of the kind.
func Sample(tb testing.TB, kind kinds.Kind, namespace string) *unstructured.Unstructured {
	tb.Helper()
	o, err := sample(kind)
	if err != nil {
		tb.Fatal(err)
	}
	if !kind.ClusterScoped {
		o.SetNamespace(namespace)
	}
	return o
}

func sample(kind kinds.Kind) (*unstructured.Unstructured, error) {
	for document := range bytes.SplitSeq(samples, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
			return nil, fmt.Errorf("read kinds.yaml: %w", err)
		}
		if o.GroupVersionKind() == kind.GroupVersionKind {
			return o, nil
		}
	}
	return nil, errors.New("kinds.yaml has no " + kind.Kind + ": add a small object of this kind to test/e2e/stage/kinds.yaml")
}
