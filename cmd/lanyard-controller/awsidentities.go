package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	authmanager "github.com/lanyard-dev/lanyard/auth/kube/manager"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
)

// awsIdentityMemory says what the manager's cache keeps for AWS identities.
func awsIdentityMemory(f flags.Flags) map[client.Object]kubecache.ByObject {
	kept := map[client.Object]kubecache.ByObject{}
	if !f.AWSIdentities {
		return kept
	}
	for _, kind := range []client.Object{
		&identityv1.AWSClusterControllerIdentity{}, &identityv1.AWSClusterStaticIdentity{}, &identityv1.AWSClusterRoleIdentity{},
		&identityv1.AWSServiceAccountIdentity{},
	} {
		kept[kind] = kubecache.ByObject{Transform: object.Remember}
	}
	if f.IdentitySecretNamespace != "" {
		kept[&corev1.Secret{}] = kubecache.ByObject{
			Namespaces: map[string]kubecache.Config{f.IdentitySecretNamespace: {}},
			Field:      fields.OneTermEqualSelector("type", identityv1.SecretTypeAWSStatic),
		}
	}
	return kept
}

// addAWSIdentities has objects name AWS identities. It returns what tells of their changes, after
// the token cache has heard of them.
func addAWSIdentities(
	ctx context.Context, f flags.Flags, mgr *authmanager.Manager, provider auth.Provider, reach *access.Access, rules *spec.Rules,
) (subscribe func(changed func(object.Dependency)), err error) {
	identities, err := identity.New(ctx, identity.Options{
		Informers: mgr.GetCache(), Provider: provider, ServiceAccounts: mgr.ServiceAccounts, Cache: mgr.Tokens, Observer: mgr.Tokens,
		SecretNamespace: f.IdentitySecretNamespace,
	})
	if err != nil {
		return nil, err
	}
	identities.SubscribeDrops(mgr.Tokens.InvalidateKeys)
	reach.AWSIdentities = identities.For
	rules.AWSIdentities = func(ctx context.Context, namespace string, subject auth.Subject) error {
		return awsidentity.Passing(subject, identities.Begin(ctx, namespace, subject))
	}
	return func(changed func(object.Dependency)) {
		identities.SubscribeUse(func(use identity.Use) { changed(awsidentity.DependencyOn(use)) })
	}, nil
}
