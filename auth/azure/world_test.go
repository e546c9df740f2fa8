package azure_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	clientB = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	// clientC is the client ID of the controller's own application.
	clientC = "c0c0c0c0-f186-41af-9f84-6a92e32d7cd0"
)

// world is a local Azure and a provider. The provider reaches the local Azure through a proxy,
// under Azure's own host names.
type world struct {
	*rig.Rig

	azure *azure.Provider
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	return newWorldOf(tb, issuerURL)
}

// newWorldOf makes a world. The tokens that its provider shows to Entra come from the given issuer.
func newWorldOf(tb testing.TB, issuer string) *world {
	tb.Helper()
	// Microsoft Entra accepts RSA signatures only, so the issuer signs with RS256.
	w := &world{Rig: rig.New(tb, cloudtest.Config{Azure: worldConfig()}, issuer, oidc.RS256)}
	w.azure = w.provider(tb, azure.Config{AllowedEndpointHosts: w.Allow})
	return w
}

func (w *world) provider(tb testing.TB, config azure.Config) *azure.Provider {
	tb.Helper()
	// The timeout is long, because a request may have to wait until the cloud has made its RSA key.
	// With the race detector on a busy machine this takes seconds.
	config.Transport, config.Timeout = w.Base, time.Minute
	return newProvider(tb, config)
}

// trust makes the application trust exactly one subject of the world's issuer.
func (w *world) trust(tb testing.TB, client, subject string) {
	tb.Helper()
	trusting := application(client, subject)
	trusting.FederatedCredentials[0].Issuer = w.Issuer.URL()
	rig.Must(tb, w.Cloud.Azure().PutApplication(tenantID, trusting))
}

func application(client, subject string) cloudazure.Application {
	return cloudazure.Application{ClientID: client, FederatedCredentials: []cloudazure.FederatedCredential{{Name: "cluster", Issuer: issuerURL, Subject: subject}}}
}

// caller verifies the token and returns its Entra tenant and application, as <tenant>/<client>.
func (w *world) caller(ctx context.Context, token auth.Token) (string, error) {
	bearer, ok := token.(*azure.Token)
	if !ok {
		return "", fmt.Errorf("a %T is no token of Microsoft Entra", token)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://login.microsoftonline.com/"+tenantID+"/discovery/v2.0/keys", nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: w.Base}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	published, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	keys, err := oidc.ParseKeys(published)
	if err != nil {
		return "", err
	}
	read, err := oidc.Read(bearer.Secret.Reveal())
	if err != nil {
		return "", err
	}
	if err := (&oidc.Verifier{}).VerifyWith(keys, read, time.Now()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%v/%v", read.Claims["tid"], read.Claims["appid"]), nil
}

func (w *world) exchanges() int { return w.Count("entra", "Token") }

// registry is the longest possible name of a registry. Package providertest adds an "x" in front,
// so that the name is too long for a registry.
const registry = "contosocontosocontosocontosocontosocontosocontoso1"

// sharedImage is a repository that both tenants may pull from.
const sharedImage = registry + ".azurecr.io/shared/app"

// The Entra tenants of the other clouds.
const (
	govTenantID    = "22222222-86f1-41af-91ab-2d7cd011db47"
	chinaTenantID  = "33333333-86f1-41af-91ab-2d7cd011db47"
	customTenantID = "44444444-86f1-41af-91ab-2d7cd011db47"
)

func worldConfig() cloudazure.Config {
	pull := func(clients ...string) (roles []cloudazure.RegistryRole) {
		for _, client := range clients {
			roles = append(roles, cloudazure.RegistryRole{ClientID: client, Role: "AcrPull"})
		}
		return roles
	}
	trusting := application(clientA, "system:serviceaccount:tenant-a:puller")
	registries := []cloudazure.RegistryConfig{{Name: "contoso", RoleAssignments: pull(clientA), RefuseARMTokens: true}}
	return cloudazure.Config{
		Environments: []cloudazure.Environment{{
			// An old cloud, whose registries have no audience of their own.
			Name: "Own", AuthorityHosts: []string{"login.azure.example"}, IssuerHost: "sts.azure.example", ExchangeAudience: "api://OwnTokenExchange",
			ResourceManagers: []string{"https://management.azure.example"}, RegistrySuffix: "registry.azure.example", StorageSuffix: "storage.azure.example",
			Resources: []string{"https://storage.azure.example", "https://vault.azure.example", "https://eventhubs.azure.net"},
		}},
		Tenants: []cloudazure.Tenant{
			{
				ID: tenantID,
				Applications: []cloudazure.Application{
					trusting, application(clientB, "system:serviceaccount:tenant-b:puller"), application(clientC, controllerSubject),
				},
				Registries: []cloudazure.RegistryConfig{
					{Name: registry, RoleAssignments: pull(clientA, clientB)},
					{Name: "contoso", ABAC: true, RefuseARMTokens: true, RoleAssignments: []cloudazure.RegistryRole{
						{ClientID: clientA, Role: "Container Registry Repository Writer", RepositoryPrefix: "tenant-a/"},
						{ClientID: clientB, Role: "Container Registry Repository Reader", RepositoryPrefix: "tenant-b/"},
						{ClientID: clientC, Role: "Container Registry Repository Reader"},
					}},
				},
			},
			{ID: govTenantID, Environment: cloudazure.AzureUSGovernment, Applications: []cloudazure.Application{trusting}, Registries: registries},
			{ID: chinaTenantID, Environment: cloudazure.AzureChinaCloud, Applications: []cloudazure.Application{trusting}, Registries: registries},
			{ID: customTenantID, Environment: "Own", Applications: []cloudazure.Application{trusting}, Registries: []cloudazure.RegistryConfig{{Name: "contoso", RoleAssignments: pull(clientA)}}},
		},
	}
}

func cutIdentity(identity string) (tenant, client string, ok bool) { return strings.Cut(identity, "/") }
