package gcp

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const opGenerateAccessToken = "GenerateAccessToken"

// iamMethod is GenerateAccessToken's full name, as ErrorInfo has it.
const iamMethod = "google.iam.credentials.v1.IAMCredentials." + opGenerateAccessToken

// maxDelegates bounds the chain of service accounts in one request.
const maxDelegates = 10

func (c *Cloud) serveIAMCredentials(w http.ResponseWriter, r *http.Request, ep endpoint, call *journal.Call) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	projectID, rest, also := strings.Cut(rest, "/serviceAccounts/")
	name, ends := strings.CutSuffix(rest, ":generateAccessToken")
	if !ok || !also || !ends || name == "" || strings.Contains(name, "/") || r.Method != http.MethodPost {
		if _, ok := c.begin(r.Context(), w, page{}, call); ok {
			page{}.refuse(w, call, notFound())
		}
		return
	}
	call.Operation, call.Role, call.Resource = opGenerateAccessToken, name, "projects/"+projectID+"/serviceAccounts/"+name
	body, refusal := readBody(w, r)
	now, ok := c.begin(r.Context(), w, rpc{}, call)
	if !ok {
		return
	}
	var who principal
	if refusal == nil {
		who, refusal = c.authenticate(r, ep.universe, iamMethod, now, scopeCloudPlatform, scopeIAM)
		call.Principal = who.name()
	}
	var token string
	var expires time.Time
	if refusal == nil {
		token, expires, refusal = c.generateAccessToken(r, who, projectID, name, body, now)
	}
	if refusal != nil {
		rpc{}.refuse(w, call, refusal)
		return
	}
	writeJSON(w, http.StatusOK, jsonType, struct {
		AccessToken string `json:"accessToken"`
		ExpireTime  string `json:"expireTime"`
	}{token, expires.UTC().Format(time.RFC3339)})
}

// authenticate proves the caller of an API that answers as google.rpc.Status, by an access token with at least one of the scopes.
// Source: Google, "API errors"; google.api.ErrorReason.
func (c *Cloud) authenticate(r *http.Request, universe, method string, now time.Time, scopes ...string) (principal, *apiError) {
	const expected = "Expected OAuth 2 access token, login cookie or other valid authentication credential. " +
		"See https://developers.google.com/identity/sign-in/web/devconsole-project."
	metadata := []string{"service", "iamcredentials." + universe, "method", method}
	raw, ok := wire.Bearer(r)
	if !ok {
		return principal{}, refused(http.StatusUnauthorized, codeUnauthenticated, "Request is missing required authentication credential. "+expected).
			detail(infoMissing, metadata...).because(errNoCredentials.Error())
	}
	token, err := c.redeem(raw, universe, "", now)
	if err != nil {
		info := infoBad
		if errors.Is(err, errExpired) {
			info = infoExpired
		}
		return principal{}, refused(http.StatusUnauthorized, codeUnauthenticated, "Request had invalid authentication credentials. "+expected).
			detail(info, metadata...).because(err.Error())
	}
	if !slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(token.scopes, s) }) {
		return token.who, refused(http.StatusForbidden, codeDenied, "Request had insufficient authentication scopes.").detail(infoScope, metadata...)
	}
	return token.who, nil
}

var lifetimePattern = regexp.MustCompile(`\A[0-9]{1,9}(?:\.[0-9]{1,9})?s\z`)

// accessTokenRequest is the body of GenerateAccessToken. Source: IAM Service Account Credentials API, generateAccessToken.
type accessTokenRequest struct {
	Scope     []string `json:"scope"`
	Lifetime  string   `json:"lifetime"`
	Delegates []string `json:"delegates"`
}

// readAccessTokenRequest reads a body, in which no field may stand that the API does not have.
func readAccessTokenRequest(r *http.Request, body []byte) (accessTokenRequest, *apiError) {
	var q accessTokenRequest
	var fields map[string]json.RawMessage
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || json.Unmarshal(body, &fields) != nil || json.Unmarshal(body, &q) != nil {
		return q, refused(http.StatusBadRequest, codeInvalid, "Invalid JSON payload received.")
	}
	for name := range fields {
		if name != "scope" && name != "lifetime" && name != "delegates" {
			return q, refused(http.StatusBadRequest, codeInvalid, "Invalid JSON payload received. Unknown name "+strconv.Quote(name)+": Cannot find field.")
		}
	}
	return q, nil
}

