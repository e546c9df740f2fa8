package azure

import (
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// Names of Azure's services in the journal and in faults.
const (
	// ServiceEntra is Entra ID, the directory and token service.
	ServiceEntra = "entra"
	// ServiceResourceManager is Azure Resource Manager.
	ServiceResourceManager = "resource-manager"
	// ServiceGraph is Microsoft Graph.
	ServiceGraph = "graph"
	// ServiceRegistryTokens is the token service of a container registry, at the registry's host.
	ServiceRegistryTokens = "acr"
	// ServiceRegistry is the OCI API of a container registry, and its data endpoints.
	ServiceRegistry = "acr-registry"
	// ServiceBlob is the blob endpoint of a storage account.
	ServiceBlob = "blob"
	// ServiceKeyVault is the keys API of a key vault.
	ServiceKeyVault = "key-vault"
	// ServiceIMDS is the part of the instance metadata service that issues tokens of managed
	// identities.
	ServiceIMDS = "imds"
)

// Service returns the service at a host, or nil if the host is unknown. Every cloud has hosts of
// Entra ID, Azure Resource Manager and Microsoft Graph. Registries, storage accounts and key vaults
// have their own hosts.
func (c *Cloud) Service(host string) service.Service {
	for _, e := range c.environments {
		switch {
		case slices.Contains(e.AuthorityHosts, host):
			return named(ServiceEntra, c.readEntra, e)
		case "https://"+host == e.ResourceManagers[0]:
			return named(ServiceResourceManager, c.readManagement, e)
		case host != "" && host == e.GraphHost:
			return named(ServiceGraph, c.readGraph, e)
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if s := c.accounts[host]; s != nil {
		return named(ServiceBlob, c.readBlob, s)
	}
	if v := c.vaults[host]; v != nil {
		return named(ServiceKeyVault, c.readVault, v)
	}
	reg := c.registries[host]
	switch {
	case reg == nil:
		return nil
	case host != reg.endpoint:
		return named(ServiceRegistry, c.readData, reg)
	}
	return func(r *service.Request) (service.Protocol, service.Handler) {
		if strings.HasPrefix(r.URL.Path, "/oauth2/") {
			r.Call.Service, r.Call.Resource = ServiceRegistryTokens, reg.Host
			return c.readRegistryTokens(r, reg)
		}
		r.Call.Service = ServiceRegistry
		return c.readRegistry(r, reg)
	}
}

// named returns a service. For each request, the service sets its name in the request's line of the
// journal. Then it passes two values to the function read: the request, and the value "of", such as
// the registry at the request's host.
func named[T any](name string, read func(*service.Request, T) (service.Protocol, service.Handler), of T) service.Service {
	return func(r *service.Request) (service.Protocol, service.Handler) {
		r.Call.Service = name
		return read(r, of)
	}
}
