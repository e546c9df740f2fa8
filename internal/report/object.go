package report

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// Object is what all kinds that fetch have in common, as it was read.
type Object struct {
	client.Object

	// Kind is the kind's name in manifests.
	Kind string
	// Source is what is fetched: a repository, a bucket, an image.
	Source string
	// Account is spec.serviceAccountName.
	Account string
	// Suspended is spec.suspend.
	Suspended bool
	// Observed is status.observedGeneration.
	Observed int64
	// Handled is status.lastHandledReconcileAt.
	Handled string
	// Conditions are the status'.
	Conditions []metav1.Condition
	// Identity is the status'; nil for none.
	Identity *meta.Identity
	// Artifact is the status'; nil for none, and for kinds without one.
	Artifact *v1alpha1.Artifact
	// Scan is an ImageRepository's last scan; nil for none.
	Scan *v1alpha1.ScanResult
}

// Kinds are the names of the kinds that are reported, in the order of [List].
func Kinds() []string {
	return []string{v1alpha1.OCIRepositoryKind, v1alpha1.BucketKind, v1alpha1.ImageRepositoryKind}
}

// List reads the objects of all kinds in a namespace, or in all if it is empty.
func List(ctx context.Context, c client.Reader, namespace string) ([]Object, error) {
	var (
		repositories v1alpha1.OCIRepositoryList
		buckets      v1alpha1.BucketList
		images       v1alpha1.ImageRepositoryList
		objects      []Object
	)
	for i, list := range []client.ObjectList{&repositories, &buckets, &images} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list objects of kind %s: %w", Kinds()[i], err)
		}
	}
	for i := range repositories.Items {
		objects = append(objects, OfOCIRepository(&repositories.Items[i]))
	}
	for i := range buckets.Items {
		objects = append(objects, OfBucket(&buckets.Items[i]))
	}
	for i := range images.Items {
		objects = append(objects, OfImageRepository(&images.Items[i]))
	}
	return objects, nil
}

// OfOCIRepository reads an OCIRepository.
func OfOCIRepository(o *v1alpha1.OCIRepository) Object {
	return Object{
		Object: o, Kind: v1alpha1.OCIRepositoryKind, Source: o.Spec.URL, Account: o.Spec.ServiceAccountName, Suspended: o.Spec.Suspend,
		Observed: o.Status.ObservedGeneration, Handled: o.Status.LastHandledReconcileAt,
		Conditions: o.Status.Conditions, Identity: o.Status.Identity, Artifact: o.Status.Artifact,
	}
}

// OfBucket reads a Bucket.
func OfBucket(o *v1alpha1.Bucket) Object {
	source := o.Spec.BucketName
	if o.Spec.Endpoint != "" {
		source = o.Spec.Endpoint + "/" + source
	}
	return Object{
		Object: o, Kind: v1alpha1.BucketKind, Source: source, Account: o.Spec.ServiceAccountName, Suspended: o.Spec.Suspend,
		Observed: o.Status.ObservedGeneration, Handled: o.Status.LastHandledReconcileAt,
		Conditions: o.Status.Conditions, Identity: o.Status.Identity, Artifact: o.Status.Artifact,
	}
}

// OfImageRepository reads an ImageRepository.
func OfImageRepository(o *v1alpha1.ImageRepository) Object {
	return Object{
		Object: o, Kind: v1alpha1.ImageRepositoryKind, Source: o.Spec.Image, Account: o.Spec.ServiceAccountName, Suspended: o.Spec.Suspend,
		Observed: o.Status.ObservedGeneration, Handled: o.Status.LastHandledReconcileAt,
		Conditions: o.Status.Conditions, Identity: o.Status.Identity, Scan: o.Status.LastScanResult,
	}
}
