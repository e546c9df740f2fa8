package aws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	accountID = "123456789123"
	region    = "eu-west-1"
	issuerURL = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	imageA    = accountID + ".dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app"
	opSTS     = "AssumeRoleWithWebIdentity"
)

// world is a local AWS and a provider. The provider reaches the local AWS through a proxy, under
// AWS's own host names.
type world struct {
	*rig.Rig

	aws *aws.Provider
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return newWorldOf(tb, issuerURL)
}

// newWorldOf makes a world whose roles trust the issuer. The same issuer makes the proofs.
func newWorldOf(tb testing.TB, issuer string) *world {
	tb.Helper()
	w := &world{Rig: rig.New(tb, cloudtest.Config{AWS: cloudaws.Config{Accounts: []cloudaws.Account{{
		ID:            accountID,
		OIDCProviders: []cloudaws.OIDCProvider{{URL: issuer, ClientIDs: []string{"sts.amazonaws.com"}}},
		Repositories:  []cloudaws.Repository{{Region: region, Name: "tenant-a/app"}, {Region: region, Name: "tenant-b/app"}},
	}, {ID: otherAccountID}}}}, issuer, oidc.ES256)}
	w.aws = w.provider(tb, aws.Config{Region: region, AllowedEndpointHosts: w.Allow})
	return w
}

func (w *world) provider(tb testing.TB, config aws.Config) *aws.Provider {
	tb.Helper()
	config.Transport = w.Base
	provider, err := aws.NewProvider(config)
	rig.Must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

// roleFor makes the role of a tenant and returns its ARN. The role trusts subject and may get
// registry credentials.
func (w *world) roleFor(tb testing.TB, tenant, subject string) string {
	tb.Helper()
	rig.Must(tb, w.Cloud.AWS().PutRole(accountID, cloudaws.Role{
		Name:        tenant + "-ecr",
		TrustPolicy: trustIn(w.Issuer.URL(), subject),
		Policies: map[string]json.RawMessage{"pull": policy(map[string]any{
			"Effect": "Allow", "Action": []string{"ecr:GetAuthorizationToken", "ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"}, "Resource": "*",
		})},
	}))
	return "arn:aws:iam::" + accountID + ":role/" + tenant + "-ecr"
}

func trust(subject string) json.RawMessage { return trustIn(issuerURL, subject) }

// trustIn returns the trust policy for a subject of an issuer.
func trustIn(issuer, subject string) json.RawMessage {
	issuer = strings.TrimPrefix(issuer, "https://")
	return policy(map[string]any{
		"Effect":    "Allow",
		"Principal": map[string]string{"Federated": "arn:aws:iam::" + accountID + ":oidc-provider/" + issuer},
		"Action":    "sts:AssumeRoleWithWebIdentity",
		"Condition": map[string]any{"StringEquals": map[string]string{issuer + ":sub": subject, issuer + ":aud": "sts.amazonaws.com"}},
	})
}

func policy(statements ...map[string]any) json.RawMessage {
	data, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err != nil {
		panic(err)
	}
	return data
}

// tenantA makes a ServiceAccount with its own role.
func (w *world) tenantA(tb testing.TB) auth.Account {
	tb.Helper()
	const name = "tenant-a"
	subject, err := auth.ServiceAccount(name, name+"-ecr-sa")
	rig.Must(tb, err)
	return auth.Account{
		Subject: subject, UID: "uid-of-" + name,
		Attributes: map[string]string{aws.RoleAnnotation: w.roleFor(tb, name, subject.String())},
	}
}

// caller asks the local STS which role a session has, and returns the role's IAM ARN.
func (w *world) caller(ctx context.Context, token auth.Token) (string, error) {
	session, ok := token.(*aws.Token)
	if !ok {
		return "", fmt.Errorf("a %T is no session", token)
	}
	client := sts.New(sts.Options{
		Region: region, HTTPClient: &http.Client{Transport: w.Base},
		Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) { return session.Credentials(), nil }),
	})
	answer, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	// arn:aws:sts::<account>:assumed-role/<role>/<session>
	parts := strings.Split(awssdk.ToString(answer.Arn), "/")
	return "arn:aws:iam::" + awssdk.ToString(answer.Account) + ":role/" + parts[1], nil
}

func (w *world) exchanges() int { return w.Count("sts", opSTS) }

func roleWithoutPermissions(name string, trust json.RawMessage) cloudaws.Role {
	return cloudaws.Role{Name: name, TrustPolicy: trust}
}
