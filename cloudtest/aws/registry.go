package aws

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// bearerOfPublic marks tokens that public.ecr.aws gave for an authorization token; neither serves in the other's place.
const bearerOfPublic = ServicePublicRegistry + " bearer"

// registryRequest is what a path of the OCI Distribution API asks for.
type registryRequest struct {
	repository string
	actions    []string // of ECR, without the service prefix; all are needed
	base       bool     // GET /v2/, which only asks who is there
}

// readRegistryRequest maps a request to ECR's actions. Sources: OCI Distribution Specification v1.1, "Endpoints"; ECR User Guide, "Required permissions
// for pushing and pulling images". What it does not know is not allowed.
func readRegistryRequest(r *http.Request) (registryRequest, bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.URL.Path == "/v2" || rest == "" {
		return registryRequest{base: true}, read && (ok || r.URL.Path == "/v2")
	}
	// Two readings of one path would be two repositories: the handler that is handed in must see the path that was judged.
	if !ok || r.URL.EscapedPath() != r.URL.Path || strings.Contains(rest, "//") {
		return registryRequest{}, false
	}
	allow := func(repository string, actions ...string) (registryRequest, bool) {
		return registryRequest{repository: repository, actions: actions}, len(actions) > 0 && repositoryPattern().MatchString(repository)
	}
	if name, ok := strings.CutSuffix(rest, "/tags/list"); ok {
		if read {
			return allow(name, "ListImages")
		}
		return registryRequest{}, false
	}
	if name, upload, ok := cutLast(rest, "/blobs/uploads/"); ok || strings.HasSuffix(rest, "/blobs/uploads") {
		if !ok {
			name = strings.TrimSuffix(rest, "/blobs/uploads")
		}
		return allow(name, uploadActions(r, upload)...)
	}
	name, what, reference, ok := cutReference(rest)
	switch {
	case !ok:
		return registryRequest{}, false
	case what == "manifests" && read:
		return allow(name, "BatchGetImage")
	case what == "manifests" && r.Method == http.MethodPut:
		return allow(name, "PutImage")
	case what == "manifests" && r.Method == http.MethodDelete:
		return allow(name, "BatchDeleteImage")
	case what == "blobs" && r.Method == http.MethodHead && strings.Contains(reference, ":"):
		return allow(name, "BatchCheckLayerAvailability")
	case what == "blobs" && r.Method == http.MethodGet && strings.Contains(reference, ":"):
		return allow(name, "GetDownloadUrlForLayer")
	case what == "referrers" && read:
		return allow(name, "ListImageReferrers")
	}
	return registryRequest{}, false
}

func uploadActions(r *http.Request, upload string) []string {
	switch {
	case upload == "" && r.Method == http.MethodPost && r.URL.Query().Has("digest"):
		return []string{"InitiateLayerUpload", "UploadLayerPart", "CompleteLayerUpload"}
	case upload == "" && r.Method == http.MethodPost:
		return []string{"InitiateLayerUpload"}
	case upload == "":
		return nil
	case r.Method == http.MethodPatch, r.Method == http.MethodGet, r.Method == http.MethodDelete:
		return []string{"UploadLayerPart"}
	case r.Method == http.MethodPut:
		return []string{"UploadLayerPart", "CompleteLayerUpload"}
	}
	return nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], !strings.Contains(s[i+len(sep):], "/")
}

// cutReference splits <name>/<manifests|blobs|referrers>/<reference>.
func cutReference(rest string) (name, what, reference string, ok bool) {
	slash := strings.LastIndexByte(rest, '/')
	if slash < 0 || slash == len(rest)-1 {
		return "", "", "", false
	}
	reference, rest = rest[slash+1:], rest[:slash]
	slash = strings.LastIndexByte(rest, '/')
	if slash < 0 {
		return "", "", "", false
	}
	return rest[:slash], rest[slash+1:], reference, true
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

// forward passes an authorized request to a data plane.
func forward(w http.ResponseWriter, r *http.Request, h http.Handler, call *journal.Call) {
	if h == nil {
		distribution{}.refuse(w, call, refused(http.StatusServiceUnavailable, "UNAVAILABLE", "no data plane was handed in for this registry"))
		return
	}
	out := r.Clone(r.Context())
	out.Header.Del("Authorization") // a data plane has no business with it
	for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-For"} {
		out.Header.Del(name)
	}
	out.Header.Set("X-Forwarded-Proto", "https") // so that upload locations are https
	// A mount would read another repository than was judged. Registries may decline one, and ECR does unless it was configured: the client uploads.
	if q := out.URL.Query(); q.Has("mount") || q.Has("from") {
		q.Del("mount")
		q.Del("from")
		out.URL.RawQuery = q.Encode()
		out.RequestURI = out.URL.RequestURI()
	}
	h.ServeHTTP(w, out)
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
	bearer, ok := bearerToken(r)
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
