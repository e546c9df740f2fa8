package main

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/internal/controller/awscluster"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity/flags"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// awsIdentities is the [part] of the program that reconciles the AWS identities and the
// AWSClusters.
type awsIdentities struct {
	flags      flags.Flags
	provider   *aws.Provider
	accounts   *kube.Accounts
	tokens     *cache.Cache
	identities *identity.Identities
	users      *awsidentity.Users
}

func newAWSIdentities(ctx context.Context, f flags.Flags, mgr manager.Manager, env func(string) string) (*awsIdentities, error) {
	provider, err := providers.NewAWS(providers.Config{Env: env, AWSRegion: f.AWSRegion})
	if err != nil {
		return nil, err
	}
	accounts, err := kube.FromManager(ctx, mgr, kube.Options{APIAudiences: f.APIAudiences})
	if err != nil {
		return nil, err
	}
	tokens := cache.New(cache.Options{MaxDuration: f.TokenCacheMaxDuration})
	identities, err := identity.New(ctx, identity.Options{
		Informers: mgr.GetCache(), Provider: provider, ServiceAccounts: accounts, Cache: tokens, Observer: tokens, SecretNamespace: f.SecretNamespace,
	})
	if err != nil {
		return nil, err
	}
	identities.SubscribeDrops(tokens.InvalidateKeys)
	users, err := awsidentity.NewUsers(ctx, mgr.GetClient(), mgr.GetCache(), mgr.GetFieldIndexer(), identities, identityUsers(f))
	if err != nil {
		return nil, err
	}
	return &awsIdentities{flags: f, provider: provider, accounts: accounts, tokens: tokens, identities: identities, users: users}, nil
}

// synced reports whether the caches of ServiceAccounts and AWS identities have all objects that
// existed when the program started.
func (a *awsIdentities) synced() bool { return a.accounts.Synced() && a.identities.Synced() }

func (a *awsIdentities) close() { a.provider.Close() }

func (a *awsIdentities) subscribe(changed func(object.Dependency)) { a.users.Subscribe(changed) }

func (a *awsIdentities) setup(ctx context.Context, objects *object.Shared, mgr manager.Manager) error {
	options := awsidentity.Options{Identities: a.identities, Provider: a.provider, Cache: a.tokens, Observer: a.tokens, Users: a.users}
	clusters := awscluster.Options{Identities: a.identities, Provider: a.provider, Cache: a.tokens, Observer: a.tokens, Memory: mgr.GetClient()}
	if a.flags.AutoControllerIdentityCreator {
		clusters.CreateControllerIdentity = createControllerIdentity(mgr.GetClient())
	}
	n := a.flags.Concurrent
	return errors.Join(
		awscluster.AddIndex(ctx, mgr.GetFieldIndexer()),
		awsidentity.New[*identityv1.AWSClusterControllerIdentity](objects, kinds.AWSClusterControllerIdentity(), options).SetupWithManager(ctx, mgr, n),
		awsidentity.New[*identityv1.AWSClusterStaticIdentity](objects, kinds.AWSClusterStaticIdentity(), options).SetupWithManager(ctx, mgr, n),
		awsidentity.New[*identityv1.AWSClusterRoleIdentity](objects, kinds.AWSClusterRoleIdentity(), options).SetupWithManager(ctx, mgr, n),
		awsidentity.New[*identityv1.AWSServiceAccountIdentity](objects, kinds.AWSServiceAccountIdentity(), options).SetupWithManager(ctx, mgr, n),
		awscluster.New(&tenant.Shared{Shared: objects}, clusters).SetupWithManager(ctx, mgr, n),
		metrics.Registry.Register(a.tokens),
		mgr.Add(everyReplica(a.tokens.Run)),
	)
}

// createControllerIdentity returns a function that creates the AWSClusterControllerIdentity. This
// object lends the program's own AWS identity to every namespace. An existing object is left
// unchanged.
func createControllerIdentity(kube client.Client) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		err := kube.Create(ctx, &identityv1.AWSClusterControllerIdentity{
			ObjectMeta: metav1.ObjectMeta{Name: identityv1.DefaultControllerIdentity},
			Spec: identityv1.AWSClusterControllerIdentitySpec{
				AWSClusterIdentitySpec: identityv1.AWSClusterIdentitySpec{AllowedNamespaces: &identityv1.AllowedNamespaces{All: true}},
			},
		})
		if err := client.IgnoreAlreadyExists(err); err != nil {
			return fmt.Errorf("create the AWSClusterControllerIdentity: %w", err)
		}
		return nil
	}
}

// everyReplica is a Runnable that runs in every replica, not only in the leader.
type everyReplica func(ctx context.Context) error

// Start implements controller-runtime's Runnable.
func (run everyReplica) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }
