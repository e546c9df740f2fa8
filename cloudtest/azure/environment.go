package azure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Names of Azure's clouds, as `az cloud list` prints them.
const (
	// AzureCloud is the public cloud.
	AzureCloud = "AzureCloud"
	// AzureUSGovernment is the cloud of the government of the USA.
	AzureUSGovernment = "AzureUSGovernment"
	// AzureChinaCloud is the cloud that 21Vianet operates in China.
	AzureChinaCloud = "AzureChinaCloud"
)

// Environment is one of Azure's separate clouds: the hosts of its services, and the names in its
// tokens. Three are built in; private ones are described in [Config]. All hosts and suffixes are
// DNS names in lower case.
type Environment struct {
	// Name is the environment's name, to which [Tenant] refers.
	Name string `json:"name"`
	// AuthorityHosts are the hosts of Entra ID. The discovery documents of Entra ID name the first
	// host.
	AuthorityHosts []string `json:"authorityHosts"`
	// IssuerHost is the host in the claim iss of access tokens, https://<host>/<tenant>/.
	IssuerHost string `json:"issuerHost"`
	// ExchangeAudience is the default audience of federated credentials.
	ExchangeAudience string `json:"exchangeAudience"`
	// ResourceManagers are the audiences of Azure Resource Manager, without a trailing slash. The
	// first audience is the address of Azure Resource Manager, if it is an https URL.
	ResourceManagers []string `json:"resourceManagers"`
	// Resources are the other resources for which Entra ID issues tokens: URLs or application IDs,
	// without a trailing slash.
	Resources []string `json:"resources,omitempty"`
	// GraphHost is the host of Microsoft Graph. If empty, the environment has no Microsoft Graph.
	GraphHost string `json:"graphHost,omitempty"`
	// RegistrySuffix is the domain of container registries, such as "azurecr.io".
	RegistrySuffix string `json:"registrySuffix"`
	// StorageSuffix is the domain of storage endpoints, such as "core.windows.net".
	StorageSuffix string `json:"storageSuffix"`
	// VaultSuffix is the domain of key vaults, such as "vault.azure.net". The audience of their
	// tokens is https://<suffix>. If empty, the environment has no key vaults.
	VaultSuffix string `json:"vaultSuffix,omitempty"`
}

// Resources with the same name in every cloud. Sources: Azure SDKs' cloud configurations of
// azcontainerregistry; Microsoft Learn, "Authorize access to blobs using Microsoft Entra ID" and
// "Authenticate an application with Microsoft Entra ID to access Event Hubs resources".
const (
	resourceRegistry  = "https://containerregistry.azure.net"
	resourceStorage   = "https://storage.azure.com"
	resourceEventHubs = "https://eventhubs.azure.net"
	resourceDevOps    = "499b84ac-1321-427f-aa17-267ca6975798" // Azure DevOps is in the public cloud only
)

// environments returns the clouds that Azure has. The Lanyard library has its own table of them, so
// that an error there is not repeated here. Sources: Microsoft Learn, "Microsoft Entra
// authentication and national clouds", "Azure Government vs. public: endpoints", "Azure China:
// developer guide", "Workload identity federation: considerations" (audiences).
func environments() []Environment {
	return []Environment{
		{
			Name:             AzureCloud,
			AuthorityHosts:   []string{"login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"},
			IssuerHost:       "sts.windows.net",
			ExchangeAudience: "api://AzureADTokenExchange",
			ResourceManagers: []string{"https://management.azure.com", "https://management.core.windows.net"},
			Resources:        []string{resourceRegistry, resourceStorage, resourceEventHubs, resourceDevOps},
			GraphHost:        "graph.microsoft.com",
			RegistrySuffix:   "azurecr.io",
			StorageSuffix:    "core.windows.net",
			VaultSuffix:      "vault.azure.net",
		},
		{
			Name:             AzureUSGovernment,
			AuthorityHosts:   []string{"login.microsoftonline.us", "login.usgovcloudapi.net"},
			IssuerHost:       "sts.windows.net",
			ExchangeAudience: "api://AzureADTokenExchangeUSGov",
			ResourceManagers: []string{"https://management.usgovcloudapi.net", "https://management.core.usgovcloudapi.net"},
			Resources:        []string{resourceRegistry, resourceStorage, resourceEventHubs},
			GraphHost:        "graph.microsoft.us",
			RegistrySuffix:   "azurecr.us",
			StorageSuffix:    "core.usgovcloudapi.net",
			VaultSuffix:      "vault.usgovcloudapi.net",
		},
		{
			Name:             AzureChinaCloud,
			AuthorityHosts:   []string{"login.partner.microsoftonline.cn", "login.chinacloudapi.cn"},
			IssuerHost:       "sts.chinacloudapi.cn",
			ExchangeAudience: "api://AzureADTokenExchangeChina",
			ResourceManagers: []string{"https://management.chinacloudapi.cn", "https://management.core.chinacloudapi.cn"},
			Resources:        []string{resourceRegistry, resourceStorage, resourceEventHubs},
			GraphHost:        "microsoftgraph.chinacloudapi.cn",
			RegistrySuffix:   "azurecr.cn",
			StorageSuffix:    "core.chinacloudapi.cn",
			VaultSuffix:      "vault.azure.cn",
		},
	}
}

