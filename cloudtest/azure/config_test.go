package azure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

func TestConfigRoundTrip(t *testing.T) {
	want, err := json.Marshal(cloudtest.Config{Azure: worldConfig()})
	must.Succeed(t, err)
	parsed, err := cloudtest.ParseConfig(want)
	must.Succeed(t, err)
	got, err := json.Marshal(parsed)
	must.Succeed(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func credential(name, issuer, subject string) azure.FederatedCredential {
	return azure.FederatedCredential{Name: name, Issuer: issuer, Subject: subject}
}

// credentials returns n valid credentials.
func credentials(n int) []azure.FederatedCredential {
	out := make([]azure.FederatedCredential, n)
	for i := range out {
		out[i] = credential(fmt.Sprintf("credential-%d", i), issuerURL, fmt.Sprintf("subject-%d", i))
	}
	return out
}

func TestNewRefuses(t *testing.T) {
	first := func(change func(*azure.Tenant)) func(*azure.Config) {
		return func(c *azure.Config) { change(&c.Tenants[0]) }
	}
	creds := func(list ...azure.FederatedCredential) func(*azure.Config) {
		return first(func(t *azure.Tenant) { t.Applications[0].FederatedCredentials = list })
	}
	registry := func(change func(*azure.RegistryConfig)) func(*azure.Config) {
		return first(func(t *azure.Tenant) { change(&t.Registries[1]) })
	}
	role := func(r azure.RegistryRole) func(*azure.Config) {
		return registry(func(c *azure.RegistryConfig) { c.RoleAssignments[0] = r })
	}
	account := func(change func(*azure.StorageAccountConfig)) func(*azure.Config) {
		return first(func(t *azure.Tenant) { change(&t.StorageAccounts[0]) })
	}
	vault := func(change func(*azure.KeyVaultConfig)) func(*azure.Config) {
		return first(func(t *azure.Tenant) { change(&t.KeyVaults[0]) })
	}
	subscription := func(change func(*azure.Subscription)) func(*azure.Config) {
		return first(func(t *azure.Tenant) { change(&t.Subscriptions[0]) })
	}
	own := func(change func(*azure.Environment)) func(*azure.Config) {
		return func(c *azure.Config) { change(&c.Environments[0]) }
	}
	const reader = "Container Registry Repository Reader"
	for _, tt := range []struct {
		name  string
		spoil func(*azure.Config)
		field string
	}{
		{"tenant ID", first(func(t *azure.Tenant) { t.ID = "contoso" }), "azure.tenants[0].id"},
		{"tenant ID in capitals", first(func(t *azure.Tenant) { t.ID = strings.ToUpper(directory) }), "azure.tenants[0].id"},
		{"tenant twice", first(func(t *azure.Tenant) { t.ID = otherDirectory; t.Registries = nil; t.StorageAccounts = nil }), "azure.tenants[1].id"},
		{"environment", first(func(t *azure.Tenant) { t.Environment = "AzureMarsCloud" }), "azure.tenants[0].environment"},
		{"domain", first(func(t *azure.Tenant) { t.Domains = []string{"Contoso"} }), "azure.tenants[0].domains[0]"},
		{"domain of another", func(c *azure.Config) { c.Tenants[1].Domains = c.Tenants[0].Domains }, "azure.tenants[1].domains[0]"},
		{"client ID", first(func(t *azure.Tenant) { t.Applications[0].ClientID = "a" }), "azure.tenants[0].applications[0].clientID"},
		{"object ID", first(func(t *azure.Tenant) { t.Applications[0].ObjectID = "a" }), "azure.tenants[0].applications[0].objectID"},
		{"application twice", first(func(t *azure.Tenant) { t.Applications[1].ClientID = clientA }), "azure.tenants[0].applications[1]"},
		{"twenty-one credentials", creds(credentials(21)...), "azure.tenants[0].applications[0].federatedCredentials"},
		{"credential name", creds(credential("-a-", issuerURL, "s")), "azure.tenants[0].applications[0].federatedCredentials[0].name"},
		{"short credential name", creds(credential("ab", issuerURL, "s")), "azure.tenants[0].applications[0].federatedCredentials[0].name"},
		{"long credential name", creds(credential(strings.Repeat("a", 121), issuerURL, "s")), "azure.tenants[0].applications[0].federatedCredentials[0].name"},
		{"credential name twice", creds(credential("abc", issuerURL, "s"), credential("abc", issuerURL, "t")), "azure.tenants[0].applications[0].federatedCredentials[1]"},
		{"issuer and subject twice", creds(credential("abc", issuerURL, "s"), credential("abd", issuerURL, "s")), "azure.tenants[0].applications[0].federatedCredentials[1]"},
		{"no issuer", creds(credential("abc", "", "s")), "azure.tenants[0].applications[0].federatedCredentials[0].issuer"},
		{"issuer with http", creds(credential("abc", "http://issuer.example", "s")), "azure.tenants[0].applications[0].federatedCredentials[0].issuer"},
		{"issuer with white space", creds(credential("abc", issuerURL+" ", "s")), "azure.tenants[0].applications[0].federatedCredentials[0].issuer"},
		{"long issuer", creds(credential("abc", "https://i.example/"+strings.Repeat("a", 600), "s")), "azure.tenants[0].applications[0].federatedCredentials[0].issuer"},
		{"no subject", creds(credential("abc", issuerURL, "")), "azure.tenants[0].applications[0].federatedCredentials[0].subject"},
		{"long subject", creds(credential("abc", issuerURL, strings.Repeat("ä", 601))), "azure.tenants[0].applications[0].federatedCredentials[0].subject"},
		{"registry name", registry(func(r *azure.RegistryConfig) { r.Name = "Shared" }), "azure.tenants[0].registries[1].name"},
		{"registry twice", registry(func(r *azure.RegistryConfig) { r.Name = "contoso"; r.ABAC = false; r.RoleAssignments = nil }), "azure.tenants[0].registries[1]"},
		{"registry of another", func(c *azure.Config) { c.Tenants[1].Registries[0].Name = "contoso" }, "azure.tenants[1].registries[0].name"},
		{"regional endpoint", registry(func(r *azure.RegistryConfig) { r.RegionalEndpoints = []string{"westeurope", "westeurope"} }), "azure.tenants[0].registries[1].regionalEndpoints[1]"},
		{"data endpoint", registry(func(r *azure.RegistryConfig) { r.DataEndpoints = []string{"west.europe"} }), "azure.tenants[0].registries[1].dataEndpoints[0]"},
		{"role", role(azure.RegistryRole{ClientID: clientA, Role: "Owner"}), "azure.tenants[0].registries[1].roleAssignments[0].role"},
		{"role of the other mode", role(azure.RegistryRole{ClientID: clientA, Role: "AcrPull"}), "azure.tenants[0].registries[1].roleAssignments[0].role"},
		{"role of nobody", role(azure.RegistryRole{Role: reader}), "azure.tenants[0].registries[1].roleAssignments[0].clientID"},
		{"two conditions", role(azure.RegistryRole{ClientID: clientA, Role: reader, Repository: "a", RepositoryPrefix: "a"}), "azure.tenants[0].registries[1].roleAssignments[0].repositoryPrefix"},
		{"catalog with a condition", role(azure.RegistryRole{ClientID: clientA, Role: "Container Registry Repository Catalog Lister", Repository: "a"}), "azure.tenants[0].registries[1].roleAssignments[0].repository"},
		{"condition without the mode", first(func(t *azure.Tenant) { t.Registries[0].RoleAssignments[0].Repository = "a" }), "azure.tenants[0].registries[0].roleAssignments[0].repository"},
		{"account name", account(func(a *azure.StorageAccountConfig) { a.Name = "arti-facts" }), "azure.tenants[0].storageAccounts[0].name"},
		{"account twice", first(func(t *azure.Tenant) { t.StorageAccounts = append(t.StorageAccounts, t.StorageAccounts[0]) }), "azure.tenants[0].storageAccounts[1]"},
		{"account of another", func(c *azure.Config) { c.Tenants[1].StorageAccounts = c.Tenants[0].StorageAccounts }, "azure.tenants[1].storageAccounts[0].name"},
		{"role on blobs", account(func(a *azure.StorageAccountConfig) { a.RoleAssignments[0].Role = "Reader" }), "azure.tenants[0].storageAccounts[0].roleAssignments[0].role"},
		{"role of nobody on blobs", account(func(a *azure.StorageAccountConfig) { a.RoleAssignments[0].ClientID = "" }), "azure.tenants[0].storageAccounts[0].roleAssignments[0].clientID"},
		{"container", account(func(a *azure.StorageAccountConfig) { a.RoleAssignments[0].Container = "a--b" }), "azure.tenants[0].storageAccounts[0].roleAssignments[0].container"},
		{"vault name", vault(func(v *azure.KeyVaultConfig) { v.Name = "tenant--keys" }), "azure.tenants[0].keyVaults[0].name"},
		{"short vault name", vault(func(v *azure.KeyVaultConfig) { v.Name = "ab" }), "azure.tenants[0].keyVaults[0].name"},
		{"long vault name", vault(func(v *azure.KeyVaultConfig) { v.Name = strings.Repeat("a", 25) }), "azure.tenants[0].keyVaults[0].name"},
		{"vault twice", first(func(t *azure.Tenant) { t.KeyVaults = append(t.KeyVaults, t.KeyVaults[0]) }), "azure.tenants[0].keyVaults[1]"},
		{"vault of another", func(c *azure.Config) { c.Tenants[1].KeyVaults = c.Tenants[0].KeyVaults }, "azure.tenants[1].keyVaults[0].name"},
		{"vault where there are none", own(func(e *azure.Environment) { e.VaultSuffix = "" }), "azure.tenants[4].keyVaults[0].name"},
		{"key name", vault(func(v *azure.KeyVaultConfig) { v.Keys[1] = "a/b" }), "azure.tenants[0].keyVaults[0].keys[1]"},
		{"role on keys", vault(func(v *azure.KeyVaultConfig) { v.RoleAssignments[0].Role = "Owner" }), "azure.tenants[0].keyVaults[0].roleAssignments[0].role"},
		{"role of nobody on keys", vault(func(v *azure.KeyVaultConfig) { v.RoleAssignments[0].ClientID = "" }), "azure.tenants[0].keyVaults[0].roleAssignments[0].clientID"},
		{"role on no key", vault(func(v *azure.KeyVaultConfig) { v.RoleAssignments[0].Key = "*" }), "azure.tenants[0].keyVaults[0].roleAssignments[0].key"},
		{"permission", first(func(t *azure.Tenant) { t.Applications[0].GraphPermissions = []string{"Directory.Read.All"} }), "azure.tenants[0].applications[0].graphPermissions[0]"},
		{"subscription ID", subscription(func(s *azure.Subscription) { s.ID = "platform" }), "azure.tenants[0].subscriptions[0].id"},
		{"subscription without name", subscription(func(s *azure.Subscription) { s.Name = "" }), "azure.tenants[0].subscriptions[0].name"},
		{"subscription twice", first(func(t *azure.Tenant) { t.Subscriptions = append(t.Subscriptions, t.Subscriptions[0]) }), "azure.tenants[0].subscriptions[1]"},
		{"subscription of another", func(c *azure.Config) { c.Tenants[2].Subscriptions[0].ID = subscriptionID }, "azure.tenants[2].subscriptions[0].id"},
		{"group name", subscription(func(s *azure.Subscription) { s.ResourceGroups[1].Name = "net/work" }), "azure.tenants[0].subscriptions[0].resourceGroups[1].name"},
		{"group twice", subscription(func(s *azure.Subscription) { s.ResourceGroups[1].Name = "TENANTS" }), "azure.tenants[0].subscriptions[0].resourceGroups[1].name"},
		{"group location", subscription(func(s *azure.Subscription) { s.ResourceGroups[0].Location = "" }), "azure.tenants[0].subscriptions[0].resourceGroups[0].location"},
		{"group's registry", subscription(func(s *azure.Subscription) { s.ResourceGroups[0].Registries[1] = "x" }), "azure.tenants[0].subscriptions[0].resourceGroups[0].registries[1]"},
		{"group's vault", subscription(func(s *azure.Subscription) { s.ResourceGroups[0].KeyVaults[0] = "-" }), "azure.tenants[0].subscriptions[0].resourceGroups[0].keyVaults[0]"},
		{"management role", subscription(func(s *azure.Subscription) { s.RoleAssignments[0].Role = "AcrPull" }), "azure.tenants[0].subscriptions[0].roleAssignments[0].role"},
		{"management role of nobody", subscription(func(s *azure.Subscription) { s.RoleAssignments[0].ClientID = "" }), "azure.tenants[0].subscriptions[0].roleAssignments[0].clientID"},
		{"management role in no group", subscription(func(s *azure.Subscription) { s.RoleAssignments[1].ResourceGroup = "x" }), "azure.tenants[0].subscriptions[0].roleAssignments[1].resourceGroup"},
		{"Graph with a port", own(func(e *azure.Environment) { e.GraphHost = "graph.azure.example:443" }), "azure.environments[0].graphHost"},
		{"Azure's own Graph", own(func(e *azure.Environment) { e.GraphHost = "graph.microsoft.com" }), "azure.environments[0]"},
		{"Azure's own resource manager", own(func(e *azure.Environment) { e.ResourceManagers[0] = "https://management.azure.com" }), "azure.environments[0]"},
		{"vaults with a port", own(func(e *azure.Environment) { e.VaultSuffix = "vault.azure.example:443" }), "azure.environments[0].vaultSuffix"},
		{"Azure's own vaults", own(func(e *azure.Environment) { e.VaultSuffix = "vault.azure.net" }), "azure.environments[0]"},
		{"environment without name", own(func(e *azure.Environment) { e.Name = "" }), "azure.environments[0].name"},
		{"environment twice", own(func(e *azure.Environment) { e.Name = azure.AzureCloud }), "azure.environments[0].name"},
		{"environment on Azure's host", own(func(e *azure.Environment) { e.AuthorityHosts = []string{"login.microsoftonline.com"} }), "azure.environments[0]"},
		{"environment without authority", own(func(e *azure.Environment) { e.AuthorityHosts = nil }), "azure.environments[0].authorityHosts"},
		{"authority with a port", own(func(e *azure.Environment) { e.AuthorityHosts = []string{"login.azure.example:8443"} }), "azure.environments[0].authorityHosts[0]"},
		{"registry suffix", own(func(e *azure.Environment) { e.RegistrySuffix = "io" }), "azure.environments[0].registrySuffix"},
		{"no audience", own(func(e *azure.Environment) { e.ExchangeAudience = "" }), "azure.environments[0].exchangeAudience"},
		{"no resource manager", own(func(e *azure.Environment) { e.ResourceManagers = nil }), "azure.environments[0].resourceManagers"},
		{"resource with a slash", own(func(e *azure.Environment) { e.Resources = []string{"https://a.example/"} }), "azure.environments[0].resources[0]"},
		{"identity of no tenant", func(c *azure.Config) { c.ManagedIdentity.Tenant = bare }, "azure.managedIdentity.tenant"},
		{"identity of no application", func(c *azure.Config) { c.ManagedIdentity.ClientIDs = []string{otherDirectory} }, "azure.managedIdentity.clientIDs[0]"},
		{"identity twice", func(c *azure.Config) { c.ManagedIdentity.ClientIDs = []string{clientA, clientA} }, "azure.managedIdentity.clientIDs[1]"},
		{"no identity", func(c *azure.Config) { c.ManagedIdentity.ClientIDs = nil }, "azure.managedIdentity.clientIDs"},
	} {
		cfg := worldConfig()
		tt.spoil(&cfg)
		c, err := cloudtest.New(cloudtest.Config{Azure: cfg})
		refusal, ok := errors.AsType[*setting.Error](err)
		if !ok || refusal.Field != tt.field || refusal.Err == nil {
			t.Errorf("%s: %v, want field %s", tt.name, err, tt.field)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// TestTwentyCredentials checks that an application accepts twenty credentials and a change of an
// existing credential, but not a twenty-first credential.
func TestTwentyCredentials(t *testing.T) {
	w := newWorld(t)
	a := w.Azure()
	must.Succeed(t, a.PutApplication(directory, azure.Application{ClientID: clientA, FederatedCredentials: credentials(20)}))
	if err := a.PutFederatedCredential(directory, clientA, credential("another", issuerURL, subjectA)); err == nil || !strings.Contains(err.Error(), "at most 20") {
		t.Errorf("the twenty-first: %v", err)
	}
	if err := a.PutFederatedCredential(directory, clientA, credential("credential-7", issuerURL, subjectA)); err != nil {
		t.Errorf("a change: %v", err)
	}
	get := func() error {
		_, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", directory, clientA, w.mint(t, subjectA, audience), storageScope)
		return err
	}
	if err := get(); err != nil {
		t.Error(err)
	}
	must.Succeed(t, a.DeleteFederatedCredential(directory, clientA, "credential-7"))
	if got := entraOutcomeOf(t, get()); got.Code != 700213 {
		t.Errorf("after its deletion: %+v", got)
	}
	for name, err := range map[string]error{
		"credential":       a.DeleteFederatedCredential(directory, clientA, "credential-7"),
		"application":      a.DeleteApplication(directory, directory),
		"its credentials":  a.PutFederatedCredential(directory, directory, credential("abc", issuerURL, "s")),
		"tenant":           a.PutApplication(bare, application(clientA, subjectA)),
		"registry":         a.DeleteRegistry(directory, "absent"),
		"another tenant's": a.DeleteRegistry(otherDirectory, "contoso"),
		"storage account":  a.DeleteStorageAccount(directory, "absent"),
		"key vault":        a.DeleteKeyVault(directory, "absent"),
	} {
		if !errors.Is(err, setting.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.PutApplication(directory, azure.Application{ClientID: clientA, ObjectID: bare}); err == nil {
		t.Error("an object ID changed")
	}
	if err := a.DeleteRegistry(directory, "shared"); err != nil || a.Service(shared) != nil || a.Service("shared.westeurope.data.azurecr.io") != nil {
		t.Errorf("a deleted registry: %v", err)
	}
	if err := a.DeleteStorageAccount(directory, "artifacts"); err != nil || a.Service(artifacts) != nil {
		t.Errorf("a deleted storage account: %v", err)
	}
	if err := a.DeleteKeyVault(directory, "tenant-keys"); err != nil || a.Service(tenantKeys) != nil {
		t.Errorf("a deleted key vault: %v", err)
	}
}

// TestAddTenantLeavesNothing checks that AddTenant adds no host if it refuses the tenant.
func TestAddTenantLeavesNothing(t *testing.T) {
	w := newWorld(t)
	err := w.Azure().AddTenant(azure.Tenant{
		ID: bare, Registries: []azure.RegistryConfig{{Name: "newone"}}, StorageAccounts: []azure.StorageAccountConfig{{Name: "newone"}, {Name: "x"}},
		KeyVaults: []azure.KeyVaultConfig{{Name: "newone", Keys: []string{"key"}}},
	})
	if err == nil || w.Azure().Service("newone.azurecr.io") != nil || w.Azure().Service("newone.blob.core.windows.net") != nil ||
		w.Azure().Service("newone.vault.azure.net") != nil {
		t.Errorf("%v", err)
	}
}

// TestAdmin changes the cloud through the admin API, as another process does, and checks that each
// change is in force.
func TestAdmin(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t)
	transport := rig.Proxied(t, w.Cloud)
	admin := &cloudtest.Admin{URL: w.ProxyURL()}
	const fresh = "55555555-86f1-41af-91ab-2d7cd011db47"
	var got []int
	step := func() {
		_, err := assert(ctx, transport, "https://login.microsoftonline.com/", fresh, clientA, w.mint(t, subjectA, audience), storageScope)
		if err != nil && strings.Contains(err.Error(), "openid-configuration") {
			got = append(got, 90002)
			return
		}
		got = append(got, entraOutcomeOf(t, err).Code)
	}
	step() // Entra ID refuses: the tenant does not exist
	must.Succeed(t, admin.Azure().AddTenant(ctx, azure.Tenant{ID: fresh}))
	step() // Entra ID refuses: the application does not exist
	must.Succeed(t, admin.Azure().PutApplication(ctx, fresh, azure.Application{ClientID: clientA}))
	step() // Entra ID refuses: the application has no credentials
	must.Succeed(t, admin.Azure().PutFederatedCredential(ctx, fresh, clientA, credential("cluster", issuerURL, subjectA)))
	step() // Entra ID gives a token
	must.Succeed(t, admin.Azure().DeleteFederatedCredential(ctx, fresh, clientA, "cluster"))
	step() // Entra ID refuses: the application has no credentials any more
	must.Succeed(t, admin.Azure().DeleteApplication(ctx, fresh, clientA))
	step() // Entra ID refuses: the application was deleted
	if diff := cmp.Diff([]int{90002, 700016, 70025, 0, 70025, 700016}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Succeed(t, admin.Azure().PutRegistry(ctx, fresh, azure.RegistryConfig{Name: "newone"}))
	must.Succeed(t, admin.Azure().PutStorageAccount(ctx, fresh, azure.StorageAccountConfig{Name: "newone"}))
	must.Succeed(t, admin.Azure().PutKeyVault(ctx, fresh, azure.KeyVaultConfig{Name: "newone"}))
	if w.Azure().Service("newone.azurecr.io") == nil || w.Azure().Service("newone.blob.core.windows.net") == nil || w.Azure().Service("newone.vault.azure.net") == nil {
		t.Error("not added")
	}
	must.Succeed(t, admin.Azure().DeleteRegistry(ctx, fresh, "newone"))
	must.Succeed(t, admin.Azure().DeleteStorageAccount(ctx, fresh, "newone"))
	must.Succeed(t, admin.Azure().DeleteKeyVault(ctx, fresh, "newone"))
	if w.Azure().Service("newone.azurecr.io") != nil || w.Azure().Service("newone.blob.core.windows.net") != nil || w.Azure().Service("newone.vault.azure.net") != nil {
		t.Error("not deleted")
	}
	must.Succeed(t, admin.Azure().SetManagedIdentity(ctx, azure.ManagedIdentity{Tenant: directory, ClientIDs: []string{pusher}}))
	for name, tt := range map[string]struct {
		err    error
		status int
	}{
		"unknown tenant": {admin.Azure().PutApplication(ctx, bare, azure.Application{ClientID: clientA}), 404},
		"bad name":       {admin.Azure().PutRegistry(ctx, fresh, azure.RegistryConfig{Name: "x"}), 400},
	} {
		if refusal, ok := errors.AsType[*cloudtest.AdminError](tt.err); !ok || refusal.Status != tt.status {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
}
