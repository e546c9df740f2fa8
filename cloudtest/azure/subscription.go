package azure

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Subscription is a subscription of a tenant, with its resource groups and the roles that the
// tenant's applications have in Azure Resource Manager.
type Subscription struct {
	// ID is the subscription's ID, a UUID in lower case.
	ID string `json:"id"`
	// Name is the subscription's display name.
	Name string `json:"name"`
	// ResourceGroups are the subscription's resource groups. Their names are unique, ignoring case.
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`
	// RoleAssignments are the roles of the tenant's applications on the subscription or its groups.
	RoleAssignments []SubscriptionRole `json:"roleAssignments,omitempty"`
}

// ResourceGroup is a resource group of a subscription.
type ResourceGroup struct {
	// Name is the group's name: 1 to 90 letters, digits, dashes, underscores, periods and
	// parentheses. The last character must not be a period.
	Name string `json:"name"`
	// Location is the region of the group and of its resources, such as "westeurope".
	Location string `json:"location"`
	// Registries are the names of the tenant's registries in the group. A registry with such a name
	// need not exist.
	Registries []string `json:"registries,omitempty"`
	// KeyVaults are the names of the tenant's key vaults in the group. A key vault with such a name
	// need not exist. Refusals of a key vault contain its group.
	KeyVaults []string `json:"keyVaults,omitempty"`
}

// SubscriptionRole is the assignment of a role on a subscription or one of its resource groups.
type SubscriptionRole struct {
	// ClientID is the application that has the role.
	ClientID string `json:"clientID"`
	// Role is the role's name: Owner, Contributor, Reader or "Managed Identity Contributor".
	Role string `json:"role"`
	// ResourceGroup is the group that the role is assigned on; empty for the whole subscription.
	ResourceGroup string `json:"resourceGroup,omitempty"`
}

// managementRole has the allowed and the excluded actions of a role. Each action may contain one
// "*".
type managementRole struct{ actions, except []string }

// managementRoles returns the built-in roles, with those actions that the local Azure Resource
// Manager has. Source: Microsoft Learn, "Azure built-in roles".
func managementRoles() map[string]managementRole {
	return map[string]managementRole{
		"Owner":       {actions: []string{"*"}},
		"Contributor": {actions: []string{"*"}, except: []string{"Microsoft.Authorization/*/delete", "Microsoft.Authorization/*/write"}},
		"Reader":      {actions: []string{"*/read"}},
		"Managed Identity Contributor": {actions: []string{
			"Microsoft.ManagedIdentity/userAssignedIdentities/*", "Microsoft.Authorization/*/read",
			"Microsoft.Resources/subscriptions/resourceGroups/read",
		}},
	}
}

func (m managementRole) allows(action string) bool {
	matches := func(pattern string) bool {
		before, after, wild := strings.Cut(pattern, "*")
		return action == pattern ||
			(wild && len(action) >= len(before)+len(after) && strings.HasPrefix(action, before) && strings.HasSuffix(action, after))
	}
	return slices.ContainsFunc(m.actions, matches) && !slices.ContainsFunc(m.except, matches)
}

// subscription is immutable.
type subscription struct {
	id, name    string
	tenant      *tenant
	groups      []ResourceGroup
	assignments []SubscriptionRole
}

// groupPattern matches a resource group's name in ASCII. Source: Microsoft Learn, "Naming rules and
// restrictions for Azure resources".
var groupPattern = regexp.MustCompile(`\A[A-Za-z0-9_().-]{0,89}[A-Za-z0-9_()-]\z`)

// parse checks s and converts it to a subscription of the tenant.
func (s Subscription) parse(t *tenant) (*subscription, error) {
	if err := checkUUID("id", s.ID); err != nil {
		return nil, err
	}
	if s.Name == "" {
		return nil, setting.Invalid("name", "give the subscription a name")
	}
	parsed := &subscription{id: s.ID, name: s.Name, tenant: t, assignments: slices.Clone(s.RoleAssignments)}
	for i, g := range s.ResourceGroups {
		field := setting.At("resourceGroups", i)
		switch {
		case !groupPattern.MatchString(g.Name):
			return nil, setting.Invalid(field+".name", "%q is not a resource group's name", g.Name)
		case parsed.group(g.Name) != nil:
			return nil, setting.Invalid(field+".name", "the resource group %q is given twice", g.Name)
		case !regionPattern.MatchString(g.Location):
			return nil, setting.Invalid(field+".location", "%q is not a region: give one such as westeurope", g.Location)
		}
		for j, name := range g.Registries {
			if !registryNamePattern.MatchString(name) {
				return nil, setting.Invalid(setting.At(field+".registries", j), "%q is not a registry's name", name)
			}
		}
		for j, name := range g.KeyVaults {
			if !vaultPattern.MatchString(name) {
				return nil, setting.Invalid(setting.At(field+".keyVaults", j), "%q is not a key vault's name", name)
			}
		}
		g.Registries, g.KeyVaults = slices.Clone(g.Registries), slices.Clone(g.KeyVaults)
		parsed.groups = append(parsed.groups, g)
	}
	for i, a := range s.RoleAssignments {
		field := setting.At("roleAssignments", i)
		if err := checkUUID(field+".clientID", a.ClientID); err != nil {
			return nil, err
		}
		if _, ok := managementRoles()[a.Role]; !ok {
			return nil, setting.Invalid(field+".role",
				"%q is not a role on subscriptions: give Owner, Contributor, Reader or Managed Identity Contributor", a.Role)
		}
		if a.ResourceGroup != "" && parsed.group(a.ResourceGroup) == nil {
			return nil, setting.Invalid(field+".resourceGroup", "the subscription has no resource group %q", a.ResourceGroup)
		}
	}
	return parsed, nil
}

// group finds a resource group by name, ignoring case.
func (s *subscription) group(name string) *ResourceGroup {
	i := slices.IndexFunc(s.groups, func(g ResourceGroup) bool { return strings.EqualFold(g.Name, name) })
	if i < 0 {
		return nil
	}
	return &s.groups[i]
}

// knows reports whether an application has any role on the subscription or on a resource group in
// it.
func (s *subscription) knows(clientID string) bool {
	return slices.ContainsFunc(s.assignments, func(a SubscriptionRole) bool { return a.ClientID == clientID })
}

// allows reports whether an application may do an action in a resource group.
func (s *subscription) allows(clientID, group, action string) bool {
	return slices.ContainsFunc(s.assignments, func(a SubscriptionRole) bool {
		return a.ClientID == clientID && (a.ResourceGroup == "" || strings.EqualFold(a.ResourceGroup, group)) &&
			managementRoles()[a.Role].allows(action)
	})
}

// putSubscription adds a new tenant's subscription to the cloud.
func (c *Cloud) putSubscription(t *tenant, s Subscription) error {
	parsed, err := s.parse(t)
	if err != nil {
		return err
	}
	if c.subscriptions[s.ID] != nil {
		return setting.Invalid("id", "subscription %s exists already", s.ID)
	}
	c.subscriptions[s.ID] = parsed
	return nil
}
