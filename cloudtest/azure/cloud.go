// Package azure is the local Azure. It has:
//   - Entra ID with applications and their federated credentials
//   - container registries with their token service
//   - blob storage with role assignments
//   - key vaults whose RSA keys encrypt and decrypt, with role assignments
//   - the instance metadata service
//
// Of Azure Resource Manager and Microsoft Graph, it has only some calls. With these calls, an
// administrator can create an identity that trusts a cluster and may pull.
//
// It verifies what Azure verifies: assertions against their issuer's published keys, access tokens,
// role assignments. It answers with Azure's error codes, HTTP statuses and bodies.
//
// A [Cloud] has a service for each of Azure's host names, see [Cloud.Service]. It checks role
// assignments when Azure checks them: for a registry when an access token is issued, for a blob at
// each request. So a registry's access token stays valid until it expires, even if the role
// assignment is withdrawn.
//
// Every method that changes the cloud returns a [*setting.Error] if a setting is invalid. If the
// object to change does not exist, the error wraps [setting.ErrNotFound].
package azure

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// tokenLeeway is the tolerated difference between clocks, for assertions and for access tokens of
// Entra ID. Source: Microsoft.IdentityModel.Tokens, TokenValidationParameters.DefaultClockSkew (300
// seconds).
const tokenLeeway = 5 * time.Minute

// Cloud is the local Azure. It is safe for concurrent use. Make one with [New].
type Cloud struct {
	verifier     *oidc.Verifier
	environments []*Environment
	entraKeys    func() *oidc.Issuer // signs Entra's access tokens
	registryKeys func() *oidc.Issuer // signs the registries' tokens
	dataKey      []byte              // signs links to data endpoints
	registryData plane.Slot[Registry]
	blobData     plane.Slot[StorageAccount]
	identity     atomic.Pointer[ManagedIdentity]

	mu            sync.RWMutex // guards the fields below; never held during I/O
	tenants       map[string]*tenant
	domains       map[string]*tenant
	registries    map[string]*registry       // by host; a registry may have several hosts
	accounts      map[string]*storageAccount // by host
	vaults        map[string]*keyVault       // by host
	keys          map[string]*vaultKey       // by keyVault.keyID
	subscriptions map[string]*subscription   // by ID
}

// tenant is a tenant of Entra ID. The cloud's lock guards apps; the other fields never change.
type tenant struct {
	id          string
	environment *Environment
	domains     []string
	apps        map[string]*application // by client ID
}

// application is immutable once stored; a change replaces it. A replacement keeps the object ID. A
// managed identity that was made by Azure Resource Manager has a resource ID and no registration.
// Every other application has a registration and no resource ID.
type application struct {
	clientID     string
	objectID     string // its service principal's object ID; empty if it has no principal yet
	registration string // the object ID of its app registration
	resourceID   string
	location     string // Azure region of the managed identity
	name         string
	permissions  []string // permissions in Microsoft Graph
	credentials  []FederatedCredential
}

// New makes the local Azure that cfg describes. The cloud uses the given transport to fetch the
// discovery documents and keys of OIDC issuers. The transport must reach only hosts of the local
// cloud. The error is a [*setting.Error].
func New(cfg Config, issuers http.RoundTripper) (*Cloud, error) {
	c := &Cloud{
		verifier:     oidc.NewVerifier(issuers, tokenLeeway),
		entraKeys:    sync.OnceValue(newKeys),
		registryKeys: sync.OnceValue(newKeys),
		dataKey:      wire.Random(32),
		tenants:      map[string]*tenant{},
		domains:      map[string]*tenant{},
		registries:   map[string]*registry{},
		accounts:     map[string]*storageAccount{},
		vaults:       map[string]*keyVault{},
		keys:         map[string]*vaultKey{},

		subscriptions: map[string]*subscription{},
	}
	if err := c.addEnvironments(cfg.Environments); err != nil {
		return nil, err
	}
	if err := setting.Each("tenants", cfg.Tenants, c.AddTenant); err != nil {
		return nil, err
	}
	if cfg.ManagedIdentity != nil {
		if err := c.SetManagedIdentity(*cfg.ManagedIdentity); err != nil {
			return nil, setting.In("managedIdentity", err)
		}
	}
	return c, nil
}

