package desired

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// Variables are the values of spec.postBuild.
type Variables struct {
	// Values has the value of each variable.
	Values map[string]string
	// Read says that ConfigMaps or Secrets can have values.
	Read bool
	// Secret says that some values come from Secrets.
	Secret bool
	// Versions are the resourceVersions of the ConfigMaps and Secrets.
	Versions []string
}

// VariablesError says that a ConfigMap or a Secret with variables cannot be read.
type VariablesError struct {
	// Field is the field that names the object, such as "spec.postBuild.substituteFrom[0]".
	Field string
	// Kind and Name are those of the object.
	Kind, Name string
	// Err is the API server's answer.
	Err error
}

// Error implements error.
func (e *VariablesError) Error() string {
	fix := "let this user get it"
	if apierrors.IsNotFound(e.Err) {
		fix = "create it, or set optional"
	}
	return fmt.Sprintf("%s: read %s %s: %v; %s", e.Field, e.Kind, e.Name, e.Err, fix)
}

// Unwrap returns the API server's answer.
func (e *VariablesError) Unwrap() error { return e.Err }

// ReadVariables reads the ConfigMaps and Secrets of spec.postBuild with the rights of the reader. The
// error is a [*VariablesError].
func ReadVariables(ctx context.Context, reader client.Reader, o *v1alpha1.Kustomization) (Variables, error) {
	post := o.Spec.PostBuild
	if post == nil {
		return Variables{}, nil
	}
	v := Variables{Values: map[string]string{}, Read: len(post.SubstituteFrom) > 0}
	for i, ref := range post.SubstituteFrom {
		name := client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}
		values, version, err := readReference(ctx, reader, ref.Kind, name)
		if apierrors.IsNotFound(err) && ref.Optional {
			continue
		}
		if err != nil {
			return v, &VariablesError{Field: fmt.Sprintf("spec.postBuild.substituteFrom[%d]", i), Kind: ref.Kind, Name: ref.Name, Err: err}
		}
		maps.Copy(v.Values, values)
		v.Versions = append(v.Versions, version)
		v.Secret = v.Secret || ref.Kind == "Secret"
	}
	maps.Copy(v.Values, post.Substitute)
	return v, nil
}

// readReference reads the values of a ConfigMap or a Secret, and its resourceVersion.
func readReference(ctx context.Context, reader client.Reader, kind string, name client.ObjectKey) (values map[string]string, version string, err error) {
	switch kind {
	case "ConfigMap":
		o := &corev1.ConfigMap{}
		err := reader.Get(ctx, name, o)
		return o.Data, o.ResourceVersion, err
	case "Secret":
		o := &corev1.Secret{}
		err := reader.Get(ctx, name, o)
		values := make(map[string]string, len(o.Data))
		for key, value := range o.Data {
			values[key] = string(value)
		}
		return values, o.ResourceVersion, err
	default:
		return nil, "", fmt.Errorf("%q is neither ConfigMap nor Secret", kind)
	}
}
