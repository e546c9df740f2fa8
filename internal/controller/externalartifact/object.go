package externalartifact

import (
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

// Label and value of Lanyard's ExternalArtifacts. They are for people; no code reads them.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "lanyard"
)

// reasonFetchFailed is Flux's reason for an artifact that could not be updated.
const reasonFetchFailed = "FetchFailed"

// Source is the object for which an ExternalArtifact is made. Its API group is toolkit.lanyard.dev.
type Source struct {
	// Kind is the object's kind, such as OCIRepository.
	Kind string
	// Namespace and Name are shared by the object and the ExternalArtifact.
	Namespace, Name string
	// UID distinguishes the object from an earlier object of the same name.
	UID types.UID
}

// Offer is the artifact that a source offers to Flux, and the source's state.
type Offer struct {
	// Artifact is the artifact that Lanyard serves. Required.
	Artifact *v1alpha1.Artifact
	// Failed is the reason why Artifact is out of date; empty if Artifact is current.
	Failed string
	// Suspended says that Artifact is usable, but that Lanyard does not look for a newer artifact.
	Suspended bool
}

// empty returns an ExternalArtifact without content.
func empty() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return o
}

// fresh returns the source's ExternalArtifact in the form in which it is created.
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

// describe writes the metadata and spec that name the source. Labels that somebody else has added
// stay.
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

// owns reports whether the ExternalArtifact was made for exactly this source: its owner reference
// has the source's UID.
func (s Source) owns(o *unstructured.Unstructured) bool {
	return s.owned(o) && metav1.GetControllerOf(o).UID == s.UID && s.UID != ""
}

// owned reports whether the ExternalArtifact was made for a source of this kind and name: for this
// source, or for an earlier source that was deleted.
func (s Source) owned(o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == v1alpha1.Group && owner.Kind == s.Kind && owner.Name == s.Name
}

// offer writes the status that Flux reads. If the status of the condition Ready stays the same, its
// lastTransitionTime stays too.
func (s Source) offer(o *unstructured.Unstructured, offer Offer) {
	a := offer.Artifact
	artifact := map[string]any{
		"url": a.URL, "path": a.Path, "revision": a.Revision, "digest": a.Digest, "size": a.Size,
		"lastUpdateTime": a.LastUpdateTime.UTC().Format(time.RFC3339),
	}
	if len(a.Metadata) > 0 {
		metadata := make(map[string]any, len(a.Metadata))
		for key, value := range a.Metadata {
			metadata[key] = value
		}
		artifact["metadata"] = metadata
	}
	ready := map[string]any{
		"type": meta.ConditionReady, "status": string(metav1.ConditionTrue), "reason": meta.ReasonSucceeded,
		"message": "stored artifact for revision " + a.Revision, "observedGeneration": o.GetGeneration(),
	}
	switch {
	case offer.Failed != "":
		// The source's own message is only for people who may read the source, so do not copy it.
		ready["status"], ready["reason"] = string(metav1.ConditionFalse), reasonFetchFailed
		ready["message"] = "the artifact of revision " + a.Revision + " is an earlier one: see the conditions of " + s.Kind + " " + s.Name + ", " + offer.Failed
	case offer.Suspended:
		// Flux's own sources stay ready while they are suspended, so that they can still be used.
		ready["reason"] = meta.ReasonSuspended
		ready["message"] = "the artifact of revision " + a.Revision + " stays as it is: " + s.Kind + " " + s.Name + " is suspended"
	}
	ready["lastTransitionTime"] = transition(o, ready["status"])
	o.Object["status"] = map[string]any{"artifact": artifact, "conditions": []any{ready}}
}

// transition returns the lastTransitionTime for the condition Ready. If the condition already has
// the given status, its time stays. Otherwise the time is now.
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
