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

// NewTokenForServiceAccount implements [auth.Provider] with the client credentials grant and the proof as client assertion
// (RFC 7523), for a subject of any kind. The token is a [*Token]. The proof goes to the cloud's authority and nowhere else; no
// redirect is followed.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	id, err := p.subject(request)
	if err != nil {
		return nil, err
	}
	scope, err := p.scope(request.Key)
	if err != nil {
		return nil, err
	}
	token, code, err := p.exchange(ctx, proof, request, id, scope)
	if fallback, ok := p.registryFallback(request.Key, scope, code); ok {
		token, _, err = p.exchange(ctx, proof, request, id, fallback)
	}
	if err != nil {
		return nil, err
	}
	return token, nil
}

// exchange asks for one scope. The code is Entra's, when Entra refused.
func (p *Provider) exchange(ctx context.Context, proof auth.Proof, request *auth.Request, id identity, scope string) (*Token, aadsts, error) {
	operation := fmt.Sprintf("token for application %s of tenant %s", id.client, id.tenant)
	asked := time.Now()
	got, err := p.post(ctx, request, p.cloud.Authority+"/"+id.tenant+"/oauth2/v2.0/token", url.Values{
		"grant_type":            {"client_credentials"},
		"client_id":             {id.client},
		"scope":                 {scope},
		"client_assertion_type": {assertionType},
		"client_assertion":      {proof.Token.Reveal()},
	})
	if err != nil {
		return nil, 0, remote.Unanswered(ctx, err, p.where()).Error(auth.StageExchange, operation)
	}
	if got.Status != http.StatusOK {
		f, code := entraFailure(got, p.where())
		if fix := p.fix(code, proof, request, id, scope); fix != "" {
			f.Fix = fix
		}
		return nil, code, f.Error(auth.StageExchange, operation)
	}
	token, err := entraToken(got.Body, asked)
	if err != nil {
		return nil, 0, remote.Invalid(p.where(), "a token", err).Error(auth.StageExchange, operation)
	}
	return token, 0, nil
}

// where names the authority for people.
func (p *Provider) where() string {
	return "Microsoft Entra at " + strings.TrimPrefix(p.cloud.Authority, "https://")
}

// fix says how to mend what Entra refused; empty if we know nothing better than the general fix.
func (p *Provider) fix(code aadsts, proof auth.Proof, request *auth.Request, id identity, scope string) string {
	subject := request.Key.Subject
	c := remote.ClaimsOf(proof).Shown(subject)
	federated := fmt.Sprintf("add a federated credential with issuer %s, subject %s and audience %s to application %s", c.Issuer, c.Subject, p.cloud.ProofAudience, id.client)
	switch code {
	case noCredentials:
		return federated
	case noMatch, noIssuer, noAudience, noSubject, noSubjectExactly, noSubjectPattern:
		return fmt.Sprintf("%s (each is compared letter by letter, slashes at the end included; an application has at most %d)", federated, maxFederated)
	case noApplication:
		return fmt.Sprintf("check that %s is the client ID of an application or managed identity of tenant %s", clientAttribute().At(subject), id.tenant)
	case applicationDisabled:
		return fmt.Sprintf("enable application %s in tenant %s", id.client, id.tenant)
	case noTenant, tenantMalformed:
		return fmt.Sprintf("check %s, or AZURE_TENANT_ID of the controller where it is not set, and that the tenant is of %s", tenantAttribute().At(subject), p.cloud.Name)
	case assertionTime:
		return "compare the clock of the cluster's API server, which dates the proof, with that of Microsoft Entra: they differ by more than five minutes"
	case assertionInvalid, assertionSignature, issuerUnreachable, issuerInvalid:
		return fmt.Sprintf("check that the keys of %s are those of this cluster, and that Microsoft Entra can fetch them from the internet", c.Issuer)
	case assertionAlgorithm:
		return "have " + c.Issuer + " sign with an RSA key (RS256): Microsoft Entra verifies no other proof"
	case assertionMalformed, assertionLife:
		return "check how " + c.Issuer + " makes its tokens"
	case assertionAudience:
		return "give the federated credential of application " + id.client + " the audience " + p.cloud.ProofAudience
	case noResource, resourceInvalid, scopeInvalid, scopeOfUsers:
		return fmt.Sprintf("check that the resource of scope %s is one of %s and used in tenant %s", scope, p.cloud.Name, id.tenant)
	case blockedByPolicy:
		return fmt.Sprintf("exempt application %s from the conditional access policy of tenant %s, or call from where it permits", id.client, id.tenant)
	case notAssigned:
		return fmt.Sprintf("assign application %s to a role of the resource of scope %s", id.client, scope)
	default:
		return ""
	}
}
