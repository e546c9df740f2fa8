package cloudtest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
)

// AddTenant is [azure.Cloud.AddTenant].
func (a *Admin) AddTenant(ctx context.Context, t azure.Tenant) error {
	return a.call(ctx, http.MethodPost, "/azure/tenants", nil, t, nil)
}

// PutApplication is [azure.Cloud.PutApplication].
func (a *Admin) PutApplication(ctx context.Context, tenant string, app azure.Application) error {
	return a.call(ctx, http.MethodPut, azurePath(tenant, "applications"), nil, app, nil)
}

// DeleteApplication is [azure.Cloud.DeleteApplication].
func (a *Admin) DeleteApplication(ctx context.Context, tenant, clientID string) error {
	return a.call(ctx, http.MethodDelete, azurePath(tenant, "applications"), url.Values{"client-id": {clientID}}, nil, nil)
}

// PutFederatedCredential is [azure.Cloud.PutFederatedCredential].
func (a *Admin) PutFederatedCredential(ctx context.Context, tenant, clientID string, f azure.FederatedCredential) error {
	return a.call(ctx, http.MethodPut, azurePath(tenant, "federated-credentials"), url.Values{"client-id": {clientID}}, f, nil)
}

// DeleteFederatedCredential is [azure.Cloud.DeleteFederatedCredential].
func (a *Admin) DeleteFederatedCredential(ctx context.Context, tenant, clientID, name string) error {
	return a.call(ctx, http.MethodDelete, azurePath(tenant, "federated-credentials"), url.Values{"client-id": {clientID}, "name": {name}}, nil, nil)
}

// PutRegistry is [azure.Cloud.PutRegistry].
func (a *Admin) PutRegistry(ctx context.Context, tenant string, r azure.RegistryConfig) error {
	return a.call(ctx, http.MethodPut, azurePath(tenant, "registries"), nil, r, nil)
}

// DeleteRegistry is [azure.Cloud.DeleteRegistry].
func (a *Admin) DeleteRegistry(ctx context.Context, tenant, name string) error {
	return a.call(ctx, http.MethodDelete, azurePath(tenant, "registries"), url.Values{"name": {name}}, nil, nil)
}

// PutStorageAccount is [azure.Cloud.PutStorageAccount].
func (a *Admin) PutStorageAccount(ctx context.Context, tenant string, s azure.StorageAccountConfig) error {
	return a.call(ctx, http.MethodPut, azurePath(tenant, "storage-accounts"), nil, s, nil)
}

// DeleteStorageAccount is [azure.Cloud.DeleteStorageAccount].
func (a *Admin) DeleteStorageAccount(ctx context.Context, tenant, name string) error {
	return a.call(ctx, http.MethodDelete, azurePath(tenant, "storage-accounts"), url.Values{"name": {name}}, nil, nil)
}

// SetManagedIdentity is [azure.Cloud.SetManagedIdentity].
func (a *Admin) SetManagedIdentity(ctx context.Context, m azure.ManagedIdentity) error {
	return a.call(ctx, http.MethodPut, "/azure/managed-identity", nil, m, nil)
}

func azurePath(tenant, what string) string {
	return "/azure/tenants/" + url.PathEscape(tenant) + "/" + what
}
