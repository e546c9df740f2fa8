package gcp

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Registry names one registry host.
type Registry struct {
	// Host is the host, "europe-west1-docker.pkg.dev" or "gcr.io".
	Host string
}

// ServeRegistry hands in the data plane of Artifact Registry: registry returns the OCI distribution handler of one host. It gets only requests that were
// allowed, without the Authorization header, under the path (/v2/<project>/<repository>/<image>/…) and host that the client used.
func (c *Cloud) ServeRegistry(registry func(Registry) http.Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registry = registry
}

const opRegistryToken = "GetToken"

// distribution is the protocol of registries. Source: OCI Distribution Specification v1.1, "Error Codes".
type distribution struct{}

const (
	codeUnauthorized = "UNAUTHORIZED"
	codeRefused      = "DENIED"
)

func (distribution) refuse(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	type one struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	writeJSON(w, e.status, "application/json", map[string][]one{"errors": {{e.code, e.message}}})
}

func (distribution) faulted(kind fault.Kind) *apiError {
	switch kind {
	case fault.Throttle:
		return refused(http.StatusTooManyRequests, "TOOMANYREQUESTS", saysExhausted)
	case fault.Unavailable:
		return refused(http.StatusServiceUnavailable, "UNAVAILABLE", saysUnavailable)
	default:
		return refused(http.StatusInternalServerError, "UNKNOWN", saysInternal)
	}
}

func (distribution) broken() (contentType, body string) {
	return "application/vnd.oci.image.manifest.v1+json", `{"schemaVersion":2,"mediaType":"application/vnd.oci.im`
}

// place is a repository of Artifact Registry, and what its policy is asked for.
type place struct{ project, location, repository string }

// resource is its full name. Domain-scoped projects stand there as everywhere.
func (p place) resource() string {
	return "projects/" + p.project + "/locations/" + p.location + "/repositories/" + p.repository
}

// readPlace splits what stands before the image's name: <project>/<repository>, or <project> under gcr.io's hosts. The colon of a project's ID is a slash there:
// of a domain-scoped one, and of all that are in other universes than the public one. Source: Artifact Registry, "Repository and image names".
func readPlace(name string, ep endpoint) (place, bool) {
	project, rest, ok := strings.Cut(name, "/")
	if strings.Contains(project, ".") || ep.universe != DefaultUniverse {
		var scoped string
		if scoped, rest, ok = strings.Cut(rest, "/"); ok {
			project += ":" + scoped
		}
	}
	p := place{project: project, location: ep.location, repository: ep.gcr}
	if ok && ep.gcr == "" {
		p.repository, rest, ok = strings.Cut(rest, "/")
	}
	return p, ok && rest != "" && oci.IsName(name) && projectPattern.MatchString(p.project) && repositoryPattern.MatchString(p.repository)
}

// permissionFor is what Artifact Registry asks for. Source: Artifact Registry, "Roles and permissions".
func permissionFor(k oci.Kind) string {
	switch {
	case k.Reads():
		return permDownload
	case k == oci.DeleteManifest:
		return permDelete
	default:
		return permUpload
	}
}

func (c *Cloud) serveRegistry(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	if r.URL.Path == "/v2/token" {
		c.serveRegistryToken(w, r, ep, call)
		return
	}
	req := oci.Read(r)
	where, known := readPlace(req.Repository, ep)
	switch {
	case req.Kind == oci.Ping:
		call.Operation = "Ping"
	case req.Kind != oci.Unknown && known:
		call.Operation, call.Resource = permissionFor(req.Kind), where.resource()
	}
	now, ok := c.begin(r.Context(), w, distribution{}, call)
	if !ok {
		return
	}
	token, refusal := c.registryCaller(r, ep, call.Host, now)
	call.Principal = token.who.name()
	challenge := `Bearer realm="https://` + call.Host + `/v2/token"`
	switch {
	case refusal != nil:
	case req.Kind == oci.Ping && token.who.anonymous() && token.registry == "":
		refusal = refused(http.StatusUnauthorized, codeUnauthorized, "Unauthorized access.").because(errNoCredentials.Error())
	case req.Kind == oci.Ping:
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		writeJSON(w, http.StatusOK, "application/json", struct{}{})
		return
	case call.Operation == "":
		refusal = refused(http.StatusNotFound, "NAME_INVALID", "The request is not understood.").because("the local cloud has no such operation or name")
	default:
		refusal = c.authorizeRegistry(token, where, permissionFor(req.Kind))
		if refusal != nil && refusal.status == http.StatusForbidden && token.who.anonymous() && token.registry == "" {
			refusal.status, refusal.code = http.StatusUnauthorized, codeUnauthorized
			challenge += `,service="` + call.Host + `",scope="repository:` + req.Repository + ":" + scopeOf(req.Kind) + `"`
		}
	}
	if refusal != nil {
		if refusal.status == http.StatusUnauthorized {
			w.Header().Set("Www-Authenticate", challenge)
		}
		distribution{}.refuse(w, call, refusal)
		return
	}
	c.mu.RLock()
	plane := c.registry
	c.mu.RUnlock()
	var h http.Handler
	if plane != nil {
		h = plane(Registry{Host: call.Host})
	}
	if h == nil {
		distribution{}.refuse(w, call, distribution{}.faulted(fault.Unavailable).because("no data plane was handed in for this registry"))
		return
	}
	oci.Forward(w, r, h)
}

// scopeOf is the scope that a challenge asks for. Source: distribution, "Token Scope Documentation".
func scopeOf(k oci.Kind) string {
	if k.Reads() {
		return "pull"
	}
	return "push,pull"
}

