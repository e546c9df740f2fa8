package aws

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/aws/sigv4"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// principal is an authenticated caller: a session or a user. Its zero value is an unknown caller,
// who may do nothing.
type principal struct {
	account string
	session *session // nil for a user
	user    string
	userID  string
	userARN string
}

func (p principal) arn() string {
	if p.session != nil {
		return p.session.arn()
	}
	return p.userARN
}

// id returns the UserId of GetCallerIdentity.
func (p principal) id() string {
	if p.session != nil {
		return p.session.roleID + ":" + p.session.name
	}
	return p.userID
}

func (p principal) names() policy.Principal {
	arns := []string{p.arn()}
	if p.session != nil {
		arns = append(arns, p.session.roleARN)
	}
	return policy.Principal{Account: p.account, ARNs: arns}
}

// authenticate verifies the SigV4 signature of a call and sets the call's caller.
func (c *Cloud) authenticate(call *apiCall) *service.Refusal {
	r, ep, now := call.Request.Request, call.ep, call.Now
	sig, err := sigv4.Parse(r)
	if err != nil {
		return signatureError(err)
	}
	who, secret, err := c.lookup(sig, ep, now)
	if err != nil {
		return service.Refuse(http.StatusForbidden, "InvalidClientTokenId",
			"The security token included in the request is invalid.").Because(err.Error())
	}
	if sig.Service != ep.service {
		return service.Refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"Credential should be scoped to correct service: '"+ep.service+"'. ").
			Because("the signature is for service " + sig.Service)
	}
	if sig.Region != ep.region {
		return service.Refuse(http.StatusForbidden,
			"SignatureDoesNotMatch", "Credential should be scoped to a valid region. ").
			Because("the signature is for region " + sig.Region + ", the endpoint is of " + ep.region)
	}
	if err := sig.Verify(r, call.body, secret, now); err != nil {
		return signatureError(err)
	}
	if s := who.session; s != nil && !now.Before(s.expires) {
		return service.Refuse(http.StatusForbidden, "ExpiredToken", "The security token included in the request is expired")
	}
	call.who, call.Call.Principal = who, who.arn()
	return nil
}

func signatureError(err error) *service.Refusal {
	var e *sigv4.Error
	if !errors.As(err, &e) {
		return service.Refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"The request signature cannot be verified.").Because(err.Error())
	}
	switch {
	case errors.Is(err, sigv4.ErrMissing):
		return service.Refuse(http.StatusForbidden, "MissingAuthenticationToken", e.Message)
	case errors.Is(err, sigv4.ErrIncomplete):
		return service.Refuse(http.StatusBadRequest, "IncompleteSignature", e.Message)
	default: // ErrMismatch or ErrTime
		return service.Refuse(http.StatusForbidden, "SignatureDoesNotMatch", e.Message).Because(e.Reason)
	}
}

// Reasons why lookup finds no caller for a signature.
var (
	errKey          = errors.New("unknown access key")
	errSessionToken = errors.New("wrong session token")
)

