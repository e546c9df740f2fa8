package ocirepository

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
)

const (
	clusterIssuer = "https://issuer.cluster.example"
	project       = "my-org-project"
	projectNumber = "123456789012"
	directory     = "11111111-86f1-41af-91ab-2d7cd011db47" // a tenant of Microsoft Entra
	clientOfA     = "aaaaaaaa-86f1-41af-91ab-2d7cd011db47"
	clientOfB     = "bbbbbbbb-86f1-41af-91ab-2d7cd011db47"
	clientOfOurs  = "cccccccc-86f1-41af-91ab-2d7cd011db47"
	emailOfA      = "tenant-a-gar@" + project + ".iam.gserviceaccount.com"
	emailOfOurs   = projectNumber + "-compute@developer.gserviceaccount.com"
	principals    = "principal://iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/" + project + ".svc.id.goog/subject/ns/"
	acr           = "contoso.azurecr.io"
	gar           = "europe-docker.pkg.dev/" + project
)

// cloudWorld is a world with registries of Azure and Google Cloud. A fake cloud checks their
// credentials.
type cloudWorld struct {
	*world

	cloud  *cloudtest.Cloud
	issuer *oidc.Issuer
}

// signed wraps controllertest.Accounts. Its Prove returns a token signed by the cluster's OIDC
// issuer.
type signed struct {
	*controllertest.Accounts

	issuer *oidc.Issuer
}

func (s signed) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	token, err := s.issuer.Mint(oidc.Claims{
		"sub": account.Subject.String(), "aud": request.Audiences, "exp": time.Now().Add(request.Lifetime).Unix(), "jti": account.UID,
	})
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, err
}

func newCloudWorld(t *testing.T) *cloudWorld {
	t.Helper()
	for _, name := range []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	w := &cloudWorld{world: newWorld(t)}
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.cloud, err = cloudtest.New(cloudtest.Config{Azure: azureConfig(), GCP: gcpConfig()})
	fatal(err)
	t.Cleanup(func() { _ = w.cloud.Close() })
	w.cloud.Azure().ServeRegistry(func(cloudazure.Registry) http.Handler { return w.registry.inner })
	w.cloud.GCP().ServeRegistry(func(cloudgcp.Registry) http.Handler { return w.registry.inner })
	w.issuer, err = oidc.NewIssuer(clusterIssuer, oidc.RS256)
	fatal(err)
	fatal(w.cloud.HandleIssuer(w.issuer))
	fatal(w.cloud.Start(t.Context()))
	proxy, err := url.Parse(w.cloud.ProxyURL())
	fatal(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cloud.CAPEM())
	base := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}

	// A request may have to wait until the fake cloud has made an RSA key. With the race detector
	// on a busy machine, that takes seconds.
	const patience = time.Minute
	microsoft, err := azure.NewProvider(azure.Config{TenantID: directory, Transport: base, Timeout: patience})
	fatal(err)
	t.Cleanup(microsoft.Close)
	google, err := gcp.NewProvider(gcp.Config{Transport: base, MetadataHost: proxy.Host, Timeout: patience})
	fatal(err)
	t.Cleanup(google.Close)
	var guard endpoint.Guard
	pool, err := transport.NewPool(transport.Options{Base: base, Dial: guard.DialContext(transport.Dialer()), CheckTarget: guard.CheckTarget})
	fatal(err)
	t.Cleanup(pool.Close)

	w.Access.Provider = func(name string) (auth.Provider, error) {
		return map[string]auth.Provider{"azure": microsoft, "gcp": google}[name], nil
	}
	w.Access.Accounts, w.Access.Transports = signed{w.Accounts, w.issuer}, pool
	w.Shared.Rules.Providers = []string{"azure", "gcp"}
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		layer := layerOf(t, map[string]string{"hello.txt": "hello " + tenant})
		w.registry.push(t, tenant+"/app", "v1", layer)
		w.registry.push(t, project+"/"+tenant+"/app", "v1", layer)
	}
	return w
}

