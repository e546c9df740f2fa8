package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// Get a token for a tenant's ServiceAccount. The second call is answered from memory.
func ExampleGetToken() {
	provider, accounts, end := localAWS()
	defer end()
	tokens := cache.New(cache.Options{})
	accounts.Subscribe(tokens.Invalidate)

	var first auth.Token
	for range 2 {
		token, err := auth.GetToken(context.Background(), provider,
			auth.WithServiceAccount("tenant-a", "reader", accounts),
			auth.WithCache(tokens, auth.InvolvedObject{Kind: "Thing", Namespace: "tenant-a", Name: "my-thing"}))
		if err != nil {
			log.Fatal(err)
		}
		session := token.(*aws.Token) // WithImageRepository gives *auth.RegistryCredentials instead
		fmt.Println(session.SecretAccessKey, token == first)
		first = token
	}
	// Output:
	// [secret] false
	// [secret] true
}

// An error says which step failed. It has a code for programs, and the next step for people.
func ExampleError() {
	provider, accounts, end := localAWS()
	defer end()

	// Tenant B's account is named thief. Its annotation names tenant A's role.
	_, err := auth.GetToken(context.Background(), provider, auth.WithServiceAccount("tenant-b", "thief", accounts))
	if e, ok := errors.AsType[*auth.Error](err); ok {
		fmt.Println("stage:", e.Stage)
		fmt.Println("code:", e.Code)
		fmt.Println("try again later:", e.Temporary())
		fmt.Println("fix:", e.Fix)
	}
	// Output:
	// stage: exchange
	// code: TrustRefused
	// try again later: false
	// fix: let the trust policy of role arn:aws:iam::123456789123:role/tenant-a allow sts:AssumeRoleWithWebIdentity to arn:aws:iam::123456789123:oidc-provider/oidc.example.org/cluster with StringEquals oidc.example.org/cluster:sub = system:serviceaccount:tenant-b:thief and oidc.example.org/cluster:aud = sts.amazonaws.com
}

// There is no default subject: a program asks for its own identity explicitly.
func ExampleWithController() {
	provider, _, end := localAWS()
	defer end()
	_, err := auth.GetToken(context.Background(), provider)
	fmt.Println(auth.CodeOf(err))

	key, err := auth.Resolve(context.Background(), provider, auth.WithController())
	fmt.Println(key, err)
	// Output:
	// SubjectInvalid
	// provider=aws,stsRegion=eu-west-1 <nil>
}

// Resolve returns the key of the token that a call would get. It makes no proof and calls no cloud.
func ExampleResolve() {
	provider, accounts, end := localAWS()
	defer end()
	key, err := auth.Resolve(context.Background(), provider,
		auth.WithServiceAccount("tenant-a", "reader", accounts),
		auth.WithImageRepository("123456789123.dkr.ecr.us-west-2.amazonaws.com/app"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(key.Identity)
	fmt.Println(key.Image)
	// Output:
	// arn:aws:iam::123456789123:role/tenant-a
	// us-west-2
}

// localAWS returns a provider for a local AWS, and the accounts of two tenants. Both accounts name
// the same role, which trusts only tenant A's account. A real controller uses the accounts of
// package auth/kube, and makes the provider with the zero configuration.
func localAWS() (provider *aws.Provider, accounts auth.Accounts, end func()) {
	const issuer, role = "oidc.example.org/cluster", "arn:aws:iam::123456789123:role/tenant-a"
	trust, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
		"Principal": map[string]string{"Federated": "arn:aws:iam::123456789123:oidc-provider/" + issuer},
		"Condition": map[string]any{"StringEquals": map[string]string{issuer + ":sub": "system:serviceaccount:tenant-a:reader"}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	local, err := rig.Start(context.Background(), cloudtest.Config{AWS: cloudaws.Config{Accounts: []cloudaws.Account{{
		ID:            "123456789123",
		OIDCProviders: []cloudaws.OIDCProvider{{URL: "https://" + issuer, ClientIDs: []string{"sts.amazonaws.com"}}},
		Roles:         []cloudaws.Role{{Name: "tenant-a", TrustPolicy: trust}},
	}}}}, "https://"+issuer, oidc.ES256)
	if err != nil {
		log.Fatal(err)
	}
	provider, err = aws.NewProvider(aws.Config{Region: "eu-west-1", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	accounts = rig.Accounts{Sign: local.Sign, All: []auth.Account{
		rig.ServiceAccount("tenant-a", "reader", map[string]string{aws.RoleAnnotation: role}),
		rig.ServiceAccount("tenant-b", "thief", map[string]string{aws.RoleAnnotation: role}),
	}}
	return provider, accounts, func() {
		provider.Close()
		_ = local.Cloud.Close()
	}
}
