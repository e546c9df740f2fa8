package aws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// GetToken returns a session of the role in the annotation of a tenant's ServiceAccount.
func Example() {
	local, accounts := localAWS()
	defer local.Cloud.Close()
	provider, err := aws.NewProvider(aws.Config{Region: "eu-west-1", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	token, err := auth.GetToken(context.Background(), provider, auth.WithServiceAccount("tenant-a", "puller", accounts))
	if err != nil {
		log.Fatal(err)
	}
	session := token.(*aws.Token)
	fmt.Println(session.SecretAccessKey, session.GetDuration().Minutes() > 59)
	// Output: [secret] true
}

// The AWS SDK signs with the tenant's session. It asks for the session at every request.
func ExampleNewCredentialsProvider() {
	local, accounts := localAWS()
	defer local.Cloud.Close()
	provider, err := aws.NewProvider(aws.Config{Region: "eu-west-1", Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	client := sts.New(sts.Options{
		Region: "eu-west-1", HTTPClient: &http.Client{Transport: local.Base},
		Credentials: aws.NewCredentialsProvider(provider, auth.WithServiceAccount("tenant-a", "puller", accounts)),
	})
	who, err := client.GetCallerIdentity(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(awssdk.ToString(who.Arn))
	// Output: arn:aws:sts::123456789123:assumed-role/tenant-a/puller.tenant-a
}

// The token is a user and a password for Amazon ECR. The host of the image decides the region.
// Hosts outside Amazon ECR get no credentials.
func ExampleProvider_NewRegistryToken() {
	local, accounts := localAWS()
	defer local.Cloud.Close()
	provider, err := aws.NewProvider(aws.Config{Transport: local.Base})
	if err != nil {
		log.Fatal(err)
	}
	defer provider.Close()

	for _, image := range []string{"123456789123.dkr.ecr.eu-west-1.amazonaws.com/app", "123456789123.dkr.ecr.eu-west-1.amazonaws.com.example.org/app"} {
		token, err := auth.GetToken(context.Background(), provider,
			auth.WithServiceAccount("tenant-a", "puller", accounts), auth.WithImageRepository(image))
		if err != nil {
			fmt.Println(auth.CodeOf(err))
			continue
		}
		login := token.(*auth.RegistryCredentials)
		fmt.Println(login.Username, login.Password)
	}
	// Output:
	// AWS [secret]
	// EndpointRefused
}

// localAWS returns a local AWS with one role, and an [auth.Accounts] with the only ServiceAccount
// that the role trusts. A controller gets its [auth.Accounts] from package auth/kube instead, and
// needs no Transport in its [aws.Config].
func localAWS() (*rig.Rig, auth.Accounts) {
	document := func(statement map[string]any) json.RawMessage {
		data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{statement}})
		if err != nil {
			log.Fatal(err)
		}
		return data
	}
	const issuer = "oidc.example.org/cluster"
	local, err := rig.Start(context.Background(), cloudtest.Config{AWS: cloudaws.Config{Accounts: []cloudaws.Account{{
		ID:            "123456789123",
		OIDCProviders: []cloudaws.OIDCProvider{{URL: "https://" + issuer, ClientIDs: []string{"sts.amazonaws.com"}}},
		Roles: []cloudaws.Role{{
			Name: "tenant-a",
			TrustPolicy: document(map[string]any{
				"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
				"Principal": map[string]string{"Federated": "arn:aws:iam::123456789123:oidc-provider/" + issuer},
				"Condition": map[string]any{"StringEquals": map[string]string{
					issuer + ":sub": "system:serviceaccount:tenant-a:puller", issuer + ":aud": "sts.amazonaws.com",
				}},
			}),
			Policies: map[string]json.RawMessage{"pull": document(map[string]any{
				"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*",
			})},
		}},
	}}}}, "https://"+issuer, oidc.ES256)
	if err != nil {
		log.Fatal(err)
	}
	return local, rig.Accounts{Sign: local.Sign, All: []auth.Account{
		rig.ServiceAccount("tenant-a", "puller", map[string]string{aws.RoleAnnotation: "arn:aws:iam::123456789123:role/tenant-a"}),
	}}
}
