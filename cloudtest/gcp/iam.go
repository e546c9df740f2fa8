package gcp

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// iamMethods returns the methods of the IAM API that set up trust. They make a project trust an
// issuer, and make a service account trust the issuer's subjects. Source: IAM API v1.
func iamMethods() []managementMethod {
	const (
		pools    = "google.iam.v1.WorkloadIdentityPools"
		accounts = "google.iam.admin.v1.IAM"
		policies = "projects/*/serviceAccounts/*"
	)
	return []managementMethod{
		{
			name: "CreateWorkloadIdentityPool", api: pools, verb: http.MethodPost,
			path:  "projects/*/locations/global/workloadIdentityPools",
			query: []string{paramPool}, do: creates(permPoolCreate, (*Cloud).createPool),
		},
		{
			name: "CreateWorkloadIdentityPoolProvider", api: pools, verb: http.MethodPost,
			path:  "projects/*/locations/global/workloadIdentityPools/*/providers",
			query: []string{paramProvider}, do: creates(permProviderCreate, (*Cloud).createPoolProvider),
		},
		{
			name: "CreateServiceAccount", api: accounts, verb: http.MethodPost,
			path: "projects/*/serviceAccounts", do: creates(permAccountCreate, (*Cloud).createAccount),
		},
		{
			name: "GetIamPolicy", api: accounts, verb: http.MethodPost,
			path: policies + ":getIamPolicy", query: []string{paramPolicyVersion},
			do: (*Cloud).getAccountPolicy,
		},
		{name: "SetIamPolicy", api: accounts, verb: http.MethodPost, path: policies + ":setIamPolicy", do: (*Cloud).setAccountPolicy},
	}
}

const (
	paramPool     = "workloadIdentityPoolId"
	paramProvider = "workloadIdentityPoolProviderId"
)

// alreadyExists returns the refusal to create an object that exists already.
func alreadyExists(message string) *service.Refusal {
	return service.Refuse(http.StatusConflict, codeExists, message)
}

// creation returns the answer to the creation of a named object: a long-running operation.
func creation(name, metadata string) operation {
	return operation{
		Name:     name + "/operations/" + randomText(18),
		Metadata: map[string]any{"@type": "type.googleapis.com/google.iam.v1." + metadata},
	}
}

