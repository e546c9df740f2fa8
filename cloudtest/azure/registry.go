package azure

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Registry identifies a container registry.
type Registry struct {
	// Tenant is the ID of the registry's tenant.
	Tenant string
	// Name is the registry's name.
	Name string
	// Host is the registry's login server, such as "contoso.azurecr.io".
	Host string
}

// RegistryConfig describes a container registry. Clients create repositories by pushing.
type RegistryConfig struct {
	// Name is the registry's name: 5 to 50 small letters and digits. If the registry has a domain
	// name label, a dash and 16 more small letters or digits follow.
	Name string `json:"name"`
	// RoleAssignments give roles to applications of the registry's tenant.
	RoleAssignments []RegistryRole `json:"roleAssignments,omitempty"`
	// ABAC turns on the role assignment mode "RBAC Registry + ABAC Repository Permissions". This
	// mode has roles of its own, see [RegistryRole]. Assignments of these roles can be limited to
	// repositories.
	ABAC bool `json:"abac,omitempty"`
	// RefuseARMTokens sets azureADAuthenticationAsArmPolicy to "disabled": the registry accepts
	// only access tokens for registries, and none for Azure Resource Manager.
	RefuseARMTokens bool `json:"refuseARMTokens,omitempty"`
	// DataEndpoints are the regions of the registry's dedicated data endpoints
	// <name>.<region>.data.azurecr.io. If there are any, blobs are read from the first endpoint.
	DataEndpoints []string `json:"dataEndpoints,omitempty"`
	// RegionalEndpoints are the regions of the registry's regional endpoints
	// <name>.<region>.geo.azurecr.io. Each endpoint is a login server of its own and refuses tokens
	// of the other endpoints. Source: Microsoft Learn, "Azure Container Registry endpoint
	// reference".
	RegionalEndpoints []string `json:"regionalEndpoints,omitempty"`
}

// RegistryRole is the assignment of a role on a registry.
type RegistryRole struct {
	// ClientID is the application that has the role.
	ClientID string `json:"clientID"`
	// Role is the role's name: AcrPull, AcrPush or AcrDelete; with ABAC "Container Registry
	// Repository Reader", "… Writer", "… Contributor" or "Container Registry Repository Catalog
	// Lister".
	Role string `json:"role"`
	// Repository limits the role to one repository, like Azure's condition
	// StringEqualsIgnoreCase. It is allowed only with ABAC.
	Repository string `json:"repository,omitempty"`
	// RepositoryPrefix limits the role to repositories with this prefix, such as "team-a/", like
	// Azure's condition StringStartsWithIgnoreCase. It is allowed only with ABAC.
	RepositoryPrefix string `json:"repositoryPrefix,omitempty"`
}

// Actions of a registry's scopes. Source: Azure/acr, "AAD-OAuth.md"; Microsoft Learn, "Azure
// Container Registry scope maps".
const (
	actionPull          = "pull"
	actionPush          = "push"
	actionDelete        = "delete"
	actionReadMetadata  = "metadata_read"
	actionWriteMetadata = "metadata_write"
	actionCatalog       = "*" // of registry:catalog
)

// repositoryActions are all actions on a repository.
func repositoryActions() []string {
	return []string{actionPull, actionPush, actionDelete, actionReadMetadata, actionWriteMetadata}
}

// registryRole has the permissions of a role.
type registryRole struct {
	id      string   // of the role's definition
	actions []string // on repositories
	catalog bool
	abac    bool // true: effective only with ABAC; false: effective only without ABAC
}

// registryRoles returns the built-in roles by name. Source: Microsoft Learn, "Azure Container
// Registry built-in roles directory reference".
func registryRoles() map[string]registryRole {
	read := []string{actionPull, actionReadMetadata}
	write := append(slices.Clone(read), actionPush, actionWriteMetadata)
	return map[string]registryRole{
		"AcrPull":                              {id: "7f951dda-4ed3-4680-a7ca-43fe172d538d", actions: read, catalog: true},
		"AcrPush":                              {id: "8311e382-0749-4cb8-b61a-304f252e45ec", actions: write, catalog: true},
		"AcrDelete":                            {id: "c2f4ef07-c644-48eb-af81-4b1b4947fb11", actions: []string{actionDelete}},
		"Container Registry Repository Reader": {id: "b93aa761-3e63-49ed-ac28-beffa264f7ac", actions: read, abac: true},
		"Container Registry Repository Writer": {id: "2a1e307c-b015-4ebd-883e-5b7698a07328", actions: write, abac: true},
		"Container Registry Repository Contributor": {
			id: "2efddaa5-3f1f-4df3-97df-af3f13818f4c", actions: append(slices.Clone(write), actionDelete), abac: true,
		},
		"Container Registry Repository Catalog Lister": {id: "bfdb9389-c9a5-478a-bb2f-ba9ca092c3c7", catalog: true, abac: true},
	}
}

