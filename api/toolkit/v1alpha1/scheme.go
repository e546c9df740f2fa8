package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the name of the API group.
const Group = "toolkit.lanyard.dev"

// Version is the version of the API group that this package holds.
const Version = "v1alpha1"

// GroupVersion returns the group and version of the types in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme registers the types of this package with s. It panics if s already has another Go
// type for one of the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&Bucket{}, &BucketList{},
		&ImageRepository{}, &ImageRepositoryList{},
		&Kustomization{}, &KustomizationList{},
		&OCIRepository{}, &OCIRepositoryList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
