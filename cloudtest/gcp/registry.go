package gcp

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Registry identifies one registry host.
type Registry struct {
	// Host is the host name, such as "europe-west1-docker.pkg.dev" or "gcr.io".
	Host string
}

// ServeRegistry sets the data plane of Artifact Registry. The given function returns the OCI
// distribution handler of a host. The handler gets only allowed requests. The requests have the
// client's host and path (/v2/<project>/<repository>/<image>/…), but no Authorization header.
func (c *Cloud) ServeRegistry(registry func(Registry) http.Handler) { c.registry.Set(registry) }

const opRegistryToken = "GetToken"

const (
	codeUnauthorized = "UNAUTHORIZED"
	codeRefused      = "DENIED"
)

// distribution returns the error format of registries. An answer with status 401 has a challenge
// that names the registry's token service.
func distribution() service.Protocol {
	p := oci.Protocol(oci.Words{Failure: saysInternal, Unavailable: saysUnavailable, Throttled: saysExhausted}, writeDistribution)
	refuse := p.Refuse
	p.Refuse = func(r *service.Request, e *service.Refusal) service.Answer {
		if e.Status == http.StatusUnauthorized {
			challenge := `Bearer realm="https://` + r.Call.Host + `/v2/token"`
			if scope, ok := e.Detail.(wantedScope); ok {
				challenge += `,service="` + r.Call.Host + `",scope="` + string(scope) + `"`
				e.Detail = nil
			}
			r.Reply.Set("Www-Authenticate", challenge)
		}
		return refuse(r, e)
	}
	return p
}

// wantedScope is the scope of the token that a refused client should request. It is stored in
// [service.Refusal.Detail] and sent in the challenge.
type wantedScope string

func writeDistribution(_ *service.Request, status int, body any) service.Answer {
	return writeJSON("application/json", status, body)
}

// place identifies the repository of Artifact Registry whose policy is checked.
type place struct{ project, location, repository string }

// resource returns the repository's full name. A colon in the project's ID stays a colon.
func (p place) resource() string {
	return "projects/" + p.project + "/locations/" + p.location + "/repositories/" + p.repository
}

// readPlace reads the repository from the name of an image. The name begins with
// <project>/<repository>, or with <project> under gcr.io's hosts. The IDs of domain-scoped
// projects, and of all projects outside the public universe, contain a colon. In the name of an
// image, a slash replaces this colon. Source: Artifact Registry, "Repository and image names".
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

// permissionFor returns the permission that Artifact Registry requires for a kind of request.
// Source: Artifact Registry, "Roles and permissions".
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

// readRegistry implements [service.Service] for Artifact Registry's Docker hosts.
func (c *Cloud) readRegistry(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	if r.URL.Path == "/v2/token" {
		r.Call.Operation = opRegistryToken
		return distribution(), func(r *service.Request) (service.Answer, *service.Refusal) { return c.registryToken(r, ep) }
	}
	req := oci.Read(r.Request)
	where, known := readPlace(req.Repository, ep)
	switch {
	case req.Kind == oci.Ping:
		r.Call.Operation = "Ping"
	case req.Kind != oci.Unknown && known:
		r.Call.Operation, r.Call.Resource = permissionFor(req.Kind), where.resource()
	}
	return distribution(), func(r *service.Request) (service.Answer, *service.Refusal) {
		token, refusal := c.registryCaller(r, ep)
		if refusal != nil {
			return nil, refusal
		}
		stranger := token.who.anonymous() && token.registry == ""
		switch {
		case req.Kind == oci.Ping && stranger:
			return nil, service.Refuse(http.StatusUnauthorized, codeUnauthorized, "Unauthorized access.").Because(errNoCredentials.Error())
		case req.Kind == oci.Ping:
			r.Reply.Set(oci.VersionHeader, oci.Version)
			return writeDistribution(r, http.StatusOK, struct{}{}), nil
		case r.Call.Operation == "":
			return nil, service.Refuse(http.StatusNotFound, "NAME_INVALID", "The request is not understood.").
				Because("the local cloud has no such operation or name")
		}
		refusal = c.authorizeRegistry(token, where, permissionFor(req.Kind))
		if refusal != nil && refusal.Status == http.StatusForbidden && stranger {
			refusal.Status, refusal.Code = http.StatusUnauthorized, codeUnauthorized
			refusal.Detail = wantedScope("repository:" + req.Repository + ":" + scopeOf(req.Kind))
		}
		if refusal != nil {
			return nil, refusal
		}
		return r.Forward(c.registry.Get(Registry{Host: r.Call.Host}), oci.Forwarded(r.Request), nil)
	}
}

// scopeOf returns the actions for the scope in a challenge. They depend on the kind of the refused
// request. Source: distribution, "Token Scope Documentation".
func scopeOf(k oci.Kind) string {
	if k.Reads() {
		return "pull"
	}
	return "push,pull"
}