func azureConfig() cloudazure.Config {
	application := func(client, subject string) cloudazure.Application {
		return cloudazure.Application{ClientID: client, FederatedCredentials: []cloudazure.FederatedCredential{{
			Name: "cluster", Issuer: clusterIssuer, Subject: "system:serviceaccount:" + subject,
		}}}
	}
	const reader = "Container Registry Repository Reader"
	return cloudazure.Config{Tenants: []cloudazure.Tenant{{
		ID: directory,
		Applications: []cloudazure.Application{
			application(clientOfA, "tenant-a:puller"), application(clientOfB, "tenant-b:puller"), application(clientOfOurs, "lanyard-system:lanyard-controller"),
		},
		Registries: []cloudazure.RegistryConfig{{Name: "contoso", ABAC: true, RefuseARMTokens: true, RoleAssignments: []cloudazure.RegistryRole{
			{ClientID: clientOfA, Role: reader, RepositoryPrefix: "tenant-a/"},
			{ClientID: clientOfB, Role: reader, RepositoryPrefix: "tenant-b/"},
			{ClientID: clientOfOurs, Role: reader},
		}}},
	}}}
}

func gcpConfig() cloudgcp.Config {
	bind := func(role string, members ...string) []cloudgcp.Binding {
		return []cloudgcp.Binding{{Role: role, Members: members}}
	}
	const reader = "roles/artifactregistry.reader"
	return cloudgcp.Config{
		Projects: []cloudgcp.Project{{
			ID: project, Number: projectNumber,
			Clusters: []cloudgcp.Cluster{{Location: "europe-west1", Name: "tenants", Issuer: clusterIssuer}},
			ServiceAccounts: []cloudgcp.ServiceAccount{
				{Email: emailOfA, Bindings: bind("roles/iam.workloadIdentityUser", principals+"tenant-a/sa/puller")}, {Email: emailOfOurs},
			},
			Repositories: []cloudgcp.Repository{
				{Location: "europe", Name: "tenant-a", Bindings: bind(reader, "serviceAccount:"+emailOfA, "serviceAccount:"+emailOfOurs)},
				{Location: "europe", Name: "tenant-b", Bindings: bind(reader, principals+"tenant-b/sa/puller")},
			},
		}},
		Metadata: &cloudgcp.Metadata{Project: project, ClusterLocation: "europe-west1", ClusterName: "tenants", ServiceAccount: emailOfOurs},
	}
}

// account makes or changes the tenant's account, which has the name puller.
func (w *cloudWorld) account(namespace string, annotations map[string]string) {
	w.T.Helper()
	w.Accounts.Put(w.T, namespace, "puller", "uid-of-"+namespace, annotations)
}

// exchanges returns the number of tokens that were requested from the clouds.
func (w *cloudWorld) exchanges() int {
	n := 0
	for _, total := range w.cloud.Journal().Totals() {
		if total.Service == "entra" || total.Service == cloudgcp.ServiceSTS || total.Service == cloudgcp.ServiceIAMCredentials {
			n += int(total.Count)
		}
	}
	return n
}

