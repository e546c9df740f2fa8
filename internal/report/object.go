package report

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Resource is an object with the status that almost all of Lanyard's kinds have.
type Resource = kinds.Object

// Object is an object with its kind.
type Object struct {
	Resource

	// Kind is the object's kind.
	Kind kinds.Kind
}

// Used returns the identity whose credential was used; nil if no credential was used, or if the
// object is a binding.
func (o Object) Used() *meta.Identity {
	if actor, ok := o.Resource.(kinds.Actor); ok {
		return actor.GetFetchStatus().Identity
	}
	return nil
}

// Suspended returns spec.suspend; false for kinds without this field.
func (o Object) Suspended() bool {
	tenant, ok := o.Resource.(kinds.Tenant)
	return ok && tenant.GetSchedule().Suspend
}

// Artifact returns the artifact in the status; nil if there is none.
func (o Object) Artifact() *toolkitv1.Artifact {
	if keeper, ok := o.Resource.(kinds.Keeper); ok {
		return keeper.GetArtifactStatus().Artifact
	}
	return nil
}

// found returns the result in the status, such as an artifact or tags; nil if the status has no
// result.
func (o Object) found() *kinds.Found {
	if o.Kind.Found == nil {
		return nil
	}
	return o.Kind.Found(o.Resource)
}

// Get reads an object of a kind.
func Get(ctx context.Context, c client.Reader, kind kinds.Kind, key client.ObjectKey) (Object, error) {
	resource, ok := kind.New().(Resource)
	if !ok {
		return Object{}, fmt.Errorf("objects of kind %s have no conditions", kind.Kind)
	}
	if err := c.Get(ctx, key, resource); err != nil {
		return Object{}, fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	return Object{resource, kind}, nil
}

// List reads the objects of a namespace, or of all namespaces if the given namespace is empty. It
// reads the kinds for which [Lists] is true; [Identities] lists the kinds about AWS. It returns an
// error if the caller may not list a kind, or if the cluster does not know the kind. But if
// [kinds.Kind.Fetches] is false, as for WorkloadIdentityBinding, List leaves out the kind instead.
func List(ctx context.Context, c client.Reader, table kinds.Table, namespace string) ([]Object, error) {
	var objects []Object
	for _, kind := range table.Where(Lists) {
		err := add(ctx, c, namespace, kind, &objects)
		if !kind.Fetches() && (apierrors.IsForbidden(err) || apimeta.IsNoMatchError(err)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list objects of kind %s: %w", kind.Kind, err)
		}
	}
	return objects, nil
}

// Lists reports whether [List] lists the objects of a kind.
func Lists(k kinds.Kind) bool { return k.Success != "" && !aboutAWS(k) }

// aboutAWS reports whether [Identities] lists the objects of a kind, in place of [List].
func aboutAWS(k kinds.Kind) bool { return k.AWSIdentity || k.Server == kinds.AWS }

// add appends the objects of a kind.
func add(ctx context.Context, c client.Reader, namespace string, kind kinds.Kind, objects *[]Object) error {
	list := kind.NewList()
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		resource, ok := o.(Resource)
		if !ok {
			return fmt.Errorf("a %T has no conditions", o)
		}
		*objects = append(*objects, Object{resource, kind})
		return nil
	})
}

// Read returns a resource as an Object: together with its kind from the table. The kind is zero if
// the table lacks it.
func Read(table kinds.Table, resource Resource) Object {
	kind, _ := table.Of(resource)
	return Object{resource, kind}
}
