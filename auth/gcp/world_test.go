package gcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
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

// world is a local Google Cloud and a provider. The provider reaches the local Google Cloud through
// a proxy, under Google's own host names. One issuer signs for a GKE cluster and for a cluster
// outside GKE. A workload identity provider trusts this issuer.
type world struct {
	*rig.Rig

	gcp   *gcp.Provider
	asked atomic.Int64
}

func cluster() cloudgcp.Cluster {
	return cloudgcp.Cluster{Location: location, Name: clusterName, Issuer: issuerURL}
}

func pool(issuer string, disabled bool) cloudgcp.Pool {
	return cloudgcp.Pool{ID: "tenants", Providers: []cloudgcp.Provider{{
		ID: "my-cluster", IssuerURI: issuer, AttributeMapping: map[string]string{"google.subject": "assertion.sub"}, Disabled: disabled,
	}}}
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return newWorldOf(tb, issuerURL)
}

// newWorldOf makes a world whose workload identity provider trusts the issuer. The issuer signs the
// proofs.
func newWorldOf(tb testing.TB, issuer string) *world {
	tb.Helper()
	w := &world{Rig: rig.New(tb, cloudtest.Config{GCP: cloudgcp.Config{
		Projects: []cloudgcp.Project{{
			ID: projectID, Number: projectNumber,
			Clusters: []cloudgcp.Cluster{cluster()}, Pools: []cloudgcp.Pool{pool(issuer, false)},
			ServiceAccounts: []cloudgcp.ServiceAccount{{Email: controllerAccount}},
		}},
		Metadata: &cloudgcp.Metadata{Project: projectID, ClusterLocation: location, ClusterName: clusterName, ServiceAccount: controllerAccount},
	}}, issuer, oidc.ES256)}
	w.gcp = w.provider(tb, gcp.Config{AllowedEndpointHosts: w.Allow})
	return w
}

const controllerAccount = projectNumber + "-compute@developer.gserviceaccount.com"

func (w *world) provider(tb testing.TB, config gcp.Config) *gcp.Provider {
	tb.Helper()
	// The timeout is long, because a request may have to wait for the cloud's RSA key. With the
	// race detector on a busy machine, making the key takes seconds.
	config.Transport, config.Timeout = w.Base, time.Minute
	if config.MetadataHost == "" {
		config.MetadataHost = w.Proxy.Host // the proxy also acts as the metadata server
	}
	provider, err := gcp.NewProvider(config)
	rig.Must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

// emailOf returns the address of a tenant's service account.
func emailOf(tenant string) string {
	return tenant + "-bucket@" + projectID + ".iam.gserviceaccount.com"
}

// accountFor makes the service account of a tenant and lets members impersonate it. It returns the
// address of the service account.
func (w *world) accountFor(tb testing.TB, tenant string, members ...string) string {
	tb.Helper()
	account := cloudgcp.ServiceAccount{Email: emailOf(tenant)}
	if len(members) > 0 {
		account.Bindings = []cloudgcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: members}}
	}
	rig.Must(tb, w.Cloud.GCP().PutServiceAccount(projectID, account))
	return account.Email
}

// principal returns the account's name in IAM policies. If elsewhere is true, the name contains the
// pool of the workload identity provider, otherwise the pool of the GKE cluster.
func principal(account auth.Account, elsewhere bool) string {
	if elsewhere {
		return pools + "tenants/subject/" + rig.SubjectClaim(account)
	}
	return pools + gkePool + "/subject/ns/" + account.Subject.Namespace() + "/sa/" + account.Subject.Name()
}

func tenant(tb testing.TB, namespace string) auth.Account {
	tb.Helper()
	subject, err := auth.ServiceAccount(namespace, namespace+"-gcs-sa")
	rig.Must(tb, err)
	return auth.Account{Subject: subject, UID: "uid-of-" + namespace, Attributes: map[string]string{}}
}

// tenantA makes a ServiceAccount that impersonates an IAM service account of its own.
func (w *world) tenantA(tb testing.TB) auth.Account {
	tb.Helper()
	a := tenant(tb, "tenant-a")
	return rig.WithAttribute(a, gcp.ServiceAccountAnnotation, w.accountFor(tb, "tenant-a", principal(a, false)))
}

// whose returns the principal of a token. It sends the token to Cloud Storage and reads the
// principal from the journal of the local cloud.
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
	response, err := w.Base.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	for _, call := range w.Calls(cloudgcp.ServiceStorage) {
		if strings.Contains(call.Resource, bucket) && call.Principal != "" {
			return call.Principal, nil
		}
	}
	return "", fmt.Errorf("the cloud takes the caller for nobody: HTTP status %d", response.StatusCode)
}

func (w *world) exchanges() int { return w.Count(cloudgcp.ServiceSTS, opSTS) }
