package kustomization

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
)

// newExternal returns an empty ExternalArtifact. Flux's kinds stay unstructured, so that no code of
// Flux's sources is linked.
func newExternal() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("source.toolkit.fluxcd.io/v1")
	o.SetKind(v1alpha1.ExternalArtifactKind)
	return o
}

// maxExternal bounds each text that the cache keeps of an ExternalArtifact, in bytes. Tenants may
// write these objects.
const maxExternal = 2048

// rememberExternal is a transform for the program's cache. It keeps what identifies an ExternalArtifact,
// its source, and the artifact. Texts that are too long are left out. An artifact without a size is
// left out, too: the program must know how much memory the download needs.
func rememberExternal(stored any) (any, error) {
	o, ok := stored.(*unstructured.Unstructured)
	if !ok {
		return stored, nil // a tombstone of the cache: the watch has missed a deletion
	}
	kept := newExternal()
	kept.SetNamespace(o.GetNamespace())
	kept.SetName(o.GetName())
	kept.SetUID(o.GetUID())
	kept.SetResourceVersion(o.GetResourceVersion())
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, fields...)
		if len(value) > maxExternal {
			return ""
		}
		return value
	}
	kept.Object["spec"] = map[string]any{"sourceRef": map[string]any{
		"kind": text("spec", "sourceRef", "kind"), "namespace": text("spec", "sourceRef", "namespace"), "name": text("spec", "sourceRef", "name"),
	}}
	size, sized, _ := unstructured.NestedInt64(o.Object, "status", "artifact", "size")
	artifact := map[string]any{"size": size}
	for _, field := range []string{"url", "revision", "digest"} {
		if artifact[field] = text("status", "artifact", field); artifact[field] == "" {
			return kept, nil
		}
	}
	if origin := text("status", "artifact", "metadata", originRevision); origin != "" {
		artifact["metadata"] = map[string]any{originRevision: origin}
	}
	if sized && size >= 0 {
		kept.Object["status"] = map[string]any{"artifact": artifact}
	}
	return kept, nil
}

// externalArtifact returns the artifact of an ExternalArtifact; nil if there is none.
func externalArtifact(o *unstructured.Unstructured) *v1alpha1.Artifact {
	fields, ok, _ := unstructured.NestedMap(o.Object, "status", "artifact")
	artifact := &v1alpha1.Artifact{}
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, artifact) != nil {
		return nil
	}
	return artifact
}

// sourceOf returns the object from which an ExternalArtifact was made. Whatever the ExternalArtifact
// says, the namespace is its own.
func sourceOf(o *unstructured.Unstructured) content.Owner {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(o.Object, "spec", "sourceRef", field)
		return value
	}
	if namespace := text("namespace"); namespace != "" && namespace != o.GetNamespace() {
		return content.Owner{}
	}
	return content.Owner{Kind: text("kind"), Namespace: o.GetNamespace(), Name: text("name")}
}
