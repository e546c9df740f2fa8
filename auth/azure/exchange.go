package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// assertionType says that a client assertion is a JWT. Source: RFC 7523 §2.2.
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// NewToken implements [auth.Provider] with the client credentials grant. The proof is the client
// assertion (RFC 7523). The token is a [*Token]. The proof is sent only to the cloud's authority;
// redirects are not followed.
func (p *Provider) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	x, err := p.plan(request)
	if err != nil {
		return nil, err
	}
	token, code, err := p.exchange(ctx, x, jwt, request)
	if fallback, ok := p.registryFallback(request.Key, x.scope, code); ok {
		x.scope = fallback
		token, _, err = p.exchange(ctx, x, jwt, request)
	}
	return token, err
}

// exchange exchanges the proof for a token. If Entra refuses, the returned code is Entra's error
// code; otherwise it is zero.
func (p *Provider) exchange(ctx context.Context, x plan, proof *auth.JWT, request *auth.Request) (_ auth.Token, code aadsts, _ error) {
	operation := fmt.Sprintf("token for application %s of tenant %s", x.client, x.tenant)
	started := time.Now()
	answer, err := p.post(ctx, request, p.cloud.Authority+"/"+x.tenant+"/oauth2/v2.0/token", url.Values{
		"grant_type":            {"client_credentials"},
		"client_id":             {x.client},
		"scope":                 {x.scope},
		"client_assertion_type": {assertionType},
		"client_assertion":      {proof.Token.Reveal()},
	})
	if err != nil {
		return nil, 0, remote.Unanswered(ctx, err, p.where()).Error(auth.StageExchange, operation)
	}
	if answer.Status != http.StatusOK {
		f, code := entraFailure(answer, p.where())
		if fix := code.verdict().fix; fix != "" {
			subject := request.Key.Subject
			f.Fix = asked{subject, remote.ClaimsOf(proof).Shown(subject), x.identity, x.scope, p.cloud}.fill(fix)
		}
		return nil, code, f.Error(auth.StageExchange, operation)
	}
	token, err := parseToken(answer.Body, started)
	if err != nil {
		return nil, 0, remote.Invalid(p.where(), "a token", err).Error(auth.StageExchange, operation)
	}
	return token, 0, nil
}

// where returns the authority's name, for use in errors.
func (p *Provider) where() string {
	return "Microsoft Entra at " + strings.TrimPrefix(p.cloud.Authority, "https://")
}