// addEnvironments adds the built-in and the private clouds. Two clouds must not share a host.
func (c *Cloud) addEnvironments(private []Environment) error {
	hosts := map[string]string{}
	for i, e := range slices.Concat(environments(), private) {
		field := setting.At("environments", i-len(environments()))
		if err := e.validate(); err != nil {
			return setting.In(field, err)
		}
		if c.environment(e.Name) != nil {
			return setting.Invalid(field+".name", "%q is the name of another environment", e.Name)
		}
		manager, _ := strings.CutPrefix(e.ResourceManagers[0], "https://")
		for _, h := range slices.Concat(e.AuthorityHosts, []string{e.RegistrySuffix, e.StorageSuffix, e.VaultSuffix, e.GraphHost, manager}) {
			if h == "" {
				continue
			}
			if other, taken := hosts[h]; taken {
				return setting.Invalid(field, "%q belongs to %s already", h, other)
			}
			hosts[h] = e.Name
		}
		c.environments = append(c.environments, &e)
	}
	return nil
}

// environment finds an environment by name.
func (c *Cloud) environment(name string) *Environment {
	i := slices.IndexFunc(c.environments, func(e *Environment) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return c.environments[i]
}

// AddTenant adds a tenant with all its contents. If it fails, it adds nothing. The error is a
// [*setting.Error].
func (c *Cloud) AddTenant(cfg Tenant) error {
	if err := checkUUID("id", cfg.ID); err != nil {
		return err
	}
	cfg.Environment = cmp.Or(cfg.Environment, AzureCloud)
	e := c.environment(cfg.Environment)
	if e == nil {
		return setting.Invalid("environment", "%q is not an environment", cfg.Environment)
	}
	t := &tenant{id: cfg.ID, environment: e, domains: slices.Clone(cfg.Domains), apps: map[string]*application{}}
	if err := setting.Fill("applications", "application", cfg.Applications,
		func(x Application) string { return x.ClientID }, t.putApplication); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tenants[t.id] != nil {
		return setting.Invalid("id", "tenant %s exists already", t.id)
	}
	for i, d := range t.domains {
		if err := checkHost(d); err != nil {
			return setting.In(setting.At("domains", i), err)
		}
		if other := c.domains[d]; other != nil {
			return setting.Invalid(setting.At("domains", i), "%q belongs to tenant %s", d, other.id)
		}
	}
	if err := c.fill(t, cfg); err != nil {
		c.dropTenant(t)
		return err
	}
	c.tenants[t.id] = t
	for _, d := range t.domains {
		c.domains[d] = t
	}
	return nil
}

// fill adds a new tenant's registries, storage accounts, key vaults and subscriptions to the cloud.
func (c *Cloud) fill(t *tenant, cfg Tenant) error {
	putRegistry := func(x RegistryConfig) error { return c.putRegistry(t, x) }
	putAccount := func(x StorageAccountConfig) error { return c.putStorageAccount(t, x) }
	putVault := func(x KeyVaultConfig) error { return c.putKeyVault(t, x) }
	putSubscription := func(x Subscription) error { return c.putSubscription(t, x) }
	return cmp.Or(
		setting.Fill("registries", "registry", cfg.Registries, func(x RegistryConfig) string { return x.Name }, putRegistry),
		setting.Fill("storageAccounts", "storage account", cfg.StorageAccounts,
			func(x StorageAccountConfig) string { return x.Name }, putAccount),
		setting.Fill("keyVaults", "key vault", cfg.KeyVaults, func(x KeyVaultConfig) string { return x.Name }, putVault),
		setting.Fill("subscriptions", "subscription", cfg.Subscriptions, func(x Subscription) string { return x.ID }, putSubscription),
	)
}

// dropTenant removes what fill added for a tenant.
func (c *Cloud) dropTenant(t *tenant) {
	maps.DeleteFunc(c.registries, func(_ string, r *registry) bool { return r.tenant == t })
	maps.DeleteFunc(c.accounts, func(_ string, s *storageAccount) bool { return s.tenant == t })
	maps.DeleteFunc(c.subscriptions, func(_ string, s *subscription) bool { return s.tenant == t })
	for _, v := range c.vaults {
		if v.tenant == t {
			c.dropVault(v)
		}
	}
}

func (t *tenant) putApplication(a Application) error {
	parsed, err := a.parse(t.environment)
	if err != nil {
		return err
	}
	parsed.registration, parsed.name = wire.UUID(), a.ClientID
	if old := t.apps[a.ClientID]; old != nil {
		if old.objectID != "" && parsed.objectID != "" && parsed.objectID != old.objectID {
			return setting.Invalid("objectID", "application %s has another one: it cannot change", a.ClientID)
		}
		parsed.objectID = cmp.Or(old.objectID, parsed.objectID)
		parsed.registration, parsed.resourceID, parsed.location, parsed.name = old.registration, old.resourceID, old.location, old.name
	}
	parsed.objectID = cmp.Or(parsed.objectID, wire.UUID())
	t.apps[a.ClientID] = parsed
	return nil
}

// change calls f with a tenant, under the lock.
func (c *Cloud) change(tenantID string, f func(*tenant) error) error {
	return setting.Change(&c.mu, c.tenants, "tenant", tenantID, f)
}

// changeApplication lets f change a copy of an application. If f succeeds, the copy replaces the
// application. The lock is held meanwhile.
func (c *Cloud) changeApplication(tenantID, clientID string, f func(*tenant, *application) error) error {
	return c.change(tenantID, func(t *tenant) error {
		old := t.apps[clientID]
		if old == nil {
			return setting.NotFound("application", clientID)
		}
		changed := *old
		changed.credentials = slices.Clone(old.credentials)
		if err := f(t, &changed); err != nil {
			return err
		}
		t.apps[clientID] = &changed
		return nil
	})
}

// PutApplication adds an application, or replaces its federated credentials and Graph permissions.
// Its access tokens stay valid, as at Azure.
func (c *Cloud) PutApplication(tenantID string, a Application) error {
	return c.change(tenantID, func(t *tenant) error { return t.putApplication(a) })
}

// DeleteApplication removes an application. Its tokens are refused from then on, even if an
// application with the same client ID is created later.
func (c *Cloud) DeleteApplication(tenantID, clientID string) error {
	return c.change(tenantID, func(t *tenant) error { return setting.Remove(t.apps, clientID, "application") })
}

// PutFederatedCredential adds a federated credential to an application, or replaces the credential
// of the same name. The twenty-first credential is refused.
func (c *Cloud) PutFederatedCredential(tenantID, clientID string, f FederatedCredential) error {
	return c.changeApplication(tenantID, clientID, func(t *tenant, a *application) error {
		complete, err := f.complete(t.environment)
		if err != nil {
			return err
		}
		a.credentials = slices.DeleteFunc(a.credentials, func(old FederatedCredential) bool { return old.Name == f.Name })
		a.credentials = append(a.credentials, complete)
		return checkCredentials(a.credentials)
	})
}

// DeleteFederatedCredential removes a federated credential: the external identity can no longer
// become the application.
func (c *Cloud) DeleteFederatedCredential(tenantID, clientID, name string) error {
	return c.changeApplication(tenantID, clientID, func(_ *tenant, a *application) error {
		before := len(a.credentials)
		a.credentials = slices.DeleteFunc(a.credentials, func(old FederatedCredential) bool { return old.Name == name })
		if len(a.credentials) == before {
			return setting.NotFound("federated credential", name)
		}
		return nil
	})
}

// SetManagedIdentity sets the identities for which the instance metadata service issues tokens.
func (c *Cloud) SetManagedIdentity(m ManagedIdentity) error {
	if err := m.validate(); err != nil {
		return err
	}
	m.ClientIDs = slices.Clone(m.ClientIDs)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenants[m.Tenant]
	if t == nil {
		return setting.Invalid("tenant", "there is no tenant %s", m.Tenant)
	}
	for i, id := range m.ClientIDs {
		if t.apps[id] == nil || t.apps[id].objectID == "" {
			return setting.Invalid(setting.At("clientIDs", i), "tenant %s has no application %s with a service principal", m.Tenant, id)
		}
	}
	c.identity.Store(&m)
	return nil
}
