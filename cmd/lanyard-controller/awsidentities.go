package main

import (
	"context"

	"github.com/lanyard-dev/lanyard/auth"
	authmanager "github.com/lanyard-dev/lanyard/auth/kube/manager"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
)

// addAWSIdentities makes the program accept objects that refer to AWS identities. It returns a
// function that subscribes to changes of these identities. The token cache gets each change before
// the subscribers do. So the subscribers find no outdated token in the cache.
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