// registry is immutable once stored; a change replaces it.
type registry struct {
	Registry

	endpoint    string // the login server that a request came to: Host, or a regional endpoint
	tenant      *tenant
	assignments []registryAssignment
	abac        bool
	refuseARM   bool
	regions     []string // regions with a data endpoint
	geo         []string // regions with a regional endpoint
}

// registryAssignment is the assignment of a role. If Azure Resource Manager made the assignment, id
// is the assignment's name in Azure Resource Manager.
type registryAssignment struct {
	RegistryRole

	id string
}

// registryNamePattern matches the part of a registry's host before the domain. Source: Microsoft
// Learn, "Naming rules for Azure resources" and "Domain name label scope".
var registryNamePattern = regexp.MustCompile(`\A[a-z0-9]{5,50}(?:-[a-z0-9]{16})?\z`)

var regionPattern = regexp.MustCompile(`\A[a-z]{2,30}[0-9]{0,2}\z`)

// parse checks r and converts it to a registry of the tenant.
func (r RegistryConfig) parse(t *tenant) (*registry, error) {
	if !registryNamePattern.MatchString(r.Name) {
		return nil, setting.Invalid("name", "%q is not a registry's name: give 5 to 50 small letters and digits", r.Name)
	}
	var assignments []registryAssignment
	for i, a := range r.RoleAssignments {
		if err := a.validate(r.ABAC); err != nil {
			return nil, setting.In(setting.At("roleAssignments", i), err)
		}
		assignments = append(assignments, registryAssignment{RegistryRole: a})
	}
	if err := cmp.Or(checkRegions("dataEndpoints", r.DataEndpoints), checkRegions("regionalEndpoints", r.RegionalEndpoints)); err != nil {
		return nil, err
	}
	host := r.Name + "." + t.environment.RegistrySuffix
	return &registry{
		Registry: Registry{Tenant: t.id, Name: r.Name, Host: host}, endpoint: host,
		tenant: t, assignments: assignments, abac: r.ABAC, refuseARM: r.RefuseARMTokens,
		regions: slices.Clone(r.DataEndpoints), geo: slices.Clone(r.RegionalEndpoints),
	}, nil
}

func checkRegions(field string, regions []string) error {
	for i, region := range regions {
		if !regionPattern.MatchString(region) || slices.Contains(regions[:i], region) {
			return setting.Invalid(setting.At(field, i), "%q is not another region: give one such as westeurope", region)
		}
	}
	return nil
}

func (a RegistryRole) validate(abac bool) error {
	if err := checkUUID("clientID", a.ClientID); err != nil {
		return err
	}
	role, ok := registryRoles()[a.Role]
	narrowed := a.Repository != "" || a.RepositoryPrefix != ""
	switch {
	case !ok:
		return setting.Invalid("role", "%q is not a role of registries", a.Role)
	case role.abac != abac:
		return setting.Invalid("role", "%q does not count in a registry with abac %t", a.Role, abac)
	case a.Repository != "" && a.RepositoryPrefix != "":
		return setting.Invalid("repositoryPrefix", "give it or repository, not both")
	case narrowed && !abac:
		return setting.Invalid("repository", "only registries with abac narrow roles to repositories")
	case narrowed && role.catalog:
		return setting.Invalid("repository", "%q cannot be narrowed to repositories", a.Role)
	}
	return nil
}

// covers reports whether an assignment applies to a repository.
func (a RegistryRole) covers(repository string) bool {
	switch {
	case a.Repository != "":
		return strings.EqualFold(a.Repository, repository)
	case a.RepositoryPrefix != "":
		n := len(a.RepositoryPrefix)
		return len(repository) >= n && strings.EqualFold(a.RepositoryPrefix, repository[:n])
	}
	return true
}

// isAssigned reports whether an application has any role that is effective in the registry's mode.
func (r *registry) isAssigned(clientID string) bool {
	roles := registryRoles()
	return slices.ContainsFunc(r.assignments,
		func(a registryAssignment) bool { return a.ClientID == clientID && roles[a.Role].abac == r.abac })
}

