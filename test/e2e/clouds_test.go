package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Annotations that map a ServiceAccount to an identity. Sources: Microsoft Entra Workload ID,
// "Service account annotations"; GKE, "Authenticate to Google Cloud APIs from GKE workloads";
// docs/deviations.md.
const (
	clientAnnotation   = "azure.workload.identity/client-id"
	accountAnnotation  = "iam.gke.io/gcp-service-account"
	providerAnnotation = "gcp.lanyard.dev/workload-identity-provider"
)

const (
	// azureAudience is the audience of tokens for Microsoft Entra.
	azureAudience = "api://AzureADTokenExchange"
	// googleProject is the demonstration's project. googlePool is the workload identity pool of its
	// clusters. ServiceAccount tokens for Google have the pool as audience.
	googleProject = "my-org-project"
	googlePool    = googleProject + ".svc.id.goog"
	// googleAudience is the audience in requests to Google's STS. It names the pool and the
	// cluster. Source: GKE, "About Workload Identity Federation for GKE".
	googleAudience = "identitynamespace:" + googlePool + ":https://container.googleapis.com/v1/projects/" + googleProject + "/locations/" + googleRegion + "/clusters/lanyard"
	googleScope    = "https://www.googleapis.com/auth/cloud-platform"
	googleRegion   = "europe-west1"
	googleIAM      = "principal://iam.googleapis.com/projects/987654321098/locations/global/workloadIdentityPools/"
)

// googlePrincipal returns the principal of a ServiceAccount in the demonstration's cluster, for
// Google's policies. Source: IAM, "Principal identifiers".
func googlePrincipal(namespace, account string) string {
	return googleIAM + googlePool + "/subject/ns/" + namespace + "/sa/" + account
}

// atAzure creates an application that trusts the tenant's ServiceAccount, and annotates the account
// with the application. It creates a registry where the application may push and pull. It returns
// the application's client ID.
func (tn *tenant) atAzure(t *testing.T) (application string) {
	t.Helper()
	application = string(uuid.NewUUID())
	must(t, "make an application", world.Cloud().Azure().PutApplication(local.AzureTenant, azure.Application{
		ClientID:             application,
		FederatedCredentials: []azure.FederatedCredential{{Name: tn.namespace, Issuer: local.Issuer, Subject: tn.subject}},
	}))
	must(t, "make a registry", world.Cloud().Azure().PutRegistry(local.AzureTenant, azure.RegistryConfig{
		Name: tn.azureRegistry(), RoleAssignments: []azure.RegistryRole{{ClientID: application, Role: "AcrPush"}},
		DataEndpoints: []string{"westeurope"},
	}))
	tn.annotate(t, clientAnnotation, application)
	return application
}

// azureRegistry returns the name of the tenant's registry at Azure. Such a name has only letters
// and digits.
func (tn *tenant) azureRegistry() string { return strings.ReplaceAll(tn.namespace, "-", "") }

// azureObject returns an OCIRepository that pulls from the tenant's registry at Azure with the
// tenant's ServiceAccount.
func (tn *tenant) azureObject(name string) *v1alpha1.OCIRepository {
	o := tn.object(name)
	o.Spec.Provider, o.Spec.URL = v1alpha1.ProviderAzure, "oci://"+tn.azureRegistry()+".azurecr.io/app"
	return o
}

// pushToAzure publishes one file at the tenant's registry at Azure, as the tenant's application.
func (tn *tenant) pushToAzure(t *testing.T, application, tag string) string {
	t.Helper()
	host := tn.azureRegistry() + ".azurecr.io"
	access, v := entraToken(t, application, token(t, tn.namespace, puller, azureAudience))
	if !v.granted() {
		t.Fatalf("Entra says of the tenant's own application: %s", v)
	}
	// This user name says that the password is a token. Source: Azure/acr, "Token-BasicAuth.md".
	login := &authn.Basic{Username: "00000000-0000-0000-0000-000000000000", Password: registryLogin(t, host, access)}
	return publish(t, "oci://"+host+"/app", tag, layer(t, file("app.yaml", tn.namespace)), login)
}

// atGoogle creates a service account at Google for the tenant, and a repository where this account
// may push and pull. The tenant's ServiceAccount may impersonate the service account at Google.
// atGoogle annotates the ServiceAccount with the email of the service account, and returns the
// email.
func (tn *tenant) atGoogle(t *testing.T) (account string) {
	t.Helper()
	account = tn.namespace + "@" + googleProject + ".iam.gserviceaccount.com"
	must(t, "make a service account", world.Cloud().GCP().PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email: account,
		Bindings: []gcp.Binding{{
			Role: "roles/iam.workloadIdentityUser", Members: []string{"serviceAccount:" + googlePool + "[" + tn.namespace + "/" + puller + "]"},
		}},
	}))
	must(t, "make a repository", world.Cloud().GCP().PutRepository(googleProject, gcp.Repository{
		Location: googleRegion, Name: tn.namespace,
		Bindings: []gcp.Binding{{Role: "roles/artifactregistry.writer", Members: []string{"serviceAccount:" + account}}},
	}))
	tn.annotate(t, accountAnnotation, account)
	return account
}

// googleObject returns an OCIRepository that pulls from the tenant's repository at Google with the
// tenant's ServiceAccount.
func (tn *tenant) googleObject(name string) *v1alpha1.OCIRepository {
	o := tn.object(name)
	o.Spec.Provider, o.Spec.URL = v1alpha1.ProviderGCP, tn.googleURL()
	return o
}

func (tn *tenant) googleURL() string {
	return "oci://" + googleRegion + "-docker.pkg.dev/" + googleProject + "/" + tn.namespace + "/app"
}

// pushToGoogle publishes one file in the tenant's repository at Google, as the tenant's service
// account.
func (tn *tenant) pushToGoogle(t *testing.T, account, tag string) string {
	t.Helper()
	federated, v := googleToken(t, token(t, tn.namespace, puller, googlePool))
	if v.granted() {
		federated, v = impersonate(t, account, federated)
	}
	if !v.granted() {
		t.Fatalf("Google says of the tenant's own service account: %s", v)
	}
	login := &authn.Basic{Username: "oauth2accesstoken", Password: federated}
	return publish(t, tn.googleURL(), tag, layer(t, file("app.yaml", tn.namespace)), login)
}

// annotate sets an annotation of the tenant's ServiceAccount. An empty value removes the
// annotation.
func (tn *tenant) annotate(t *testing.T, key, value string) {
	t.Helper()
	patch(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: puller}}, func(a *corev1.ServiceAccount) {
		if value == "" {
			delete(a.Annotations, key)
			return
		}
		a.Annotations[key] = value
	})
}
