package kube_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// Wiring in main, once per program; a manager is a cluster.Cluster too. It needs an API server, so that this example is compiled
// and not run; examples/controller is a whole program.
func ExampleFromManager() {
	wire := func(ctx context.Context, config *rest.Config) error {
		// Of ServiceAccounts the manager's cache keeps the metadata, and of their annotations those that providers read.
		mgr, err := cluster.New(config, func(o *cluster.Options) { o.Cache.ByObject = kube.ByObject(kube.DefaultAnnotations()) })
		if err != nil {
			return err
		}
		accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
		if err != nil {
			return err
		}
		tokens := cache.New(cache.Options{MaxSize: 10_000})
		accounts.Subscribe(tokens.Invalidate) // a changed account loses its tokens at once
		go func() { _ = tokens.Run(ctx) }()   // a manager does it: mgr.Add(manager.RunnableFunc(tokens.Run))
		// Reconcilers call auth.GetToken with auth.WithServiceAccount(namespace, name, accounts).
		return mgr.Start(ctx)
	}
	_ = wire
	// Output:
}

// The annotations that tenants name their cloud identities in. Others are not kept in memory.
func ExampleDefaultAnnotations() {
	for _, annotation := range kube.DefaultAnnotations() {
		fmt.Println(annotation)
	}
	// Output:
	// eks.amazonaws.com/role-arn
	// azure.workload.identity/client-id
	// azure.workload.identity/tenant-id
	// iam.gke.io/gcp-service-account
	// gcp.lanyard.dev/workload-identity-provider
}
