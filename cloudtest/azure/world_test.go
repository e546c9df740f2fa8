package azure_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	issuerURL = "https://westeurope.oic.cluster.example/tenant/cluster"
	audience  = "api://AzureADTokenExchange"

	directory      = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	otherDirectory = "11111111-86f1-41af-91ab-2d7cd011db47"
	usDirectory    = "22222222-86f1-41af-91ab-2d7cd011db47"
	chinaDirectory = "33333333-86f1-41af-91ab-2d7cd011db47"
	ownDirectory   = "44444444-86f1-41af-91ab-2d7cd011db47"

	clientA = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	clientB = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	pusher  = "5b5b5b5b-c5b2-4a72-9f84-6a92e3f06b08"
	bare    = "6c6c6c6c-c5b2-4a72-9f84-6a92e3f06b08" // without federated credentials

	administrator = "7d7d7d7d-c5b2-4a72-9f84-6a92e3f06b08" // may do everything
	manager       = "8e8e8e8e-c5b2-4a72-9f84-6a92e3f06b08" // may make identities in one resource group, and read the directory

	subscriptionID = "9f9f9f9f-c5b2-4a72-9f84-6a92e3f06b08"
	usSubscription = "afafafaf-c5b2-4a72-9f84-6a92e3f06b08"

	subjectA      = "system:serviceaccount:tenant-a:tenant-a-azure-sa"
	subjectB      = "system:serviceaccount:tenant-b:tenant-b-azure-sa"
	subjectPusher = "system:serviceaccount:ci:pusher"
	subjectAdmin  = "repo:contoso/infrastructure:ref:refs/heads/main"
)

// world is the local cloud of these tests. The tenants tenant-a and tenant-b of a Kubernetes
// cluster use it. Each of the two tenants has an application in Entra ID.
type world struct {
	*cloudtest.Cloud

	issuer *oidc.Issuer // trusted by the applications
	rogue  *oidc.Issuer // not trusted by the applications

	mu     sync.Mutex
	stores map[string]*plane // data planes by host
}

// application returns an application that a ServiceAccount can act as.
func application(clientID, subject string) azure.Application {
	return azure.Application{ClientID: clientID, FederatedCredentials: []azure.FederatedCredential{{Name: "cluster", Issuer: issuerURL, Subject: subject}}}
}

// tenantVault returns a key vault with a key that tenant A may use.
func tenantVault() []azure.KeyVaultConfig {
	return []azure.KeyVaultConfig{{
		Name: "tenant-keys", Keys: []string{"tenant-a"}, RoleAssignments: []azure.KeyVaultRole{{ClientID: clientA, Role: "Key Vault Crypto User"}},
	}}
}

func worldConfig() azure.Config {
	granted := func(clientID string, permissions ...string) azure.Application {
		a := application(clientID, subjectAdmin)
		a.GraphPermissions = permissions
		return a
	}
	return azure.Config{
		Environments: []azure.Environment{{
			Name: "Own", AuthorityHosts: []string{"login.azure.example"}, IssuerHost: "sts.azure.example", ExchangeAudience: "api://OwnTokenExchange",
			ResourceManagers: []string{"https://management.azure.example"}, Resources: []string{"https://containerregistry.azure.net", "https://storage.azure.com"},
			RegistrySuffix: "registry.azure.example", StorageSuffix: "storage.azure.example", VaultSuffix: "vault.azure.example",
		}},
		Tenants: []azure.Tenant{
			{
				ID: directory, Domains: []string{"contoso.onmicrosoft.com"},
				Applications: []azure.Application{
					application(clientA, subjectA), application(clientB, subjectB), application(pusher, subjectPusher),
					{ClientID: bare},
					granted(administrator, "Application.ReadWrite.All"), granted(manager, "Application.Read.All"),
				},
				Subscriptions: []azure.Subscription{{
					ID: subscriptionID, Name: "Platform",
					ResourceGroups: []azure.ResourceGroup{
						{Name: "tenants", Location: "westeurope", Registries: []string{"contoso", "shared", "absent"}, KeyVaults: []string{"tenant-keys"}}, {Name: "Network", Location: "westeurope"},
					},
					RoleAssignments: []azure.SubscriptionRole{
						{ClientID: administrator, Role: "Owner"},
						{ClientID: manager, Role: "Managed Identity Contributor", ResourceGroup: "Tenants"},
						{ClientID: pusher, Role: "Contributor"},
						{ClientID: clientB, Role: "Reader", ResourceGroup: "Network"},
					},
				}},
				Registries: []azure.RegistryConfig{
					{Name: "contoso", RoleAssignments: []azure.RegistryRole{
						{ClientID: clientA, Role: "AcrPull"}, {ClientID: pusher, Role: "AcrPush"}, {ClientID: pusher, Role: "AcrDelete"},
					}},
					{Name: "shared", ABAC: true, RefuseARMTokens: true, DataEndpoints: []string{"westeurope", "northeurope"}, RoleAssignments: []azure.RegistryRole{
						{ClientID: clientA, Role: "Container Registry Repository Reader", RepositoryPrefix: "tenant-a/"},
						{ClientID: clientB, Role: "Container Registry Repository Reader", Repository: "tenant-b/app"},
						{ClientID: pusher, Role: "Container Registry Repository Contributor"},
						{ClientID: pusher, Role: "Container Registry Repository Catalog Lister"},
					}},
				},
				StorageAccounts: []azure.StorageAccountConfig{
					{Name: "artifacts", RoleAssignments: []azure.StorageRole{
						{ClientID: clientA, Role: "Storage Blob Data Reader", Container: "tenant-a"},
						{ClientID: clientB, Role: "Storage Blob Data Contributor", Container: "tenant-b"},
						{ClientID: pusher, Role: "Storage Blob Data Contributor"},
					}},
				},
				KeyVaults: []azure.KeyVaultConfig{{
					Name: "tenant-keys", Keys: []string{"tenant-a", "Tenant-B"}, RoleAssignments: []azure.KeyVaultRole{
						{ClientID: clientA, Role: "Key Vault Crypto User", Key: "tenant-a"},
						{ClientID: clientB, Role: "12338af0-0e69-4776-bea7-57ae8d297424", Key: "tenant-b"}, // Key Vault Crypto User
						{ClientID: pusher, Role: "Key Vault Crypto Officer"},
						{ClientID: administrator, Role: "Key Vault Administrator"},
						{ClientID: manager, Role: "Key Vault Crypto Service Encryption User"},
					},
				}},
			},
			{
				ID: otherDirectory, Applications: []azure.Application{application(clientA, subjectA)},
				Registries: []azure.RegistryConfig{{Name: "fabrikam", RoleAssignments: []azure.RegistryRole{{ClientID: clientA, Role: "AcrPull"}}}},
			},
			{
				ID: usDirectory, Environment: azure.AzureUSGovernment, Applications: []azure.Application{application(clientA, subjectA)},
				Subscriptions: []azure.Subscription{{ID: usSubscription, Name: "Agency"}},
				Registries:    []azure.RegistryConfig{{Name: "contoso", RoleAssignments: []azure.RegistryRole{{ClientID: clientA, Role: "AcrPull"}}}},
				KeyVaults:     tenantVault(),
			},
			{
				ID: chinaDirectory, Environment: azure.AzureChinaCloud, Applications: []azure.Application{application(clientA, subjectA)},
				KeyVaults: tenantVault(),
			},
			{
				ID: ownDirectory, Environment: "Own", Applications: []azure.Application{application(clientA, subjectA)},
				KeyVaults: tenantVault(),
			},
		},
		ManagedIdentity: &azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{clientA, clientB}},
	}
}

