package azure

import (
	"context"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
)

// Admin changes a [Cloud] that runs in another process. Each function calls the Cloud's method of
// the same name, and fails with the same errors.
type Admin struct {
	AddTenant                 func(ctx context.Context, t Tenant) error
	PutApplication            func(ctx context.Context, tenant string, a Application) error
	DeleteApplication         func(ctx context.Context, tenant, clientID string) error
	PutFederatedCredential    func(ctx context.Context, tenant, clientID string, f FederatedCredential) error
	DeleteFederatedCredential func(ctx context.Context, tenant, clientID, name string) error
	PutRegistry               func(ctx context.Context, tenant string, r RegistryConfig) error
	DeleteRegistry            func(ctx context.Context, tenant, name string) error
	PutStorageAccount         func(ctx context.Context, tenant string, s StorageAccountConfig) error
	DeleteStorageAccount      func(ctx context.Context, tenant, name string) error
	PutKeyVault               func(ctx context.Context, tenant string, v KeyVaultConfig) error
	DeleteKeyVault            func(ctx context.Context, tenant, name string) error
	SetManagedIdentity        func(ctx context.Context, m ManagedIdentity) error
}

// NewAdmin fills the table with the methods that change a [Cloud]. It returns the functions with
// which a client requests these changes.
func NewAdmin(t *change.Table[*Cloud]) Admin {
	const in = " /azure/tenants/{tenant}"
	return Admin{
		AddTenant:              change.Set(t, "POST /azure/tenants", (*Cloud).AddTenant),
		PutApplication:         change.Put(t, "PUT"+in+"/applications", (*Cloud).PutApplication),
		DeleteApplication:      change.Delete(t, "DELETE"+in+"/applications?client-id", (*Cloud).DeleteApplication),
		PutFederatedCredential: change.PutIn(t, "PUT"+in+"/federated-credentials?client-id", (*Cloud).PutFederatedCredential),
		DeleteFederatedCredential: change.DeleteIn(t,
			"DELETE"+in+"/federated-credentials?client-id&name", (*Cloud).DeleteFederatedCredential),
		PutRegistry:          change.Put(t, "PUT"+in+"/registries", (*Cloud).PutRegistry),
		DeleteRegistry:       change.Delete(t, "DELETE"+in+"/registries?name", (*Cloud).DeleteRegistry),
		PutStorageAccount:    change.Put(t, "PUT"+in+"/storage-accounts", (*Cloud).PutStorageAccount),
		DeleteStorageAccount: change.Delete(t, "DELETE"+in+"/storage-accounts?name", (*Cloud).DeleteStorageAccount),
		PutKeyVault:          change.Put(t, "PUT"+in+"/key-vaults", (*Cloud).PutKeyVault),
		DeleteKeyVault:       change.Delete(t, "DELETE"+in+"/key-vaults?name", (*Cloud).DeleteKeyVault),
		SetManagedIdentity:   change.Set(t, "PUT /azure/managed-identity", (*Cloud).SetManagedIdentity),
	}
}
