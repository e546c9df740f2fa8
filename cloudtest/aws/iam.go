package aws

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// iamAPI has the operations of Identity and Access Management that manage issuers, roles and the
// policies of roles. Source: IAM API Reference.
func iamAPI() queryAPI {
	return queryAPI{
		version: "2010-05-08", namespace: "https://iam.amazonaws.com/doc/2010-05-08/",
		operations: map[string]operation{
			"CreateOpenIDConnectProvider": {do: (*Cloud).createProvider},
			"GetOpenIDConnectProvider":    {do: (*Cloud).getProvider},
			"ListOpenIDConnectProviders":  {do: (*Cloud).listProviders},
			"CreateRole":                  {do: (*Cloud).createRole},
			"GetRole":                     {do: (*Cloud).getRole},
			"UpdateAssumeRolePolicy":      {do: (*Cloud).updateTrust},
			"DeleteRole":                  {do: (*Cloud).deleteRole},
			"PutRolePolicy":               {do: (*Cloud).putRolePolicy},
			"GetRolePolicy":               {do: (*Cloud).getRolePolicy},
			"DeleteRolePolicy":            {do: (*Cloud).deleteRolePolicy},
		},
	}
}

// Limits of IAM's parameters. Source: IAM API Reference, CreateOpenIDConnectProvider, CreateRole
// and PutRolePolicy.
const (
	maxRoleName    = 64
	maxPolicyName  = 128
	maxIAMDocument = 131072
	maxClientIDs   = 100
	maxThumbprints = 5
)

var iamNamePattern = regexp.MustCompile(`\A[\w+=,.@-]+\z`)

// name returns the value of a parameter. The value must be a valid name for a role or policy.
func (p *params) name(parameter string, longest int) string {
	return p.text(parameter, limits{required: true, min: 1, max: longest, pattern: iamNamePattern})
}

// document reads a parameter with a policy document.
func (p *params) document(parameter string) []byte {
	return []byte(p.text(parameter, limits{required: true, min: 1, max: maxIAMDocument}))
}

// iamTime formats a time as IAM does.
func iamTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// encodedDocument formats a policy document as IAM does: URL-encoded by RFC 3986.
func encodedDocument(d policy.Document) string {
	return strings.ReplaceAll(url.QueryEscape(d.String()), "+", "%20")
}

func noSuchEntity(message string) *service.Refusal {
	return service.Refuse(http.StatusNotFound, "NoSuchEntity", message)
}

func alreadyExists(message string) *service.Refusal {
	return service.Refuse(http.StatusConflict, "EntityAlreadyExists", message)
}

func malformedPolicy(err error) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, "MalformedPolicyDocument", "The policy document is malformed: "+err.Error())
}

// allowIAM refuses invalid parameters. Then it checks that the caller's policies allow the call's
// operation on a resource.
func (c *Cloud) allowIAM(call *apiCall, resource string) *service.Refusal {
	if refusal := call.params.refusal(); refusal != nil {
		return refusal
	}
	call.Call.Resource = resource
	return c.requireOn(call, resource, "iam:"+call.Call.Operation)
}

// inAccount calls f with the caller's account, under the lock, and returns the result.
func (c *Cloud) inAccount(call *apiCall, f func(*account) (any, *service.Refusal)) (any, *service.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(c.accounts[call.who.account])
}

// createdProvider is the result of CreateOpenIDConnectProvider.
type createdProvider struct {
	OpenIDConnectProviderArn string
}

// createProvider adds an issuer to the account. If the call has no thumbprint, AWS fetches the
// issuer's certificate during the call. The local cloud connects to the issuer only when the first
// token comes.
func (c *Cloud) createProvider(call *apiCall) (any, *service.Refusal) {
	p := call.params
	created := OIDCProvider{
		URL:         p.text("Url", limits{required: true, min: 1, max: 255}),
		ClientIDs:   p.list("ClientIDList", "", maxClientIDs),
		Thumbprints: p.list("ThumbprintList", "", maxThumbprints),
	}
	p.absent("Tags.member.1.Key")
	arn := federatedARN(call.ep.partition, call.who.account, created.URL)
	if refusal := c.allowIAM(call, arn); refusal != nil {
		return nil, refusal
	}
	return c.inAccount(call, func(a *account) (any, *service.Refusal) {
		if _, exists := a.providers[created.URL]; exists {
			return nil, alreadyExists("Provider with url " + created.URL + " already exists.")
		}
		if err := a.putProvider(created); err != nil {
			return nil, validation(err.Error())
		}
		return createdProvider{arn}, nil
	})
}

