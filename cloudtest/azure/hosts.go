package azure

import "slices"

// Names of Azure's services in the journal and in faults.
const (
	// ServiceEntra is Entra ID, the directory and token service.
	ServiceEntra = "entra"
	// ServiceRegistryTokens is the token service of a container registry, at its own host.
	ServiceRegistryTokens = "acr"
	// ServiceRegistry is the OCI API of a container registry, and its data endpoints.
	ServiceRegistry = "acr-registry"
	// ServiceBlob is the blob endpoint of a storage account.
	ServiceBlob = "blob"
	// ServiceIMDS is the part of the instance metadata service that gives tokens of managed identities.
	ServiceIMDS = "imds"
)

// endpoint is what a host name means.
type endpoint struct {
	service     string
	environment *Environment // of Entra ID
	registry    *registry
	account     *storageAccount
	data        bool // the host is one of the registry's data endpoints
}

// parseHost says what a host name, in lower case and without port, means. Only names that Azure has are accepted.
func (c *Cloud) parseHost(host string) (endpoint, bool) {
	for _, e := range c.environments {
		if slices.Contains(e.AuthorityHosts, host) {
			return endpoint{service: ServiceEntra, environment: e}, true
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r := c.registries[host]; r != nil {
		return endpoint{service: ServiceRegistry, registry: r, data: host != r.endpoint}, true
	}
	if s := c.accounts[host]; s != nil {
		return endpoint{service: ServiceBlob, account: s}, true
	}
	return endpoint{}, false
}
