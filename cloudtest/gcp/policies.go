package gcp

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// repositoryMethods returns the methods of the Artifact Registry API that read or replace a
// repository's policy. Source: Artifact Registry API v1, projects.locations.repositories.
func repositoryMethods() []managementMethod {
	const api, path = "google.devtools.artifactregistry.v1.ArtifactRegistry", "projects/*/locations/*/repositories/*"
	return []managementMethod{
		{
			name: "GetIamPolicy", api: api, verb: http.MethodGet, path: path + ":getIamPolicy",
			query: []string{paramPolicyVersion}, do: (*Cloud).getRepositoryPolicy,
		},
		{name: "SetIamPolicy", api: api, verb: http.MethodPost, path: path + ":setIamPolicy", do: (*Cloud).setRepositoryPolicy},
	}
}

const paramPolicyVersion = "options.requestedPolicyVersion"

// checkPolicyVersion checks the policy version that the caller requests. The answer is the same for
// every valid version, because bindings have no conditions in the local cloud. Source: IAM API,
// GetPolicyOptions.
func (call *managementCall) checkPolicyVersion() *service.Refusal {
	if v := call.query.Get(paramPolicyVersion); call.query.Has(paramPolicyVersion) && v != "0" && v != "1" && v != "3" {
		return invalidArgument("Invalid value for options.requested_policy_version: give 0, 1 or 3")
	}
	return nil
}

// policyMessage is google.iam.v1.Policy.
type policyMessage struct {
	Version  int       `json:"version,omitempty"`
	ETag     string    `json:"etag,omitempty"`
	Bindings []Binding `json:"bindings,omitempty"`
}

// emptyETag is the etag of a policy that nobody has set.
const emptyETag = "ACAB"

// answer returns the policy in the API's JSON, without deleted members. Google's etags count
// the policy's changes. The local cloud's etags depend on the policy's content.
func (p policy) answer() policyMessage {
	var bindings []Binding
	for _, b := range p {
		if len(b.Members) > 0 {
			bindings = append(bindings, b)
		}
	}
	if len(bindings) == 0 {
		return policyMessage{ETag: emptyETag}
	}
	sum := sha256.Sum256(wire.Must(json.Marshal(bindings)))
	return policyMessage{Version: 1, ETag: base64.StdEncoding.EncodeToString(sum[:8]), Bindings: bindings}
}

// readPolicy reads the body of SetIamPolicy. It refuses field masks, conditions and audit settings.
// SDKs repeat the resource that is in the path.
func (call *managementCall) readPolicy() (policyMessage, *service.Refusal) {
	var q struct {
		Resource string         `json:"resource"`
		Policy   *policyMessage `json:"policy"`
	}
	refusal := call.readJSON(&q)
	switch {
	case refusal != nil:
		return policyMessage{}, refusal
	case q.Policy == nil:
		return policyMessage{}, invalidArgument("Request contains an invalid argument.").Because("policy is required")
	case q.Policy.Version != 0 && q.Policy.Version != 1 && q.Policy.Version != 3:
		return policyMessage{}, invalidArgument("Invalid value for policy.version: give 0, 1 or 3")
	}
	return *q.Policy, nil
}

// maxMembers is the maximum number of members in a policy. Source: IAM, "Quotas and limits".
const maxMembers = 1500

// plainBase64 converts base64 from the URL alphabet to the standard alphabet, which answers use.
// Requests may use either alphabet; gcloud sends the URL alphabet. Source: Protocol Buffers,
// "ProtoJSON format".
func plainBase64(s string) string { return strings.NewReplacer("-", "+", "_", "/").Replace(s) }

