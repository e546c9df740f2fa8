package aws

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// bearerOfPublic marks tokens that public.ecr.aws gave for an authorization token; neither serves in the other's place.
const bearerOfPublic = ServicePublicRegistry + " bearer"

// registryRequest is what a request to a registry asks for.
type registryRequest struct {
	repository string
	actions    []string // of ECR, without the service prefix; all are needed
	base       bool     // GET /v2/, which only asks who is there
}

// readRegistryRequest maps a request to ECR's actions. Source: ECR User Guide, "Required permissions for pushing and pulling images". What it does not
// know is not allowed.
func readRegistryRequest(r *http.Request) (registryRequest, bool) {
	req := oci.Read(r)
	if req.Kind == oci.Ping {
		return registryRequest{base: true}, true
	}
	actions := registryActions(req.Kind)
	if len(actions) == 0 || !repositoryPattern.MatchString(req.Repository) {
		return registryRequest{}, false
	}
	return registryRequest{repository: req.Repository, actions: actions}, true
}

func registryActions(k oci.Kind) []string {
	switch k {
	case oci.PullManifest:
		return []string{"BatchGetImage"}
	case oci.PushManifest:
		return []string{"PutImage"}
	case oci.DeleteManifest:
		return []string{"BatchDeleteImage"}
	case oci.CheckBlob:
		return []string{"BatchCheckLayerAvailability"}
	case oci.PullBlob:
		return []string{"GetDownloadUrlForLayer"}
	case oci.StartUpload:
		return []string{"InitiateLayerUpload"}
	case oci.PushBlob:
		return []string{"InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload"}
	case oci.ContinueUpload:
		return []string{"UploadLayerPart"}
	case oci.FinishUpload:
		return []string{"UploadLayerPart", "CompleteLayerUpload"}
	case oci.ListTags:
		return []string{"ListImages"}
	case oci.ListReferrers:
		return []string{"ListImageReferrers"}
	case oci.Unknown, oci.Ping:
	}
	return nil
}

// operation names the request in the journal by its first action.
func (q registryRequest) operation(service string) string {
	if q.base {
		return "Ping"
	}
	if len(q.actions) == 0 {
		return ""
	}
	return service + ":" + q.actions[0]
}