func TestRegistriesOfAzureAndGoogleCloud(t *testing.T) {
	client := func(id string) map[string]string { return map[string]string{azure.ClientAnnotation: id} }
	for name, c := range map[string]struct {
		url         string
		namespace   string
		annotations map[string]string
		reason      string
		says        string
		cloud       string // cloud identity in the status
		nobody      bool   // no cloud may get a request
	}{
		"acr": {
			url: acr + "/tenant-a/app", namespace: "tenant-a", annotations: client(clientOfA),
			reason: meta.ReasonSucceeded, cloud: directory + "/" + clientOfA,
		},
		"acr-of-the-other-tenant": {
			url: acr + "/tenant-a/app", namespace: "tenant-b", annotations: client(clientOfB),
			reason: string(auth.CodePermissionDenied), says: "assign to application " + clientOfB,
		},
		"acr-as-the-other-tenant": {
			url: acr + "/tenant-a/app", namespace: "tenant-b", annotations: client(clientOfA),
			reason: string(auth.CodeTrustRefused), says: "system:serviceaccount:tenant-b:puller",
		},
		"acr-as-nobody": {
			url: acr + "/tenant-a/app", namespace: "tenant-a",
			reason: string(auth.CodeIdentityMissing), says: azure.ClientAnnotation, nobody: true,
		},
		"acr-that-is-none": {
			url: acr + ".evil.example/tenant-a/app", namespace: "tenant-a", annotations: client(clientOfA),
			reason: string(auth.CodeEndpointRefused), says: acr + ".evil.example", nobody: true,
		},
		"acr-of-another-cloud": {
			url: "contoso.azurecr.cn/tenant-a/app", namespace: "tenant-a", annotations: client(clientOfA),
			reason: string(auth.CodeEndpointRefused), says: "contoso.azurecr.cn", nobody: true,
		},
		"gar": {
			url: gar + "/tenant-a/app", namespace: "tenant-a", annotations: map[string]string{gcp.ServiceAccountAnnotation: emailOfA},
			reason: meta.ReasonSucceeded, cloud: emailOfA,
		},
		"gar-as-oneself": {
			url: gar + "/tenant-b/app", namespace: "tenant-b",
			reason: meta.ReasonSucceeded,
		},
		"gar-of-the-other-tenant": {
			url: gar + "/tenant-b/app", namespace: "tenant-a",
			reason: meta.ReasonRegistryRefused, says: "as system:serviceaccount:tenant-a:puller",
		},
		"gar-as-the-other-tenant": {
			url: gar + "/tenant-a/app", namespace: "tenant-b", annotations: map[string]string{gcp.ServiceAccountAnnotation: emailOfA},
			reason: string(auth.CodeTrustRefused), says: emailOfA,
		},
		"gar-that-is-none": {
			url: "europe-docker.pkg.dev.evil.example/" + project + "/tenant-a/app", namespace: "tenant-a",
			reason: string(auth.CodeEndpointRefused), says: "europe-docker.pkg.dev.evil.example", nobody: true,
		},
		"gar-of-azure": {
			url: acr + "/tenant-a/app", namespace: "tenant-a",
			reason: string(auth.CodeEndpointRefused), says: acr, nobody: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCloudWorld(t)
			w.account(c.namespace, c.annotations)
			provider, _, _ := strings.Cut(name, "-")
			o, _ := w.Reconcile(w.create(c.namespace, name, func(o *v1alpha1.OCIRepository) {
				o.Spec.URL, o.Spec.Provider = "oci://"+c.url, map[string]string{"acr": "azure", "gar": "gcp"}[provider]
			}))
			if got := controllertest.Ready(o); got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
				t.Errorf("Ready is %s: %s", got.Reason, got.Message)
			}
			shown := c.reason == meta.ReasonSucceeded || c.reason == meta.ReasonRegistryRefused
			switch got := o.Status.Identity; {
			case shown != (got != nil):
				t.Errorf("identity %+v", got)
			case shown && (got.Subject != "system:serviceaccount:"+c.namespace+":puller" || got.CloudIdentity != c.cloud):
				t.Errorf("identity %+v, want %q", got, c.cloud)
			}
			if c.reason == meta.ReasonSucceeded && w.Served(o)["hello.txt"] != "hello "+c.namespace {
				t.Errorf("fetched %v", w.Served(o))
			}
			if n := w.exchanges(); c.nobody != (n == 0) {
				t.Errorf("%d tokens were asked for", n)
			}
		})
	}
}