// replacePolicy checks and returns the policy that replaces the current policy. If the request has
// an etag, the current policy must have the same etag. Each role of the new policy must begin with
// one of the given prefixes. The lock must be held.
func (c *Cloud) replacePolicy(call *managementCall, current policy, q policyMessage, roles ...string) (policy, *service.Refusal) {
	if q.ETag != "" && plainBase64(q.ETag) != current.answer().ETag {
		return nil, service.Refuse(http.StatusConflict, codeAborted,
			"There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
	}
	members := 0
	for _, b := range q.Bindings {
		if !slices.ContainsFunc(roles, func(prefix string) bool { return strings.HasPrefix(b.Role, prefix) }) {
			return nil, invalidArgument("Role " + b.Role + " is not supported for this resource.")
		}
		if members += len(b.Members); members > maxMembers {
			return nil, invalidArgument("The policy has too many members.")
		}
	}
	parsed, err := parseBindings(q.Bindings, ofOther)
	if err != nil {
		return nil, invalidSetting(err, nil)
	}
	for _, b := range parsed {
		for _, m := range b.Members {
			if refusal := c.memberExists(m, call.who.universe); refusal != nil {
				return nil, refusal
			}
		}
	}
	return parsed, nil
}

// memberExists refuses service accounts and pools that do not exist. It cannot check subjects,
// because a pool has no list of its subjects. Source: IAM, "Troubleshoot: policy bindings".
func (c *Cloud) memberExists(member, universe string) *service.Refusal {
	noPool := func(pool string) *service.Refusal {
		return invalidArgument("Identity Pool does not exist (" + pool +
			"). Please check that you specified a valid resource name as returned in the `name` attribute in the configuration API.")
	}
	if _, rest, ok := strings.Cut(member, "://"+iamHost+"/"); ok {
		// The indexes are in range, because parseBindings has checked the member's format.
		parts := strings.Split(rest, "/")
		p, pool := c.findProject(parts[1], universe), parts[5]
		if p == nil || (p.pools[pool] == nil && pool != kubernetesPool(p.id, universe)) {
			return noPool(strings.Join(parts[:6], "/"))
		}
		return nil
	}
	email, ok := strings.CutPrefix(member, "serviceAccount:")
	if pool, _, gke := strings.Cut(email, "["); gke {
		for _, p := range c.projects {
			if p.universe == universe && kubernetesPool(p.id, universe) == pool {
				return nil
			}
		}
		return noPool(pool)
	}
	if ok && c.findAccount(email, universe) == nil {
		return invalidArgument("Service account " + email + " does not exist.")
	}
	return nil
}

// repositoryIn returns a repository of a project and the repository's policy. A missing repository
// is nil, and its policy is empty. The lock must be held.
func (c *Cloud) repositoryIn(projectName, universe string, key repositoryKey) (*repository, policy) {
	repo := cmp.Or(c.findProject(projectName, universe), &project{}).repos[key]
	return repo, cmp.Or(repo, &repository{}).policy
}

// repositoryPolicy finds a repository for a method that reads or changes the repository's policy.
// The method's caller must have the permission on the repository. The lock must be held.
func (c *Cloud) repositoryPolicy(call *managementCall, permission string) (*project, *repository, *service.Refusal) {
	repo, own := c.repositoryIn(call.names[0], call.who.universe, repositoryKey{location: call.names[1], name: call.names[2]})
	p, refusal := c.require(call, call.names[0], permission, own)
	if refusal == nil && repo == nil {
		refusal = service.Refuse(http.StatusNotFound, codeNotFound, "Requested entity was not found.")
	}
	return p, repo, refusal
}

func (c *Cloud) getRepositoryPolicy(call *managementCall) (any, *service.Refusal) {
	if refusal := call.checkPolicyVersion(); refusal != nil {
		return nil, refusal
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, repo, refusal := c.repositoryPolicy(call, permRepoGetPolicy)
	if refusal != nil {
		return nil, refusal
	}
	return repo.policy.answer(), nil
}

func (c *Cloud) setRepositoryPolicy(call *managementCall) (any, *service.Refusal) {
	q, refusal := call.readPolicy()
	if refusal != nil {
		return nil, refusal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, repo, refusal := c.repositoryPolicy(call, permRepoSetPolicy)
	if refusal != nil {
		return nil, refusal
	}
	changed := &repository{key: repo.key}
	if changed.policy, refusal = c.replacePolicy(call, repo.policy, q, "roles/artifactregistry."); refusal != nil {
		return nil, refusal
	}
	p.repos[repo.key] = changed
	return changed.policy.answer(), nil
}
