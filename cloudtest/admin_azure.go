package cloudtest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
)

// AzureAdmin is [azure.Cloud] in another process: its changes, by the same names and with the same errors.
type AzureAdmin struct{ admin *Admin }

// AddTenant is [azure.Cloud.AddTenant].
func (a AzureAdmin) AddTenant(ctx context.Context, t azure.Tenant) error {
	return a.admin.call(ctx, http.MethodPost, "/azure/tenants", nil, t, nil)
}

// PutApplication is [azure.Cloud.PutApplication].
func (a AzureAdmin) PutApplication(ctx context.Context, tenant string, app azure.Application) error {
	return a.admin.call(ctx, http.MethodPut, azurePath(tenant, "applications"), nil, app, nil)
}

// DeleteApplication is [azure.Cloud.DeleteApplication].
func (a AzureAdmin) DeleteApplication(ctx context.Context, tenant, clientID string) error {
	return a.admin.call(ctx, http.MethodDelete, azurePath(tenant, "applications"), url.Values{"client-id": {clientID}}, nil, nil)
}

// PutFederatedCredential is [azure.Cloud.PutFederatedCredential].
func (a AzureAdmin) PutFederatedCredential(ctx context.Context, tenant, clientID string, f azure.FederatedCredential) error {
	return a.admin.call(ctx, http.MethodPut, azurePath(tenant, "federated-credentials"), url.Values{"client-id": {clientID}}, f, nil)
}

// DeleteFederatedCredential is [azure.Cloud.DeleteFederatedCredential].
func (a AzureAdmin) DeleteFederatedCredential(ctx context.Context, tenant, clientID, name string) error {
	return a.admin.call(ctx, http.MethodDelete, azurePath(tenant, "federated-credentials"), url.Values{"client-id": {clientID}, "name": {name}}, nil, nil)
}

// PutRegistry is [azure.Cloud.PutRegistry].
func (a AzureAdmin) PutRegistry(ctx context.Context, tenant string, r azure.RegistryConfig) error {
	return a.admin.call(ctx, http.MethodPut, azurePath(tenant, "registries"), nil, r, nil)
}

// DeleteRegistry is [azure.Cloud.DeleteRegistry].
func (a AzureAdmin) DeleteRegistry(ctx context.Context, tenant, name string) error {
	return a.admin.call(ctx, http.MethodDelete, azurePath(tenant, "registries"), url.Values{"name": {name}}, nil, nil)
}

// PutStorageAccount is [azure.Cloud.PutStorageAccount].
func (a AzureAdmin) PutStorageAccount(ctx context.Context, tenant string, s azure.StorageAccountConfig) error {
	return a.admin.call(ctx, http.MethodPut, azurePath(tenant, "storage-accounts"), nil, s, nil)
}

// DeleteStorageAccount is [azure.Cloud.DeleteStorageAccount].
func (a AzureAdmin) DeleteStorageAccount(ctx context.Context, tenant, name string) error {
	return a.admin.call(ctx, http.MethodDelete, azurePath(tenant, "storage-accounts"), url.Values{"name": {name}}, nil, nil)
}

// SetManagedIdentity is [azure.Cloud.SetManagedIdentity].
func (a AzureAdmin) SetManagedIdentity(ctx context.Context, m azure.ManagedIdentity) error {
	return a.admin.call(ctx, http.MethodPut, "/azure/managed-identity", nil, m, nil)
}

func azurePath(tenant, what string) string {
	return "/azure/tenants/" + url.PathEscape(tenant) + "/" + what
}

// handleAzure serves what [AzureAdmin] asks for.
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
