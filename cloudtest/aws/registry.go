package aws

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

// bearerOfPublic marks the bearer tokens that public.ecr.aws issues at /token. The operation
// GetAuthorizationToken issues authorization tokens. Neither kind of token is valid in place of the
// other.
const bearerOfPublic = ServicePublicRegistry + " bearer"

// registryRequest is a parsed request to a registry.
type registryRequest struct {
	repository string
	actions    []string // ECR's actions without "ecr:"; all must be allowed
	base       bool     // GET /v2/, which only checks the credentials
}

// readRegistryRequest maps a request to ECR's actions. It returns false for an unknown request.
// Source: ECR User Guide, "Required permissions for pushing and pulling images".
func readRegistryRequest(r *http.Request) (registryRequest, bool) {
	req := oci.Read(r)
	if req.Kind == oci.Ping {
		return registryRequest{base: true}, true
	}
	actions := registryActions()[req.Kind]
	if len(actions) == 0 || !repositoryPattern.MatchString(req.Repository) {
		return registryRequest{}, false
	}
	return registryRequest{repository: req.Repository, actions: actions}, true
}

// registryActions returns the actions that each kind of request needs.
func registryActions() map[oci.Kind][]string {
	return map[oci.Kind][]string{
		oci.PullManifest:   {"BatchGetImage"},
		oci.PushManifest:   {"PutImage"},
		oci.DeleteManifest: {"BatchDeleteImage"},
		oci.CheckBlob:      {"BatchCheckLayerAvailability"},
		oci.PullBlob:       {"GetDownloadUrlForLayer"},
		oci.StartUpload:    {"InitiateLayerUpload"},
		oci.PushBlob:       {"InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload"},
		oci.ContinueUpload: {"UploadLayerPart"},
		oci.FinishUpload:   {"UploadLayerPart", "CompleteLayerUpload"},
		oci.ListTags:       {"ListImages"},
		oci.ListReferrers:  {"ListImageReferrers"},
	}
}

// operation returns the operation's name for the journal. It is the request's first action, or
// "Ping".
func (q registryRequest) operation(service string) string {
	if q.base {
		return "Ping"
	}
	return service + ":" + q.actions[0]
}

// privateRegistry is the protocol of ECR's private registries. It answers 401 in plain text.
func privateRegistry() service.Protocol {
	p := distribution()
	refuse := p.Refuse
	p.Refuse = func(r *service.Request, e *service.Refusal) service.Answer {
		if e.Status != http.StatusUnauthorized {
			return refuse(r, e)
		}
		r.Reply.Set(oci.VersionHeader, oci.Version)
		return service.Whole(e.Status, "text/plain; charset=utf-8", []byte(e.Message+"\n"))
	}
	return p
}

// pong answers GET /v2/.
func pong(r *service.Request) (service.Answer, *service.Refusal) {
	r.Reply.Set(oci.VersionHeader, oci.Version)
	return writeDistribution(r, http.StatusOK, struct{}{}), nil
}

func unsupported() *service.Refusal {
	return service.Refuse(http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported.")
}

// readRegistry reads a request to an account's private registry, as a [service.Service] does.
func (c *Cloud) readRegistry(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	req, understood := readRegistryRequest(r.Request)
	if understood {
		r.Call.Operation = req.operation("ecr")
	}
	if req.repository != "" {
		r.Call.Resource = repositoryARN(ep, ep.account, req.repository)
	}
	return privateRegistry(), func(r *service.Request) (service.Answer, *service.Refusal) {
		who, refusal := c.registryCaller(r, ep)
		if refusal != nil {
			return nil, refusal
		}
		r.Call.Principal = who.arn()
		switch {
		case !understood:
			return nil, unsupported()
		case req.base:
			return pong(r)
		}
		if refusal := c.authorizeRegistry(who, req, ep, r.Call.Resource, r.Now); refusal != nil {
			return nil, refusal
		}
		at := Registry{Account: ep.account, Region: ep.region}
		// The forwarded request has no mount parameters, so the data plane starts an upload instead
		// of a mount. ECR declines mounts in the same way.
		answer, refusal := r.Forward(c.registry.Get(at), oci.Forwarded(r.Request), nil)
		if refusal == nil && slices.Contains(req.actions, "PutImage") {
			answer = c.recordPush(answer, pushKey{at, req.repository}, r.Now)
		}
		return answer, refusal
	}
}

// registryCaller authenticates the caller of a private registry by the authorization token.
func (c *Cloud) registryCaller(r *service.Request, ep endpoint) (principal, *service.Refusal) {
	password, ok := basicToken(r.Request)
	if !ok {
		r.Reply.Set("Www-Authenticate", `Basic realm="https://`+r.Host+`/",service="ecr.amazonaws.com"`)
		return principal{}, service.Refuse(http.StatusUnauthorized, "UNAUTHORIZED", "Not Authorized").Because(errNoCredentials.Error())
	}
	t, err := c.redeem(password, ServiceRegistry, ep.region, r.Now)
	switch {
	case errors.Is(err, errExpiredToken):
		return principal{}, service.Refuse(http.StatusForbidden, "DENIED",
			"Your authorization token has expired. Reauthenticate and try again.").Because(err.Error())
	case err != nil:
		return principal{}, badAuthorizationToken().Because(err.Error())
	}
	return t.who, nil
}

func badAuthorizationToken() *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "DENIED", "Your Authorization Token is invalid.")
}

