package gcp

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

const opExchangeToken = "ExchangeToken"

// URNs of token exchange. Source: RFC 8693 §2.1 and §3; Security Token Service API, v1.token.
const (
	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // a name
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token" //nolint:gosec // a name
)

// OAuth's error codes in STS's answers.
const (
	invalidRequest     = "invalid_request"
	invalidGrant       = "invalid_grant"
	invalidTarget      = "invalid_target"
	invalidScope       = "invalid_scope"
	unauthorizedClient = "unauthorized_client"
	unsupportedGrant   = "unsupported_grant_type"
)

// exchangeRequest has the parameters of ExchangeToken. Clients use the API's names in JSON, and the
// names of RFC 8693 in JSON or in a form.
type exchangeRequest struct {
	grantType, audience, scope, requestedTokenType, subjectToken, subjectTokenType string
}

// field returns the field that stores a parameter, or nil if the parameter is unknown. The
// parameter's name may be the API's, or that of RFC 8693. STS also has a parameter "options". It is
// accepted and ignored, because it has no effect on the exchange of OIDC tokens.
func (q *exchangeRequest) field(name string) *string {
	switch name {
	case "grantType", "grant_type":
		return &q.grantType
	case "audience":
		return &q.audience
	case "scope":
		return &q.scope
	case "requestedTokenType", "requested_token_type":
		return &q.requestedTokenType
	case "subjectToken", "subject_token":
		return &q.subjectToken
	case "subjectTokenType", "subject_token_type":
		return &q.subjectTokenType
	case "options":
		return new(string)
	}
	return nil
}

func badRequest(message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, invalidRequest, message)
}

// readExchange reads the parameters. It refuses unknown and repeated parameters.
func readExchange(r *service.Request, body []byte) (exchangeRequest, *service.Refusal) {
	var q exchangeRequest
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return q, badRequest("The request has no valid Content-Type.")
	}
	values := url.Values{}
	switch media {
	case "application/json":
		var texts map[string]string
		if err := json.Unmarshal(body, &texts); err != nil {
			return q, badRequest("Invalid JSON payload received.")
		}
		for name, value := range texts {
			values.Set(name, value)
		}
	case "application/x-www-form-urlencoded":
		if values, err = url.ParseQuery(string(body)); err != nil {
			return q, badRequest("The form in the request could not be parsed.")
		}
	default:
		return q, badRequest("The Content-Type is neither application/json nor application/x-www-form-urlencoded.")
	}
	seen := map[*string]bool{}
	for name, value := range values {
		to := q.field(name)
		if to == nil || len(value) != 1 || seen[to] {
			return exchangeRequest{}, badRequest("Invalid request: a parameter is not known or is given twice.")
		}
		*to, seen[to] = value[0], true
	}
	return q, nil
}

// readSTS implements [service.Service] for the Security Token Service.
func (c *Cloud) readSTS(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/token" {
		return page(), notFound().Handle
	}
	r.Call.Operation = opExchangeToken
	body, refusal := readBody(r)
	if refusal != nil {
		refusal.Code = invalidRequest
		return oauth(), refusal.Handle
	}
	q, refusal := readExchange(r, body)
	r.Call.Resource = q.audience
	if refusal != nil {
		return oauth(), refusal.Handle
	}
	return oauth(), func(r *service.Request) (service.Answer, *service.Refusal) { return c.exchangeToken(r, q, ep) }
}

// exchangeToken issues a federated access token in exchange for the subject token.
func (c *Cloud) exchangeToken(r *service.Request, q exchangeRequest, ep endpoint) (service.Answer, *service.Refusal) {
	if refusal := q.check(); refusal != nil {
		return nil, refusal
	}
	who, life, refusal := c.proveFederated(r, q, ep)
	if refusal != nil {
		return nil, refusal
	}
	r.Call.Principal = who.name()
	expires := r.Now.Add(min(maxTokenLife, life))
	return writeJSON(jsonType, http.StatusOK, struct {
		AccessToken     string `json:"access_token"`
		IssuedTokenType string `json:"issued_token_type"`
		TokenType       string `json:"token_type"`
		ExpiresIn       int    `json:"expires_in"` // seconds
	}{
		c.issue(prefixFederated, accessToken{who: who, scopes: strings.Fields(q.scope), expires: expires}, r.Now),
		typeAccessToken, "Bearer", int(expires.Sub(r.Now) / time.Second),
	}), nil
}