// allows reports whether an application may do an action on a repository. An empty repository means
// the catalog.
func (r *registry) allows(clientID, repository, action string) bool {
	roles := registryRoles()
	return slices.ContainsFunc(r.assignments, func(a registryAssignment) bool {
		role := roles[a.Role]
		if a.ClientID != clientID || role.abac != r.abac {
			return false
		}
		if repository == "" {
			return role.catalog && action == actionCatalog
		}
		return slices.Contains(role.actions, action) && a.covers(repository)
	})
}

// dataHost returns the host of a dedicated data endpoint.
func (r *registry) dataHost(region string) string {
	return r.Name + "." + region + ".data." + r.tenant.environment.RegistrySuffix
}

// hosts returns the registry under each of its hosts. For the host of a regional endpoint, the
// value is a copy whose endpoint is that host.
func (r *registry) hosts() map[string]*registry {
	hosts := map[string]*registry{r.Host: r}
	for _, region := range r.regions {
		hosts[r.dataHost(region)] = r
	}
	for _, region := range r.geo {
		there := *r
		there.endpoint = r.Name + "." + region + ".geo." + r.tenant.environment.RegistrySuffix
		hosts[there.endpoint] = &there
	}
	return hosts
}

// PutRegistry adds a registry to a tenant or replaces its settings. The data plane's content stays.
func (c *Cloud) PutRegistry(tenantID string, r RegistryConfig) error {
	return c.change(tenantID, func(t *tenant) error { return c.putRegistry(t, r) })
}

func (c *Cloud) putRegistry(t *tenant, r RegistryConfig) error {
	parsed, err := r.parse(t)
	if err != nil {
		return err
	}
	if old := c.registries[parsed.Host]; old != nil && old.tenant != t {
		return setting.Invalid("name", "%q belongs to tenant %s", r.Name, old.tenant.id)
	}
	c.dropRegistry(parsed.Host)
	maps.Copy(c.registries, parsed.hosts())
	return nil
}

// dropRegistry removes all hosts of the registry with the given login server.
func (c *Cloud) dropRegistry(loginServer string) {
	maps.DeleteFunc(c.registries, func(_ string, r *registry) bool { return r.Host == loginServer })
}

// DeleteRegistry removes a registry. The data plane's content stays.
func (c *Cloud) DeleteRegistry(tenantID, name string) error {
	return c.change(tenantID, func(t *tenant) error {
		r := c.registries[name+"."+t.environment.RegistrySuffix]
		if r == nil || r.tenant != t || r.Name != name {
			return setting.NotFound("registry", name)
		}
		c.dropRegistry(r.Host)
		return nil
	})
}

// ServeRegistry sets the data plane of the registries. The given function returns a registry's OCI
// distribution handler. The handler gets only authenticated and authorized requests. They have the
// client's path and host, and no Authorization header. The host may be the host of a data endpoint.
// Registries with the same handler share the content of repositories with the same name.
func (c *Cloud) ServeRegistry(plane func(Registry) http.Handler) { c.registryData.Set(plane) }

// registryRequest describes a request to a registry.
type registryRequest struct {
	operation  string
	repository string // empty for ping and catalog
	action     string // the action that the caller must be allowed; empty for ping
}

// readRegistryRequest returns the operation, repository and action of a request. It returns false
// for an unknown request.
func readRegistryRequest(r *http.Request) (registryRequest, bool) {
	if r.URL.Path == "/v2/_catalog" {
		return registryRequest{operation: "ListRepositories", action: actionCatalog}, r.Method == http.MethodGet
	}
	read := oci.Read(r)
	req, known := registryOperations()[read.Kind]
	req.repository = read.Repository
	return req, known
}

// registryOperations returns the operation and the action of each kind of request.
func registryOperations() map[oci.Kind]registryRequest {
	push := registryRequest{operation: "PushBlob", action: actionPush}
	return map[oci.Kind]registryRequest{
		oci.Ping:           {operation: "Ping"},
		oci.ListTags:       {operation: "ListTags", action: actionReadMetadata},
		oci.ListReferrers:  {operation: "ListReferrers", action: actionPull},
		oci.PullManifest:   {operation: "PullManifest", action: actionPull},
		oci.CheckBlob:      {operation: "CheckBlob", action: actionPull},
		oci.PullBlob:       {operation: opPullBlob, action: actionPull},
		oci.PushManifest:   {operation: "PushManifest", action: actionPush},
		oci.StartUpload:    push,
		oci.PushBlob:       push,
		oci.ContinueUpload: push,
		oci.FinishUpload:   push,
		oci.DeleteManifest: {operation: "DeleteManifest", action: actionDelete},
	}
}

// opPullBlob is the operation that registries and data endpoints share.
const opPullBlob = "PullBlob"
