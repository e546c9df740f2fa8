// Package v1alpha1 has the API type of the kind TagList. A real kind is in module api. There, `make
// generate` writes the CRD and the methods for deep copies.
package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TagList uses a tenant's identity to list the tags of a repository. Its artifact has at most ten
// tags: those that come last in byte order.
type TagList struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   TagListSpec   `json:"spec"`
	Status TagListStatus `json:"status"`
}

// TagListSpec says which repository is listed, and with which identity.
type TagListSpec struct {
	toolkitv1.Schedule    `json:",inline"`
	toolkitv1.Access      `json:",inline"`
	toolkitv1.Publication `json:",inline"`

	// URL is the address of the repository, with the scheme oci.
	URL string `json:"url"`
}

// TagListStatus says which artifact was made.
type TagListStatus struct {
	meta.Status              `json:",inline"`
	toolkitv1.ArtifactStatus `json:",inline"`
}

// TagListList is a list of TagLists.
type TagListList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []TagList `json:"items"`
}

// GetStatus implements kinds.Object.
func (o *TagList) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus implements kinds.Actor.
func (o *TagList) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetSchedule implements kinds.Tenant.
func (o *TagList) GetSchedule() *toolkitv1.Schedule { return &o.Spec.Schedule }

// GetAccess implements kinds.Tenant.
func (o *TagList) GetAccess() *toolkitv1.Access { return &o.Spec.Access }

// GetPublication implements kinds.Keeper.
func (o *TagList) GetPublication() *toolkitv1.Publication { return &o.Spec.Publication }

// GetArtifactStatus implements kinds.Keeper.
func (o *TagList) GetArtifactStatus() *toolkitv1.ArtifactStatus { return &o.Status.ArtifactStatus }

// DeepCopyObject implements runtime.Object.
func (o *TagList) DeepCopyObject() runtime.Object { return copyOf(o, &TagList{}) }

// DeepCopyObject implements runtime.Object.
func (l *TagListList) DeepCopyObject() runtime.Object { return copyOf(l, &TagListList{}) }

// copyOf fills an empty object with the content of another one.
func copyOf[O runtime.Object](from, to O) O {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err) // cannot happen: the types above have a JSON form
	}
	return to
}
