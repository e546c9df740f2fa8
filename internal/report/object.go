package report

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// Resource is a custom resource with the status that all of Lanyard's resources have.
type Resource interface {
	client.Object

	// GetStatus returns the object's status, for reading and writing.
	GetStatus() *meta.Status
}

// Object is an object that fetches, a WorkloadIdentityBinding, an AWSCluster or an AWS identity.
// The fields have the values that each kind keeps in a different place.
type Object struct {
	Resource

	// Kind is the kind's name in manifests.
	Kind string
	// Source names the thing that is fetched: a repository, a bucket, an image. Of a binding it names
	// the Secret.
	Source string
	// Account is spec.serviceAccountName.
	Account string
	// WorkloadIdentity is the WorkloadIdentity that the object names.
	WorkloadIdentity string
	// AWSIdentity is the AWS identity that the object names, or is; nil for none.
	AWSIdentity *meta.AWSIdentityReference
	// CloudIdentity is the identity at AWS of an AWSCluster or an AWS identity; empty for none.
	CloudIdentity string
	// Used is the identity that was used; nil for none, and for bindings.
	Used *meta.Identity
	// ExpiresAt is when the credential of a binding ends; nil for none.
	ExpiresAt *metav1.Time
	// Suspended is spec.suspend.
	Suspended bool
	// Artifact is the status's artifact; nil for none, and for kinds without artifacts.
	Artifact *v1alpha1.Artifact
	// Scan is an ImageRepository's last scan; nil for none.
	Scan *v1alpha1.ScanResult

	lent bool // an AWSCluster or an AWS identity
}

// Kinds returns the names of the kinds that fetch, in the order of [List].
func Kinds() []string {
	return []string{v1alpha1.OCIRepositoryKind, v1alpha1.BucketKind, v1alpha1.ImageRepositoryKind}
}

// Get reads an object of one of [Kinds], a WorkloadIdentityBinding or an AWSCluster.
func Get(ctx context.Context, c client.Reader, kind string, key client.ObjectKey) (Object, error) {
	resource, ok := map[string]Resource{
		v1alpha1.OCIRepositoryKind: &v1alpha1.OCIRepository{}, v1alpha1.BucketKind: &v1alpha1.Bucket{}, v1alpha1.ImageRepositoryKind: &v1alpha1.ImageRepository{},
		identityv1.WorkloadIdentityBindingKind: &identityv1.WorkloadIdentityBinding{}, infrav1.AWSClusterKind: &infrav1.AWSCluster{},
	}[kind]
	if !ok {
		return Object{}, fmt.Errorf("there is no kind %s", kind)
	}
	if err := c.Get(ctx, key, resource); err != nil {
		return Object{}, fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	return Read(resource), nil
}

// List reads the objects of all kinds in a namespace, or in all namespaces if it is empty. Bindings
// are left out if the caller may not see them, or the cluster does not know them.
func List(ctx context.Context, c client.Reader, namespace string) ([]Object, error) {
	var objects []Object
	for i, list := range []client.ObjectList{&v1alpha1.OCIRepositoryList{}, &v1alpha1.BucketList{}, &v1alpha1.ImageRepositoryList{}} {
		if err := add(ctx, c, namespace, list, &objects); err != nil {
			return nil, fmt.Errorf("list objects of kind %s: %w", Kinds()[i], err)
		}
	}
	err := add(ctx, c, namespace, &identityv1.WorkloadIdentityBindingList{}, &objects)
	if err != nil && !apierrors.IsForbidden(err) && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list objects of kind %s: %w", identityv1.WorkloadIdentityBindingKind, err)
	}
	return objects, nil
}

// add appends the objects of a kind.
func add(ctx context.Context, c client.Reader, namespace string, list client.ObjectList, objects *[]Object) error {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		*objects = append(*objects, Read(o.(Resource))) //nolint:forcetypeassert // all kinds in lists are resources
		return nil
	})
}

// Read finds in an object what its kind alone has.
func Read(resource Resource) Object {
	switch o := resource.(type) {
	case *v1alpha1.OCIRepository:
		return Object{
			Resource: o, Kind: v1alpha1.OCIRepositoryKind, Source: o.Spec.URL, Account: o.Spec.ServiceAccountName,
			WorkloadIdentity: o.Spec.WorkloadIdentityName, AWSIdentity: o.Spec.IdentityRef, Suspended: o.Spec.Suspend,
			Used: o.Status.Identity, Artifact: o.Status.Artifact,
		}
	case *v1alpha1.Bucket:
		source := o.Spec.BucketName
		if o.Spec.Endpoint != "" {
			source = o.Spec.Endpoint + "/" + source
		}
		return Object{
			Resource: o, Kind: v1alpha1.BucketKind, Source: source, Account: o.Spec.ServiceAccountName,
			WorkloadIdentity: o.Spec.WorkloadIdentityName, AWSIdentity: o.Spec.IdentityRef, Suspended: o.Spec.Suspend,
			Used: o.Status.Identity, Artifact: o.Status.Artifact,
		}
	case *v1alpha1.ImageRepository:
		return Object{
			Resource: o, Kind: v1alpha1.ImageRepositoryKind, Source: o.Spec.Image, Account: o.Spec.ServiceAccountName,
			WorkloadIdentity: o.Spec.WorkloadIdentityName, AWSIdentity: o.Spec.IdentityRef, Suspended: o.Spec.Suspend,
			Used: o.Status.Identity, Scan: o.Status.LastScanResult,
		}
	case *identityv1.WorkloadIdentityBinding:
		return readBinding(o)
	case *infrav1.AWSCluster:
		return readAWSCluster(o)
	case *identityv1.AWSServiceAccountIdentity:
		return readAWSIdentity(o, identityv1.AWSServiceAccountIdentityKind, o.Spec.RoleARN, o.Status.ARN)
	case *identityv1.AWSClusterControllerIdentity:
		return readAWSIdentity(o, identityv1.AWSClusterControllerIdentityKind, chainOf(o.Status), o.Status.ARN)
	case *identityv1.AWSClusterRoleIdentity:
		return readAWSIdentity(o, identityv1.AWSClusterRoleIdentityKind, chainOf(o.Status), o.Status.ARN)
	case *identityv1.AWSClusterStaticIdentity:
		return readAWSIdentity(o, identityv1.AWSClusterStaticIdentityKind, chainOf(o.Status), o.Status.ARN)
	default:
		return Object{Resource: o}
	}
}

func readBinding(o *identityv1.WorkloadIdentityBinding) Object {
	read := Object{
		Resource: o, Kind: identityv1.WorkloadIdentityBindingKind, Source: "Secret " + o.Spec.Store.SecretRef.Name, ExpiresAt: o.Status.ExpiresAt,
	}
	switch named, ref := o.Spec.WorkloadIdentity, o.Spec.IdentityRef; {
	case named != nil:
		read.WorkloadIdentity = named.Name
	case ref != nil:
		read.AWSIdentity = &meta.AWSIdentityReference{Kind: ref.Kind, Name: ref.Name}
	}
	return read
}