// TestControllerAtAzureAndGoogleCloud checks that the controller's own identity is used only for
// namespaces with a grant, and only if no setting of the administrator forbids it.
func TestControllerAtAzureAndGoogleCloud(t *testing.T) {
	lent := grant.Namespaces{List: []string{"tenant-a"}}
	for name, c := range map[string]struct {
		namespace, account string
		lockdown           func(*spec.Rules)
		reason, says       string
		subject            string
	}{
		"lent": {
			namespace: "tenant-a", lockdown: func(r *spec.Rules) { r.ControllerNamespaces = lent },
			reason: meta.ReasonSucceeded, subject: "controller",
		},
		"lent to others": {
			namespace: "tenant-b", lockdown: func(r *spec.Rules) { r.ControllerNamespaces = lent },
			reason: string(auth.CodeNotGranted), says: "--controller-identity-namespaces",
		},
		"accounts are required": {
			namespace: "tenant-a", lockdown: func(r *spec.Rules) { r.ControllerNamespaces, r.RequireServiceAccount = lent, true },
			reason: string(auth.CodeNotGranted), says: "--require-service-account-for-provider-auth",
		},
		"by default": {
			namespace: "tenant-a", lockdown: func(r *spec.Rules) { r.ControllerNamespaces, r.DefaultServiceAccount = lent, "puller" },
			reason: meta.ReasonSucceeded, subject: "system:serviceaccount:tenant-a:puller",
		},
		"default that is missing": {
			namespace: "tenant-a", lockdown: func(r *spec.Rules) { r.ControllerNamespaces, r.DefaultServiceAccount = lent, "missing" },
			reason: string(auth.CodeSubjectNotFound), says: "--default-service-account",
		},
		"the gate is off": {
			namespace: "tenant-a", account: "puller", lockdown: func(r *spec.Rules) { r.ControllerNamespaces, r.ControllerOnly = lent, true },
			reason: string(auth.CodeNotGranted), says: "ObjectLevelWorkloadIdentity",
		},
	} {
		for provider, image := range map[string]string{"azure": acr + "/tenant-a/app", "gcp": gar + "/tenant-a/app"} {
			t.Run(name+"/"+provider, func(t *testing.T) {
				w := newCloudWorld(t)
				w.beController()
				w.account("tenant-a", map[string]string{azure.ClientAnnotation: clientOfA, gcp.ServiceAccountAnnotation: emailOfA})
				c.lockdown(&w.Shared.Rules)
				o, result := w.Reconcile(w.create(c.namespace, "app", func(o *v1alpha1.OCIRepository) {
					o.Spec.URL, o.Spec.Provider, o.Spec.ServiceAccountName = "oci://"+image, provider, c.account
				}))
				if got := controllertest.Ready(o); got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
					t.Errorf("Ready is %s: %s", got.Reason, got.Message)
				}
				if c.subject == "" {
					if o.Status.Identity != nil || w.exchanges() != 0 || result.RequeueAfter != 0 {
						t.Errorf("identity %+v, %d tokens, %+v", o.Status.Identity, w.exchanges(), result)
					}
					return
				}
				if o.Status.Identity == nil || o.Status.Identity.Subject != c.subject {
					t.Errorf("identity %+v", o.Status.Identity)
				}
			})
		}
	}
}

// beController gives the test's process the identity that the chart gives to the controller's Pod.
func (w *cloudWorld) beController() {
	w.T.Helper()
	token, err := w.issuer.Mint(oidc.Claims{
		"sub": "system:serviceaccount:lanyard-system:lanyard-controller", "aud": []string{"api://AzureADTokenExchange"}, "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		w.T.Fatal(err)
	}
	file := filepath.Join(w.T.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		w.T.Fatal(err)
	}
	for name, value := range map[string]string{
		"AZURE_FEDERATED_TOKEN_FILE": file, "AZURE_TENANT_ID": directory, "AZURE_CLIENT_ID": clientOfOurs,
	} {
		w.T.Setenv(name, value)
	}
}
