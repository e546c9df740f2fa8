package aws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// tokenLife is how long an ECR authorization token lives, whatever is left of the session that asked for it. Source: ECR API Reference,
// GetAuthorizationToken.
const tokenLife = 12 * time.Hour

const opGetAuthorizationToken = "GetAuthorizationToken"

// Target prefixes of the two APIs in X-Amz-Target.
const (
	targetECR       = "AmazonEC2ContainerRegistry_V20150921."
	targetECRPublic = "SpencerFrontendService."
)

func (c *Cloud) serveECR(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	body, refusal := readBody(w, r)
	prefix := targetECR
	if ep.service == ServiceECRPublic {
		prefix = targetECRPublic
	}
	target := r.Header.Get("X-Amz-Target")
	switch {
	case refusal != nil:
	case r.Method != http.MethodPost || r.URL.Path != "/":
		refusal = refused(http.StatusNotFound, "UnknownOperationException", "")
	case target == prefix+opGetAuthorizationToken:
		call.Operation = opGetAuthorizationToken
	default:
		refusal = refused(http.StatusBadRequest, "UnknownOperationException", "").because("the local cloud has GetAuthorizationToken only")
	}
	now, ok := c.begin(r.Context(), w, json11{}, call)
	if !ok {
		return
	}
	var answer any
	if refusal == nil {
		answer, refusal = c.getAuthorizationToken(r, body, ep, call, now)
	}
	if refusal != nil {
		json11{}.refuse(w, call, refusal)
		return
	}
	writeJSON(w, http.StatusOK, "application/x-amz-json-1.1", answer)
}

type authorizationData struct {
	AuthorizationToken string  `json:"authorizationToken"`
	ExpiresAt          float64 `json:"expiresAt"` // seconds since 1970
	ProxyEndpoint      string  `json:"proxyEndpoint,omitempty"`
}

func (c *Cloud) getAuthorizationToken(r *http.Request, body []byte, ep endpoint, call *journal.Call, now time.Time) (any, *apiError) {
	who, refusal := c.authenticate(r, body, ep, now)
	if refusal != nil {
		return nil, refusal
	}
	call.Principal = who.arn()
	var input struct {
		RegistryIDs []string `json:"registryIds"`
	}
	if err := json.Unmarshal(body, &input); err != nil {
		return nil, refused(http.StatusBadRequest, "SerializationException", "The request is not JSON")
	}
	actions := []string{"ecr:GetAuthorizationToken"}
	if ep.service == ServiceECRPublic {
		actions = []string{"ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"}
	}
	for _, action := range actions {
		if v := c.authorize(who, action, "*", who.account, policy.Document{}, false, requestContext(ep, now)); !v.allowed {
			return nil, refused(http.StatusBadRequest, "AccessDeniedException",
				notAuthorized(who, action, "*", v)).because(v.reason)
		}
	}
	if ep.service == ServiceECRPublic {
		token, expires := c.issue(registryToken{who: who, service: ServicePublicRegistry, region: ep.region}, now)
		return map[string]authorizationData{"authorizationData": {AuthorizationToken: token, ExpiresAt: float64(expires.Unix())}}, nil
	}
	if len(input.RegistryIDs) == 0 {
		input.RegistryIDs = []string{who.account}
	}
	part, _ := partitionByID(ep.partition)
	var out []authorizationData
	for _, id := range input.RegistryIDs {
		if !policy.IsAccountID(id) || len(input.RegistryIDs) > 10 {
			return nil, refused(http.StatusBadRequest, "InvalidParameterException",
				"Invalid parameter at 'registryIds' failed to satisfy constraint: 'up to 10 account IDs of twelve digits'")
		}
		token, expires := c.issue(registryToken{who: who, service: ServiceRegistry, region: ep.region}, now)
		out = append(out, authorizationData{
			AuthorizationToken: token, ExpiresAt: float64(expires.Unix()),
			ProxyEndpoint: "https://" + id + ".dkr.ecr." + ep.region + "." + part.suffix,
		})
	}
	return map[string][]authorizationData{"authorizationData": out}, nil
}

// notAuthorized is AWS's message; the resource is empty for an action that has none.
func notAuthorized(who principal, action, resource string, v verdict) string {
	if resource != "" {
		action += " on resource: " + resource
	}
	return "User: " + who.arn() + " is not authorized to perform: " + action + " " + v.why
}

// issue makes an authorization token: base64("AWS:<password>").
func (c *Cloud) issue(t registryToken, now time.Time) (string, time.Time) {
	password, expires := c.issuePassword(t, now)
	return base64.StdEncoding.EncodeToString([]byte("AWS:" + password)), expires
}

// issuePassword makes and remembers a password that looks as ECR's do.
func (c *Cloud) issuePassword(t registryToken, now time.Time) (string, time.Time) {
	t.expires = now.Add(tokenLife)
	inner, err := json.Marshal(map[string]any{
		"payload": base64.StdEncoding.EncodeToString(wire.Random(600)), "datakey": base64.StdEncoding.EncodeToString(wire.Random(180)),
		"version": "2", "type": "DATA_KEY", "expiration": t.expires.Unix(),
	})
	if err != nil {
		panic("aws: a token cannot fail to marshal: " + err.Error())
	}
	password := base64.StdEncoding.EncodeToString(inner)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens.put(sha256.Sum256([]byte(password)), t, t.expires, now)
	return password, t.expires
}

// errNoCredentials and errBadToken are why a registry does not know its caller.
var (
	errNoCredentials = errors.New("no credentials of the user AWS were sent")
	errBadToken      = errors.New("the token is not one that was issued for registries of this region")
	errExpiredToken  = errors.New("the token has expired")
)

// redeem finds the token that a password is.
func (c *Cloud) redeem(password, service, region string, now time.Time) (registryToken, error) {
	c.mu.RLock()
	t, ok := c.tokens.get(sha256.Sum256([]byte(password)))
	c.mu.RUnlock()
	switch {
	case !ok || t.service != service || t.region != region:
		return registryToken{}, errBadToken
	case !now.Before(t.expires):
		return registryToken{}, fmt.Errorf("%w at %s", errExpiredToken, t.expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// basicToken reads the password of the user AWS.
func basicToken(r *http.Request) (string, bool) {
	user, password, ok := r.BasicAuth()
	return password, ok && user == "AWS" && password != ""
}
