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

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const opExchangeToken = "ExchangeToken"

// URNs of token exchange. Source: RFC 8693 §2.1 and §3; Security Token Service API, v1.token.
const (
	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // a name
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token" //nolint:gosec // a name
)

// OAuth's error codes, as STS uses them.
const (
	invalidRequest     = "invalid_request"
	invalidGrant       = "invalid_grant"
	invalidTarget      = "invalid_target"
	invalidScope       = "invalid_scope"
	unauthorizedClient = "unauthorized_client"
	unsupportedGrant   = "unsupported_grant_type"
)

// exchangeRequest are the parameters of ExchangeToken, in JSON under the names of the API or of RFC 8693, in a form under the latter.
type exchangeRequest struct {
	grantType, audience, scope, requestedTokenType, subjectToken, subjectTokenType string
}

// field returns where a parameter of either spelling goes, or nil. Options have no effect on the exchange of OIDC tokens.
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

func badRequest(message string) *apiError {
	return refused(http.StatusBadRequest, invalidRequest, message)
}

// readExchange reads the parameters, each at most once and none that is not known.
func readExchange(r *http.Request, body []byte) (exchangeRequest, *apiError) {
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

func (c *Cloud) serveSTS(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/token" {
		if _, ok := c.begin(r.Context(), w, page{}, call); ok {
			page{}.refuse(w, call, notFound())
		}
		return
	}
	call.Operation = opExchangeToken
	body, refusal := readBody(w, r)
	var q exchangeRequest
	if refusal == nil {
		q, refusal = readExchange(r, body)
		call.Resource = q.audience
	} else {
		refusal.code = invalidRequest
	}
	now, ok := c.begin(r.Context(), w, oauth{}, call)
	if !ok {
		return
	}
	var granted *exchanged
	if refusal == nil {
		granted, refusal = c.exchangeToken(r, q, ep, call, now)
	}
	if refusal != nil {
		oauth{}.refuse(w, call, refusal)
		return
	}
	call.Principal = granted.who.name()
	expires := now.Add(min(maxTokenLife, granted.life))
	token := c.issue(prefixFederated, accessToken{who: granted.who, scopes: strings.Fields(q.scope), expires: expires}, now)
	writeJSON(w, http.StatusOK, jsonType, struct {
		AccessToken     string `json:"access_token"`
		IssuedTokenType string `json:"issued_token_type"`
		TokenType       string `json:"token_type"`
		ExpiresIn       int    `json:"expires_in"` // seconds
	}{token, typeAccessToken, "Bearer", int(expires.Sub(now) / time.Second)})
}

// exchanged is a proved federated identity and how long its proof lives on.
type exchanged struct {
	who  principal
	life time.Duration
}

