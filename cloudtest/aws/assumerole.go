package aws

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// assumedRole is the result of AssumeRole.
type assumedRole struct {
	AssumedRoleUser  assumedRoleXML
	Credentials      credentialsXML
	PackedPolicySize int    `xml:",omitempty"`
	SourceIdentity   string `xml:",omitempty"`
}

// Limits on STS's tags. Source: AWS STS API Reference, Tag.
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// assumeRole opens a session of a role for an authenticated caller. Source: AWS STS API Reference,
// AssumeRole.
func (c *Cloud) assumeRole(call *apiCall) (any, *service.Refusal) {
	p, req := call.params, readSessionRequest(call)
	externalID := p.text("ExternalId", limits{min: 2, max: 1224, pattern: externalIDPattern})
	source := p.text("SourceIdentity", limits{min: 2, max: 64, pattern: sessionPattern})
	keys, values := p.list("Tags", ".Key", maxTags), p.list("Tags", ".Value", maxTags)
	transitive := p.list("TransitiveTagKeys", "", maxTags)
	p.absent("SerialNumber", "TokenCode", "ProvidedContexts.member.1.ProviderArn")
	tags := readTags(p, keys, values, transitive)
	if refusal := req.check(call); refusal != nil {
		return nil, refusal
	}
	if from := call.who.session; from != nil {
		if req.duration > chainedDuration {
			return nil, validation("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining")
		}
		var refusal *service.Refusal
		if transitive, source, refusal = inherit(from, tags, transitive, source); refusal != nil {
			return nil, refusal
		}
	}
	ctx := requestContext(call.ep, call.Now)
	ctx.Set("sts:RoleSessionName", req.name)
	if externalID != "" {
		ctx.Set("sts:ExternalId", externalID)
	}
	for k, v := range tags {
		ctx.Set("aws:RequestTag/"+k, v)
	}
	ctx.Set("aws:TagKeys", slices.Sorted(maps.Keys(tags))...)
	ctx.Set("sts:TransitiveTagKeys", transitive...)
	actions := []string{"sts:AssumeRole"}
	if len(tags) > 0 {
		actions = append(actions, "sts:TagSession")
	}
	if source != "" {
		ctx.Set("sts:SourceIdentity", source)
		actions = append(actions, "sts:SetSourceIdentity")
	}
	role, refusal := c.trustPrincipal(call.who, req, actions, ctx)
	if refusal != nil {
		return nil, refusal
	}
	s, refusal := c.start(req, role, session{tags: tags, transitive: transitive, sourceIdentity: source}, call.Now)
	if refusal != nil {
		return nil, refusal
	}
	return assumedRole{
		AssumedRoleUser: s.assumedRole(), Credentials: s.credentials(), PackedPolicySize: s.packed, SourceIdentity: source,
	}, nil
}

func readTags(p *params, keys, values, transitive []string) map[string]string {
	tags := map[string]string{}
	if len(keys) != len(values) {
		p.errors = append(p.errors, "Value at 'tags' failed to satisfy constraint: Member must have a key and a value each")
		return tags
	}
	folded := map[string]bool{}
	for i, k := range keys {
		if k == "" || len(k) > maxTagKey || len(values[i]) > maxTagValue || strings.HasPrefix(strings.ToLower(k), "aws:") {
			p.errors = append(p.errors, "Value at 'tags' failed to satisfy constraint: Member must have a key of 1 to 128 characters without prefix aws: and a value of at most 256")
		}
		if folded[strings.ToLower(k)] { // duplicate: tag keys are compared without regard to case
			p.errors = append(p.errors, "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		folded[strings.ToLower(k)] = true
		tags[k] = values[i]
	}
	for _, k := range transitive {
		if _, ok := tags[k]; !ok {
			p.errors = append(p.errors, "The specified transitive tag key must be included in the requested tags.")
		}
	}
	return tags
}

// inherit adds the transitive tags and the source identity of the caller's session to a new
// session. It refuses a request that would override one of them.
func inherit(from *session, tags map[string]string, transitive []string, source string) ([]string, string, *service.Refusal) {
	for _, k := range from.transitive {
		for asked := range tags {
			if strings.EqualFold(asked, k) {
				return nil, "", validation(
					"One of the specified transitive tag keys can't be set because it conflicts with a transitive tag key from the calling session.")
			}
		}
	}
	for _, k := range from.transitive {
		tags[k] = from.tags[k]
		transitive = append(transitive, k)
	}
	switch {
	case from.sourceIdentity == "":
		return transitive, source, nil
	case source != "" && source != from.sourceIdentity:
		return nil, "", service.Refuse(http.StatusForbidden, "AccessDenied", "SourceIdentity cannot be changed in a chained session")
	default:
		return transitive, from.sourceIdentity, nil
	}
}

// trustPrincipal returns the requested role if its trust policy and the caller's policies allow all
// these actions on the role.
func (c *Cloud) trustPrincipal(who principal, req sessionRequest, actions []string, ctx policy.Context) (role, *service.Refusal) {
	r, ok := c.find(req.role, req.arn)
	for _, action := range actions {
		v := verdict{reason: "there is no such role"}
		if ok {
			v = c.authorize(who, ask{
				action: action, resource: req.arn, owner: req.role.account, policy: r.trust, mustName: true, context: ctx,
			})
		}
		if !v.allowed {
			return role{}, service.Refuse(http.StatusForbidden, "AccessDenied",
				"User: "+who.arn()+" is not authorized to perform: "+action+" on resource: "+req.arn).Because(v.reason)
		}
	}
	return r, nil
}