// registryCaller proves the caller: nobody without credentials, an access token as a password or a bearer token, or a token of the registry itself.
// Source: Artifact Registry, "Configure authentication to Artifact Registry for Docker".
func (c *Cloud) registryCaller(r *http.Request, ep endpoint, host string, now time.Time) (accessToken, *apiError) {
	no := func(err error) (accessToken, *apiError) {
		return accessToken{}, refused(http.StatusUnauthorized, codeUnauthorized, "failed authentication").because(err.Error())
	}
	if r.Header.Get("Authorization") == "" {
		return accessToken{who: principal{universe: ep.universe}}, nil
	}
	raw, ok := wire.Bearer(r)
	if ok {
		if t, err := c.redeem(raw, ep.universe, host, now); err == nil {
			return t, nil
		}
	} else {
		var user string
		if user, raw, ok = r.BasicAuth(); !ok || (user != "oauth2accesstoken" && user != "_dcgcloud_token") {
			return no(errors.New("the local cloud takes a bearer token, or an access token as the password of oauth2accesstoken or _dcgcloud_token"))
		}
	}
	t, err := c.redeem(raw, ep.universe, "", now)
	if err != nil {
		return no(err)
	}
	return t, nil
}

// registryScopes are the scopes of access tokens that suffice. Source: Artifact Registry, "Configure access control: access scopes".
func registryScopes(permission string) []string {
	scopes := []string{scopeCloudPlatform, scopeStorageWrite, scopeStorageFull}
	if permission == permDownload {
		scopes = append(scopes, scopeCloudReadOnly, scopeStorageRead)
	}
	return scopes
}

// authorizeRegistry asks the policies of repository and project, and only then whether the repository exists.
func (c *Cloud) authorizeRegistry(token accessToken, where place, permission string) *apiError {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var repo *repository
	if pr := c.projects[where.project]; pr != nil && pr.universe == token.who.universe {
		repo = pr.repos[repositoryKey{where.location, where.repository}]
	}
	var own policy
	if repo != nil {
		own = repo.policy
	}
	onResource := ` on resource "` + where.resource() + `" (or it may not exist)`
	scoped := token.who.anonymous() || slices.ContainsFunc(registryScopes(permission), func(s string) bool { return slices.Contains(token.scopes, s) })
	switch {
	case !c.allowed(token.who, permission, where.project, own) && token.who.anonymous():
		return refused(http.StatusForbidden, codeRefused,
			`Unauthenticated request. Unauthenticated requests do not have permission "`+permission+`"`+onResource)
	case !scoped:
		return refused(http.StatusForbidden, codeRefused, `Permission "`+permission+`" denied`+onResource).
			because("the access token's scopes do not suffice")
	case !c.allowed(token.who, permission, where.project, own):
		return refused(http.StatusForbidden, codeRefused, `Permission "`+permission+`" denied`+onResource).
			because("no binding on " + where.resource() + " or its project gives " + permission + " to " + token.who.name())
	case repo == nil:
		return refused(http.StatusNotFound, "NAME_UNKNOWN", `Repository "`+where.repository+`" not found`)
	}
	return nil
}

// maxScopes bounds a request for a registry's token.
const maxScopes = 20

// serveRegistryToken exchanges an access token, or nothing, for a registry's own token, if all that is asked for is allowed. The token says who its bearer
// is, not what may be done: that is asked for each request anew.
func (c *Cloud) serveRegistryToken(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	call.Operation = opRegistryToken
	now, ok := c.begin(r.Context(), w, distribution{}, call)
	if !ok {
		return
	}
	token, refusal := c.registryCaller(r, ep, call.Host, now)
	call.Principal = token.who.name()
	scopes := strings.Fields(strings.Join(r.URL.Query()["scope"], " "))
	switch {
	case r.Method != http.MethodGet:
		refusal = refused(http.StatusNotFound, "UNSUPPORTED", "The operation is unsupported.") // clients then use GET
	case refusal == nil && len(scopes) > maxScopes:
		refusal = refused(http.StatusBadRequest, "UNSUPPORTED", "There are too many scopes.")
	}
	for _, scope := range scopes {
		if refusal == nil {
			refusal = c.authorizeScope(token, scope, ep, call)
		}
	}
	if refusal != nil {
		if refusal.status == http.StatusUnauthorized {
			w.Header().Set("Www-Authenticate", `Bearer realm="https://`+call.Host+`/v2/token"`)
		}
		distribution{}.refuse(w, call, refusal)
		return
	}
	token.registry = call.Host
	if token.who.anonymous() {
		token.expires = now.Add(maxTokenLife)
	}
	writeJSON(w, http.StatusOK, "application/json", struct {
		Token     string `json:"token"`
		ExpiresIn int    `json:"expires_in"` // seconds
	}{c.issue(prefixRegistry, token, now), int(token.expires.Sub(now) / time.Second)})
}

// authorizeScope asks for repository:<name>:<actions>. Source: distribution, "Token Scope Documentation".
func (c *Cloud) authorizeScope(token accessToken, scope string, ep endpoint, call *journal.Call) *apiError {
	rest, ok := strings.CutPrefix(scope, "repository:")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return refused(http.StatusBadRequest, "UNSUPPORTED", "The scope is not understood.")
	}
	where, ok := readPlace(rest[:colon], ep)
	if !ok {
		return refused(http.StatusBadRequest, "NAME_INVALID", "The scope names no repository.")
	}
	call.Resource = where.resource()
	for action := range strings.SplitSeq(rest[colon+1:], ",") {
		permission, known := map[string]string{"pull": permDownload, "push": permUpload, "delete": permDelete, "*": permDelete}[action]
		if !known {
			return refused(http.StatusBadRequest, "UNSUPPORTED", "The scope is not understood.")
		}
		if refusal := c.authorizeRegistry(token, where, permission); refusal != nil {
			return refusal
		}
	}
	return nil
}