// lookup returns the owner and the secret of the access key in a signature. It does not verify the
// signature. The error wraps errKey or errSessionToken.
func (c *Cloud) lookup(sig sigv4.Signature, ep endpoint, now time.Time) (principal, string, error) {
	unknown := func(kind error, reason string) (principal, string, error) {
		return principal{}, "", fmt.Errorf("%w: %s", kind, reason)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if owner, ok := c.keys[sig.AccessKeyID]; ok {
		a := c.account(owner.account)
		u := a.users[owner.user]
		if u == nil || a.partition.id != ep.partition {
			return unknown(errKey, "the access key is of another partition")
		}
		if sig.SecurityToken != "" {
			return unknown(errSessionToken, "a user's key was used with a session token")
		}
		return principal{account: a.id, user: u.name, userID: u.id, userARN: u.arn}, owner.secret, nil
	}
	s, ok := c.sessions.Get(sig.AccessKeyID)
	switch {
	case !ok:
		return unknown(errKey, "there is no such access key")
	case sig.SecurityToken == "":
		return unknown(errKey, "the session token is missing")
	case subtle.ConstantTimeCompare([]byte(s.token), []byte(sig.SecurityToken)) != 1:
		return unknown(errSessionToken, "the session token is not the access key's")
	case s.partition != ep.partition:
		return unknown(errKey, "the session is of another partition")
	case c.roleOf(s) == nil && now.Before(s.expires):
		return unknown(errKey, "the session's role was deleted")
	}
	return principal{account: s.account, session: s}, s.secret, nil
}

// roleOf returns a session's role, or nil if the role was deleted. A role that is created later
// with the same name does not count. The lock must be held.
func (c *Cloud) roleOf(s *session) *role {
	if r := c.account(s.account).roles[s.roleName]; r != nil && r.id == s.roleID {
		return r
	}
	return nil
}

// verdict is the result of IAM's evaluation of a request.
type verdict struct {
	allowed bool
	// AWS's message ends with this text, such as "because no identity-based policy allows the
	// ecr:BatchGetImage action".
	why string
	// reason says which statement or condition decided, for the journal.
	reason string
}

// ask is a caller's request for an action on a resource.
type ask struct {
	action, resource string
	owner            string          // ID of the account that the resource belongs to
	policy           policy.Document // the resource's policy; zero if it has none
	// mustName is set if the resource's policy must allow the action even to callers in the
	// resource's own account. A role's trust policy and a KMS key's policy are such policies.
	mustName bool
	context  policy.Context
}

// authorize evaluates the caller's own policies and the resource's policy. Source: IAM User Guide,
// "Policy evaluation logic".
func (c *Cloud) authorize(p principal, a ask) verdict {
	identity, ok := c.policiesOf(p)
	if !ok {
		return verdict{why: "because no identity-based policy allows the " + a.action + " action", reason: "the role or user was deleted"}
	}
	c.principalContext(p, a.context)
	req := policy.Request{Principal: p.names(), Action: a.action, Resource: a.resource, Context: a.context}
	own := policy.EvaluateAll(identity, req)
	onResource := a.policy.Evaluate(req)
	inSession := policy.Decision{Effect: policy.Allow}
	if p.session != nil && len(p.session.policies) > 0 {
		inSession = policy.EvaluateAll(p.session.policies, req)
	}
	for _, d := range []struct {
		decision policy.Decision
		kind     string
	}{{own, "an identity-based"}, {onResource, "a resource-based"}, {inSession, "a session"}} {
		if d.decision.Effect == policy.Deny {
			return verdict{why: "with an explicit deny in " + d.kind + " policy", reason: d.kind + " policy: " + d.decision.Reason}
		}
	}
	no := func(kind, reason string) verdict {
		return verdict{why: "because no " + kind + " policy allows the " + a.action + " action", reason: kind + " policy: " + reason}
	}
	resourceAllows := onResource.Effect == policy.Allow
	switch {
	case inSession.Effect != policy.Allow:
		return no("session", inSession.Reason)
	case (a.mustName || a.owner != p.account) && !resourceAllows:
		return no("resource-based", onResource.Reason)
	case own.Effect == policy.Allow:
		return verdict{allowed: true}
	case a.owner == p.account && resourceAllows && !onResource.ByAccount:
		return verdict{allowed: true}
	default:
		return no("identity-based", own.Reason)
	}
}

// permit refuses a request that authorize does not allow, with an error code and AWS's message.
func (c *Cloud) permit(p principal, a ask, code string) *service.Refusal {
	v := c.authorize(p, a)
	if v.allowed {
		return nil
	}
	return service.Refuse(http.StatusForbidden, code, notAuthorized(p, a.action, a.resource, v)).Because(v.reason)
}

// policiesOf returns the caller's current permission policies.
func (c *Cloud) policiesOf(p principal) ([]policy.Document, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a := c.account(p.account)
	if p.session != nil {
		r := c.roleOf(p.session)
		if r == nil {
			return nil, false
		}
		docs := slices.Collect(maps.Values(r.policies))
		for _, arn := range r.managed {
			docs = append(docs, a.managed[arn])
		}
		return docs, true
	}
	u := a.users[p.user]
	if p.user == "" || u == nil || u.id != p.userID {
		return nil, false
	}
	return slices.Collect(maps.Values(u.policies)), true
}

// requestContext returns the condition keys that every request has. Source: IAM User Guide, "AWS
// global condition context keys".
func requestContext(ep endpoint, now time.Time) policy.Context {
	ctx := policy.Context{}
	ctx.Set("aws:SecureTransport", "true")
	ctx.Set("aws:CurrentTime", now.UTC().Format(time.RFC3339))
	ctx.Set("aws:EpochTime", strconv.FormatInt(now.Unix(), 10))
	ctx.Set("aws:RequestedRegion", ep.region)
	return ctx
}

// principalContext sets the condition keys that depend on the caller. Source: IAM User Guide, "AWS
// global condition context keys".
func (c *Cloud) principalContext(p principal, ctx policy.Context) {
	ctx.Set("aws:PrincipalAccount", p.account)
	ctx.Set("aws:userid", p.id())
	if p.session == nil {
		ctx.Set("aws:PrincipalType", "User")
		ctx.Set("aws:PrincipalArn", p.userARN)
		ctx.Set("aws:username", p.user)
		return
	}
	ctx.Set("aws:PrincipalType", "AssumedRole")
	ctx.Set("aws:PrincipalArn", p.session.roleARN)
	ctx.Set("aws:TokenIssueTime", p.session.issued.UTC().Format(time.RFC3339))
	for k, v := range p.session.tags {
		ctx.Set("aws:PrincipalTag/"+k, v)
	}
	if p.session.sourceIdentity != "" {
		ctx.Set("aws:SourceIdentity", p.session.sourceIdentity)
	}
	if p.session.federated != "" {
		ctx.Set("aws:FederatedProvider", p.session.federated)
	}
}
