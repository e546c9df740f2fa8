package azure

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// KeyVaultConfig describes a key vault. It has keys, but no secrets and no certificates. Its
// permission model is "Azure role-based access control".
type KeyVaultConfig struct {
	// Name is the vault's name: 3 to 24 small letters, digits and dashes. It starts with a letter
	// and ends with a letter or digit. It has no two dashes in a row.
	Name string `json:"name"`
	// Keys are the names of keys that the vault has from the start: 1 to 127 letters, digits and
	// dashes. Each is an RSA key of 2048 bits. Clients may create more keys.
	Keys []string `json:"keys,omitempty"`
	// RoleAssignments give roles to applications of the vault's tenant.
	RoleAssignments []KeyVaultRole `json:"roleAssignments,omitempty"`
}

// KeyVaultRole is the assignment of a role on a key vault or one of its keys.
type KeyVaultRole struct {
	// ClientID is the application that has the role.
	ClientID string `json:"clientID"`
	// Role is the role's name, or the ID of its definition. The roles are "Key Vault
	// Administrator", "Key Vault Crypto Officer", "Key Vault Crypto User", "Key Vault Crypto Service
	// Encryption User" and "Key Vault Reader".
	Role string `json:"role"`
	// Key is the key that the role is assigned on; empty for the whole vault.
	Key string `json:"key,omitempty"`
}

const (
	typeVault  = "Microsoft.KeyVault/vaults"
	actionKeys = typeVault + "/keys/" // begins all data actions on keys
)

// vaultRole has the data actions of a role, and the ID of its definition.
type vaultRole struct {
	managementRole

	id string
}

// vaultRoles returns the built-in roles by name. They have only those data actions that the local
// cloud has. Source: Microsoft Learn, "Azure built-in roles for Security".
func vaultRoles() map[string]vaultRole {
	role := func(id string, actions ...string) vaultRole { return vaultRole{managementRole{actions: actions}, id} }
	return map[string]vaultRole{
		"Key Vault Administrator":  role("00482a5a-887f-4fb3-b363-3b7fe8e74483", typeVault+"/*"),
		"Key Vault Crypto Officer": role("14b46e9e-c2b7-41b4-b07b-48a6ebf60603", actionKeys+"*"),
		"Key Vault Crypto User": role("12338af0-0e69-4776-bea7-57ae8d297424",
			actionKeys+"read", actionKeys+"update/action", actionKeys+"encrypt/action", actionKeys+"decrypt/action"),
		"Key Vault Crypto Service Encryption User": role("e147488a-f6f5-4113-8e2d-b22465e65bf6", actionKeys+"read"),
		"Key Vault Reader":                         role("21090545-7ca7-4776-b22c-e363652d74d2", typeVault+"/*/read"),
	}
}

// keyVault is immutable once stored; a change replaces it.
type keyVault struct {
	name, host  string
	tenant      *tenant
	assignments []KeyVaultRole // with the roles' names
}

// vaultPattern matches a key vault's name, except for its length. Source: Microsoft Learn, "Naming
// rules and restrictions for Azure resources".
var vaultPattern = regexp.MustCompile(`\A[a-z](?:-?[a-z0-9])+\z`)

// keyPattern matches a key's name. Source: Microsoft Learn, "Azure Key Vault keys, secrets and
// certificates overview", object identifiers.
var keyPattern = regexp.MustCompile(`\A[A-Za-z0-9-]{1,127}\z`)

