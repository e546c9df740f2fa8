package awsidentity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
)

// Users knows which objects use which identity.
type Users struct {
	memory     client.Reader
	identities *identity.Identities
	kinds      []userKind
}

// userKind is a kind of objects that name an identity.
type userKind struct {
	list     func() client.ObjectList
	informer cache.Informer
}

// identityIndex finds objects by the identity that they name.
const identityIndex = "identity"

// userKinds returns the kinds of objects that can name an identity: an empty object, and what makes
// a list.
func userKinds(bindings bool) map[client.Object]func() client.ObjectList {
	kinds := map[client.Object]func() client.ObjectList{
		&infrav1.AWSCluster{}:        func() client.ObjectList { return &infrav1.AWSClusterList{} },
		&toolkitv1.OCIRepository{}:   func() client.ObjectList { return &toolkitv1.OCIRepositoryList{} },
		&toolkitv1.Bucket{}:          func() client.ObjectList { return &toolkitv1.BucketList{} },
		&toolkitv1.ImageRepository{}: func() client.ObjectList { return &toolkitv1.ImageRepositoryList{} },
	}
	if bindings {
		kinds[&v1alpha1.WorkloadIdentityBinding{}] = func() client.ObjectList { return &v1alpha1.WorkloadIdentityBindingList{} }
	}
	return kinds
}

// NewUsers makes a Users, and indexes of the objects in memory. WorkloadIdentityBindings count only
// if the program keeps them.
func NewUsers(
	ctx context.Context, memory client.Reader, informers cache.Informers, indexer client.FieldIndexer, identities *identity.Identities, bindings bool,
) (*Users, error) {
	u := &Users{memory: memory, identities: identities}
	for empty, list := range userKinds(bindings) {
		if err := indexer.IndexField(ctx, empty, identityIndex, identityOf); err != nil {
			return nil, fmt.Errorf("index objects of type %T by identity: %w", empty, err)
		}
		informer, err := informers.GetInformer(ctx, empty, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch objects of type %T: %w", empty, err)
		}
		u.kinds = append(u.kinds, userKind{list: list, informer: informer})
	}
	return u, nil
}