// providerXML is the result of GetOpenIDConnectProvider.
type providerXML struct {
	URL         string   `xml:"Url"`
	ClientIDs   []string `xml:"ClientIDList>member"`
	Thumbprints []string `xml:"ThumbprintList>member"`
	CreateDate  string
}

func (c *Cloud) getProvider(call *apiCall) (any, *service.Refusal) {
	arn := call.params.text("OpenIDConnectProviderArn", limits{required: true, min: 20, max: 2048})
	if refusal := c.allowIAM(call, arn); refusal != nil {
		return nil, refusal
	}
	return c.inAccount(call, func(a *account) (any, *service.Refusal) {
		for _, p := range a.providers {
			if federatedARN(a.partition.id, a.id, p.URL) == arn {
				return providerXML{strings.TrimPrefix(p.URL, "https://"), p.ClientIDs, p.Thumbprints, iamTime(p.created)}, nil
			}
		}
		return nil, noSuchEntity("OpenIDConnect Provider not found for arn " + arn)
	})
}

// providerList is the result of ListOpenIDConnectProviders.
type providerList struct {
	Providers []providerEntry `xml:"OpenIDConnectProviderList>member"`
}

type providerEntry struct{ Arn string }

func (c *Cloud) listProviders(call *apiCall) (any, *service.Refusal) {
	if refusal := c.allowIAM(call, "*"); refusal != nil {
		return nil, refusal
	}
	return c.inAccount(call, func(a *account) (any, *service.Refusal) {
		var list providerList
		for _, issuer := range slices.Sorted(maps.Keys(a.providers)) {
			list.Providers = append(list.Providers, providerEntry{federatedARN(a.partition.id, a.id, issuer)})
		}
		return list, nil
	})
}

// roleResult is the result of CreateRole and GetRole.
type roleResult struct {
	Role roleXML
}

type roleXML struct {
	Path, RoleName           string
	RoleID                   string `xml:"RoleId"`
	Arn, CreateDate          string
	AssumeRolePolicyDocument string
	MaxSessionDuration       int
}

func (r *role) result() roleResult {
	return roleResult{roleXML{
		Path: r.path, RoleName: r.name, RoleID: r.id, Arn: r.arn, CreateDate: iamTime(r.created),
		AssumeRolePolicyDocument: encodedDocument(r.trust), MaxSessionDuration: r.maxSession,
	}}
}

func (c *Cloud) createRole(call *apiCall) (any, *service.Refusal) {
	p := call.params
	created := Role{
		Name: p.name("RoleName", maxRoleName), Path: cmp.Or(p.text("Path", limits{min: 1, max: 512}), "/"),
		TrustPolicy:        p.document("AssumeRolePolicyDocument"),
		MaxSessionDuration: p.seconds("MaxSessionDuration", defaultDuration, maxDuration, defaultDuration),
	}
	p.absent("Description", "PermissionsBoundary", "Tags.member.1.Key")
	if refusal := c.allowIAM(call, "arn:"+call.ep.partition+":iam::"+call.who.account+":role"+created.Path+created.Name); refusal != nil {
		return nil, refusal
	}
	return c.inAccount(call, func(a *account) (any, *service.Refusal) {
		if a.roles[created.Name] != nil {
			return nil, alreadyExists("Role with name " + created.Name + " already exists.")
		}
		if err := a.putRole(created); err != nil {
			if invalid, ok := errors.AsType[*setting.Error](err); ok && invalid.Field == "trustPolicy" {
				return nil, malformedPolicy(invalid.Err)
			}
			return nil, validation(err.Error())
		}
		return a.roles[created.Name].result(), nil
	})
}

// onRole calls the function do for the role that the parameter RoleName names. The policies must
// allow the call's operation on this role. Read all other parameters before you call onRole: if a
// parameter that was read is invalid, onRole refuses the call.
//
// The function do runs under the lock. To change the role, it stores a changed copy.
func (c *Cloud) onRole(call *apiCall, do func(*account, *role) (any, *service.Refusal)) (any, *service.Refusal) {
	name := call.params.name("RoleName", maxRoleName)
	// If the role exists, its own ARN replaces this one in the permission check.
	arn := "arn:" + call.ep.partition + ":iam::" + call.who.account + ":role/" + name
	c.mu.RLock()
	if r := c.account(call.who.account).roles[name]; r != nil {
		arn = r.arn
	}
	c.mu.RUnlock()
	if refusal := c.allowIAM(call, arn); refusal != nil {
		return nil, refusal
	}
	return c.inAccount(call, func(a *account) (any, *service.Refusal) {
		r := a.roles[name]
		if r == nil || r.arn != arn { // deleted or replaced after the check
			return nil, noSuchEntity("The role with name " + name + " cannot be found.")
		}
		return do(a, r)
	})
}

func (c *Cloud) getRole(call *apiCall) (any, *service.Refusal) {
	return c.onRole(call, func(_ *account, r *role) (any, *service.Refusal) { return r.result(), nil })
}

func (c *Cloud) updateTrust(call *apiCall) (any, *service.Refusal) {
	document := call.params.document("PolicyDocument")
	return c.onRole(call, func(a *account, r *role) (any, *service.Refusal) {
		changed := *r
		var refusal *service.Refusal
		if changed.trust, refusal = readDocument(policy.Trust, a.partition.id, document); refusal == nil {
			a.roles[r.name] = &changed
		}
		return nil, refusal
	})
}

// deleteRole removes a role, unless the role still has policies. Source: IAM API Reference,
// DeleteRole.
func (c *Cloud) deleteRole(call *apiCall) (any, *service.Refusal) {
	return c.onRole(call, func(a *account, r *role) (any, *service.Refusal) {
		switch {
		case len(r.policies) > 0:
			return nil, service.Refuse(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must delete policies first.")
		case len(r.managed) > 0:
			return nil, service.Refuse(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must detach all policies first.")
		}
		delete(a.roles, r.name)
		return nil, nil
	})
}

func (c *Cloud) putRolePolicy(call *apiCall) (any, *service.Refusal) {
	name, document := call.params.name("PolicyName", maxPolicyName), call.params.document("PolicyDocument")
	return c.onRole(call, func(a *account, r *role) (any, *service.Refusal) {
		doc, refusal := readDocument(policy.Permissions, a.partition.id, document)
		if refusal == nil {
			changed := *r
			changed.policies = maps.Clone(r.policies)
			changed.policies[name] = doc
			a.roles[r.name] = &changed
		}
		return nil, refusal
	})
}

// rolePolicy is the result of GetRolePolicy.
type rolePolicy struct {
	RoleName, PolicyName, PolicyDocument string
}

func (c *Cloud) getRolePolicy(call *apiCall) (any, *service.Refusal) {
	name := call.params.name("PolicyName", maxPolicyName)
	return c.onRole(call, func(_ *account, r *role) (any, *service.Refusal) {
		doc, ok := r.policies[name]
		if !ok {
			return nil, noSuchRolePolicy(name)
		}
		return rolePolicy{r.name, name, encodedDocument(doc)}, nil
	})
}

func (c *Cloud) deleteRolePolicy(call *apiCall) (any, *service.Refusal) {
	name := call.params.name("PolicyName", maxPolicyName)
	return c.onRole(call, func(a *account, r *role) (any, *service.Refusal) {
		if _, ok := r.policies[name]; !ok {
			return nil, noSuchRolePolicy(name)
		}
		changed := *r
		changed.policies = maps.Clone(r.policies)
		delete(changed.policies, name)
		a.roles[r.name] = &changed
		return nil, nil
	})
}

func noSuchRolePolicy(name string) *service.Refusal {
	return noSuchEntity("The role policy with name " + name + " cannot be found.")
}

// readDocument parses a policy document that a caller sent for a role.
func readDocument(kind policy.Kind, partition string, document []byte) (policy.Document, *service.Refusal) {
	doc, err := parsePolicy(kind, partition, document)
	if err != nil {
		return policy.Document{}, malformedPolicy(err)
	}
	return doc, nil
}
