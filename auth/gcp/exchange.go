package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// tokenLifetime is the lifetime that is requested for a service account's access token. A
	// longer lifetime needs a policy of the organization. Source: IAM, "Quotas and limits".
	//
	// If no service account is impersonated, the access token expires with the proof, a JWT. So the
	// JWT is requested with this lifetime.
	tokenLifetime = time.Hour
	// maxExpiresIn bounds the lifetime of a token: a policy of the organization cannot allow more.
	// Source: IAM, "Create short-lived credentials for a service account".
	maxExpiresIn = 12 * time.Hour
	// impersonationScope is the scope of a token that only serves to get another token. Source: IAM
	// Service Account Credentials API, generateAccessToken, "Authorization scopes".
	impersonationScope = "https://www.googleapis.com/auth/iam"
	// tokenType is the type of every token. Source: RFC 6750.
	tokenType = "Bearer"
	// health is the page that shows the state of Google Cloud's services.
	health = "status.cloud.google.com"
)

// Parameters of a token exchange. Sources: RFC 8693 §2.1 and §3; Security Token Service API,
// v1.token.
const (
	grantTypeExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken   = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // a name, no credential
	typeJWT           = "urn:ietf:params:oauth:token-type:jwt"
)

// NewToken implements [auth.Provider]. It exchanges the proof at the universe's Security Token
// Service (RFC 8693). If the identity names service accounts, NewToken then calls
// generateAccessToken of IAM Credentials, once for each impersonation. The token is a [*Token]. The
// proof is sent only to the Security Token Service; no redirect is followed.
func (p *Provider) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	x, err := p.plan(ctx, request)
	if err != nil {
		return nil, err
	}
	wanted, err := p.scopes.Parse(request.Key.Scopes)
	if err != nil {
		return nil, err
	}
	if err := checkProof(jwt, request); err != nil {
		return nil, err
	}
	steps := x.steps(p.principalOf(x, jwt, request))
	if len(steps) == 0 {
		return asToken(p.federate(ctx, x, jwt, request, *wanted))
	}
	token, err := p.federate(ctx, x, jwt, request, []string{impersonationScope})
	for i, step := range steps {
		if err != nil {
			return nil, err
		}
		scopes := []string{impersonationScope}
		if i == len(steps)-1 {
			scopes = *wanted
		}
		token, err = p.impersonate(ctx, step, token, request, scopes)
	}
	return asToken(token, err)
}

// step is one impersonation, a call of generateAccessToken.
type step struct {
	account   endpoint.GCPServiceAccount
	delegates []endpoint.GCPServiceAccount
	// This is the principal that impersonates the account, written as in IAM policies: for example,
	// serviceAccount:<address>.
	by string
	// own is true if this principal is the subject itself, not a service account.
	own bool
}

// steps returns the impersonations of the plan, given the subject's name in IAM policies.
func (x plan) steps(principal string) []step {
	var steps []step
	by, own := principal, true
	if x.account.Email != "" {
		steps = append(steps, step{account: x.account, by: by, own: own})
		by, own = "serviceAccount:"+x.account.Email, false
	}
	if last := len(x.chain) - 1; last >= 0 {
		steps = append(steps, step{account: x.chain[last], delegates: x.chain[:last], by: by, own: own})
	}
	return steps
}

// checkProof refuses a proof whose subject is not the request's. Without an impersonation, Google
// would return a token of the proof's subject.
func checkProof(proof *auth.JWT, request *auth.Request) error {
	want := request.Key.Subject.String()
	got := remote.ClaimsOf(proof).Subject
	// The sub of a WorkloadIdentity ends with ":" and the UID; no name contains a colon.
	if got == want || strings.HasPrefix(got, want+":") {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeProofInvalid,
		Fix: "have the Prover prove the subject that it is asked for",
		Err: errors.New("the proof is of another subject than " + want),
	}
}

// asToken returns the token as an interface, which is nil if there is an error.
func asToken(token *Token, err error) (auth.Token, error) {
	if err != nil {
		return nil, err
	}
	return token, nil
}

// federate exchanges the proof for a token of the subject itself.
func (p *Provider) federate(ctx context.Context, x plan, proof *auth.JWT, request *auth.Request, wanted []string) (*Token, error) {
	const operation = "token exchange"
	where := p.universe.APIHost("sts")
	form := url.Values{
		"grant_type":           {grantTypeExchange},
		"audience":             {x.audience},
		"scope":                {strings.Join(wanted, " ")},
		"requested_token_type": {typeAccessToken},
		"subject_token_type":   {typeJWT},
		"subject_token":        {proof.Token.Reveal()},
	}.Encode()
	asked := time.Now()
	answer, err := remote.Call(ctx, p.calls.Via(request.ProxyURL), func(ctx context.Context) (*http.Request, error) {
		return remote.NewPost(ctx, "https://"+where+"/v1/token", "application/x-www-form-urlencoded", form)
	})
	if err != nil {
		return nil, remote.Unanswered(ctx, err, where).Error(auth.StageExchange, operation)
	}
	if answer.Status != http.StatusOK {
		return nil, p.exchangeFailure(answer, where, x, proof, request).Error(auth.StageExchange, operation)
	}
	token, err := parseToken(answer.Body, asked)
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageExchange, operation)
	}
	return token, nil
}

