package awsidentity

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// Users finds the objects that use an AWS identity.
type Users struct {
	memory     client.Reader
	identities *identity.Identities
	kinds      []userKind
}

// userKind is a kind of objects that can name an identity.
type userKind struct {
	kinds.Kind

	informer cache.Informer
}

// identityIndex is the name of the index that finds objects by the identity that they name.
const identityIndex = "identity"

// NewUsers makes a Users for those kinds in the table whose objects can name an AWS identity. It
// adds an index for each of these kinds to the program's cache. The program's cache must hold the
// objects of these kinds.
func NewUsers(
	ctx context.Context, memory client.Reader, informers cache.Informers, indexer client.FieldIndexer, identities *identity.Identities, table kinds.Table,
) (*Users, error) {
	u := &Users{memory: memory, identities: identities}
	for _, kind := range table.Where(kinds.Kind.UsesAWSIdentities) {
		if err := indexer.IndexField(ctx, kind.New(), identityIndex, indexOf(kind)); err != nil {
			return nil, fmt.Errorf("index objects of kind %s by identity: %w", kind.Kind, err)
		}
		informer, err := informers.GetInformer(ctx, kind.New(), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch objects of kind %s: %w", kind.Kind, err)
		}
		u.kinds = append(u.kinds, userKind{kind, informer})
	}
	return u, nil
}

// ByObject returns the settings of a manager's cache for each kind of object that AWS identities
// need. These kinds are the AWS identities in the table, Namespaces and Secrets. Of a Namespace,
// the cache holds the labels. Of the Secrets, the cache holds those in secretNamespace that have
// static AWS keys. If secretNamespace is empty, the cache holds no Secrets.
func ByObject(table kinds.Table, secretNamespace string) map[client.Object]cache.ByObject {
	kept := map[client.Object]cache.ByObject{}
	for _, kind := range table.Where(func(k kinds.Kind) bool { return k.AWSIdentity }) {
		kept[kind.New()] = cache.ByObject{Transform: object.Remember}
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	kept[namespace] = cache.ByObject{Transform: memory.Kept{Labels: true}.Remember} // grants select namespaces by label
	if secretNamespace != "" {
		kept[&corev1.Secret{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{secretNamespace: {}},
			Field:      fields.OneTermEqualSelector("type", v1alpha1.SecretTypeAWSStatic),
		}
	}
	return kept
}

// UsersByObject returns the settings of a manager's cache for the kinds in the table whose objects
// can name an AWS identity. Pass the same table to [NewUsers]. Some of these kinds are reconciled
// by other programs. For the objects of those kinds, the cache holds only what identifies the
// object, and its reference to an AWS identity.
func UsersByObject(table kinds.Table) map[client.Object]cache.ByObject {
	kept := map[client.Object]cache.ByObject{}
	for _, kind := range table.Where(kinds.Kind.UsesAWSIdentities) {
		keep := object.Remember
		if kind.OnlyIdentityRef != nil {
			keep = rememberRef(kind)
		}
		kept[kind.New()] = cache.ByObject{Transform: keep}
	}
	return kept
}

// rememberRef returns a cache's transform. The transform keeps only what identifies an object, and
// the object's reference to an AWS identity. It leaves out the rest before it bounds the size, because
// the inventory of a Kustomization may be large.
func rememberRef(kind kinds.Kind) toolscache.TransformFunc {
	return func(stored any) (any, error) {
		o, ok := stored.(kinds.Resource)
		if !ok {
			return stored, nil // a tombstone of the cache: the watch has missed a deletion
		}
		kept := kind.OnlyIdentityRef(o)
		kept.SetNamespace(o.GetNamespace())
		kept.SetName(o.GetName())
		kept.SetUID(o.GetUID())
		kept.SetResourceVersion(o.GetResourceVersion())
		return memory.Kept{}.Remember(kept)
	}
}

// referenced returns the AWS identities that an object's reference can refer to.
func referenced(kind kinds.Kind, o client.Object) []auth.Subject {
	ref := kind.IdentityRef(o)
	if ref == nil {
		return nil
	}
	return identity.Referenced(ref.Kind, o.GetNamespace(), ref.Name)
}

// indexOf returns the index function for a kind. The function lists the AWS identities that an
// object's reference can refer to.
func indexOf(kind kinds.Kind) client.IndexerFunc {
	return func(o client.Object) []string {
		var names []string
		for _, subject := range referenced(kind, o) {
			names = append(names, subject.String())
		}
		return names
	}
}

// Count returns how many objects use an identity, directly or as the source of another identity. An
// object does not count if its namespace may not use the identity that it names. Otherwise any
// object could prevent the administrator from deleting the identity.
//
// A reference of unknown kind may mean any identity with the referenced name. An object with such a
// reference counts as a user of each of these identities, and is logged.
func (u *Users) Count(ctx context.Context, subject auth.Subject) (int32, error) {
	var users int32
	dependents, err := u.identities.Dependents(subject)
	if err != nil {
		return 0, err
	}
	for _, dependent := range dependents {
		admitted := map[string]bool{} // namespace -> whether the identity admits it
		for _, kind := range u.kinds {
			err := object.Each(ctx, u.memory, kind.NewList(), func(o client.Object) {
				admits, known := admitted[o.GetNamespace()]
				if !known {
					admits = !identity.IsUsageRefused(u.identities.Admits(ctx, o.GetNamespace(), dependent))
					admitted[o.GetNamespace()] = admits
				}
				if !admits {
					return
				}
				users++
				if _, err := kind.NamedIdentity(o); err != nil {
					log.FromContext(ctx).Info("counts a user whose reference to an AWS identity is wrong", "identity", dependent.String(),
						"userKind", kind.Kind, "userNamespace", o.GetNamespace(), "userName", o.GetName(), "problem", err.Error())
				}
			}, client.MatchingFields{identityIndex: dependent.String()})
			if err != nil {
				return 0, fmt.Errorf("list who uses %s: %w", subject, err)
			}
		}
	}
	return users, nil
}

// DependencyOn returns a dependency on use.Identity. The dependency's field UsedIn is
// use.Namespace. So a change of the identity affects only the dependents in this namespace, and
// cluster-scoped dependents. If the namespace is empty, a change affects all dependents.
func DependencyOn(use identity.Use) object.Dependency {
	d := object.DependencyOn(use.Identity)
	d.UsedIn = use.Namespace
	return d
}

// Subscribe registers a function that is called after a change of an identity, of its credential or
// of a grant. The function is also called when an identity may have more or fewer users:
//   - When an object begins or ceases to use an identity, it is called once for this identity, and
//     once for each of its sources.
//   - After a change of an identity or of its grant, it is also called for each of its sources.
func (u *Users) Subscribe(changed func(object.Dependency)) {
	u.identities.SubscribeUse(func(use identity.Use) { changed(DependencyOn(use)) })
	u.identities.SubscribeUsers(func(source auth.Subject) { changed(object.DependencyOn(source)) })
	for _, kind := range u.kinds {
		_, _ = kind.informer.AddEventHandler(u.handler(kind.Kind, changed))
	}
}

// handler returns an event handler for the objects of a kind. The event handler calls changed()
// when an object begins or ceases to use an identity. It calls changed() for this identity and for
// each of its sources.
func (u *Users) handler(kind kinds.Kind, changed func(object.Dependency)) toolscache.ResourceEventHandler {
	named := func(seen any) []auth.Subject {
		o, ok := seen.(client.Object)
		if !ok {
			return nil
		}
		return referenced(kind, o)
	}
	see := func(objects ...any) {
		for _, o := range objects {
			for _, subject := range named(o) {
				for _, needed := range u.identities.Needs(subject) {
					changed(object.DependencyOn(needed))
				}
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { see(o) },
		UpdateFunc: func(last, next any) {
			if !slices.Equal(named(next), named(last)) {
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
}
