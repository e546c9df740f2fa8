package aws

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// tokenLife is the lifetime of an ECR authorization token, even if the caller's session ends
// earlier. Source: ECR API Reference, GetAuthorizationToken.
const tokenLife = 12 * time.Hour

// ecrAPI returns the API of Elastic Container Registry.
func ecrAPI() jsonAPI {
	return jsonAPI{
		target: "AmazonEC2ContainerRegistry_V20150921.", protocol: json11(),
		operations: map[string]operation{
			"GetAuthorizationToken": withInput((*Cloud).getAuthorizationToken),
			"DescribeRepositories":  withInput((*Cloud).describeRepositories),
			"ListImages":            withInput((*Cloud).listImages),
			"DescribeImages":        withInput((*Cloud).describeImages),
		},
	}
}

// ecrPublicAPI returns the API of Elastic Container Registry Public.
func ecrPublicAPI() jsonAPI {
	return jsonAPI{
		target: "SpencerFrontendService.", protocol: json11(),
		operations: map[string]operation{"GetAuthorizationToken": withInput((*Cloud).getPublicAuthorizationToken)},
	}
}

type authorizationData struct {
	AuthorizationToken string  `json:"authorizationToken"`
	ExpiresAt          float64 `json:"expiresAt"` // seconds since 1970
	ProxyEndpoint      string  `json:"proxyEndpoint,omitempty"`
}

type tokenInput struct {
	RegistryIDs []string `json:"registryIds"`
}

func (c *Cloud) getAuthorizationToken(call *apiCall, input tokenInput) (any, *service.Refusal) {
	if refusal := c.require(call, "ecr:GetAuthorizationToken"); refusal != nil {
		return nil, refusal
	}
	if len(input.RegistryIDs) == 0 {
		input.RegistryIDs = []string{call.who.account}
	}
	var out []authorizationData
	for _, id := range input.RegistryIDs {
		if !policy.IsAccountID(id) || len(input.RegistryIDs) > 10 {
			return nil, invalidECR("registryIds", "up to 10 account IDs of twelve digits")
		}
		token, expires := c.issue(registryToken{who: call.who, service: ServiceRegistry, region: call.ep.region}, call.Now)
		out = append(out, authorizationData{
			AuthorizationToken: token, ExpiresAt: float64(expires.Unix()),
			ProxyEndpoint: "https://" + registryHost(call.ep, id),
		})
	}
	return map[string][]authorizationData{"authorizationData": out}, nil
}

func (c *Cloud) getPublicAuthorizationToken(call *apiCall, _ struct{}) (any, *service.Refusal) {
	if refusal := c.require(call, "ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"); refusal != nil {
		return nil, refusal
	}
	token, expires := c.issue(registryToken{who: call.who, service: ServicePublicRegistry, region: call.ep.region}, call.Now)
	return map[string]authorizationData{"authorizationData": {AuthorizationToken: token, ExpiresAt: float64(expires.Unix())}}, nil
}

// notAuthorized returns AWS's message for a denied action. The resource is empty for actions that
// have none.
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

// issuePassword makes and stores a password that looks like ECR's.
func (c *Cloud) issuePassword(t registryToken, now time.Time) (string, time.Time) {
	t.expires = now.Add(tokenLife)
	inner := wire.Must(json.Marshal(map[string]any{
		"payload": newSecret(600), "datakey": newSecret(180),
		"version": "2", "type": "DATA_KEY", "expiration": t.expires.Unix(),
	}))
	password := base64.StdEncoding.EncodeToString(inner)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens.Put(password, t, t.expires, now)
	return password, t.expires
}

// Reasons why a registry cannot authenticate its caller.
var (
	errNoCredentials = errors.New("no credentials of the user AWS were sent")
	errBadToken      = errors.New("the token is not one that was issued for registries of this region")
	errExpiredToken  = errors.New("the token has expired")
)

// redeem returns the token that belongs to a password. It refuses a token that has expired or is
// for another service or region.
func (c *Cloud) redeem(password, service, region string, now time.Time) (registryToken, error) {
	c.mu.RLock()
	t, ok := c.tokens.Get(password)
	c.mu.RUnlock()
	switch {
	case !ok || t.service != service || t.region != region:
		return registryToken{}, errBadToken
	case !now.Before(t.expires):
		return registryToken{}, fmt.Errorf("%w at %s", errExpiredToken, t.expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// basicToken returns the token in a request's Basic credentials: the password of the user AWS.
func basicToken(r *http.Request) (string, bool) {
	user, password, ok := r.BasicAuth()
	return password, ok && user == "AWS" && password != ""
}