// creates returns a handler for a method that creates an object in a project. The handler decodes
// the call's body, and requires the permission in the project. Then it calls do, with the lock
// held, to create the object.
func creates[B any](
	permission string, do func(*Cloud, *managementCall, *project, B) (any, *service.Refusal),
) func(*Cloud, *managementCall) (any, *service.Refusal) {
	return func(c *Cloud, call *managementCall) (any, *service.Refusal) {
		var body B
		if refusal := call.readJSON(&body); refusal != nil {
			return nil, refusal
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		p, refusal := c.require(call, call.names[0], permission, nil)
		if refusal != nil {
			return nil, refusal
		}
		return do(c, call, p, body)
	}
}

// newPool is the request body of workloadIdentityPools.create.
type newPool struct {
	Disabled bool `json:"disabled"`
}

func (*Cloud) createPool(call *managementCall, p *project, q newPool) (any, *service.Refusal) {
	id := call.query.Get(paramPool)
	if p.pools[id] != nil {
		return nil, alreadyExists("Requested entity already exists")
	}
	if err := p.putPool(Pool{ID: id, Disabled: q.Disabled}); err != nil {
		return nil, invalidSetting(err, map[string]string{"id": paramPool})
	}
	return creation(poolName(p.number, id), "WorkloadIdentityPoolOperationMetadata"), nil
}

// newProvider is the request body of workloadIdentityPools.providers.create.
type newProvider struct {
	Disabled         bool              `json:"disabled"`
	AttributeMapping map[string]string `json:"attributeMapping"`
	OIDC             *struct {
		IssuerURI string `json:"issuerUri"`
		JWKSJSON  string `json:"jwksJson"`
	} `json:"oidc"`
}

func (*Cloud) createPoolProvider(call *managementCall, p *project, q newProvider) (any, *service.Refusal) {
	in, id := p.pools[call.names[1]], call.query.Get(paramProvider)
	switch {
	case in == nil:
		return nil, service.Refuse(http.StatusNotFound, codeNotFound, "Requested entity was not found.")
	case in.providers[id] != nil:
		return nil, alreadyExists("Requested entity already exists")
	case q.OIDC == nil:
		return nil, invalidArgument("Invalid value for provider_config: give oidc").Because("the local cloud has OIDC providers only")
	}
	parsed, err := Provider{
		ID: id, IssuerURI: q.OIDC.IssuerURI, JWKS: json.RawMessage(q.OIDC.JWKSJSON),
		AttributeMapping: q.AttributeMapping, Disabled: q.Disabled,
	}.parse()
	if err != nil {
		return nil, invalidSetting(err, map[string]string{
			"id": paramProvider, "issuerURI": "oidc.issuer_uri", "jwks": "oidc.jwks_json", "attributeMapping": "attribute_mapping",
		})
	}
	changed := *in
	changed.providers = maps.Clone(in.providers)
	changed.providers[id] = parsed
	p.pools[in.id] = &changed
	return creation(providerName(p.number, in.id, id), "WorkloadIdentityPoolProviderOperationMetadata"), nil
}

// accountAnswer is a service account in the API's JSON.
type accountAnswer struct {
	Name           string `json:"name"`
	ProjectID      string `json:"projectId"`
	UniqueID       string `json:"uniqueId"`
	Email          string `json:"email"`
	ETag           string `json:"etag"`
	OAuth2ClientID string `json:"oauth2ClientId"`
}

// newAccount is the request body of serviceAccounts.create.
type newAccount struct {
	AccountID      string   `json:"accountId"`
	ServiceAccount struct{} `json:"serviceAccount"`
}

func (c *Cloud) createAccount(_ *managementCall, p *project, q newAccount) (any, *service.Refusal) {
	email := q.AccountID + "@" + addressForm(p.id) + userAccounts
	switch {
	case !accountPattern.MatchString(q.AccountID):
		return nil, invalidArgument(
			"Invalid value for account_id: give 6 to 30 small letters, digits and hyphens that begin with a letter and do not end with a hyphen")
	case c.accounts[email] != nil:
		return nil, alreadyExists("Service account " + q.AccountID + " already exists within project projects/" + p.id + ".")
	}
	if err := c.putAccount(p, ServiceAccount{Email: email}); err != nil {
		return nil, invalidSetting(err, nil)
	}
	made := c.accounts[email]
	return accountAnswer{
		Name: "projects/" + p.id + "/serviceAccounts/" + email, ProjectID: p.id, UniqueID: made.uniqueID, Email: email,
		ETag: "MDEwMjE5MjA=", OAuth2ClientID: made.uniqueID,
	}, nil
}

// accountPolicy finds a service account for a method that reads or changes the account's policy.
// The method's caller must have the permission on the account. If the call's project is "-", the
// account's own project is used. The lock must be held.
func (c *Cloud) accountPolicy(call *managementCall, permission string) (*account, *service.Refusal) {
	projectName, name := call.names[0], call.names[1]
	a := c.findAccount(name, call.who.universe)
	var own policy
	if a != nil {
		own = a.policy
		if projectName == "-" {
			projectName = a.project
		}
	}
	p, refusal := c.require(call, projectName, permission, own)
	switch {
	case refusal != nil:
		return nil, refusal
	case a == nil || a.project != p.id:
		return nil, service.Refuse(http.StatusNotFound, codeNotFound, "Unknown service account")
	}
	return a, nil
}

func (c *Cloud) getAccountPolicy(call *managementCall) (any, *service.Refusal) {
	if len(call.body) > 0 {
		if refusal := call.readJSON(&struct{}{}); refusal != nil {
			return nil, refusal
		}
	}
	if refusal := call.checkPolicyVersion(); refusal != nil {
		return nil, refusal
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	a, refusal := c.accountPolicy(call, permAccountGetPolicy)
	if refusal != nil {
		return nil, refusal
	}
	return a.policy.answer(), nil
}

func (c *Cloud) setAccountPolicy(call *managementCall) (any, *service.Refusal) {
	q, refusal := call.readPolicy()
	if refusal != nil {
		return nil, refusal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, refusal := c.accountPolicy(call, permAccountSetPolicy)
	if refusal != nil {
		return nil, refusal
	}
	changed := *a
	if changed.policy, refusal = c.replacePolicy(call, a.policy, q,
		"roles/iam.serviceAccount", "roles/iam.workloadIdentityUser"); refusal != nil {
		return nil, refusal
	}
	c.accounts[a.email] = &changed
	return changed.policy.answer(), nil
}