// registryCaller authenticates the caller. Without credentials, the caller is anonymous. A bearer
// token must be the registry's own token or an access token. A password must be an access token.
// Source: Artifact Registry, "Configure authentication to Artifact Registry for Docker".
func (c *Cloud) registryCaller(r *service.Request, ep endpoint) (accessToken, *service.Refusal) {
	no := func(err error) (accessToken, *service.Refusal) {
		return accessToken{}, service.Refuse(http.StatusUnauthorized, codeUnauthorized, "failed authentication").Because(err.Error())
	}
	if r.Header.Get("Authorization") == "" {
		return accessToken{who: principal{universe: ep.universe}}, nil
	}
	raw, ok := wire.Bearer(r.Request)
	if ok {
		if t, err := c.redeem(raw, ep.universe, r.Call.Host, r.Now); err == nil {
			r.Call.Principal = t.who.name()
			return t, nil
		}
	} else {
		var user string
		if user, raw, ok = r.BasicAuth(); !ok || (user != "oauth2accesstoken" && user != "_dcgcloud_token") {
			return no(errors.New(
				"the local cloud takes a bearer token, or an access token as the password of oauth2accesstoken or _dcgcloud_token"))
		}
	}
	t, err := c.redeem(raw, ep.universe, "", r.Now)
	if err != nil {
		return no(err)
	}
	r.Call.Principal = t.who.name()
	return t, nil
}

// registryScopes returns the scopes that give a permission. An access token needs one of them.
// Source: Artifact Registry, "Configure access control: access scopes".
func registryScopes(permission string) []string {
	scopes := []string{scopeCloudPlatform, scopeStorageWrite, scopeStorageFull}
	if permission == permDownload {
		scopes = append(scopes, scopeCloudReadOnly, scopeStorageRead)
	}
	return scopes
}

// authorizeRegistry checks the policies of repository and project, and only then whether the
// repository exists.
func (c *Cloud) authorizeRegistry(token accessToken, where place, permission string) *service.Refusal {
	c.mu.RLock()
	defer c.mu.RUnlock()
	repo, own := c.repositoryIn(where.project, token.who.universe, repositoryKey{where.location, where.repository})
	onResource := ` on resource "` + where.resource() + `" (or it may not exist)`
	scoped := token.who.anonymous() ||
		slices.ContainsFunc(registryScopes(permission), func(s string) bool { return slices.Contains(token.scopes, s) })
	allowed := c.allowed(token.who, permission, where.project, own)
	switch {
	case !allowed && token.who.anonymous():
		return service.Refuse(http.StatusForbidden, codeRefused,
			`Unauthenticated request. Unauthenticated requests do not have permission "`+permission+`"`+onResource)
	case !scoped:
		return service.Refuse(http.StatusForbidden, codeRefused, `Permission "`+permission+`" denied`+onResource).
			Because("the access token's scopes do not suffice")
	case !allowed:
		return service.Refuse(http.StatusForbidden, codeRefused, `Permission "`+permission+`" denied`+onResource).
			Because("no binding on " + where.resource() + " or its project gives " + permission + " to " + token.who.name())
	case repo == nil:
		return service.Refuse(http.StatusNotFound, "NAME_UNKNOWN", `Repository "`+where.repository+`" not found`)
	}
	return nil
}

// maxScopes is the maximum number of scopes in a request for a registry's token.
const maxScopes = 20

// registryToken exchanges an access token for the registry's own token. Anonymous callers also get
// a token of the registry. The caller must have the permissions for all requested scopes. But the
// new token only identifies its bearer, so the permissions are checked again at each request.
func (c *Cloud) registryToken(r *service.Request, ep endpoint) (service.Answer, *service.Refusal) {
	token, refusal := c.registryCaller(r, ep)
	scopes := strings.Fields(strings.Join(r.URL.Query()["scope"], " "))
	switch {
	case r.Method != http.MethodGet:
		// After a 404 for POST, clients retry with GET.
		return nil, service.Refuse(http.StatusNotFound, "UNSUPPORTED", "The operation is unsupported.")
	case refusal != nil:
		return nil, refusal
	case len(scopes) > maxScopes:
		return nil, service.Refuse(http.StatusBadRequest, "UNSUPPORTED", "There are too many scopes.")
	}
	for _, scope := range scopes {
		if refusal := c.authorizeScope(r, ep, token, scope); refusal != nil {
			return nil, refusal
		}
	}
	token.registry = r.Call.Host
	if token.who.anonymous() {
		token.expires = r.Now.Add(maxTokenLife)
	}
	return writeDistribution(r, http.StatusOK, struct {
		Token     string `json:"token"`
		ExpiresIn int    `json:"expires_in"` // seconds
	}{c.issue(prefixRegistry, token, r.Now), int(token.expires.Sub(r.Now) / time.Second)}), nil
}

// authorizeScope parses a scope of the form repository:<name>:<actions>. It refuses the scope
// unless the caller has the permission for every action in the scope. Source: distribution, "Token
// Scope Documentation".
func (c *Cloud) authorizeScope(r *service.Request, ep endpoint, token accessToken, scope string) *service.Refusal {
	rest, ok := strings.CutPrefix(scope, "repository:")
	colon := strings.LastIndexByte(rest, ':')
	if !ok || colon < 0 {
		return service.Refuse(http.StatusBadRequest, "UNSUPPORTED", "The scope is not understood.")
	}
	where, ok := readPlace(rest[:colon], ep)
	if !ok {
		return service.Refuse(http.StatusBadRequest, "NAME_INVALID", "The scope names no repository.")
	}
	r.Call.Resource = where.resource()
	for action := range strings.SplitSeq(rest[colon+1:], ",") {
		permission, known := map[string]string{"pull": permDownload, "push": permUpload, "delete": permDelete, "*": permDelete}[action]
		if !known {
			return service.Refuse(http.StatusBadRequest, "UNSUPPORTED", "The scope is not understood.")
		}
		if refusal := c.authorizeRegistry(token, where, permission); refusal != nil {
			return refusal
		}
	}
	return nil
}