// check checks the parameters before the subject token is verified.
func (q exchangeRequest) check() *service.Refusal {
	switch {
	case q.grantType != grantExchange:
		return service.Refuse(http.StatusBadRequest, unsupportedGrant, "Invalid value for \"grant_type\". It must be "+grantExchange+".")
	case q.requestedTokenType != typeAccessToken:
		return badRequest("Invalid value for \"requested_token_type\". It must be " + typeAccessToken + ".")
	case q.subjectTokenType != typeJWT && q.subjectTokenType != typeIDToken:
		return badRequest("Invalid value for \"subject_token_type\".").Because("the local cloud takes " + typeJWT + " and " + typeIDToken)
	case q.subjectToken == "":
		return badRequest("Missing required parameter: subject_token.")
	case len(strings.Fields(q.scope)) == 0:
		return service.Refuse(http.StatusBadRequest, invalidScope, "Missing required parameter: scope.")
	case slices.ContainsFunc(strings.Fields(q.scope), isNoScope):
		return service.Refuse(http.StatusBadRequest, invalidScope, "Invalid OAuth scope or ID token audience provided.").
			Because("a scope is not one of Google's")
	}
	return nil
}

// proveFederated verifies the subject token, and returns its federated identity and its remaining
// lifetime. The checks run in this order: request, target, issuer, audience, keys, signature, time,
// mapping, condition. The sources do not define the whole order. Sources: IAM, "Workload Identity
// Federation" and "Obtain short-lived tokens for Workload Identity Federation"; RFC 8693.
func (c *Cloud) proveFederated(r *service.Request, q exchangeRequest, ep endpoint) (principal, time.Duration, *service.Refusal) {
	no := func(refusal *service.Refusal) (principal, time.Duration, *service.Refusal) {
		return principal{}, 0, refusal
	}
	t, refusal := c.target(q.audience, ep.universe)
	if refusal != nil {
		return no(refusal)
	}
	token, err := oidc.Read(q.subjectToken)
	if err != nil {
		return no(service.Refuse(http.StatusBadRequest, invalidGrant, "Unable to parse the ID Token.").Because(err.Error()))
	}
	r.Call.Issuer, r.Call.Subject, r.Call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	if token.Issuer != t.issuer {
		return no(service.Refuse(http.StatusBadRequest, invalidGrant,
			"The issuer in ID Token "+token.Issuer+" does not match the expected ones: "+t.issuer))
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(t.audiences, a) }) {
		return no(service.Refuse(http.StatusBadRequest, invalidGrant,
			"The audience in ID Token ["+strings.Join(token.Audience, ", ")+"] does not match the expected audience.").
			Because(fmt.Sprintf("the token is for %q, accepted are %q", token.Audience, t.audiences)))
	}
	if refusal := c.verify(r, t, token); refusal != nil {
		return no(refusal)
	}
	who, refusal := t.identify(token)
	if refusal != nil {
		return no(refusal)
	}
	who.universe = ep.universe
	return who, token.Expiry.Sub(r.Now), nil
}

// target is a provider or the pool of a GKE cluster. It says which tokens are accepted.
type target struct {
	issuer    string
	audiences []string
	keys      *oidc.KeySet
	identify  func(oidc.Token) (principal, *service.Refusal)
}

