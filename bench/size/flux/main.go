// Command flux does the same as the program in size/all, with Flux's library, which has every
// cloud. Package bench measures its size.
package main

import (
	"fmt"
	"os"

	"github.com/fluxcd/pkg/auth"
	"github.com/fluxcd/pkg/auth/utils"
	"github.com/fluxcd/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run gets registry credentials for a ServiceAccount. The program's arguments are the account's
// namespace and name, the image repository and the provider's name.
func run() error {
	ctx := signals.SetupSignalHandler()
	rest, err := config.GetConfig()
	if err != nil {
		return err
	}
	c, err := cluster.New(rest)
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }()
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		return err
	}
	auth.EnableObjectLevelWorkloadIdentity()
	authenticator, err := utils.GetArtifactRegistryCredentials(ctx, os.Args[4], os.Args[3], auth.WithClient(c.GetClient()),
		auth.WithServiceAccountNamespace(os.Args[1]), auth.WithServiceAccountName(os.Args[2]),
		auth.WithCache(*tokens, cache.InvolvedObject{}))
	if err != nil {
		return err
	}
	_, err = authenticator.Authorization()
	return err
}