// ByObject says what a manager's cache keeps for AWS identities. Their static keys are in one
// namespace; without a namespace, no Secret is kept.
func ByObject(secretNamespace string) map[client.Object]cache.ByObject {
	kept := map[client.Object]cache.ByObject{}
	for _, kind := range []client.Object{
		&v1alpha1.AWSClusterControllerIdentity{}, &v1alpha1.AWSClusterStaticIdentity{}, &v1alpha1.AWSClusterRoleIdentity{},
		&v1alpha1.AWSServiceAccountIdentity{},
	} {
		kept[kind] = cache.ByObject{Transform: object.Remember}
	}
	if secretNamespace != "" {
		kept[&corev1.Secret{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{secretNamespace: {}},
			Field:      fields.OneTermEqualSelector("type", v1alpha1.SecretTypeAWSStatic),
		}
	}
	return kept
}

// RememberRef strips a source to what tells whose identity it uses, for ByObject.Transform.
func RememberRef(stored any) (any, error) {
	switch o := stored.(type) {
	case *toolkitv1.OCIRepository:
		return &toolkitv1.OCIRepository{ObjectMeta: nameOf(o), Spec: toolkitv1.OCIRepositorySpec{RegistryAccess: toolkitv1.RegistryAccess{IdentityRef: o.Spec.IdentityRef}}}, nil
	case *toolkitv1.Bucket:
		return &toolkitv1.Bucket{ObjectMeta: nameOf(o), Spec: toolkitv1.BucketSpec{IdentityRef: o.Spec.IdentityRef}}, nil
	case *toolkitv1.ImageRepository:
		return &toolkitv1.ImageRepository{ObjectMeta: nameOf(o), Spec: toolkitv1.ImageRepositorySpec{RegistryAccess: toolkitv1.RegistryAccess{IdentityRef: o.Spec.IdentityRef}}}, nil
	default:
		return stored, nil // the end of an object that the watch has missed
	}
}

// nameOf returns the metadata of an object that memory needs.
func nameOf(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// identityOf is the index of the identity that an object names.
func identityOf(o client.Object) []string {
	subject, ok := subjectOf(o)
	if !ok {
		return nil
	}
	return []string{subject.String()}
}

// subjectOf returns the identity that an object names.
func subjectOf(user any) (auth.Subject, bool) {
	var ref *meta.AWSIdentityReference
	switch o := user.(type) {
	case *infrav1.AWSCluster:
		named := RefOf(o)
		ref = &named
	case *toolkitv1.OCIRepository:
		ref = o.Spec.IdentityRef
	case *toolkitv1.Bucket:
		ref = o.Spec.IdentityRef
	case *toolkitv1.ImageRepository:
		ref = o.Spec.IdentityRef
	case *v1alpha1.WorkloadIdentityBinding:
		if named := o.Spec.IdentityRef; named != nil {
			ref = &meta.AWSIdentityReference{Kind: named.Kind, Name: named.Name}
		}
	}
	named, ok := user.(client.Object)
	if ref == nil || !ok {
		return auth.Subject{}, false
	}
	subject, err := spec.AWSIdentity(ref.Kind, named.GetNamespace(), ref.Name)
	return subject, err == nil
}

// RefOf returns the identity that an AWSCluster names. One without a reference, which only an
// object from before the schema's default has, names the AWSClusterControllerIdentity default.
func RefOf(o *infrav1.AWSCluster) meta.AWSIdentityReference {
	if o.Spec.IdentityRef == nil {
		return meta.AWSIdentityReference{Kind: v1alpha1.AWSClusterControllerIdentityKind, Name: v1alpha1.DefaultControllerIdentity}
	}
	return *o.Spec.IdentityRef
}

// Count returns how many objects use an identity, directly or in a chain. An object whose namespace
// is not admitted does not count: it would otherwise keep the administrator from deleting the
// identity.
func (u *Users) Count(ctx context.Context, subject auth.Subject) (int32, error) {
	var users int32
	dependents, err := u.identities.Dependents(subject)
	if err != nil {
		return 0, err
	}
	for _, dependent := range dependents {
		admitted := map[string]bool{} // by namespace
		for _, kind := range u.kinds {
			err := object.Each(ctx, u.memory, kind.list(), func(o client.Object) {
				admits, known := admitted[o.GetNamespace()]
				if !known {
					admits = !identity.IsUsageRefused(u.identities.Admits(ctx, o.GetNamespace(), dependent))
					admitted[o.GetNamespace()] = admits
				}
				if admits {
					users++
				}
			}, client.MatchingFields{identityIndex: dependent.String()})
			if err != nil {
				return 0, fmt.Errorf("list who uses %s: %w", subject, err)
			}
		}
	}
	return users, nil
}

// DependencyOn is a use of an identity as something that objects depend on.
func DependencyOn(use identity.Use) object.Dependency {
	d := object.DependencyOn(use.Identity)
	d.UsedIn = use.Namespace
	return d
}

// Subscribe calls changed for each identity that may answer otherwise than before. When an object
// begins or ceases to use an identity, it calls changed for each identity of the chain. The context
// is that of the program.
func (u *Users) Subscribe(ctx context.Context, changed func(object.Dependency)) {
	u.identities.SubscribeUse(func(use identity.Use) { changed(DependencyOn(use)) })
	see := func(objects ...any) {
		for _, o := range objects {
			subject, ok := subjectOf(o)
			if !ok {
				continue
			}
			chain, _ := u.identities.Chain(ctx, subject) // as far as it is known
			for _, link := range chain {
				changed(object.DependencyOn(link))
			}
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { see(o) },
		UpdateFunc: func(last, next any) {
			before, _ := subjectOf(last)
			if now, _ := subjectOf(next); now != before {
				see(last, next)
			}
		},
		DeleteFunc: func(o any) {
			if missed, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			see(o)
		},
	}
	for _, kind := range u.kinds {
		_, _ = kind.informer.AddEventHandler(handler)
	}
}