// target finds the target that an audience names: a provider, or the pool of a GKE cluster.
// Workforce pools are not supported.
func (c *Cloud) target(audience, universe string) (target, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if rest, ok := strings.CutPrefix(audience, "identitynamespace:"); ok {
		return c.clusterTarget(rest, universe)
	}
	name, ok := strings.CutPrefix(audience, "//"+iamHost+"/")
	number, poolID, providerID, also := parseProviderName(name)
	if !ok || !also {
		return target{}, badAudience()
	}
	pr := c.numbers[number]
	switch {
	case pr == nil || pr.universe != universe:
		return target{}, badTarget("there is no such project in this universe")
	case pr.pools[poolID] == nil:
		return target{}, badTarget("there is no such pool")
	case pr.pools[poolID].disabled:
		return target{}, badTarget("the pool is disabled")
	case pr.pools[poolID].providers[providerID] == nil:
		return target{}, badTarget("there is no such provider")
	case pr.pools[poolID].providers[providerID].Disabled:
		return target{}, badTarget("the provider is disabled")
	}
	p := pr.pools[poolID].providers[providerID]
	audiences := p.AllowedAudiences
	if len(audiences) == 0 {
		audiences = []string{audience, "https:" + audience}
	}
	who := principal{pool: poolName(number, poolID), serial: pr.pools[poolID].serial, project: pr.id}
	return target{
		issuer: p.IssuerURI, audiences: audiences, keys: p.keys,
		identify: func(t oidc.Token) (principal, *service.Refusal) { return p.identify(t, who) },
	}, nil
}

// clusterTarget finds a GKE cluster by <pool>:<cluster URL>. Source: GKE, "About Workload Identity
// Federation for GKE".
func (c *Cloud) clusterTarget(rest, universe string) (target, *service.Refusal) {
	name, url, ok := strings.Cut(rest, workloadPool+":")
	if !ok || !kubernetesPoolPattern.MatchString(name) || !strings.HasPrefix(url, containerService(universe)) {
		return target{}, badAudience()
	}
	pool := name + workloadPool
	var pr *project
	for _, p := range c.projects {
		if p.universe == universe && kubernetesPool(p.id, universe) == pool {
			pr = p
		}
	}
	switch {
	case pr == nil:
		return target{}, badTarget("there is no such project in this universe")
	case pr.clusters[url] == nil:
		return target{}, badTarget("the pool knows no such cluster")
	}
	cl, number := pr.clusters[url], pr.number
	return target{
		issuer: cl.issuer, audiences: []string{pool}, keys: cl.keys,
		identify: func(t oidc.Token) (principal, *service.Refusal) { return kubernetesPrincipal(t, number, pool, url) },
	}, nil
}

func badAudience() *service.Refusal {
	return badRequest("Invalid value for \"audience\". This value should be the full resource name of the Identity Provider. " +
		"See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.")
}

func badTarget(reason string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, invalidTarget, "The target service indicated by the \"audience\" parameters is invalid. "+
		"This might either be because the pool or provider is disabled or deleted or because it doesn't exist.").Because(reason)
}

// maxProofLife is the limit of a subject token's lifetime. Source: IAM, "Configure Workload
// Identity Federation: requirements of OIDC tokens".
const maxProofLife = 48 * time.Hour

// verify checks a token's signature and times. It translates the verifier's errors into refusals by
// STS.
func (c *Cloud) verify(r *service.Request, t target, token oidc.Token) *service.Refusal {
	var err error
	if t.keys != nil {
		err = c.verifier.VerifyWith(*t.keys, token, r.Now)
	} else {
		err = c.verifier.Verify(r.Context(), token, r.Now)
	}
	if err != nil {
		return tokenError(err, token)
	}
	switch {
	// The verifier's leeway accepts a subject token that has just expired. Refuse it, because the
	// token issued in exchange would have expired too.
	case !r.Now.Before(token.Expiry):
		return tokenError(oidc.ErrExpired, token)
	case token.IssuedAt.IsZero():
		return service.Refuse(http.StatusBadRequest, invalidGrant, "The ID Token has no 'iat' claim.")
	case token.Expiry.Sub(token.IssuedAt) >= maxProofLife:
		return service.Refuse(http.StatusBadRequest, invalidGrant, "The ID Token's lifetime is too long.").
			Because(fmt.Sprintf("from iat to exp it is %s, less than %s is taken", token.Expiry.Sub(token.IssuedAt), maxProofLife))
	}
	return nil
}
