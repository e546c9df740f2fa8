package aws_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

const (
	accountID = "123456789123"
	region    = "eu-west-1"
	issuerURL = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	imageA    = accountID + ".dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app"
	opSTS     = "AssumeRoleWithWebIdentity"
)

// world is a local AWS and a provider that reaches it through a proxy under AWS's own names.
type world struct {
	cloud  *cloudtest.Cloud
	issuer *oidc.Issuer
	proxy  *url.URL
	base   *http.Transport
	aws    *aws.Provider
	allow  endpoint.Allowed
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	cloud, err := cloudtest.New(cloudtest.Config{AWS: cloudaws.Config{Accounts: []cloudaws.Account{{
		ID:            accountID,
		OIDCProviders: []cloudaws.OIDCProvider{{URL: issuerURL, ClientIDs: []string{"sts.amazonaws.com"}}},
		Repositories:  []cloudaws.Repository{{Region: region, Name: "tenant-a/app"}, {Region: region, Name: "tenant-b/app"}},
	}}}})
	must(tb, err)
	tb.Cleanup(func() { must(tb, cloud.Close()) })
	issuer, err := oidc.NewIssuer(issuerURL, oidc.ES256)
	must(tb, err)
	must(tb, cloud.HandleIssuer(issuer))
	must(tb, cloud.Start(tb.Context()))
	proxy, err := url.Parse(cloud.ProxyURL())
	must(tb, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cloud.CAPEM())
	w := &world{cloud: cloud, issuer: issuer, proxy: proxy, base: &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	// A proxy on loopback is nothing that a tenant may name, unless it is listed.
	w.allow, err = endpoint.ParseAllowed(proxy.Host)
	must(tb, err)
	w.aws = w.provider(tb, aws.Config{Region: region, AllowedEndpointHosts: w.allow})
	return w
}

func (w *world) provider(tb testing.TB, config aws.Config) *aws.Provider {
	tb.Helper()
	config.Transport = w.base
	provider, err := aws.NewProvider(config)
	must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// roleFor makes the role of a tenant, which trusts subject and may use its own repository, and returns its ARN.
func (w *world) roleFor(tb testing.TB, tenant, subject string) string {
	tb.Helper()
	must(tb, w.cloud.AWS().PutRole(accountID, cloudaws.Role{
		Name:        tenant + "-ecr",
		TrustPolicy: trust(subject),
		Policies: map[string]json.RawMessage{"pull": policy(map[string]any{
			"Effect": "Allow", "Action": []string{"ecr:GetAuthorizationToken", "ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"}, "Resource": "*",
		})},
	}))
	return "arn:aws:iam::" + accountID + ":role/" + tenant + "-ecr"
}

func trust(subject string) json.RawMessage {
	issuer := strings.TrimPrefix(issuerURL, "https://")
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

// tenantA makes a ServiceAccount with a role of its own.
func (w *world) tenantA(tb testing.TB) auth.Account {
	tb.Helper()
	const name = "tenant-a"
	subject, err := auth.ServiceAccount(name, name+"-ecr-sa")
	must(tb, err)
	return auth.Account{
		Subject: subject, UID: "uid-of-" + name,
		Attributes: map[string]string{aws.RoleAnnotation: w.roleFor(tb, name, subject.String())},
	}
}

func (w *world) sign(account auth.Account, request auth.ProofRequest) (string, error) {
	return w.issuer.Mint(oidc.Claims{
		"sub": subjectClaim(account), "aud": []string{request.Audience}, "exp": time.Now().Add(request.Lifetime).Unix(), "jti": account.UID,
	})
}

// subjectClaim is the sub claim that the account's issuer would write: a WorkloadIdentity's holds its UID.
func subjectClaim(account auth.Account) string {
	if account.Subject.Kind() == auth.KindServiceAccount {
		return account.Subject.String()
	}
	return account.Subject.String() + ":" + account.UID
}

// only is an auth.Accounts of one account.
type only struct {
	account auth.Account
	sign    func(auth.Account, auth.ProofRequest) (string, error)
}

func (o only) Lookup(context.Context, auth.Subject) (auth.Account, error) { return o.account, nil }
func (o only) Read(context.Context, auth.Subject) (auth.Account, error)   { return o.account, nil }
func (only) Subscribe(func(auth.Subject))                                 {}

func (o only) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	token, err := o.sign(account, request)
	return auth.Proof{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, err
}

func (w *world) as(account auth.Account, more ...auth.Option) []auth.Option {
	accounts := only{account, w.sign}
	return append([]auth.Option{auth.WithSubject(account.Subject, accounts, accounts)}, more...)
}

// caller asks the local STS for the role of a session, as an ARN of IAM.
func (w *world) caller(ctx context.Context, token auth.Token) (string, error) {
	session, ok := token.(*aws.Token)
	if !ok {
		return "", fmt.Errorf("a %T is no session", token)
	}
	client := sts.New(sts.Options{
		Region: region, HTTPClient: &http.Client{Transport: w.base},
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

func (w *world) exchanges() int {
	n := 0
	for _, total := range w.cloud.Journal().Totals() {
		if total.Operation == opSTS {
			n += int(total.Count)
		}
	}
	return n
}

func (w *world) calls(service string) []journal.Call {
	return w.cloud.Journal().Calls(journal.Filter{Service: service})
}

func (w *world) fault(tb testing.TB, f fault.Fault) (end func()) {
	tb.Helper()
	id, err := w.cloud.Faults().Add(f)
	must(tb, err)
	return func() { w.cloud.Faults().Remove(id) }
}

func withAttribute(account auth.Account, name, value string) auth.Account {
	account.Attributes = maps.Clone(account.Attributes)
	account.Attributes[name] = value
	return account
}

func roleWithoutPermissions(name string, trust json.RawMessage) cloudaws.Role {
	return cloudaws.Role{Name: name, TrustPolicy: trust}
}

// splice answers a CONNECT request with a connection to address.
func splice(ctx context.Context, rw http.ResponseWriter, address string) {
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		http.Error(rw, "no", http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(far, near) }()
	_, _ = io.Copy(near, far)
}
