package externalartifact

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// Names of Flux's kind.
const (
	group    = "source.toolkit.fluxcd.io"
	version  = "v1"
	kind     = "ExternalArtifact"
	resource = "externalartifacts"
)

// Label and value of what is ours, for people; nothing is decided by it.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "lanyard"
)

// reasonFetchFailed is Flux's reason for an artifact that could not be brought up to date.
const reasonFetchFailed = "FetchFailed"

// Source is the object that an ExternalArtifact is made for. It is of the API group toolkit.lanyard.dev.
type Source struct {
	// Kind is the object's, such as OCIRepository.
	Kind string
	// Namespace and Name are the object's, and the ExternalArtifact's.
	Namespace, Name string
	// UID tells the object from an earlier one of its name.
	UID types.UID
}

// Offer is what a source has for Flux.
type Offer struct {
	// Artifact is served. Required.
	Artifact *v1alpha1.Artifact
	// Failed is the reason why Artifact is an earlier one than the source asks for; empty when it is not.
	Failed string
	// Suspended says that Artifact is well, and nobody looks for another.
	Suspended bool
}

// empty is an ExternalArtifact without content.
func empty() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return o
}

// fresh is the source's ExternalArtifact as it is created.
func (s Source) fresh() *unstructured.Unstructured {
	o := empty()
	o.SetNamespace(s.Namespace)
	o.SetName(s.Name)
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: s.Kind, Name: s.Name, UID: s.UID, Controller: new(true),
	}})
	s.describe(o)
	return o
}

// describe writes what the object says of its source. Labels of others stay.
func (s Source) describe(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel] = managedBy
	o.SetLabels(labels)
	o.Object["spec"] = map[string]any{
		"sourceRef": map[string]any{"apiVersion": v1alpha1.GroupVersion().String(), "kind": s.Kind, "name": s.Name},
	}
}

// owns reports whether the ExternalArtifact was made for this very source.
func (s Source) owns(o *unstructured.Unstructured) bool {
	return s.owned(o) && metav1.GetControllerOf(o).UID == s.UID && s.UID != ""
}

// owned reports whether the ExternalArtifact was made for a source of this kind and name: this one, or one that is gone.
func (s Source) owned(o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == v1alpha1.Group && owner.Kind == s.Kind && owner.Name == s.Name
}

// offer writes the status that Flux reads. A condition that says the same keeps its time.
func (s Source) offer(o *unstructured.Unstructured, offer Offer) {
	a := offer.Artifact
	artifact := map[string]any{
		"url": a.URL, "path": a.Path, "revision": a.Revision, "digest": a.Digest, "size": a.Size,
		"lastUpdateTime": a.LastUpdateTime.UTC().Format(time.RFC3339),
	}
	if len(a.Metadata) > 0 {
		metadata := make(map[string]any, len(a.Metadata))
		for _, key := range slices.Sorted(maps.Keys(a.Metadata)) {
			metadata[key] = a.Metadata[key]
		}
		artifact["metadata"] = metadata
	}
	ready := map[string]any{
		"type": meta.ConditionReady, "status": string(metav1.ConditionTrue), "reason": meta.ReasonSucceeded,
		"message": "stored artifact for revision " + a.Revision, "observedGeneration": o.GetGeneration(),
	}
	switch {
	case offer.Failed != "":
		// The source's own message is for those who may read the source.
		ready["status"], ready["reason"] = string(metav1.ConditionFalse), reasonFetchFailed
		ready["message"] = "the artifact of revision " + a.Revision + " is an earlier one: see the conditions of " + s.Kind + " " + s.Name + ", " + offer.Failed
	case offer.Suspended:
		// Flux's own sources stay ready while they are suspended, and who consumes them goes on.
		ready["reason"] = meta.ReasonSuspended
		ready["message"] = "the artifact of revision " + a.Revision + " stays as it is: " + s.Kind + " " + s.Name + " is suspended"
	}
	ready["lastTransitionTime"] = transition(o, ready["status"])
	o.Object["status"] = map[string]any{"artifact": artifact, "conditions": []any{ready}}
}

// transition is since when the condition Ready has had the status: it is now that it changes.
func transition(o *unstructured.Unstructured, status any) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != meta.ConditionReady || condition["status"] != status {
			continue
		}
		if since, ok := condition["lastTransitionTime"].(string); ok {
			return since
		}
	}
	return time.Now().UTC().Format(time.RFC3339)
}
