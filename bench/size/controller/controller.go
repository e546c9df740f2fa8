// Package controller is the common part of the measured programs: a controller's connection to its
// cluster, with Lanyard's library and its cache.
package controller

import (
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// Run gets registry credentials from each provider for a ServiceAccount. The program's arguments
// are the account's namespace and name, and the image repository.
func Run(providers ...auth.Provider) error {
	ctx := signals.SetupSignalHandler()
	rest, err := config.GetConfig()
	if err != nil {
		return err
	}
	c, err := cluster.New(rest, func(o *cluster.Options) { o.Cache.ByObject = kube.ByObject(kube.DefaultAnnotations()) })
	if err != nil {
		return err
	}
	accounts, err := kube.FromManager(ctx, c, kube.Options{})
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }()
	tokens := cache.New(cache.Options{})
	accounts.Subscribe(tokens.Invalidate)
	for _, provider := range providers {
		token, err := auth.GetToken(ctx, provider, auth.WithServiceAccount(os.Args[1], os.Args[2], accounts),
			auth.WithImageRepository(os.Args[3]), auth.WithCache(tokens, auth.InvolvedObject{}))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(os.Stdout, provider.GetName(), token.GetDuration()); err != nil {
			return err
		}
	}
	return nil
}

// Main runs a program with one provider. If the provider could not be made, err says why.
func Main[P auth.Provider](provider P, err error) {
	if err == nil {
		err = Run(provider)
	}
	End(err)
}

// End ends the program.
func End(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
