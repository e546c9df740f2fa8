package main

import (
	"context"
	"os"

	"github.com/lanyard-dev/lanyard/auth"
	authmanager "github.com/lanyard-dev/lanyard/auth/kube/manager"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
)

// decryption decrypts data keys at the clouds, with the identities that objects name.
type decryption struct {
	kustomization.Decryption

	// subscribe registers a function that is called after a change of an identity.
	subscribe func(changed func(object.Dependency))
	// close ends the connections to the clouds.
	close func()
}

func newDecryption(ctx context.Context, f flags.Flags, mgr *authmanager.Manager) (*decryption, error) {
	clouds, err := providers.New(providers.Config{Env: os.Getenv, AllowedEndpointHosts: f.Guard.AllowHosts, DenyCIDRs: f.Guard.DenyCIDRs})
	if err != nil {
		return nil, err
	}
	hosts, err := transport.NewPool(transport.Options{Dial: f.Guard.DialContext(transport.Dialer()), CheckTarget: f.Guard.CheckTarget})
	if err != nil {
		clouds.Close()
		return nil, err
	}
	d := &decryption{
		Decryption: kustomization.Decryption{
			Service: &keyservice.Service{Clouds: clouds, Transports: hosts}, Accounts: mgr.Accounts, Cache: mgr.Tokens, Observer: mgr.Tokens,
			Rules: spec.Rules{
				Providers: clouds.Names(), DefaultServiceAccount: f.DefaultDecryptionServiceAccount,
				TokenServer: f.KeyRingNamespace != "", IdentitiesAtHub: f.IdentitiesAtHub,
				ControllerNamespaces: f.ControllerIdentityNamespaces, NamespaceLabels: object.NamespaceLabels(mgr.GetAPIReader()),
			},
		},
		subscribe: func(changed func(object.Dependency)) {
			mgr.Accounts.Subscribe(func(subject auth.Subject) { changed(object.DependencyOn(subject)) })
		},
		close: func() {
			hosts.Close()
			clouds.Close()
		},
	}
	if !f.AWSIdentities {
		return d, nil
	}
	if err := d.addAWSIdentities(ctx, mgr, clouds); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// addAWSIdentities lets objects refer to AWS identities. It reads no static keys, so an identity whose
// chain ends in static keys is refused.
func (d *decryption) addAWSIdentities(ctx context.Context, mgr *authmanager.Manager, clouds *providers.Set) error {
	provider, err := clouds.ByName("aws")
	if err != nil {
		return err
	}
	identities, err := identity.New(ctx, identity.Options{
		Informers: mgr.GetCache(), Provider: provider, ServiceAccounts: mgr.ServiceAccounts, Cache: mgr.Tokens, Observer: mgr.Tokens,
	})
	if err != nil {
		return err
	}
	identities.SubscribeDrops(mgr.Tokens.InvalidateKeys)
	d.AWSIdentities = identities.For
	d.Rules.AWSIdentities = func(ctx context.Context, namespace string, subject auth.Subject) error {
		_, err := identities.For(namespace).Lookup(ctx, subject)
		return awsidentity.Passing(subject, err)
	}
	accounts := d.subscribe
	d.subscribe = func(changed func(object.Dependency)) {
		accounts(changed)
		identities.SubscribeUse(func(use identity.Use) { changed(awsidentity.DependencyOn(use)) })
	}
	return nil
}