// issuers makes the issuers once, because RSA keys take long to generate.
var issuers = sync.OnceValues(func() (known, rogue *oidc.Issuer) {
	var err error
	if known, err = oidc.NewIssuer(issuerURL, oidc.RS256); err != nil {
		panic(err)
	}
	if rogue, err = oidc.NewIssuer("https://issuer.tenant-b.example", oidc.RS256); err != nil {
		panic(err)
	}
	return known, rogue
})

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cloudtest.New(cloudtest.Config{Azure: worldConfig()})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w := &world{Cloud: c, stores: map[string]*plane{}}
	w.issuer, w.rogue = issuers()
	for _, issuer := range []*oidc.Issuer{w.issuer, w.rogue} {
		must.Succeed(t, c.HandleIssuer(issuer))
	}
	c.Azure().ServeBlob(func(a azure.StorageAccount) http.Handler { return w.planes(a.Host) })
	c.Azure().ServeRegistry(func(r azure.Registry) http.Handler { return w.planes(r.Host) })
	return w
}

func (w *world) mint(t *testing.T, subject, audience string) string {
	t.Helper()
	raw, err := w.issuer.Mint(oidc.Claims{"sub": subject, "aud": []string{audience}})
	must.Succeed(t, err)
	return raw
}

func (w *world) client() *http.Client {
	return &http.Client{
		Transport: w.Transport(), Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// entra gets an access token with the SDK.
func (w *world) entra(t *testing.T, client, subject, resource string) string {
	t.Helper()
	token, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", directory, client, w.mint(t, subject, audience), resource+"/.default")
	must.Succeed(t, err)
	return token.Token
}

// planes returns the data plane of a host.
func (w *world) planes(host string) *plane {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stores[host] == nil {
		w.stores[host] = &plane{content: map[string][]byte{}}
	}
	return w.stores[host]
}

// plane is a data plane that keeps its content in memory, by path. It refuses a request that has a
// credential or the query parameter mount. The cloud must forward neither of them.
type plane struct {
	mu      sync.Mutex
	content map[string][]byte
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" || r.URL.Query().Has("mount") || r.URL.Query().Has("sig") {
		http.Error(w, "a data plane got what is not for it", http.StatusTeapot)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		p.content[r.URL.Path] = body
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		delete(p.content, r.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPost:
		w.Header().Set("Location", r.Header.Get("X-Forwarded-Proto")+"://"+r.Host+r.URL.Path+"upload-1")
		w.WriteHeader(http.StatusAccepted)
	default:
		content, ok := p.content[r.URL.Path]
		if !ok {
			http.Error(w, "not here", http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// verifyWith checks a token's signature against published keys.
func verifyWith(keys []byte, raw string) error {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(keys, &set); err != nil {
		return err
	}
	signed, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return err
	}
	_, err = signed.Verify(&set)
	return err
}
