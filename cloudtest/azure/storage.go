package azure

import (
	"net/http"
	"regexp"
	"slices"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// StorageAccount identifies a storage account.
type StorageAccount struct {
	// Tenant is the ID of the account's tenant.
	Tenant string
	// Name is the account's name.
	Name string
	// Host is the account's blob endpoint, such as "contoso.blob.core.windows.net".
	Host string
}

// StorageAccountConfig describes a storage account. It accepts access tokens of Entra ID only, and
// refuses account keys, shared access signatures and anonymous requests. Clients create the
// containers.
type StorageAccountConfig struct {
	// Name is the account's name: 3 to 24 small letters and digits.
	Name string `json:"name"`
	// RoleAssignments give roles to applications of the account's tenant.
	RoleAssignments []StorageRole `json:"roleAssignments,omitempty"`
}

// StorageRole is the assignment of a role on a storage account or one of its containers.
type StorageRole struct {
	// ClientID is the application that has the role.
	ClientID string `json:"clientID"`
	// Role is the role's name: "Storage Blob Data Reader", "Storage Blob Data Contributor" or
	// "Storage Blob Data Owner".
	Role string `json:"role"`
	// Container is the container that the role is assigned on; empty for the whole account.
	Container string `json:"container,omitempty"`
}

// Permissions on blobs, coarser than Azure's data actions. Source: Microsoft Learn, "Permissions
// for calling data operations" of Azure Storage.
const (
	permitRead  = "read"
	permitWrite = "write" // includes deleting
)

// storageRoles returns the permissions of the built-in roles for blobs. Source: Microsoft Learn,
// "Azure built-in roles for Storage".
func storageRoles() map[string][]string {
	return map[string][]string{
		"Storage Blob Data Reader":      {permitRead},
		"Storage Blob Data Contributor": {permitRead, permitWrite},
		"Storage Blob Data Owner":       {permitRead, permitWrite},
	}
}

// storageAccount is immutable once stored; a change replaces it.
type storageAccount struct {
	StorageAccount

	tenant      *tenant
	assignments []StorageRole
}

var accountPattern = regexp.MustCompile(`\A[a-z0-9]{3,24}\z`)

// containerPattern matches a container's name. The containers $root, $web and $logs are Azure's
// own. Source: Microsoft Learn, "Naming and referencing containers, blobs, and metadata".
var containerPattern = regexp.MustCompile(`\A(?:[a-z0-9](?:-?[a-z0-9]){2,62}|\$root|\$web|\$logs)\z`)

func isContainer(name string) bool { return len(name) <= 63 && containerPattern.MatchString(name) }

// parse checks s and converts it to a storage account of the tenant.
func (s StorageAccountConfig) parse(t *tenant) (*storageAccount, error) {
	if !accountPattern.MatchString(s.Name) {
		return nil, setting.Invalid("name", "%q is not a storage account's name: give 3 to 24 small letters and digits", s.Name)
	}
	for i, a := range s.RoleAssignments {
		field := setting.At("roleAssignments", i)
		if err := checkUUID(field+".clientID", a.ClientID); err != nil {
			return nil, err
		}
		if storageRoles()[a.Role] == nil {
			return nil, setting.Invalid(field+".role", "%q is not a role for blobs", a.Role)
		}
		if a.Container != "" && !isContainer(a.Container) {
			return nil, setting.Invalid(field+".container", "%q is not a container's name", a.Container)
		}
	}
	return &storageAccount{
		StorageAccount: StorageAccount{Tenant: t.id, Name: s.Name, Host: blobHost(s.Name, t.environment)},
		tenant:         t, assignments: slices.Clone(s.RoleAssignments),
	}, nil
}

func blobHost(account string, e *Environment) string { return account + ".blob." + e.StorageSuffix }

// allows reports whether an application may read or write in a container. An empty container means
// the whole account.
func (s *storageAccount) allows(clientID, container, permission string) bool {
	return slices.ContainsFunc(s.assignments, func(a StorageRole) bool {
		return a.ClientID == clientID && (a.Container == "" || a.Container == container) &&
			slices.Contains(storageRoles()[a.Role], permission)
	})
}

// PutStorageAccount adds a storage account to a tenant or replaces its role assignments. They are
// in force at once. The data plane's content stays.
func (c *Cloud) PutStorageAccount(tenantID string, s StorageAccountConfig) error {
	return c.change(tenantID, func(t *tenant) error { return c.putStorageAccount(t, s) })
}

func (c *Cloud) putStorageAccount(t *tenant, s StorageAccountConfig) error {
	parsed, err := s.parse(t)
	if err != nil {
		return err
	}
	if old := c.accounts[parsed.Host]; old != nil && old.tenant != t {
		return setting.Invalid("name", "%q belongs to tenant %s", s.Name, old.tenant.id)
	}
	c.accounts[parsed.Host] = parsed
	return nil
}

// DeleteStorageAccount removes a storage account. The data plane's content stays.
func (c *Cloud) DeleteStorageAccount(tenantID, name string) error {
	return c.change(tenantID, func(t *tenant) error {
		host := blobHost(name, t.environment)
		if s := c.accounts[host]; s == nil || s.tenant != t {
			return setting.NotFound("storage account", name)
		}
		delete(c.accounts, host)
		return nil
	})
}

// ServeBlob sets the data plane of the storage accounts. The given function returns the handler of
// an account's blob endpoint. The handler gets only authenticated and authorized requests. They
// have the client's path and host, but no Authorization header. If a data plane needs its own
// credentials, its handler must add them.
func (c *Cloud) ServeBlob(plane func(StorageAccount) http.Handler) { c.blobData.Set(plane) }