// authorizeRegistry checks that the caller's policies and the repository's policy allow each
// action. After that, it checks that the repository exists.
func (c *Cloud) authorizeRegistry(who principal, req registryRequest, ep endpoint, arn string, now time.Time) *service.Refusal {
	repo, resourcePolicy := c.repositoryIn(ep.account, ep.region, req.repository)
	for _, name := range req.actions {
		if refusal := c.permit(who, ask{
			action: "ecr:" + name, resource: arn, owner: ep.account, policy: resourcePolicy, context: requestContext(ep, now),
		}, "DENIED"); refusal != nil {
			return refusal
		}
	}
	if repo == nil {
		return service.Refuse(http.StatusNotFound, "NAME_UNKNOWN",
			"The repository with name '"+req.repository+"' does not exist in the registry with id '"+ep.account+"'")
	}
	return nil
}

// readPublicRegistry reads a request to public.ecr.aws, as a [service.Service] does. Pulling needs
// a bearer token, which may be anonymous. Pushing needs the token of a caller who has permission.
// Source: ECR Public User Guide, "Registry authentication".
func (c *Cloud) readPublicRegistry(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	if r.URL.Path == "/token" || r.URL.Path == "/token/" {
		r.Call.Operation = "GetBearerToken"
		return distribution(), func(r *service.Request) (service.Answer, *service.Refusal) { return c.bearerToken(r, ep) }
	}
	req, understood := readRegistryRequest(r.Request)
	if understood {
		r.Call.Operation = req.operation("ecr-public")
	}
	return distribution(), func(r *service.Request) (service.Answer, *service.Refusal) {
		who, refusal := c.publicCaller(r, ep)
		if refusal != nil {
			return nil, refusal
		}
		switch {
		case !understood:
			return nil, unsupported()
		case req.base:
			return pong(r)
		}
		if refusal := c.authorizePublic(who, r, req, ep); refusal != nil {
			return nil, refusal
		}
		return r.Forward(c.public.Get(struct{}{}), oci.Forwarded(r.Request), nil)
	}
}

// publicCaller authenticates the caller of public.ecr.aws by the bearer token. For an anonymous
// token it returns the zero principal.
func (c *Cloud) publicCaller(r *service.Request, ep endpoint) (principal, *service.Refusal) {
	bearer, ok := wire.Bearer(r.Request)
	if !ok && r.Header.Get("Authorization") == "" {
		r.Reply.Set("Www-Authenticate", `Bearer realm="https://`+r.Host+`/token/",service="`+r.Host+`",scope="aws"`)
		return principal{}, service.Refuse(http.StatusUnauthorized, "UNAUTHORIZED", "Not Authorized").Because(errNoCredentials.Error())
	}
	t, err := c.redeem(bearer, bearerOfPublic, ep.region, r.Now)
	if !ok || err != nil {
		return principal{}, badAuthorizationToken()
	}
	if t.who.account != "" {
		r.Call.Principal = t.who.arn()
	}
	return t.who, nil
}

// bearerToken exchanges an authorization token for a bearer token. Without an authorization token,
// it issues an anonymous bearer token.
func (c *Cloud) bearerToken(r *service.Request, ep endpoint) (service.Answer, *service.Refusal) {
	var who principal
	if r.Header.Get("Authorization") != "" {
		password, ok := basicToken(r.Request)
		t, err := c.redeem(password, ServicePublicRegistry, ep.region, r.Now)
		if !ok || err != nil {
			return nil, badAuthorizationToken()
		}
		who = t.who
		r.Call.Principal = who.arn()
	}
	password, _ := c.issuePassword(registryToken{who: who, service: bearerOfPublic, region: ep.region}, r.Now)
	return writeDistribution(r, http.StatusOK, map[string]string{"token": password}), nil
}

func (c *Cloud) authorizePublic(who principal, r *service.Request, req registryRequest, ep endpoint) *service.Refusal {
	alias, name, _ := strings.Cut(req.repository, "/")
	c.mu.RLock()
	owner := c.aliases[alias]
	exists := c.account(owner).public[name]
	c.mu.RUnlock()
	r.Call.Resource = "arn:aws:ecr-public::" + owner + ":repository/" + name
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		for _, n := range req.actions {
			if who.account == "" {
				return service.Refuse(http.StatusForbidden, "DENIED", "Not Authorized").Because("the token is anonymous")
			}
			// In the local cloud, a public repository has no policy. So permit refuses callers from
			// any account other than the owner's.
			if refusal := c.permit(who, ask{
				action: "ecr-public:" + n, resource: r.Call.Resource, owner: owner, context: requestContext(ep, r.Now),
			}, "DENIED"); refusal != nil {
				return refusal
			}
		}
	}
	if !exists {
		return service.Refuse(http.StatusNotFound, "NAME_UNKNOWN",
			"The repository with name '"+name+"' does not exist in the registry with id '"+owner+"'")
	}
	return nil
}
