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

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

const opGenerateAccessToken = "GenerateAccessToken"

// iamMethod is the full name of the method GenerateAccessToken. Errors have it in their
// google.rpc.ErrorInfo.
const iamMethod = "google.iam.credentials.v1.IAMCredentials." + opGenerateAccessToken

// maxDelegates is the maximum number of delegates in one request.
const maxDelegates = 10

// readIAMCredentials implements [service.Service] for the IAM Service Account Credentials API.
func (c *Cloud) readIAMCredentials(r *service.Request, ep endpoint) (service.Protocol, service.Handler) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	projectID, rest, also := strings.Cut(rest, "/serviceAccounts/")
	name, ends := strings.CutSuffix(rest, ":generateAccessToken")
	if !ok || !also || !ends || name == "" || strings.Contains(name, "/") || r.Method != http.MethodPost {
		return page(), notFound().Handle
	}
	r.Call.Operation, r.Call.Role, r.Call.Resource = opGenerateAccessToken, name, "projects/"+projectID+"/serviceAccounts/"+name
	body, unread := readBody(r)
	if unread != nil {
		return rpc(), unread.Handle
	}
	return rpc(), func(r *service.Request) (service.Answer, *service.Refusal) {
		who, refusal := c.authenticate(r, ep.universe, iamMethod, scopeCloudPlatform, scopeIAM)
		r.Call.Principal = who.name()
		if refusal != nil {
			return nil, refusal
		}
		return c.generateAccessToken(r, who, projectID, name, body)
	}
}

// authenticate verifies the caller's access token, for APIs whose errors have the format
// google.rpc.Status. The token must have at least one of the scopes. Each refusal has an ErrorInfo.
// Source: Google, "API errors"; google.api.ErrorReason.
func (c *Cloud) authenticate(r *service.Request, universe, method string, scopes ...string) (principal, *service.Refusal) {
	const expected = "Expected OAuth 2 access token, login cookie or other valid authentication credential. " +
		"See https://developers.google.com/identity/sign-in/web/devconsole-project."
	metadata := []string{"service", r.Call.Host, "method", method}
	raw, ok := wire.Bearer(r.Request)
	if !ok {
		return principal{}, service.Refuse(http.StatusUnauthorized, codeUnauthenticated,
			"Request is missing required authentication credential. "+expected).
			With(info(infoMissing, metadata...)).Because(errNoCredentials.Error())
	}
	token, err := c.redeem(raw, universe, "", r.Now)
	if err != nil {
		problem := infoBad
		if errors.Is(err, errExpired) {
			problem = infoExpired
		}
		return principal{}, service.Refuse(http.StatusUnauthorized, codeUnauthenticated,
			"Request had invalid authentication credentials. "+expected).
			With(info(problem, metadata...)).Because(err.Error())
	}
	if !slices.ContainsFunc(scopes, func(s string) bool { return slices.Contains(token.scopes, s) }) {
		return token.who, service.Refuse(http.StatusForbidden, codeDenied, "Request had insufficient authentication scopes.").
			With(info(infoScope, metadata...))
	}
	return token.who, nil
}

var lifetimePattern = regexp.MustCompile(`\A[0-9]{1,9}(?:\.[0-9]{1,9})?s\z`)

// accessTokenRequest is the body of GenerateAccessToken. Source: IAM Service Account Credentials
// API, generateAccessToken.
type accessTokenRequest struct {
	Scope     []string `json:"scope"`
	Lifetime  string   `json:"lifetime"`
	Delegates []string `json:"delegates"`
}

// readAccessTokenRequest reads a body, and refuses fields that the API does not have.
func readAccessTokenRequest(r *service.Request, body []byte) (accessTokenRequest, *service.Refusal) {
	var q accessTokenRequest
	var fields map[string]json.RawMessage
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || json.Unmarshal(body, &fields) != nil || json.Unmarshal(body, &q) != nil {
		return q, invalidArgument("Invalid JSON payload received.")
	}
	for name := range fields {
		if name != "scope" && name != "lifetime" && name != "delegates" {
			return q, invalidArgument("Invalid JSON payload received. Unknown name " + strconv.Quote(name) + ": Cannot find field.")
		}
	}
	return q, nil
}

func (q accessTokenRequest) check(projectID string) (time.Duration, *service.Refusal) {
	argument := func(reason string) *service.Refusal {
		return invalidArgument("Request contains an invalid argument.").Because(reason)
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
		return 0, invalidArgument("Invalid value at 'lifetime' (type.googleapis.com/google.protobuf.Duration)").
			Because("lifetime is not a number of seconds that ends in s")
	}
	life, err := time.ParseDuration(q.Lifetime)
	if err != nil || life <= 0 || life > maxTokenLife {
		return 0, argument("lifetime is not more than 0s and at most 3600s")
	}
	return life, nil
}

func (c *Cloud) generateAccessToken(
	r *service.Request, who principal, projectID, name string, body []byte,
) (service.Answer, *service.Refusal) {
	q, refusal := readAccessTokenRequest(r, body)
	if refusal != nil {
		return nil, refusal
	}
	life, refusal := q.check(projectID)
	if refusal != nil {
		return nil, refusal
	}
	chain := make([]string, 0, len(q.Delegates)+1)
	for _, d := range q.Delegates {
		delegate, ok := strings.CutPrefix(d, "projects/-/serviceAccounts/")
		if !ok {
			return nil, invalidArgument("Request contains an invalid argument.").
				Because("a delegate is not projects/-/serviceAccounts/…")
		}
		chain = append(chain, delegate)
	}
	target, refusal := c.impersonate(who, append(chain, name))
	if refusal != nil {
		return nil, refusal
	}
	expires := r.Now.Add(life)
	return writeJSON(jsonType, http.StatusOK, struct {
		AccessToken string `json:"accessToken"`
		ExpireTime  string `json:"expireTime"`
	}{c.issue(prefixAccount, accessToken{who: target, scopes: q.Scope, expires: expires}, r.Now), expires.UTC().Format(time.RFC3339)}), nil
}

// impersonate follows a chain of service accounts from the caller to the last account. Each account
// before the last must let its predecessor delegate. The last account must let its predecessor get
// access tokens. Source: IAM, "Create short-lived credentials for multiple service accounts".
func (c *Cloud) impersonate(who principal, chain []string) (principal, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, name := range chain {
		a := c.findAccount(name, who.universe)
		if a == nil {
			return principal{}, service.Refuse(http.StatusNotFound, codeNotFound, "Not found; Gaia id not found for email "+name)
		}
		permission := permDelegate
		if i == len(chain)-1 {
			permission = permAccessToken
		}
		if !c.allowed(who, permission, a.project, a.policy) {
			return principal{}, service.Refuse(http.StatusForbidden, codeDenied,
				"Permission '"+permission+"' denied on resource (or it may not exist).").
				With(info(infoDenied, "permission", permission)).
				Because("no binding on " + a.email + " or on project " + a.project + " gives " + permission + " to " + who.name())
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