func (q accessTokenRequest) check(projectID string) (time.Duration, *apiError) {
	argument := func(reason string) *apiError {
		return refused(http.StatusBadRequest, codeInvalid, "Request contains an invalid argument.").because(reason)
	}
	switch {
	case projectID != "-":
		return 0, argument("the project in the path must be -")
	case len(q.Scope) == 0:
		return 0, argument("scope is required")
	case slices.ContainsFunc(q.Scope, isNoScope):
		return 0, argument("a scope is not one of Google's")
	case len(q.Delegates) > maxDelegates:
		return 0, argument("there are too many delegates")
	case q.Lifetime == "":
		return maxTokenLife, nil
	case !lifetimePattern.MatchString(q.Lifetime):
		return 0, refused(http.StatusBadRequest, codeInvalid, "Invalid value at 'lifetime' (type.googleapis.com/google.protobuf.Duration)").
			because("lifetime is not a number of seconds that ends in s")
	}
	life, err := time.ParseDuration(q.Lifetime)
	if err != nil || life <= 0 || life > maxTokenLife {
		return 0, argument("lifetime is not more than 0s and at most 3600s")
	}
	return life, nil
}

func (c *Cloud) generateAccessToken(r *http.Request, who principal, projectID, name string, body []byte, now time.Time) (string, time.Time, *apiError) {
	no := func(refusal *apiError) (string, time.Time, *apiError) { return "", time.Time{}, refusal }
	q, refusal := readAccessTokenRequest(r, body)
	if refusal != nil {
		return no(refusal)
	}
	life, refusal := q.check(projectID)
	if refusal != nil {
		return no(refusal)
	}
	chain := make([]string, 0, len(q.Delegates)+1)
	for _, d := range q.Delegates {
		delegate, ok := strings.CutPrefix(d, "projects/-/serviceAccounts/")
		if !ok {
			return no(refused(http.StatusBadRequest, codeInvalid, "Request contains an invalid argument.").because("a delegate is not projects/-/serviceAccounts/…"))
		}
		chain = append(chain, delegate)
	}
	target, refusal := c.impersonate(who, append(chain, name))
	if refusal != nil {
		return no(refusal)
	}
	expires := now.Add(life)
	return c.issue(prefixAccount, accessToken{who: target, scopes: q.Scope, expires: expires}, now), expires, nil
}

// impersonate goes from the caller along a chain of service accounts to its last one: each must let the one before it delegate, the last one give tokens.
// Source: IAM, "Create short-lived credentials for multiple service accounts".
func (c *Cloud) impersonate(who principal, chain []string) (principal, *apiError) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, name := range chain {
		a := c.findAccount(name, who.universe)
		if a == nil {
			return principal{}, refused(http.StatusNotFound, codeNotFound, "Not found; Gaia id not found for email "+name)
		}
		permission := permDelegate
		if i == len(chain)-1 {
			permission = permAccessToken
		}
		if !c.allowed(who, permission, a.project, a.policy) {
			return principal{}, refused(http.StatusForbidden, codeDenied, "Permission '"+permission+"' denied on resource (or it may not exist).").
				detail(infoDenied, "permission", permission).
				because("no binding on " + a.email + " or on project " + a.project + " gives " + permission + " to " + who.name())
		}
		who = c.accountOf(a)
	}
	return who, nil
}

// findAccount finds a service account by address or unique ID. The lock must be held.
func (c *Cloud) findAccount(name, universe string) *account {
	a := c.accounts[name]
	if a == nil {
		for _, other := range c.accounts {
			if other.uniqueID == name {
				a = other
			}
		}
	}
	if a == nil || c.projects[a.project].universe != universe {
		return nil
	}
	return a
}