// exchangeToken follows IAM's documents "Workload Identity Federation" and "Obtain short-lived tokens for Workload Identity Federation" and RFC 8693.
// Where the order of the checks is not documented it is: request, target, issuer, audience, keys, signature, time, mapping, condition.
func (c *Cloud) exchangeToken(r *http.Request, q exchangeRequest, ep endpoint, call *journal.Call, now time.Time) (*exchanged, *apiError) {
	switch {
	case q.grantType != grantExchange:
		return nil, refused(http.StatusBadRequest, unsupportedGrant, "Invalid value for \"grant_type\". It must be "+grantExchange+".")
	case q.requestedTokenType != typeAccessToken:
		return nil, badRequest("Invalid value for \"requested_token_type\". It must be " + typeAccessToken + ".")
	case q.subjectTokenType != typeJWT && q.subjectTokenType != typeIDToken:
		return nil, badRequest("Invalid value for \"subject_token_type\".").because("the local cloud takes " + typeJWT + " and " + typeIDToken)
	case q.subjectToken == "":
		return nil, badRequest("Missing required parameter: subject_token.")
	case len(strings.Fields(q.scope)) == 0:
		return nil, refused(http.StatusBadRequest, invalidScope, "Missing required parameter: scope.")
	case slices.ContainsFunc(strings.Fields(q.scope), isNoScope):
		return nil, refused(http.StatusBadRequest, invalidScope, "Invalid OAuth scope or ID token audience provided.").because("a scope is not one of Google's")
	}
	t, refusal := c.target(q.audience, ep.universe)
	if refusal != nil {
		return nil, refusal
	}
	token, err := oidc.Read(q.subjectToken)
	if err != nil {
		return nil, refused(http.StatusBadRequest, invalidGrant, "Unable to parse the ID Token.").because(err.Error())
	}
	call.Issuer, call.Subject, call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	if token.Issuer != t.issuer {
		return nil, refused(http.StatusBadRequest, invalidGrant,
			"The issuer in ID Token "+token.Issuer+" does not match the expected ones: "+t.issuer)
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(t.audiences, a) }) {
		return nil, refused(http.StatusBadRequest, invalidGrant,
			"The audience in ID Token ["+strings.Join(token.Audience, ", ")+"] does not match the expected audience.").
			because(fmt.Sprintf("the token is for %q, accepted are %q", token.Audience, t.audiences))
	}
	if refusal := c.verify(r, t, token, now); refusal != nil {
		return nil, refusal
	}
	who, refusal := t.identify(token)
	if refusal != nil {
		return nil, refusal
	}
	who.universe = ep.universe
	return &exchanged{who: who, life: token.Expiry.Sub(now)}, nil
}

// target is who takes tokens: a provider of a pool, or a GKE cluster's pool.
type target struct {
	issuer    string
	audiences []string
	keys      *oidc.KeySet
	identify  func(oidc.Token) (principal, *apiError)
}

// target finds what an audience names. Workforce pools are not here.
func (c *Cloud) target(audience, universe string) (target, *apiError) {
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
		identify: func(t oidc.Token) (principal, *apiError) { return p.identify(t, who) },
	}, nil
}

// clusterTarget finds a GKE cluster by <pool>:<cluster URL>. Source: GKE, "About Workload Identity Federation for GKE".
func (c *Cloud) clusterTarget(rest, universe string) (target, *apiError) {
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
		identify: func(t oidc.Token) (principal, *apiError) { return kubernetesPrincipal(t, number, pool, url) },
	}, nil
}

func badAudience() *apiError {
	return badRequest("Invalid value for \"audience\". This value should be the full resource name of the Identity Provider. " +
		"See https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token for the list of possible formats.")
}

func badTarget(reason string) *apiError {
	return refused(http.StatusBadRequest, invalidTarget, "The target service indicated by the \"audience\" parameters is invalid. "+
		"This might either be because the pool or provider is disabled or deleted or because it doesn't exist.").because(reason)
}

// maxProofLife is the longest life of a token that is taken. Source: IAM, "Configure Workload Identity Federation: requirements of OIDC tokens".
const maxProofLife = 48 * time.Hour

// verify checks signature and times of a token and puts the verifier's refusal into STS's words.
func (c *Cloud) verify(r *http.Request, t target, token oidc.Token, now time.Time) *apiError {
	var err error
	if t.keys != nil {
		err = c.verifier.VerifyWith(*t.keys, token, now)
	} else {
		err = c.verifier.Verify(r.Context(), token, now)
	}
	if err != nil {
		return tokenError(err, token)
	}
	switch {
	case !now.Before(token.Expiry): // within the leeway: what it could be exchanged for would have ended too
		return tokenError(oidc.ErrExpired, token)
	case token.IssuedAt.IsZero():
		return refused(http.StatusBadRequest, invalidGrant, "The ID Token has no 'iat' claim.")
	case token.Expiry.Sub(token.IssuedAt) >= maxProofLife:
		return refused(http.StatusBadRequest, invalidGrant, "The ID Token's lifetime is too long.").
			because(fmt.Sprintf("from iat to exp it is %s, less than %s is taken", token.Expiry.Sub(token.IssuedAt), maxProofLife))
	}
	return nil
}