// impersonate exchanges the source token for a token of the step's service account.
func (p *Provider) impersonate(ctx context.Context, x step, source *Token, request *auth.Request, wanted []string) (*Token, error) {
	operation := "generateAccessToken for " + x.account.Email
	where := p.universe.APIHost("iamcredentials")
	var delegates []string
	for _, delegate := range x.delegates {
		delegates = append(delegates, "projects/-/serviceAccounts/"+delegate.Email)
	}
	body, err := json.Marshal(struct {
		Scope     []string `json:"scope"`
		Lifetime  string   `json:"lifetime"`
		Delegates []string `json:"delegates,omitempty"`
	}{wanted, "3600s", delegates})
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageImpersonation, operation)
	}
	asked := time.Now()
	answer, err := remote.Call(ctx, p.calls.Via(request.ProxyURL), func(ctx context.Context) (*http.Request, error) {
		post, err := remote.NewPost(ctx, "https://"+where+"/v1/projects/-/serviceAccounts/"+x.account.Email+":generateAccessToken",
			"application/json", string(body))
		if err == nil {
			post.Header.Set("Authorization", tokenType+" "+source.Secret.Reveal())
		}
		return post, err
	})
	if err != nil {
		return nil, remote.Unanswered(ctx, err, where).Error(auth.StageImpersonation, operation)
	}
	if answer.Status != http.StatusOK {
		return nil, x.failure(answer, where, request).Error(auth.StageImpersonation, operation)
	}
	token, err := parseAccountToken(answer.Body, asked)
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageImpersonation, operation)
	}
	return token, nil
}

// errNotJSON is the error for a response or a file that cannot be decoded.
var errNotJSON = errors.New("it is not JSON of the expected form")

// parseToken reads the response to a token exchange (RFC 8693 §2.2.1), or a response of the
// metadata server, which has the same form. The token's lifetime counts from the time when the
// request was sent. Errors quote nothing of the response.
func parseToken(body []byte, asked time.Time) (*Token, error) {
	var answer struct {
		AccessToken     string `json:"access_token"`
		IssuedTokenType string `json:"issued_token_type"`
		TokenType       string `json:"token_type"`
		ExpiresIn       int64  `json:"expires_in"` // seconds
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, errNotJSON
	}
	switch {
	case !isBearer(answer.AccessToken):
		return nil, errors.New("no access_token in it")
	case answer.IssuedTokenType != "" && answer.IssuedTokenType != typeAccessToken:
		return nil, errors.New("its issued_token_type is not access_token")
	case !strings.EqualFold(answer.TokenType, tokenType):
		return nil, errors.New("its token_type is not Bearer")
	case answer.ExpiresIn <= 0:
		return nil, errors.New("no expires_in in it")
	}
	life := time.Duration(min(answer.ExpiresIn, int64(maxExpiresIn/time.Second))) * time.Second
	return &Token{Secret: auth.NewSecret(answer.AccessToken), ExpiresAt: asked.Add(life).UTC()}, nil
}

// parseAccountToken reads a response of generateAccessToken. The token expires at Google's
// expireTime, but at most tokenLifetime after the request was sent. This bound matters if the local
// clock is behind Google's clock. Errors quote nothing of the response.
func parseAccountToken(body []byte, asked time.Time) (*Token, error) {
	var answer struct {
		AccessToken string    `json:"accessToken"`
		ExpireTime  time.Time `json:"expireTime"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, errNotJSON
	}
	switch {
	case !isBearer(answer.AccessToken):
		return nil, errors.New("no accessToken in it")
	case answer.ExpireTime.IsZero():
		return nil, errors.New("no expireTime in it")
	}
	expires := slices.MinFunc([]time.Time{answer.ExpireTime, asked.Add(tokenLifetime)}, time.Time.Compare)
	return &Token{Secret: auth.NewSecret(answer.AccessToken), ExpiresAt: expires.UTC()}, nil
}

// isBearer reports whether s can stand in an Authorization header: printable ASCII without spaces.
// Source: RFC 6750 §2.1.
func isBearer(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
