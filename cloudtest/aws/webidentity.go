package aws

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// webIdentity is the result of AssumeRoleWithWebIdentity.
type webIdentity struct {
	Audience                    string
	AssumedRoleUser             assumedRoleXML
	Provider                    string
	Credentials                 credentialsXML
	SubjectFromWebIdentityToken string
	PackedPolicySize            int `xml:",omitempty"`
}

// assumeRoleWithWebIdentity exchanges a token for a session of a role. The order of the checks is:
// parameters, the account's provider for the issuer, keys and signature, time, audience, trust
// policy. Source: AWS STS API Reference, AssumeRoleWithWebIdentity.
func (c *Cloud) assumeRoleWithWebIdentity(call *apiCall) (any, *service.Refusal) {
	p, req := call.params, readSessionRequest(call)
	raw := p.text("WebIdentityToken", limits{required: true, min: 4, max: 20000, secret: true})
	if p.values.Has("ProviderId") {
		p.fail("null", "providerId", "be absent: only OpenID Connect tokens are taken")
	}
	if refusal := req.check(call); refusal != nil {
		return nil, refusal
	}
	token, err := oidc.Read(raw)
	if err != nil {
		return nil, identityError("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)").
			Because(err.Error())
	}
	call.Call.Issuer, call.Call.Subject, call.Call.Audience = token.Issuer, token.Subject, strings.Join(token.Audience, ",")
	provider, ok := c.provider(req.role, token.Issuer)
	if !ok {
		return nil, identityError("No OpenIDConnect provider found in your account for " + token.Issuer)
	}
	if err := c.verifier.Verify(call.Context(), token, call.Now); err != nil {
		return nil, tokenError(err, token, call.Now)
	}
	audience, ok := audienceOf(token)
	if !ok || !slices.Contains(provider.ClientIDs, audience) {
		return nil, identityError("Incorrect token audience").
			Because(fmt.Sprintf("the token is for %q, the provider accepts %q", token.Audience, provider.ClientIDs))
	}
	if claim, ok := sessionClaim(token); ok {
		return nil, identityError("The local cloud does not take session tags or a source identity from tokens").
			Because("the token has the claim " + claim + ", which makes session tags or a source identity")
	}
	federated := federatedARN(req.role.partition, req.role.account, provider.URL)
	role, refusal := c.trustWebIdentity(req, token, audience, federated, requestContext(call.ep, call.Now))
	if refusal != nil {
		return nil, refusal
	}
	s, refusal := c.start(req, role, session{federated: federated}, call.Now)
	if refusal != nil {
		return nil, refusal
	}
	call.Call.Principal = s.arn()
	return webIdentity{
		Audience: audience, AssumedRoleUser: s.assumedRole(), Provider: federated, Credentials: s.credentials(),
		SubjectFromWebIdentityToken: token.Subject, PackedPolicySize: s.packed,
	}, nil
}

func identityError(message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "InvalidIdentityToken", message)
}

// provider returns the OIDC provider for an issuer in the role's account. It returns false if the
// account or the provider does not exist.
func (c *Cloud) provider(a roleARN, issuer string) (OIDCProvider, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, ok := c.account(a.account).providers[issuer]
	return p.OIDCProvider, ok
}

// audienceOf returns the one audience that AWS checks: azp if the token has it, otherwise a single
// aud. It returns false for several audiences without azp.
func audienceOf(t oidc.Token) (string, bool) {
	if t.AuthorizedParty != "" {
		return t.AuthorizedParty, true
	}
	if len(t.Audience) != 1 {
		return "", false
	}
	return t.Audience[0], true
}

// sessionClaim finds a claim with session tags or a source identity. The local cloud refuses tokens
// with such a claim. AWS accepts these tokens if the trust policy also allows sts:TagSession or
// sts:SetSourceIdentity. Sources: IAM User Guide, "Pass session tags in AWS STS" and "Monitor and
// control actions taken with assumed roles".
func sessionClaim(t oidc.Token) (string, bool) {
	for claim := range t.Claims {
		name, ok := strings.CutPrefix(claim, "https://aws.amazon.com/")
		if ok && (name == "source_identity" || name == "tags" || strings.HasPrefix(name, "tags/")) {
			return claim, true
		}
	}
	return "", false
}

// trustWebIdentity returns the role if its trust policy allows the token. From the refusal, the
// client does not learn whether the role exists.
func (c *Cloud) trustWebIdentity(
	req sessionRequest, token oidc.Token, audience, federated string, ctx policy.Context,
) (role, *service.Refusal) {
	const action = "sts:AssumeRoleWithWebIdentity"
	denied := func(reason string) (role, *service.Refusal) {
		return role{}, service.Refuse(http.StatusForbidden, "AccessDenied", "Not authorized to perform "+action).Because(reason)
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

// tokenError translates an error of the verifier into STS's refusal.
func tokenError(err error, t oidc.Token, now time.Time) *service.Refusal {
	const documentation = "please reference AssumeRoleWithWebIdentity documentation for requirements"
	var e *service.Refusal
	switch {
	case errors.Is(err, oidc.ErrExpired):
		// AWS's message has no blank before the second number.
		e = service.Refuse(http.StatusBadRequest, "ExpiredTokenException",
			fmt.Sprintf("Token expired: current date/time %d must be before the expiration date/time%d", now.Unix(), t.Expiry.Unix()))
	case errors.Is(err, oidc.ErrNotYetValid):
		e = service.Refuse(http.StatusForbidden, "IDPRejectedClaim",
			"The identity provider (IdP) reported that authentication failed. This might be because the claim is invalid.")
	case errors.Is(err, oidc.ErrUnreachable):
		e = service.Refuse(http.StatusBadRequest, "IDPCommunicationError",
			"The request could not be fulfilled because the identity provider (IDP) that was asked to verify the incoming identity token could not be reached.")
	case errors.Is(err, oidc.ErrIssuer), errors.Is(err, oidc.ErrKey):
		e = identityError("Couldn't retrieve verification key from your identity provider,  " + documentation)
	default: // ErrSignature
		e = identityError("The web identity token that was passed could not be validated by AWS. " +
			"Get a new identity token from the identity provider and then retry the request.")
	}
	return e.Because(err.Error())
}