// authority returns the host that Entra ID's discovery documents name.
func (e *Environment) authority() string { return e.AuthorityHosts[0] }

// issuer returns the claim iss of access tokens for a tenant. Source: Microsoft Learn, "Access
// tokens in the Microsoft identity platform", version 1.0.
func (e *Environment) issuer(tenant string) string {
	return "https://" + e.IssuerHost + "/" + tenant + "/"
}

// isResource reports whether Entra ID issues tokens for a resource, with or without a trailing
// slash. It returns false for a storage account.
func (e *Environment) isResource(resource string) bool {
	plain := strings.TrimSuffix(resource, "/")
	return slices.Contains(e.Resources, plain) || slices.Contains(e.ResourceManagers, plain) || e.isGraph(resource) ||
		(e.VaultSuffix != "" && plain == e.vaultResource())
}

// vaultResource returns the audience of key vaults.
func (e *Environment) vaultResource() string { return "https://" + e.VaultSuffix }

// isGraph reports whether an audience is Microsoft Graph's.
func (e *Environment) isGraph(audience string) bool {
	return e.GraphHost != "" && strings.TrimSuffix(audience, "/") == "https://"+e.GraphHost
}

// isResourceManager reports whether an audience is Azure Resource Manager's.
func (e *Environment) isResourceManager(audience string) bool {
	return slices.Contains(e.ResourceManagers, strings.TrimSuffix(audience, "/"))
}

func (e Environment) validate() error {
	switch {
	case e.Name == "":
		return setting.Invalid("name", "give the environment a name")
	case len(e.AuthorityHosts) == 0:
		return setting.Invalid("authorityHosts", "give at least one host")
	case e.ExchangeAudience == "":
		return setting.Invalid("exchangeAudience", "give the audience of federated credentials, such as api://AzureADTokenExchange")
	case len(e.ResourceManagers) == 0:
		return setting.Invalid("resourceManagers", "give at least one resource, such as https://management.example")
	}
	if err := checkHost(e.GraphHost); err != nil && e.GraphHost != "" {
		return setting.In("graphHost", err)
	}
	if err := checkHost(e.VaultSuffix); err != nil && e.VaultSuffix != "" {
		return setting.In("vaultSuffix", err)
	}
	return cmp.Or(
		setting.In("issuerHost", checkHost(e.IssuerHost)),
		setting.In("registrySuffix", checkHost(e.RegistrySuffix)),
		setting.In("storageSuffix", checkHost(e.StorageSuffix)),
		setting.Each("authorityHosts", e.AuthorityHosts, checkHost),
		setting.Each("resourceManagers", e.ResourceManagers, checkResource),
		setting.Each("resources", e.Resources, checkResource),
	)
}

func checkResource(resource string) error {
	if resource == "" || strings.HasSuffix(resource, "/") || strings.ContainsAny(resource, " \t\r\n") {
		return fmt.Errorf("%q is not a resource: give a URL or an application ID, without a trailing slash", resource)
	}
	return nil
}
