// Package manager sets up a controller with one call. [New] makes and connects
//
//   - a controller-runtime manager;
//   - the accounts of its cluster (package auth/kube);
//   - the cache of their tokens (package auth/cache).
//
// For example:
//
//	mgr, err := manager.New(ctx, ctrl.GetConfigOrDie(), manager.Options{})
//
//	token, err := auth.GetToken(ctx, provider,
//		auth.WithServiceAccount(namespace, name, mgr.Accounts),
//		auth.WithCache(mgr.Tokens, auth.InvolvedObject{Kind: "Thing", Namespace: namespace, Name: thing}))
//
// A program that makes its own manager, or has only a cluster.Cluster, calls the parts instead:
// [kube.ByObject], [kube.FromManager], [kube.Accounts.Subscribe] and [cache.Cache.Run].
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// Options configure a [Manager]. The zero value is right for a program that runs in a cluster.
type Options struct {
	// Manager are the options of controller-runtime's manager. Its Cache.ByObject must not have an
	// entry for ServiceAccounts, because [New] adds this entry. If Options.KeyRing is set, the same
	// is true for WorkloadIdentities and KeyRings.
	Manager ctrlmanager.Options
	// Accounts are the options of the accounts. A program outside the cluster sets APIAudiences.
	// Informers, APIReader and Client come from the manager unless they are set.
	Accounts kube.Options
	// KeyRing names the KeyRing of Lanyard's issuer in this cluster. If KeyRing is set,
	// WorkloadIdentities can be subjects too. It is zero for a cluster without an issuer.
	KeyRing types.NamespacedName
	// Objects has an entry for each kind of objects that can be subjects themselves. The entry's
	// value is an empty object of the Go type that the manager's cache stores for this kind. The
	// value is nil if the cache stores only metadata.
	//
	// If Objects is set, Broker or KeyRing is required. Without Broker, Lanyard's token server
	// issues the SVIDs of these objects. Their SPIFFE trust domain has a KeyRing of its own. This
	// KeyRing is named "spiffe", and is in the same namespace as the issuer's KeyRing.
	Objects map[auth.Kind]client.Object
	// Broker issues the SVIDs of Objects in place of Lanyard's token server. Default: the token
	// server.
	Broker kube.SVIDBroker
	// Tokens are the options of the token cache.
	Tokens cache.Options
}

// Manager is a controller-runtime manager. It also has the accounts and the token cache that
// reconcilers need for [github.com/lanyard-dev/lanyard/auth.GetToken].
type Manager struct {
	ctrlmanager.Manager

	// Accounts has the ServiceAccounts of the manager's cluster, the WorkloadIdentities if
	// Options.KeyRing is set, and the objects of the kinds in Options.Objects.
	Accounts auth.AccountsByKind
	// ServiceAccounts is the part of Accounts that reads ServiceAccounts. Its Self is this
	// program's own account.
	ServiceAccounts *kube.Accounts
	// SPIFFE is the KeyRing of the SPIFFE trust domain. It is nil if Options.Objects is empty or
	// Options.Broker is set.
	SPIFFE *kube.SPIFFERing
	// Tokens is the token cache. It drops the tokens of an account that changes. It is a Prometheus
	// collector, which New does not register.
	Tokens *cache.Cache
}

