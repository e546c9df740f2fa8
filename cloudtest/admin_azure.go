package cloudtest

import (
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
)

// handleAzure adds what changes the part that is Azure.
func (c *Cloud) handleAzure(handle func(string, func(*http.Request) (any, error))) {
	const in = " /azure/tenants/{tenant}"
	handle("POST /azure/tenants", withBody(func(_ *http.Request, t azure.Tenant) (any, error) { return struct{}{}, c.azure.AddTenant(t) }))
	handle("PUT"+in+"/applications", withBody(func(r *http.Request, a azure.Application) (any, error) {
		return struct{}{}, c.azure.PutApplication(r.PathValue("tenant"), a)
	}))
	handle("DELETE"+in+"/applications", func(r *http.Request) (any, error) {
		return struct{}{}, c.azure.DeleteApplication(r.PathValue("tenant"), r.URL.Query().Get("client-id"))
	})
	handle("PUT"+in+"/federated-credentials", withBody(func(r *http.Request, f azure.FederatedCredential) (any, error) {
		return struct{}{}, c.azure.PutFederatedCredential(r.PathValue("tenant"), r.URL.Query().Get("client-id"), f)
	}))
	handle("DELETE"+in+"/federated-credentials", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return struct{}{}, c.azure.DeleteFederatedCredential(r.PathValue("tenant"), q.Get("client-id"), q.Get("name"))
	})
	handle("PUT"+in+"/registries", withBody(func(r *http.Request, reg azure.RegistryConfig) (any, error) {
		return struct{}{}, c.azure.PutRegistry(r.PathValue("tenant"), reg)
	}))
	handle("DELETE"+in+"/registries", func(r *http.Request) (any, error) {
		return struct{}{}, c.azure.DeleteRegistry(r.PathValue("tenant"), r.URL.Query().Get("name"))
	})
	handle("PUT"+in+"/storage-accounts", withBody(func(r *http.Request, s azure.StorageAccountConfig) (any, error) {
		return struct{}{}, c.azure.PutStorageAccount(r.PathValue("tenant"), s)
	}))
	handle("DELETE"+in+"/storage-accounts", func(r *http.Request) (any, error) {
		return struct{}{}, c.azure.DeleteStorageAccount(r.PathValue("tenant"), r.URL.Query().Get("name"))
	})
	handle("PUT /azure/managed-identity", withBody(func(_ *http.Request, m azure.ManagedIdentity) (any, error) {
		return struct{}{}, c.azure.SetManagedIdentity(m)
	}))
}
