package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/controller/binding"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity/flags"
	"github.com/lanyard-dev/lanyard/internal/hub"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// bindings is the [part] of the program that reconciles the WorkloadIdentityBindings.
type bindings struct {
	concurrent int
	clouds     *providers.Set
	hub        *hub.Hub // nil if the identities are in this cluster
	// measured has the metrics of token exchanges. It is a cache only because the type Cache has
	// these metrics; it stores no tokens. If the program reconciles AWS identities, measured is
	// nil. Then the cache in the field tokens of awsIdentities has the metrics.
	measured *cache.Cache
	options  binding.Options
}

// newBindings returns the [part] for WorkloadIdentityBindings. If the flags name a hub, the
// WorkloadIdentities are in the hub cluster. Then the argument owned may be nil. If the program
// does not reconcile AWS identities, the argument lent must be nil.
func newBindings(ctx context.Context, f flags.Flags, mgr manager.Manager, env func(string) string, owned *workloadIdentities, lent *awsIdentities) (*bindings, error) {
	clouds, err := providers.New(providers.Config{Env: env, AWSRegion: f.AWSRegion})
	if err != nil {
		return nil, err
	}
	b := &bindings{concurrent: f.Concurrent, clouds: clouds, options: binding.Options{
		Provider: clouds.ByName, Client: mgr.GetClient(), Namespaces: mgr.GetAPIReader(), RenewalFraction: f.RenewalFraction, Renewals: binding.NewRenewals(),
	}}
	if lent != nil {
		b.options.Identities, b.options.IdentitiesSynced, b.options.Observer = lent.identities, lent.synced, lent.tokens
	} else {
		b.measured = cache.New(cache.Options{MaxSize: cache.KeepNothing})
		b.options.Observer = b.measured
	}
	if f.HubKubeconfig != "" {
		err = b.useHub(ctx, f)
	} else {
		err = b.useCluster(ctx, f, mgr, owned)
	}
	if err != nil {
		clouds.Close()
		return nil, err
	}
	return b, nil
}

// useCluster makes the bindings use the identities of their own cluster.
func (b *bindings) useCluster(ctx context.Context, f flags.Flags, mgr manager.Manager, owned *workloadIdentities) error {
	identities, err := kube.WorkloadIdentitiesFromManager(ctx, mgr, kube.WorkloadIdentityOptions{
		Watched: &identityv1.WorkloadIdentity{}, KeyRing: types.NamespacedName{Namespace: f.Namespace, Name: identityv1.IssuerKeyRing},
	})
	b.options.Issuer, b.options.WorkloadIdentities = owned.issuer, identities
	return err
}

// useHub makes the bindings use the identities of another cluster.
func (b *bindings) useHub(ctx context.Context, f flags.Flags) error {
	config, err := hub.LoadConfig(f.HubKubeconfig, flags.Name+"/"+program.Version(version))
	if err != nil {
		return fmt.Errorf("--hub-kubeconfig: %w", err)
	}
	b.hub, err = hub.New(ctx, hub.Options{
		Config: config, Namespaces: f.HubNamespaces, KeyRing: types.NamespacedName{Namespace: f.HubKeyRingNamespace, Name: identityv1.IssuerKeyRing},
	})
	if err != nil {
		return err
	}
	b.options.Hub, b.options.WorkloadIdentities = b.hub, b.hub.Identities
	return nil
}

func (b *bindings) close() { b.clouds.Close() }

func (b *bindings) subscribe(changed func(object.Dependency)) {
	b.options.WorkloadIdentities.Subscribe(func(s auth.Subject) { changed(object.DependencyOn(s)) })
	if b.hub != nil {
		b.hub.Subscribe(func() { changed(binding.HubDependency()) })
	}
}

func (b *bindings) setup(ctx context.Context, objects *object.Shared, mgr manager.Manager) error {
	var errs []error
	if b.hub != nil {
		errs = append(errs, mgr.Add(b.hub), metrics.Registry.Register(b.hub))
	}
	if b.measured != nil {
		errs = append(errs, metrics.Registry.Register(b.measured))
	}
	return errors.Join(append(errs,
		binding.New(&tenant.Shared{Shared: objects}, b.options).SetupWithManager(ctx, mgr, b.concurrent),
		metrics.Registry.Register(b.options.Renewals),
		metrics.Registry.Register(binding.NewMetrics(ctx, mgr.GetClient(), mgr.Elected())),
	)...)
}