// parse checks v and converts it to a key vault of the tenant.
func (v KeyVaultConfig) parse(t *tenant) (*keyVault, error) {
	const shortest, longest = 3, 24
	switch {
	case t.environment.VaultSuffix == "":
		return nil, setting.Invalid("name", "the environment %s has no key vaults", t.environment.Name)
	case !vaultPattern.MatchString(v.Name) || len(v.Name) < shortest || len(v.Name) > longest:
		return nil, setting.Invalid("name", "%q is not a key vault's name: give 3 to 24 small letters, digits and dashes", v.Name)
	}
	for i, name := range v.Keys {
		if !keyPattern.MatchString(name) {
			return nil, setting.Invalid(setting.At("keys", i), "%q is not a key's name: give 1 to 127 letters, digits and dashes", name)
		}
	}
	parsed := &keyVault{name: v.Name, host: vaultHost(v.Name, t.environment), tenant: t}
	for i, a := range v.RoleAssignments {
		field := setting.At("roleAssignments", i)
		if err := checkUUID(field+".clientID", a.ClientID); err != nil {
			return nil, err
		}
		for name, role := range vaultRoles() {
			if a.Role == role.id {
				a.Role = name
			}
		}
		if _, ok := vaultRoles()[a.Role]; !ok {
			return nil, setting.Invalid(field+".role", "%q is not a role for keys", a.Role)
		}
		if a.Key != "" && !keyPattern.MatchString(a.Key) {
			return nil, setting.Invalid(field+".key", "%q is not a key's name", a.Key)
		}
		parsed.assignments = append(parsed.assignments, a)
	}
	return parsed, nil
}

func vaultHost(name string, e *Environment) string { return name + "." + e.VaultSuffix }

// allows reports whether an application may do a data action on a key.
func (v *keyVault) allows(clientID, key, action string) bool {
	roles := vaultRoles()
	return slices.ContainsFunc(v.assignments, func(a KeyVaultRole) bool {
		return a.ClientID == clientID && (a.Key == "" || strings.EqualFold(a.Key, key)) && roles[a.Role].allows(action)
	})
}

// keyID returns the key of c.keys for a key's name. Azure ignores the case of names.
func (v *keyVault) keyID(name string) string { return v.host + "/keys/" + strings.ToLower(name) }

// vaultPlace returns a vault's resource ID and location. If no resource group names the vault, its
// ID has a group of the vault's name.
func (c *Cloud) vaultPlace(v *keyVault) (id, location string) {
	in := &subscription{id: nullUser}
	group := &ResourceGroup{Name: v.name, Location: "westeurope"}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.subscriptions {
		i := slices.IndexFunc(s.groups, func(g ResourceGroup) bool { return slices.Contains(g.KeyVaults, v.name) })
		if s.tenant == v.tenant && i >= 0 {
			in, group = s, &s.groups[i]
		}
	}
	return in.groupID(group) + "/providers/" + typeVault + "/" + v.name, group.Location
}

// PutKeyVault adds a key vault to a tenant, or replaces its role assignments. They are in force at
// once. It makes those of the vault's keys that do not exist. Other keys, and deleted keys, stay as
// they are.
func (c *Cloud) PutKeyVault(tenantID string, v KeyVaultConfig) error {
	return c.change(tenantID, func(t *tenant) error { return c.putKeyVault(t, v) })
}

func (c *Cloud) putKeyVault(t *tenant, v KeyVaultConfig) error {
	parsed, err := v.parse(t)
	if err != nil {
		return err
	}
	if old := c.vaults[parsed.host]; old != nil && old.tenant != t {
		return setting.Invalid("name", "%q belongs to tenant %s", v.Name, old.tenant.id)
	}
	c.vaults[parsed.host] = parsed
	for _, name := range v.Keys {
		if id := parsed.keyID(name); c.keys[id] == nil {
			c.keys[id] = &vaultKey{name: name, versions: []keyVersion{newKeyVersion(minKeySize, rsaOperations(), time.Now())}}
		}
	}
	return nil
}

// DeleteKeyVault removes a key vault and its keys.
func (c *Cloud) DeleteKeyVault(tenantID, name string) error {
	return c.change(tenantID, func(t *tenant) error {
		v := c.vaults[vaultHost(name, t.environment)]
		if v == nil || v.tenant != t {
			return setting.NotFound("key vault", name)
		}
		c.dropVault(v)
		return nil
	})
}

// dropVault removes a key vault and its keys. The caller holds the lock.
func (c *Cloud) dropVault(v *keyVault) {
	delete(c.vaults, v.host)
	maps.DeleteFunc(c.keys, func(id string, _ *vaultKey) bool { return strings.HasPrefix(id, v.keyID("")) })
}