// New makes a controller-runtime manager and the parts of [Manager] around it:
//
//   - The manager's cache stores only what [kube.Accounts] needs of each ServiceAccount
//     ([kube.ByObject]), and what [kube.WorkloadIdentities] needs
//     ([kube.WorkloadIdentitiesByObject]).
//   - The field Accounts watches subjects through the manager's cache ([kube.FromManager],
//     [kube.WorkloadIdentitiesFromManager], [kube.ObjectsFromManager]).
//   - The field Tokens is a new token cache. It is the first subscriber of Accounts, and drops the
//     tokens of subjects that change ([cache.Cache.Invalidate]).
//   - The manager's Start also runs the token cache ([cache.Cache.Run]), with or without leader
//     election.
//
// If Options.Accounts.APIAudiences is not set, New learns the audiences from the API server, with
// two calls that use ctx. New does not start the manager.
func New(ctx context.Context, config *rest.Config, options Options) (*Manager, error) {
	if options.Accounts.Annotations == nil {
		options.Accounts.Annotations = kube.DefaultAnnotations()
	}
	kept := kube.ByObject(options.Accounts.Annotations)
	hasIssuer := options.KeyRing != types.NamespacedName{}
	if len(options.Objects) > 0 && !hasIssuer && options.Broker == nil {
		return nil, errors.New("manager: Options.Objects needs Options.KeyRing or Options.Broker")
	}
	if hasIssuer {
		maps.Copy(kept, kube.WorkloadIdentitiesByObject(options.KeyRing))
	}
	if err := addByObject(&options.Manager, kept); err != nil {
		return nil, err
	}
	mgr, err := ctrlmanager.New(config, options.Manager)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	made := &Manager{Manager: mgr, Accounts: auth.AccountsByKind{}, Tokens: cache.New(options.Tokens)}
	if made.ServiceAccounts, err = kube.FromManager(ctx, mgr, options.Accounts); err != nil {
		return nil, err
	}
	made.Accounts[auth.KindServiceAccount] = made.ServiceAccounts
	if hasIssuer {
		identities := kube.WorkloadIdentityOptions{KeyRing: options.KeyRing}
		if made.Accounts[auth.KindWorkloadIdentity], err = kube.WorkloadIdentitiesFromManager(ctx, mgr, identities); err != nil {
			return nil, err
		}
	}
	if len(options.Objects) > 0 {
		if err := made.addObjects(ctx, options); err != nil {
			return nil, err
		}
	}
	made.Accounts.Subscribe(made.Tokens.Invalidate)
	if err := mgr.Add(everyReplica(made.Tokens.Run)); err != nil {
		return nil, fmt.Errorf("add the token cache to the manager: %w", err)
	}
	return made, nil
}

// addObjects adds the accounts of Options.Objects.
func (m *Manager) addObjects(ctx context.Context, options Options) (err error) {
	if options.Broker == nil {
		name := types.NamespacedName{Namespace: options.KeyRing.Namespace, Name: spiffeKeyRing}
		if m.SPIFFE, err = kube.NewSPIFFERing(ctx, m.GetCache(), name); err != nil {
			return err
		}
	}
	for kind, watched := range options.Objects {
		objects := kube.ObjectOptions{
			Kind: kind, Watched: watched, Ring: m.SPIFFE, Broker: options.Broker, APIAudiences: m.ServiceAccounts.APIAudiences(),
		}
		if m.Accounts[kind], err = kube.ObjectsFromManager(ctx, m.Manager, objects); err != nil {
			return err
		}
	}
	return nil
}

// spiffeKeyRing is the name of the KeyRing of the SPIFFE trust domain. Source: package
// api/identity.
const spiffeKeyRing = "spiffe"

// addByObject adds entries to the options, in a copy of the caller's map. A second entry for the
// same kind is an error, because the manager would use an arbitrary one of the two entries.
func addByObject(options *ctrlmanager.Options, entries map[client.Object]kubecache.ByObject) error {
	known := cmp.Or(options.Scheme, scheme.Scheme) // controller-runtime has the same default
	ours := map[schema.GroupVersionKind]bool{}
	for object := range entries {
		ours[object.GetObjectKind().GroupVersionKind()] = true
	}
	for object := range options.Cache.ByObject {
		gvk, err := apiutil.GVKForObject(object, known)
		if err == nil && ours[gvk] {
			return fmt.Errorf("manager: Options.Manager.Cache.ByObject has an entry for objects of kind %s; "+
				"leave it out, or make the manager yourself and use kube.FromManager", gvk.Kind)
		}
	}
	all := maps.Clone(entries)
	maps.Copy(all, options.Cache.ByObject)
	options.Cache.ByObject = all
	return nil
}

// everyReplica is a Runnable that runs in every replica, not only in the leader.
type everyReplica func(ctx context.Context) error

// Start implements controller-runtime's Runnable.
func (run everyReplica) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }
