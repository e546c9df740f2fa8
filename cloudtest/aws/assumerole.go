package aws

import (
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

type assumeRoleResponse struct {
	XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleResponse"`
	Result  struct {
		AssumedRoleUser  assumedRoleXML
		Credentials      credentialsXML
		PackedPolicySize int    `xml:",omitempty"`
		SourceIdentity   string `xml:",omitempty"`
	} `xml:"AssumeRoleResult"`
	Metadata metadata `xml:"ResponseMetadata"`
}

// tagLimits are STS's. Source: AWS STS API Reference, Tag.
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// assumeRole gives a proved caller a session of another role. Source: AWS STS API Reference, AssumeRole.
func (c *Cloud) assumeRole(who principal, p *params, ep endpoint, call *journal.Call, now time.Time, id string) (any, *apiError) {
	req := readSessionRequest(p, call)
	externalID := p.text("ExternalId", limits{min: 2, max: 1224, pattern: externalIDPattern})
	source := p.text("SourceIdentity", limits{min: 2, max: 64, pattern: sessionPattern})
	keys, values := p.list("Tags", ".Key", maxTags), p.list("Tags", ".Value", maxTags)
	transitive := p.list("TransitiveTagKeys", "", maxTags)
	for _, unsupported := range []string{"SerialNumber", "TokenCode", "ProvidedContexts.member.1.ProviderArn"} {
		if p.values.Has(unsupported) {
			p.errors = append(p.errors, "Value at '"+unsupported+"' failed to satisfy constraint: Member must be absent in the local cloud")
		}
	}
	tags := readTags(p, keys, values, transitive)
	if refusal := req.check(p, ep); refusal != nil {
		return nil, refusal
	}
	if who.session != nil {
		if req.duration > chainedDuration {
			return nil, validation("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining")
		}
		var refusal *apiError
		if transitive, source, refusal = inherit(who.session, tags, transitive, source); refusal != nil {
			return nil, refusal
		}
	}
	ctx := requestContext(ep, now)
	ctx.Set("sts:RoleSessionName", req.name)
	if externalID != "" {
		ctx.Set("sts:ExternalId", externalID)
	}
	if source != "" {
		ctx.Set("sts:SourceIdentity", source)
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
		actions = append(actions, "sts:SetSourceIdentity")
	}
	role, refusal := c.trustPrincipal(who, req, actions, ctx)
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
	s := c.open(session{name: req.name, policies: policies, tags: tags, transitive: transitive, sourceIdentity: source},
		role, req.role, req.duration, now)
	var out assumeRoleResponse
	out.Result.AssumedRoleUser = s.assumedRole()
	out.Result.Credentials = s.credentials()
	out.Result.PackedPolicySize = size
	out.Result.SourceIdentity = source
	out.Metadata.RequestID = id
	return out, nil
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
		if folded[strings.ToLower(k)] { // tag keys differ in more than case
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

// inherit adds to a chained session what its source session hands on: transitive tags, which may not be set anew, and the source identity, which may
// not be changed.
func inherit(from *session, tags map[string]string, transitive []string, source string) ([]string, string, *apiError) {
	for _, k := range from.transitive {
		for asked := range tags {
			if strings.EqualFold(asked, k) {
				return nil, "", validation("One of the specified transitive tag keys can't be set because it conflicts with a transitive tag key from the calling session.")
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
		return nil, "", refused(http.StatusForbidden, "AccessDenied", "SourceIdentity cannot be changed in a chained session")
	default:
		return transitive, from.sourceIdentity, nil
	}
}

// trustPrincipal asks the role's trust policy and the caller's own policies, for each of the actions.
func (c *Cloud) trustPrincipal(who principal, req sessionRequest, actions []string, ctx policy.Context) (role, *apiError) {
	r, ok := c.find(req.role, req.arn)
	for _, action := range actions {
		v := verdict{reason: "there is no such role"}
		if ok {
			v = c.authorize(who, action, req.arn, req.role.account, r.trust, true, ctx)
		}
		if !v.allowed {
			return role{}, refused(http.StatusForbidden, "AccessDenied",
				"User: "+who.arn()+" is not authorized to perform: "+action+" on resource: "+req.arn).because(v.reason)
		}
	}
	return r, nil
}
