package azure

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

type identityProperties struct {
	TenantID    string `json:"tenantId"`
	PrincipalID string `json:"principalId"`
	ClientID    string `json:"clientId"`
}

// identityPattern matches a managed identity's name. Source: Microsoft Learn, "Naming rules and
// restrictions for Azure resources".
var identityPattern = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9_-]{2,127}\z`)

// identity finds the managed identity whose name is call.names[0]. The caller holds the lock.
func (call *managementCall) identity() *application {
	return call.subscription.tenant.find(func(a *application) bool { return strings.EqualFold(a.resourceID, call.identityID()) })
}

func (call *managementCall) identityID() string {
	return call.subscription.groupID(call.group) + "/providers/" + typeIdentity + "/" + call.names[0]
}

func (call *managementCall) identityResource(app *application) resource {
	return resource{
		ID: app.resourceID, Name: app.name, Type: typeIdentity, Location: app.location,
		Properties: identityProperties{call.subscription.tenant.id, app.objectID, app.clientID},
	}
}

// putIdentity makes a managed identity. It never changes an existing one. Source: Azure REST API,
// "User Assigned Identities - Create Or Update".
func (c *Cloud) putIdentity(call *managementCall) (service.Answer, *service.Refusal) {
	var sent struct {
		Location string `json:"location"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, invalidContent(err)
	}
	switch {
	case !identityPattern.MatchString(call.names[0]):
		return nil, service.Refuse(http.StatusBadRequest, "InvalidResourceName", "Resource name '"+printable(call.names[0])+"' is invalid.")
	case sent.Location == "":
		return nil, service.Refuse(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	case !regionPattern.MatchString(sent.Location):
		return nil, service.Refuse(http.StatusBadRequest, "LocationNotAvailableForResourceType",
			"The provided location '"+printable(sent.Location)+"' is not available for resource type '"+typeIdentity+"'.")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if app := call.identity(); app != nil {
		if app.location != sent.Location {
			return nil, service.Refuse(http.StatusConflict, "InvalidResourceLocation",
				"The resource '"+app.name+"' already exists in location '"+app.location+
					"' in resource group '"+call.group.Name+
					"'. A resource with the same name cannot be created in location '"+sent.Location+
					"'. Please select a new resource name.")
		}
		return writeJSON(http.StatusOK, call.identityResource(app)), nil
	}
	app := &application{
		clientID: wire.UUID(), objectID: wire.UUID(), resourceID: call.identityID(), location: sent.Location, name: call.names[0],
	}
	call.subscription.tenant.apps[app.clientID] = app
	return writeJSON(http.StatusCreated, call.identityResource(app)), nil
}

func (c *Cloud) getIdentity(call *managementCall) (service.Answer, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	app := call.identity()
	if app == nil {
		return nil, call.resourceNotFound(typeIdentity, call.names[0])
	}
	return writeJSON(http.StatusOK, call.identityResource(app)), nil
}

type federatedProperties struct {
	Issuer    string   `json:"issuer"`
	Subject   string   `json:"subject"`
	Audiences []string `json:"audiences"`
}

// putFederated adds a federated credential to a managed identity, or replaces the credential of the
// same name. Source: Azure REST API, "Federated Identity Credentials - Create Or Update".
func (c *Cloud) putFederated(call *managementCall) (service.Answer, *service.Refusal) {
	var sent struct {
		Properties federatedProperties `json:"properties"`
	}
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, invalidContent(err)
	}
	badRequest := func(message string) *service.Refusal {
		return service.Refuse(http.StatusBadRequest, "BadRequest", message)
	}
	f := FederatedCredential{Name: call.names[1], Issuer: sent.Properties.Issuer, Subject: sent.Properties.Subject}
	if f.Issuer == "" || f.Subject == "" || len(sent.Properties.Audiences) != 1 || sent.Properties.Audiences[0] == "" {
		return nil, badRequest(
			"The request format was unexpected. Federated Identity Credential must specify 'issuer', 'subject' and 'audience'.")
	}
	f.Audience = sent.Properties.Audiences[0]
	complete, err := f.complete(call.subscription.tenant.environment)
	if err != nil {
		return nil, badRequest("The request format was unexpected. " + printable(err.Error()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	app := call.identity()
	if app == nil {
		return nil, call.resourceNotFound(typeIdentity, call.names[0])
	}
	changed, status := *app, http.StatusCreated
	changed.credentials = slices.DeleteFunc(slices.Clone(app.credentials), func(old FederatedCredential) bool { return old.Name == f.Name })
	if len(changed.credentials) < len(app.credentials) {
		status = http.StatusOK
	}
	if slices.ContainsFunc(changed.credentials,
		func(old FederatedCredential) bool { return old.Issuer == f.Issuer && old.Subject == f.Subject }) {
		return nil, badRequest("Issuer and subject combination already exists for this Managed Identity.")
	}
	changed.credentials = append(changed.credentials, complete)
	if err := checkCredentials(changed.credentials); err != nil {
		return nil, badRequest(printable(err.Error()))
	}
	call.subscription.tenant.apps[app.clientID] = &changed
	return writeJSON(status, resource{
		ID: app.resourceID + "/federatedIdentityCredentials/" + f.Name, Name: f.Name,
		Type: typeIdentity + "/federatedIdentityCredentials", Properties: sent.Properties,
	}), nil
}

// registryIn finds a registry of a resource group. The caller holds the lock.
func (c *Cloud) registryIn(s *subscription, g *ResourceGroup, name string) *registry {
	reg := c.registries[strings.ToLower(name)+"."+s.tenant.environment.RegistrySuffix]
	if reg == nil || reg.tenant != s.tenant || !slices.Contains(g.Registries, reg.Name) {
		return nil
	}
	return reg
}

type registryProperties struct {
	LoginServer      string `json:"loginServer"`
	State            string `json:"provisioningState"`
	AdminUserEnabled bool   `json:"adminUserEnabled"`
}

func registryResource(s *subscription, g *ResourceGroup, reg *registry) resource {
	return resource{
		ID: s.groupID(g) + "/providers/" + typeRegistry + "/" + reg.Name, Name: reg.Name, Type: typeRegistry, Location: g.Location,
		SKU: &sku{"Premium", "Premium"}, Properties: registryProperties{LoginServer: reg.Host, State: "Succeeded"},
	}
}

func (c *Cloud) getRegistry(call *managementCall) (service.Answer, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	reg := c.registryIn(call.subscription, call.group, call.names[0])
	if reg == nil {
		return nil, call.resourceNotFound(typeRegistry, call.names[0])
	}
	return writeJSON(http.StatusOK, registryResource(call.subscription, call.group, reg)), nil
}

type definitionProperties struct {
	RoleName         string   `json:"roleName"`
	Type             string   `json:"type"`
	AssignableScopes []string `json:"assignableScopes"`
}

const (
	typeDefinition = "Microsoft.Authorization/roleDefinitions"
	typeAssignment = "Microsoft.Authorization/roleAssignments"
)

// listDefinitions finds a role for registries by name. The answer does not list the role's
// permissions. Source: Azure REST API, "Role Definitions - List".
func (c *Cloud) listDefinitions(call *managementCall) (service.Answer, *service.Refusal) {
	filter := call.query.Get("$filter")
	name, ok := quoted(filter, "roleName eq '", "'")
	if !ok {
		return nil, service.Refuse(http.StatusBadRequest, "UnsupportedQuery",
			"The filter '"+printable(filter)+"' is not supported. Supported filters are roleName eq '{value}'.").
			Because("the local Azure Resource Manager finds roles by name only")
	}
	c.mu.RLock()
	reg := c.registryIn(call.subscription, call.group, call.names[0])
	c.mu.RUnlock()
	if reg == nil {
		return nil, call.resourceNotFound(typeRegistry, call.names[0])
	}
	list := resourceList{Value: []any{}}
	if role, ok := registryRoles()[name]; ok {
		list.Value = append(list.Value, resource{
			ID: call.subscription.definitionID(role.id), Name: role.id, Type: typeDefinition,
			Properties: definitionProperties{RoleName: name, Type: "BuiltInRole", AssignableScopes: []string{"/"}},
		})
	}
	return writeJSON(http.StatusOK, list), nil
}

// quoted returns the part of an OData filter between a prefix and a suffix. The part must not
// contain quotes.
func quoted(filter, prefix, suffix string) (value string, ok bool) {
	value, begins := strings.CutPrefix(filter, prefix)
	value, ends := strings.CutSuffix(value, suffix)
	return value, begins && ends && !strings.Contains(value, "'")
}

func (s *subscription) definitionID(id string) string {
	return "/subscriptions/" + s.id + "/providers/" + typeDefinition + "/" + id
}

// roleOf finds a role for registries by the ID of the role's definition.
func (s *subscription) roleOf(definitionID string) (name string, role registryRole) {
	for name, role := range registryRoles() {
		if strings.EqualFold(definitionID, s.definitionID(role.id)) ||
			strings.EqualFold(definitionID, "/providers/"+typeDefinition+"/"+role.id) {
			return name, role
		}
	}
	return "", registryRole{}
}

type assignmentProperties struct {
	RoleDefinitionID string `json:"roleDefinitionId"`
	PrincipalID      string `json:"principalId"`
	PrincipalType    string `json:"principalType"`
	Scope            string `json:"scope,omitempty"` // only in answers
}

// putAssignment assigns a role on a registry. Sources: Azure REST API, "Role Assignments - Create";
// Microsoft Learn, "Troubleshoot Azure RBAC".
func (c *Cloud) putAssignment(call *managementCall) (service.Answer, *service.Refusal) {
	var sent struct {
		Properties assignmentProperties `json:"properties"`
	}
	// Unknown fields, such as a condition, are refused. Without its condition, the assignment would
	// allow more.
	if err := readJSON(call.Request, &sent); err != nil {
		return nil, invalidContent(err)
	}
	s, p, id := call.subscription, sent.Properties, call.names[1]
	name, role := s.roleOf(p.RoleDefinitionID)
	switch {
	case !uuidPattern.MatchString(strings.ToLower(id)):
		return nil, service.Refuse(http.StatusBadRequest, "InvalidRoleAssignmentId",
			"The role assignment ID '"+printable(id)+"' is not valid. The role assignment ID must be a GUID.")
	case !uuidPattern.MatchString(p.PrincipalID):
		return nil, service.Refuse(http.StatusBadRequest, "InvalidPrincipalId",
			"The Principal ID '"+printable(p.PrincipalID)+"' is not valid. Principal ID must be a GUID.")
	case name == "":
		return nil, service.Refuse(http.StatusNotFound, "RoleDefinitionDoesNotExist",
			"The specified role definition with ID '"+printable(p.RoleDefinitionID)+"' does not exist.")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	reg := c.registryIn(s, call.group, call.names[0])
	if reg == nil {
		return nil, call.resourceNotFound(typeRegistry, call.names[0])
	}
	app := s.tenant.find(func(a *application) bool { return a.objectID == p.PrincipalID })
	switch {
	case app == nil:
		return nil, service.Refuse(http.StatusBadRequest, "PrincipalNotFound", "Principal "+strings.ReplaceAll(p.PrincipalID, "-", "")+
			" does not exist in the directory "+s.tenant.id+
			". Check that you have the correct principal ID. If you are creating this principal and then immediately "+
			"assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, "+
			"such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype")
	case p.PrincipalType != "" && p.PrincipalType != "ServicePrincipal":
		return nil, service.Refuse(http.StatusBadRequest, "UnmatchedPrincipalType",
			"The PrincipalId '"+strings.ReplaceAll(p.PrincipalID, "-", "")+
				"' has type 'ServicePrincipal' , which is different from specified PrinciaplType '"+printable(p.PrincipalType)+"'.")
	}
	added := registryAssignment{RegistryRole{ClientID: app.clientID, Role: name}, strings.ToLower(id)}
	for _, old := range reg.assignments {
		switch {
		case old.RegistryRole == added.RegistryRole:
			return nil, service.Refuse(http.StatusConflict, "RoleAssignmentExists", "The role assignment already exists.")
		case old.id == added.id:
			return nil, service.Refuse(http.StatusConflict, "RoleAssignmentUpdateNotPermitted",
				"Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
		}
	}
	changed := *reg
	changed.assignments = append(slices.Clone(reg.assignments), added)
	maps.Copy(c.registries, changed.hosts())
	scope := registryResource(s, call.group, reg).ID
	return writeJSON(http.StatusCreated, resource{
		ID: scope + "/providers/" + typeAssignment + "/" + added.id, Name: added.id, Type: typeAssignment,
		Properties: assignmentProperties{s.definitionID(role.id), p.PrincipalID, "ServicePrincipal", scope},
	}), nil
}

// find returns an application of the tenant that satisfies a condition, or nil. The caller holds
// the lock.
func (t *tenant) find(is func(*application) bool) *application {
	for _, app := range t.apps {
		if is(app) {
			return app
		}
	}
	return nil
}
