package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

const (
	// tokenLifetime is the longest life of a token that no policy of the organization needs to allow, and the life that every proof and
	// every service account's token is asked for. Source: IAM, "Quotas and limits".
	tokenLifetime = time.Hour
	// maxExpiresIn is the longest lifetime of a token that is believed: the most that an organization's policy can allow. Source: IAM, "Create
	// short-lived credentials for a service account".
	maxExpiresIn = 12 * time.Hour
	// impersonationScope limits a token that only serves to get another one. Source: IAM Service Account Credentials API,
	// generateAccessToken, "Authorization scopes".
	impersonationScope = "https://www.googleapis.com/auth/iam"
	// tokenType is the only type of token that is given out. Source: RFC 6750.
	tokenType = "Bearer"
	// health is where people see how the services are.
	health = "status.cloud.google.com"
)

// Parameters of a token exchange. Sources: RFC 8693 §2.1 and §3; Security Token Service API, v1.token.
const (
	grantTypeExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken   = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // a name, no credential
	typeJWT           = "urn:ietf:params:oauth:token-type:jwt"
)

// NewTokenForServiceAccount implements [auth.Provider] with a token exchange (RFC 8693) at the universe's Security Token Service, and
// generateAccessToken of IAM Credentials if the identity names a service account. The token is a [*Token].
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	x, err := p.plan(ctx, request)
	if err != nil {
		return nil, err
	}
	wanted, err := p.scopes.Parse(request.Key.Scopes)
	if err != nil {
		return nil, err
	}
	if err := checkProof(proof, request); err != nil {
		return nil, err
	}
	if x.account.Email == "" {
		return orNil(p.federate(ctx, x, proof, request, *wanted))
	}
	federated, err := p.federate(ctx, x, proof, request, []string{impersonationScope})
	if err != nil {
		return nil, err
	}
	return orNil(p.impersonate(ctx, x, federated, proof, request, *wanted))
}

// checkProof refuses a proof of another subject. Where the subject itself is the principal, Google would give a token to whomever the
// proof names.
func checkProof(proof auth.Proof, request *auth.Request) error {
	want := request.Key.Subject.String()
	got := remote.ClaimsOf(proof).Subject
	// The sub of a WorkloadIdentity goes on with its UID; no name has a colon.
	if got == want || strings.HasPrefix(got, want+":") {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeProofInvalid,
		Fix: "have the Prover vouch for the subject that it is asked for",
		Err: errors.New("the proof is not of " + want),
	}
}

// orNil keeps a nil *Token from becoming an interface that is not nil.
func orNil(token *Token, err error) (auth.Token, error) {
	if err != nil {
		return nil, err
	}
	return token, nil
}

// federate exchanges the proof for a token of the subject itself.
func (p *Provider) federate(ctx context.Context, x plan, proof auth.Proof, request *auth.Request, wanted []string) (*Token, error) {
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
	started := time.Now()
	answer, err := remote.Call(ctx, p.calls.Via(request.ProxyURL), func(ctx context.Context) (*http.Request, error) {
		return newPost(ctx, "https://"+where+"/v1/token", "application/x-www-form-urlencoded", form)
	})
	if err != nil {
		return nil, remote.Unanswered(ctx, err, where).Error(auth.StageExchange, operation)
	}
	if answer.Status != http.StatusOK {
		return nil, p.exchangeFailure(answer, where, x, proof, request).Error(auth.StageExchange, operation)
	}
	token, err := parseToken(answer.Body, started)
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageExchange, operation)
	}
	return token, nil
}

// impersonate exchanges the subject's token for one of the service account.
func (p *Provider) impersonate(ctx context.Context, x plan, federated *Token, proof auth.Proof, request *auth.Request, wanted []string) (*Token, error) {
	operation := "generateAccessToken for " + x.account.Email
	where := p.universe.APIHost("iamcredentials")
	body, err := json.Marshal(struct {
		Scope    []string `json:"scope"`
		Lifetime string   `json:"lifetime"`
	}{wanted, "3600s"})
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageImpersonation, operation)
	}
	started := time.Now()
	answer, err := remote.Call(ctx, p.calls.Via(request.ProxyURL), func(ctx context.Context) (*http.Request, error) {
		post, err := newPost(ctx, "https://"+where+"/v1/projects/-/serviceAccounts/"+x.account.Email+":generateAccessToken", "application/json", string(body))
		if err == nil {
			post.Header.Set("Authorization", tokenType+" "+federated.Secret.Reveal())
		}
		return post, err
	})
	if err != nil {
		return nil, remote.Unanswered(ctx, err, where).Error(auth.StageImpersonation, operation)
	}
	if answer.Status != http.StatusOK {
		return nil, p.impersonationFailure(answer, where, x, proof, request).Error(auth.StageImpersonation, operation)
	}
	token, err := parseAccountToken(answer.Body, started)
	if err != nil {
		return nil, remote.Invalid(where, "a token", err).Error(auth.StageImpersonation, operation)
	}
	return token, nil
}

func newPost(ctx context.Context, target, contentType, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	return request, nil
}

// errNotJSON is why a response cannot be read at all.
var errNotJSON = errors.New("it is not JSON of the expected form")

// parseToken reads the response of a token exchange (RFC 8693 §2.2.1), or the metadata server's of the same form, to a request that
// was sent at started. Its errors quote nothing of it.
func parseToken(body []byte, started time.Time) (*Token, error) {
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
	life := min(time.Duration(min(answer.ExpiresIn, int64(maxExpiresIn/time.Second)))*time.Second, maxExpiresIn)
	return &Token{Secret: auth.NewSecret(answer.AccessToken), ExpiresAt: started.Add(life).UTC()}, nil
}

// parseAccountToken reads the response of generateAccessToken. The token ends at the time that Google names, but no later than its
// longest lifetime after the request: by a clock that is slow, Google's time is too far ahead. Its errors quote nothing of the response.
func parseAccountToken(body []byte, started time.Time) (*Token, error) {
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
	expires := answer.ExpireTime
	if latest := started.Add(tokenLifetime); expires.After(latest) {
		expires = latest
	}
	return &Token{Secret: auth.NewSecret(answer.AccessToken), ExpiresAt: expires.UTC()}, nil
}

// isBearer reports whether s can stand in an Authorization header: printable ASCII without spaces. Source: RFC 6750 §2.1.
func isBearer(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
