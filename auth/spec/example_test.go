package spec_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Print whose credential some objects get. The controller lends its own identity only to namespace
// platform.
func ExampleResolve() {
	rules := spec.Rules{Providers: []string{"aws", "azure", "gcp"}, ControllerNamespaces: grant.Namespaces{List: []string{"platform"}}}
	secret := "keys"
	for _, fields := range []spec.Fields{
		{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: "puller"},
		{Namespace: "tenant-a", Provider: "generic", SecretRef: &secret},
		{Namespace: "platform", Provider: "gcp"},
		{Namespace: "tenant-a", Provider: "gcp"},
		{Namespace: "tenant-a", Provider: "aws", ServiceAccountName: "puller", SecretRef: &secret},
	} {
		identity, err := spec.Resolve(context.Background(), fields, rules)
		var refusal *spec.Refusal
		switch {
		case errors.As(err, &refusal):
			fmt.Println("refused:", refusal.Field)
		case identity.Minted():
			// Get the token: auth.GetToken(ctx, provider, identity.Option(accounts)).
			fmt.Println(identity.Source, identity.Subject)
		default:
			fmt.Println(identity.Source, identity.SecretName)
		}
	}
	// Output:
	// cloud system:serviceaccount:tenant-a:puller
	// static-secret keys
	// cloud controller
	// refused: spec.serviceAccountName
	// refused: spec.secretRef
}

// An object has encrypted files, and each file names its cloud. Print the subject of the object's
// credential at each cloud.
func ExampleResolveAt() {
	fields := spec.Fields{Namespace: "tenant-a", Path: "spec.decryption", ProviderLater: true, ServiceAccountName: "decryptor"}
	rules := spec.Rules{Providers: []string{"aws", "azure"}}
	identity, err := spec.Resolve(context.Background(), fields, rules)
	fmt.Println(identity.Source, err)
	for _, cloud := range []string{"aws", "gcp"} {
		identity, err = spec.ResolveAt(context.Background(), cloud, fields, rules)
		if err != nil {
			fmt.Println(cloud, "refused:", auth.CodeOf(err))
		} else {
			fmt.Println(cloud, identity.Subject)
		}
	}
	// Output:
	// later <nil>
	// aws system:serviceaccount:tenant-a:decryptor
	// gcp refused: OptionUnsupported
}
