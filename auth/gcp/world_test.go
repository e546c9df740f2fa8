package gcp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
)

const (
	projectID     = "my-org-project"
	projectNumber = "123456789012"
	location      = "europe-west1"
	clusterName   = "tenants"
	gkePool       = projectID + ".svc.id.goog"
	providerName  = "projects/" + projectNumber + "/locations/global/workloadIdentityPools/tenants/providers/my-cluster"
	issuerURL     = "https://issuer.cluster.example"
	imageA        = "europe-docker.pkg.dev/" + projectID + "/tenant-a/app"
	opSTS         = "ExchangeToken"
	opImpersonate = "GenerateAccessToken"
	pools         = "principal://iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/"
)

// world is a local Google Cloud and a provider that reaches it through a proxy under Google's own names. One issuer signs for a GKE
// cluster, and for a cluster elsewhere which a workload identity provider trusts.
type world struct {
	cloud  *cloudtest.Cloud
	issuer *oidc.Issuer
	proxy  *url.URL
	base   *http.Transport
	allow  endpoint.Allowed
	gcp    *gcp.Provider
	asked  atomic.Int64
}

func cluster() cloudgcp.Cluster {
	return cloudgcp.Cluster{Location: location, Name: clusterName, Issuer: issuerURL}
}

func pool(disabled bool) cloudgcp.Pool {
	return cloudgcp.Pool{ID: "tenants", Providers: []cloudgcp.Provider{{
		ID: "my-cluster", IssuerURI: issuerURL, AttributeMapping: map[string]string{"google.subject": "assertion.sub"}, Disabled: disabled,
	}}}
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	cloud, err := cloudtest.New(cloudtest.Config{GCP: cloudgcp.Config{
		Projects: []cloudgcp.Project{{
			ID: projectID, Number: projectNumber,
			Clusters: []cloudgcp.Cluster{cluster()}, Pools: []cloudgcp.Pool{pool(false)},
			ServiceAccounts: []cloudgcp.ServiceAccount{{Email: controllerAccount}},
		}},
		Metadata: &cloudgcp.Metadata{Project: projectID, ClusterLocation: location, ClusterName: clusterName, ServiceAccount: controllerAccount},
	}})
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
	w.gcp = w.provider(tb, gcp.Config{AllowedEndpointHosts: w.allow})
	return w
}

const controllerAccount = projectNumber + "-compute@developer.gserviceaccount.com"

func (w *world) provider(tb testing.TB, config gcp.Config) *gcp.Provider {
	tb.Helper()
	config.Transport = w.base
	if config.MetadataHost == "" {
		config.MetadataHost = w.proxy.Host // which answers as the metadata server to whom asks it directly
	}
	provider, err := gcp.NewProvider(config)
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

// emailOf is the address of a tenant's service account.
func emailOf(tenant string) string {
	return tenant + "-bucket@" + projectID + ".iam.gserviceaccount.com"
}

// accountFor makes the service account of a tenant, which trusts members, and returns its address.
func (w *world) accountFor(tb testing.TB, tenant string, members ...string) string {
	tb.Helper()
	account := cloudgcp.ServiceAccount{Email: emailOf(tenant)}
	if len(members) > 0 {
		account.Bindings = []cloudgcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: members}}
	}
	must(tb, w.cloud.GCP().PutServiceAccount(projectID, account))
	return account.Email
}

// principal is the cloud's name of the account's subject in the cluster's pool, or in that of the workload identity provider.
func principal(account auth.Account, elsewhere bool) string {
	if elsewhere {
		return pools + "tenants/subject/" + subjectClaim(account)
	}
	return pools + gkePool + "/subject/ns/" + account.Subject.Namespace() + "/sa/" + account.Subject.Name()
}

func tenant(tb testing.TB, namespace string) auth.Account {
	tb.Helper()
	subject, err := auth.ServiceAccount(namespace, namespace+"-gcs-sa")
	must(tb, err)
	return auth.Account{Subject: subject, UID: "uid-of-" + namespace, Attributes: map[string]string{}}
}

// tenantA makes a ServiceAccount with a service account of its own.
func (w *world) tenantA(tb testing.TB) auth.Account {
	tb.Helper()
	a := tenant(tb, "tenant-a")
	return withAttribute(a, gcp.ServiceAccountAnnotation, w.accountFor(tb, "tenant-a", principal(a, false)))
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

// whose shows the token to Cloud Storage and reads in the journal whom it took the caller for.
func (w *world) whose(ctx context.Context, token auth.Token) (string, error) {
	access, ok := token.(*gcp.Token)
	if !ok {
		return "", fmt.Errorf("a %T is no access token", token)
	}
	bucket := "whose-" + strconv.FormatInt(w.asked.Add(1), 10)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://storage.googleapis.com/storage/v1/b/"+bucket+"/o", nil)
	if err != nil {
		return "", err
	}
	access.OAuth2().SetAuthHeader(request)
	response, err := w.base.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	for _, call := range w.calls(cloudgcp.ServiceStorage) {
		if strings.Contains(call.Resource, bucket) && call.Principal != "" {
			return call.Principal, nil
		}
	}
	return "", fmt.Errorf("the cloud takes the caller for nobody: HTTP status %d", response.StatusCode)
}

func (w *world) calls(service string) []journal.Call {
	return w.cloud.Journal().Calls(journal.Filter{Service: service})
}

func (w *world) exchanges() int { return w.count(opSTS) }

func (w *world) count(operation string) int {
	n := 0
	for _, total := range w.cloud.Journal().Totals() {
		if total.Operation == operation {
			n += int(total.Count)
		}
	}
	return n
}

func (w *world) fault(tb testing.TB, f fault.Fault) (end func()) {
	tb.Helper()
	id, err := w.cloud.Faults().Add(f)
	must(tb, err)
	return func() { w.cloud.Faults().Remove(id) }
}

// withAttribute is the account with another attribute; without it if value is empty.
func withAttribute(account auth.Account, name, value string) auth.Account {
	attributes := map[string]string{}
	maps.Copy(attributes, account.Attributes)
	if attributes[name] = value; value == "" {
		delete(attributes, name)
	}
	account.Attributes = attributes
	return account
}
