package aws

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

type webIdentityResponse struct {
	XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
	Result  struct {
		Audience                    string
		AssumedRoleUser             assumedRoleXML
		Provider                    string
		Credentials                 credentialsXML
		SubjectFromWebIdentityToken string
		PackedPolicySize            int `xml:",omitempty"`
	} `xml:"AssumeRoleWithWebIdentityResult"`
	Metadata metadata `xml:"ResponseMetadata"`
}

// assumeRoleWithWebIdentity judges a token. Source: AWS STS API Reference, AssumeRoleWithWebIdentity; its order is: parameters, the issuer among the
// account's providers, keys and signature, time, audience, trust policy.
func (c *Cloud) assumeRoleWithWebIdentity(ctx context.Context, p *params, ep endpoint, call *journal.Call, now time.Time, id string) (any, *apiError) {
	req := readSessionRequest(p, call)
	raw := p.text("WebIdentityToken", limits{required: true, min: 4, max: 20000, secret: true})
	if p.values.Has("ProviderId") {
		p.fail(nil, "providerId", "be absent: only OpenID Connect tokens are taken")
	}
	if refusal := req.check(p, ep); refusal != nil {
		return nil, refusal
	}
	token, err := oidc.Read(raw)
	if err != nil {
		return nil, identityError("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)").because(err.Error())
	}
	call.Issuer, call.Subject, call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	provider, ok := c.provider(req.role, token.Issuer)
	if !ok {
		return nil, identityError("No OpenIDConnect provider found in your account for " + token.Issuer)
	}
	if err := c.verifier.Verify(ctx, token, now); err != nil {
		return nil, tokenError(err, token, now)
	}
	audience, ok := audienceOf(token)
	if !ok || !slices.Contains(provider.ClientIDs, audience) {
		return nil, identityError("Incorrect token audience").
			because(fmt.Sprintf("the token is for %q, the provider accepts %q", token.Audience, provider.ClientIDs))
	}
	if claim, ok := sessionClaim(token); ok {
		return nil, identityError("The local cloud does not take session tags or a source identity from tokens").because("the token has the claim " + claim + ", which makes session tags or a source identity")
	}
	federated := federatedARN(req.role.partition, req.role.account, provider.URL)
	role, refusal := c.trustWebIdentity(req, token, audience, federated, requestContext(ep, now))
	if refusal != nil {
		return nil, refusal
	}
	if req.duration > role.maxSession {
		return nil, validation("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	policies, size, refusal := c.sessionPolicies(req)
	if refusal != nil {
		return nil, refusal
	}
	s := c.open(session{name: req.name, policies: policies, federated: federated}, role, req.role, req.duration, now)
	var out webIdentityResponse
	out.Result.Audience = audience
	out.Result.AssumedRoleUser = s.assumedRole()
	out.Result.Provider = federated
	out.Result.Credentials = s.credentials()
	out.Result.SubjectFromWebIdentityToken = token.Subject
	out.Result.PackedPolicySize = size
	out.Metadata.RequestID = id
	call.Principal = s.arn()
	return out, nil
}

func identityError(message string) *apiError {
	return refused(http.StatusBadRequest, "InvalidIdentityToken", message)
}

// provider finds the issuer among those of the role's account. An account that does not exist has none.
func (c *Cloud) provider(a roleARN, issuer string) (OIDCProvider, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	acc := c.accounts[a.account]
	if acc == nil {
		return OIDCProvider{}, false
	}
	p, ok := acc.providers[issuer]
	return p, ok
}

// audienceOf is the one audience that AWS looks at: azp if there is one, else a sole aud. A token for several receivers is for none.
func audienceOf(t oidc.Token) (string, bool) {
	if t.AuthorizedParty != "" {
		return t.AuthorizedParty, true
	}
	if len(t.Audience) != 1 {
		return "", false
	}
	return t.Audience[0], true
}

// sessionClaim finds a claim for which AWS asks the trust policy for more than AssumeRoleWithWebIdentity: for sts:TagSession or sts:SetSourceIdentity.
// Sources: IAM User Guide, "Pass session tags in AWS STS" and "Monitor and control actions taken with assumed roles".
func sessionClaim(t oidc.Token) (string, bool) {
	for claim := range t.Claims {
		name, ok := strings.CutPrefix(claim, "https://aws.amazon.com/")
		if ok && (name == "source_identity" || name == "tags" || strings.HasPrefix(name, "tags/")) {
			return claim, true
		}
	}
	return "", false
}

// trustWebIdentity asks the role's trust policy. That the role does not exist is not told.
func (c *Cloud) trustWebIdentity(req sessionRequest, token oidc.Token, audience, federated string, ctx policy.Context) (role, *apiError) {
	const action = "sts:AssumeRoleWithWebIdentity"
	denied := func(reason string) (role, *apiError) {
		return role{}, refused(http.StatusForbidden, "AccessDenied", "Not authorized to perform "+action).because(reason)
	}
	r, ok := c.find(req.role, req.arn)
	if !ok {
		return denied("there is no such role")
	}
	prefix := strings.TrimPrefix(token.Issuer, "https://")
	ctx.Set(prefix+":sub", token.Subject)
	ctx.Set(prefix+":aud", audience)
	if token.AuthorizedParty != "" {
		ctx.Set(prefix+":oaud", token.Audience...)
	}
	ctx.Set("sts:RoleSessionName", req.name)
	ctx.Set("aws:FederatedProvider", federated)
	decision := r.trust.Evaluate(policy.Request{
		Principal: policy.Principal{Federated: federated}, Action: action, Resource: req.arn, Context: ctx,
	})
	if decision.Effect != policy.Allow {
		return denied("trust policy: " + decision.Reason)
	}
	return r, nil
}

// tokenError puts a verifier's refusal into STS's words.
func tokenError(err error, t oidc.Token, now time.Time) *apiError {
	const documentation = "please reference AssumeRoleWithWebIdentity documentation for requirements"
	var e *apiError
	switch {
	case errors.Is(err, oidc.ErrExpired):
		e = refused(http.StatusBadRequest, "ExpiredTokenException", // AWS leaves the blank out
			fmt.Sprintf("Token expired: current date/time %d must be before the expiration date/time%d", now.Unix(), t.Expiry.Unix()))
	case errors.Is(err, oidc.ErrNotYetValid):
		e = refused(http.StatusForbidden, "IDPRejectedClaim",
			"The identity provider (IdP) reported that authentication failed. This might be because the claim is invalid.")
	case errors.Is(err, oidc.ErrUnreachable):
		e = refused(http.StatusBadRequest, "IDPCommunicationError",
			"The request could not be fulfilled because the identity provider (IDP) that was asked to verify the incoming identity token could not be reached.")
	case errors.Is(err, oidc.ErrIssuer), errors.Is(err, oidc.ErrKey):
		e = identityError("Couldn't retrieve verification key from your identity provider,  " + documentation)
	default: // ErrSignature
		e = identityError("The web identity token that was passed could not be validated by AWS. " +
			"Get a new identity token from the identity provider and then retry the request.")
	}
	return e.because(err.Error())
}