func (c *Cloud) serveRegistry(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	req, understood := readRegistryRequest(r)
	if understood {
		call.Operation = req.operation("ecr")
	}
	if req.repository != "" {
		call.Resource = "arn:" + ep.partition + ":ecr:" + ep.region + ":" + ep.account + ":repository/" + req.repository
	}
	now, ok := c.begin(r.Context(), w, distribution{}, call)
	if !ok {
		return
	}
	who, refusal := c.registryCaller(w, r, ep, now)
	if refusal == nil {
		call.Principal = who.arn()
	}
	switch {
	case refusal != nil && refusal.status == http.StatusUnauthorized:
		refusal.note(call)
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(refusal.status)
		_, _ = w.Write([]byte(refusal.message + "\n"))
		return
	case refusal == nil && !understood:
		refusal = refused(http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported.")
	case refusal == nil && !req.base:
		refusal = c.authorizeRegistry(who, req, ep, call.Resource, now)
	}
	if refusal != nil {
		distribution{}.refuse(w, call, refusal)
		return
	}
	if req.base {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		writeJSON(w, http.StatusOK, "application/json; charset=utf-8", struct{}{})
		return
	}
	c.mu.RLock()
	plane := c.registry
	c.mu.RUnlock()
	var h http.Handler
	if plane != nil {
		h = plane(Registry{Account: ep.account, Region: ep.region})
	}
	forward(w, r, h, call)
}

// registryCaller proves the caller of a private registry by its authorization token.
func (c *Cloud) registryCaller(w http.ResponseWriter, r *http.Request, ep endpoint, now time.Time) (principal, *apiError) {
	password, ok := basicToken(r)
	if !ok {
		w.Header().Set("Www-Authenticate", `Basic realm="https://`+r.Host+`/",service="ecr.amazonaws.com"`)
		return principal{}, refused(http.StatusUnauthorized, "UNAUTHORIZED", "Not Authorized").because(errNoCredentials.Error())
	}
	t, err := c.redeem(password, ServiceRegistry, ep.region, now)
	switch {
	case errors.Is(err, errExpiredToken):
		return principal{}, refused(http.StatusForbidden, "DENIED", "Your authorization token has expired. Reauthenticate and try again.").because(err.Error())
	case err != nil:
		return principal{}, refused(http.StatusBadRequest, "DENIED", "Your Authorization Token is invalid.").because(err.Error())
	}
	return t.who, nil
}

// authorizeRegistry asks for each action, first of the caller's policies and the repository's and only then whether the repository exists.
func (c *Cloud) authorizeRegistry(who principal, req registryRequest, ep endpoint, arn string, now time.Time) *apiError {
	c.mu.RLock()
	var repo *repository
	if a := c.accounts[ep.account]; a != nil {
		repo = a.repos[repositoryKey{ep.region, req.repository}]
	}
	c.mu.RUnlock()
	var resourcePolicy policy.Document
	if repo != nil {
		resourcePolicy = repo.policy
	}
	for _, name := range req.actions {
		action := "ecr:" + name
		if v := c.authorize(who, action, arn, ep.account, resourcePolicy, false, requestContext(ep, now)); !v.allowed {
			return refused(http.StatusForbidden, "DENIED", notAuthorized(who, action, arn, v)).because(v.reason)
		}
	}
	if repo == nil {
		return refused(http.StatusNotFound, "NAME_UNKNOWN",
			"The repository with name '"+req.repository+"' does not exist in the registry with id '"+ep.account+"'")
	}
	return nil
}

// forward passes an authorized request to a data plane. ECR declines mounts too, unless it was configured otherwise.
func forward(w http.ResponseWriter, r *http.Request, h http.Handler, call *journal.Call) {
	if h == nil {
		distribution{}.refuse(w, call, distribution{}.faulted(fault.Unavailable).because("no data plane was handed in for this registry"))
		return
	}
	oci.Forward(w, r, h)
}

// servePublicRegistry serves public.ecr.aws: everybody may read with a bearer token, an anonymous one included; pushing needs permission.
// Source: ECR Public User Guide, "Registry authentication".
func (c *Cloud) servePublicRegistry(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	if r.URL.Path == "/token" || r.URL.Path == "/token/" {
		call.Operation = "GetBearerToken"
		now, ok := c.begin(r.Context(), w, distribution{}, call)
		if ok {
			c.serveBearerToken(w, r, ep, call, now)
		}
		return
	}
	req, understood := readRegistryRequest(r)
	if understood {
		call.Operation = req.operation("ecr-public")
	}
	now, ok := c.begin(r.Context(), w, distribution{}, call)
	if !ok {
		return
	}
	bearer, ok := wire.Bearer(r)
	if !ok && r.Header.Get("Authorization") == "" {
		w.Header().Set("Www-Authenticate", `Bearer realm="https://`+r.Host+`/token/",service="`+r.Host+`",scope="aws"`)
		distribution{}.refuse(w, call, refused(http.StatusUnauthorized, "UNAUTHORIZED", "Not Authorized").because(errNoCredentials.Error()))
		return
	}
	t, err := c.redeem(bearer, bearerOfPublic, ep.region, now)
	if !ok || err != nil {
		distribution{}.refuse(w, call, refused(http.StatusBadRequest, "DENIED", "Your Authorization Token is invalid."))
		return
	}
	if t.who.account != "" {
		call.Principal = t.who.arn()
	}
	switch {
	case !understood:
		distribution{}.refuse(w, call, refused(http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported."))
		return
	case req.base:
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		writeJSON(w, http.StatusOK, "application/json; charset=utf-8", struct{}{})
		return
	}
	if refusal := c.authorizePublic(t.who, r, req, ep, call, now); refusal != nil {
		distribution{}.refuse(w, call, refusal)
		return
	}
	c.mu.RLock()
	h := c.public
	c.mu.RUnlock()
	forward(w, r, h, call)
}

// serveBearerToken exchanges an authorization token for a bearer token, or gives an anonymous one.
func (c *Cloud) serveBearerToken(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call, now time.Time) {
	var who principal
	if r.Header.Get("Authorization") != "" {
		password, ok := basicToken(r)
		t, err := c.redeem(password, ServicePublicRegistry, ep.region, now)
		if !ok || err != nil {
			distribution{}.refuse(w, call, refused(http.StatusBadRequest, "DENIED", "Your Authorization Token is invalid."))
			return
		}
		who = t.who
		call.Principal = who.arn()
	}
	password, _ := c.issuePassword(registryToken{who: who, service: bearerOfPublic, region: ep.region}, now)
	writeJSON(w, http.StatusOK, "application/json; charset=utf-8", map[string]string{"token": password})
}

func (c *Cloud) authorizePublic(who principal, r *http.Request, req registryRequest, ep endpoint, call *journal.Call, now time.Time) *apiError {
	alias, name, _ := strings.Cut(req.repository, "/")
	c.mu.RLock()
	owner := c.aliases[alias]
	exists := false
	if a := c.accounts[owner]; a != nil {
		exists = a.public[name]
	}
	c.mu.RUnlock()
	call.Resource = "arn:aws:ecr-public::" + owner + ":repository/" + name
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		for _, n := range req.actions {
			action := "ecr-public:" + n
			if who.account == "" {
				return refused(http.StatusForbidden, "DENIED", "Not Authorized").because("the token is anonymous")
			}
			// No policy of the repository lets other accounts push: an owner other than the caller's account is refused.
			if v := c.authorize(who, action, call.Resource, owner, policy.Document{}, false, requestContext(ep, now)); !v.allowed {
				return refused(http.StatusForbidden, "DENIED", notAuthorized(who, action, call.Resource, v)).because(v.reason)
			}
		}
	}
	if !exists {
		return refused(http.StatusNotFound, "NAME_UNKNOWN",
			"The repository with name '"+name+"' does not exist in the registry with id '"+owner+"'")
	}
	return nil
}
