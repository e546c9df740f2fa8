package kube_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

// FromManager needs only a cluster.Cluster, so this program makes no manager. A program with a
// manager calls New of package auth/kube/manager instead. The example is compiled but not run,
// because it needs an API server.
func ExampleFromManager() {
	wire := func(ctx context.Context, config *rest.Config) error {
		// The cache stores only the metadata of ServiceAccounts. Of the annotations, it stores only
		// those that providers read.
		local, err := cluster.New(config, func(o *cluster.Options) { o.Cache.ByObject = kube.ByObject(kube.DefaultAnnotations()) })
		if err != nil {
			return err
		}
		accounts, err := kube.FromManager(ctx, local, kube.Options{})
		if err != nil {
			return err
		}
		tokens := cache.New(cache.Options{})
		accounts.Subscribe(tokens.Invalidate) // a changed account loses its tokens at once
		go func() { _ = tokens.Run(ctx) }()   // removes expired tokens
		// Start returns when ctx ends. Until then, other goroutines of the program can call
		// auth.GetToken with the option auth.WithServiceAccount(namespace, name, accounts).
		return local.Start(ctx)
	}
	_ = wire
	// Output:
}

// Print the annotations in which tenants write their cloud identities. Other annotations are not
// stored in memory.
func ExampleDefaultAnnotations() {
	for _, annotation := range kube.DefaultAnnotations() {
		fmt.Println(annotation)
	}
	// Output:
	// eks.amazonaws.com/role-arn
	// lanyard.dev/assume-role
	// azure.workload.identity/client-id
	// azure.workload.identity/tenant-id
	// iam.gke.io/gcp-service-account
	// lanyard.dev/impersonate
	// gcp.lanyard.dev/workload-identity-provider
	// gcp.auth.fluxcd.io/workload-identity-provider
	// lanyard.dev/registry-username
}
