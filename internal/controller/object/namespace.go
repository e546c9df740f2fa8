package object

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NamespaceLabels returns a function that reads the labels of a namespace live. It is for the field
// NamespaceLabels of spec.Rules, in package auth/spec.
func NamespaceLabels(live client.Reader) func(ctx context.Context, name string) (map[string]string, error) {
	return func(ctx context.Context, name string) (map[string]string, error) {
		namespace := &metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err := live.Get(ctx, client.ObjectKey{Name: name}, namespace)
		return namespace.Labels, Forbidden(err, "get", "namespaces", "")
	}
}
