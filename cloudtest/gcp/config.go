package gcp

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp/cel"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Config describes the projects of the local Google Cloud.
type Config struct {
	// Projects have unique IDs and unique numbers. Bucket names are unique across all projects.
	Projects []Project `json:"projects,omitempty"`
	// Metadata describes the metadata server. Without it, the cloud has no metadata server.
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Project is a project with its resources.
type Project struct {
	// ID is the project's ID: "my-org-project", or "example.com:project" for a domain-scoped one.
	ID string `json:"id"`
	// Number is the project's number, decimal.
	Number string `json:"number"`
	// UniverseDomain is the project's universe, "googleapis.com" by default. Names, tokens and
	// hosts of one universe are not valid in another.
	UniverseDomain string `json:"universeDomain,omitempty"`
	// Bindings are the project's IAM policy. All of the project's resources inherit it.
	Bindings []Binding `json:"bindings,omitempty"`
	// Pools are the project's workload identity pools, unique by ID.
	Pools []Pool `json:"pools,omitempty"`
	// Clusters are GKE clusters, unique by location and name. The project's built-in pool accepts
	// the clusters' tokens. The pool's name is <id>.svc.id.goog. But outside the public universe, a
	// project with the ID <prefix>:<name> has the pool <name>.<prefix>.svc.id.goog.
	Clusters []Cluster `json:"clusters,omitempty"`
	// ServiceAccounts are the project's service accounts, unique by address.
	ServiceAccounts []ServiceAccount `json:"serviceAccounts,omitempty"`
	// Repositories are repositories of Artifact Registry, unique by location and name.
	Repositories []Repository `json:"repositories,omitempty"`
	// Buckets are buckets of Cloud Storage.
	Buckets []Bucket `json:"buckets,omitempty"`
	// KeyRings are key rings of Cloud KMS, unique by location and name.
	KeyRings []KeyRing `json:"keyRings,omitempty"`
}

// Binding gives a role to members. Source: IAM API, Binding. Binding has no field for a condition,
// because conditions are not evaluated.
type Binding struct {
	// Role is a predefined role, such as "roles/storage.objectViewer". Roles that the local cloud
	// does not have are refused.
	Role string `json:"role"`
	// Members are "serviceAccount:<address>",
	// "serviceAccount:<project>.svc.id.goog[<namespace>/<name>]",
	// "principal://iam.googleapis.com/…/subject/…", "principalSet://iam.googleapis.com/…",
	// "allUsers" or "allAuthenticatedUsers", which includes service accounts but no federated
	// principals.
	Members []string `json:"members"`
}

// Pool is a workload identity pool.
type Pool struct {
	// ID is the pool's ID: 4 to 32 small letters, digits and hyphens. It begins with a letter,
	// but not with "gcp-".
	ID string `json:"id"`
	// Disabled stops exchanges of tokens through the pool, and makes tokens from earlier exchanges
	// invalid.
	Disabled bool `json:"disabled,omitempty"`
	// Providers are the pool's providers, unique by ID.
	Providers []Provider `json:"providers,omitempty"`
}

// Provider is an OIDC provider of a pool. Source: IAM API,
// projects.locations.workloadIdentityPools.providers.
type Provider struct {
	// ID is the provider's ID, in the same form as the pool's ID.
	ID string `json:"id"`
	// IssuerURI is the issuer, as in the claim iss.
	IssuerURI string `json:"issuerURI"`
	// AllowedAudiences are the accepted audiences of tokens: at most ten, each of at most 256
	// characters. Default: the provider's full resource name, with and without "https:" before it.
	AllowedAudiences []string `json:"allowedAudiences,omitempty"`
	// JWKS are the issuer's uploaded keys. If empty, the keys are found through the issuer's
	// discovery document.
	JWKS json.RawMessage `json:"jwks,omitempty"`
	// AttributeMapping maps the token's claims to google.subject (required) and attribute.<name>.
	// Its expressions are limited to the part of CEL in package cel.
	AttributeMapping map[string]string `json:"attributeMapping"`
	// AttributeCondition is an optional CEL expression. If it is not true for a token, the token is
	// refused. Its variables are assertion, google.subject and attribute.<name>.
	AttributeCondition string `json:"attributeCondition,omitempty"`
	// Disabled stops exchanges of tokens through the provider. Tokens from earlier exchanges stay
	// valid.
	Disabled bool `json:"disabled,omitempty"`
}

// Cluster is a GKE cluster with Workload Identity Federation.
type Cluster struct {
	// Location is the cluster's region or zone.
	Location string `json:"location"`
	// Name is the cluster's name.
	Name string `json:"name"`
	// Issuer is the claim iss of the cluster's tokens. The default is the issuer that GKE uses:
	// https://container.<universe>/v1/projects/<project>/locations/<location>/clusters/<name>.
	// Set it for a local control plane, which has another issuer.
	Issuer string `json:"issuer,omitempty"`
	// JWKS are the cluster's keys; if absent, they are found through the issuer's discovery document.
	JWKS json.RawMessage `json:"jwks,omitempty"`
}

// ServiceAccount is an IAM service account.
type ServiceAccount struct {
	// Email is the account's address, in one of its project's forms:
	// <name>@<project>.iam.gserviceaccount.com, <number>-compute@developer.gserviceaccount.com or
	// <project>@appspot.gserviceaccount.com.
	Email string `json:"email"`
	// UniqueID is the account's ID, 21 digits. The default is random.
	UniqueID string `json:"uniqueID,omitempty"`
	// Bindings are the account's IAM policy: who may impersonate it.
	Bindings []Binding `json:"bindings,omitempty"`
}

// Repository is a Docker repository of Artifact Registry.
type Repository struct {
	// Location is a region, or "us", "europe" or "asia".
	Location string `json:"location"`
	// Name is the repository's name. A repository with the name "gcr.io", "us.gcr.io", "eu.gcr.io"
	// or "asia.gcr.io" is served at the host of that name.
	Name string `json:"name"`
	// Bindings are the repository's IAM policy.
	Bindings []Binding `json:"bindings,omitempty"`
}

// Bucket is a bucket of Cloud Storage.
type Bucket struct {
	// Name is the bucket's name, unique across all projects.
	Name string `json:"name"`
	// Bindings are the bucket's IAM policy.
	Bindings []Binding `json:"bindings,omitempty"`
}

// KeyRing is a key ring of Cloud KMS.
type KeyRing struct {
	// Location is a region, a multi-region such as "europe", or "global".
	Location string `json:"location"`
	// Name is the key ring's ID: 1 to 63 letters, digits, hyphens and underscores.
	Name string `json:"name"`
	// Bindings are the key ring's IAM policy. All of its keys inherit it.
	Bindings []Binding `json:"bindings,omitempty"`
	// Keys are the key ring's keys, unique by name.
	Keys []CryptoKey `json:"keys,omitempty"`
}

// CryptoKey is a key of Cloud KMS that encrypts and decrypts. The local cloud makes it with one
// version. Callers of Cloud KMS can add, disable and destroy versions.
type CryptoKey struct {
	// Name is the key's ID, in the same form as the key ring's.
	Name string `json:"name"`
	// Bindings are the key's IAM policy.
	Bindings []Binding `json:"bindings,omitempty"`
}

// Metadata describes the metadata server and its client, the workload. If a cluster is set, the
// metadata server is like GKE's; otherwise it is like a virtual machine's.
type Metadata struct {
	// Project is the ID of the workload's project.
	Project string `json:"project"`
	// ClusterLocation and ClusterName identify the GKE cluster: set both or neither.
	ClusterLocation string `json:"clusterLocation,omitempty"`
	ClusterName     string `json:"clusterName,omitempty"`
	// KubernetesServiceAccount is the workload's ServiceAccount, "<namespace>/<name>". It may be
	// set only with a cluster.
	KubernetesServiceAccount string `json:"kubernetesServiceAccount,omitempty"`
	// ServiceAccount is the address of the workload's IAM service account. If
	// KubernetesServiceAccount is also set, give the value of that ServiceAccount's annotation
	// iam.gke.io/gcp-service-account. That ServiceAccount must then be allowed to impersonate the
	// IAM service account. If both fields are empty, the workload gets no tokens.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Scopes are the tokens' scopes; default: https://www.googleapis.com/auth/cloud-platform.
	Scopes []string `json:"scopes,omitempty"`
}

// kind is the kind of resource to which a policy belongs.
type kind int

const (
	ofProject kind = iota
	ofBucket
	ofOther
)

func parseBindings(bindings []Binding, of kind) (policy, error) {
	roles := rolePermissions()
	for i, b := range bindings {
		field := setting.At("bindings", i)
		if roles[b.Role] == nil {
			return nil, setting.Invalid(field+".role", "%q is not a role that the local cloud evaluates", b.Role)
		}
		if of != ofBucket && strings.HasPrefix(b.Role, rolePrefixLegacyBucket) {
			return nil, setting.Invalid(field+".role", "%q can be given on buckets only", b.Role)
		}
		if len(b.Members) == 0 {
			return nil, setting.Invalid(field+".members", "name at least one")
		}
		for n, m := range b.Members {
			if problem := checkMember(m); problem != "" {
				return nil, setting.Invalid(field+"."+setting.At("members", n), "%q: %s", m, problem)
			}
			if of == ofProject && (m == allUsers || m == allAuthenticatedUsers) {
				return nil, setting.Invalid(field+"."+setting.At("members", n), "%s can be given on single resources, not on a project", m)
			}
		}
	}
	return policy(bindings), nil
}

func (p Project) check() error {
	switch {
	case !projectPattern.MatchString(p.ID):
		return setting.Invalid("id", "%q is not a project ID", p.ID)
	case !numberPattern.MatchString(p.Number):
		return setting.Invalid("number", "%q is not a project number: give decimal digits", p.Number)
	case p.UniverseDomain != "" && !universePattern.MatchString(p.UniverseDomain):
		return setting.Invalid("universeDomain", "%q is not a DNS name in lower case", p.UniverseDomain)
	}
	return nil
}

var universePattern = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)+\z`)

// Limits of a provider. Sources: IAM API, providers; IAM, "Quotas and limits".
const (
	maxAudiences      = 10
	maxAudience       = 256  // characters
	maxMappings       = 50   // mappings to attribute.<name>; google.subject does not count
	maxMapping        = 2048 // characters of an expression
	maxCondition      = 4096 // characters
	maxSubject        = 127  // bytes of google.subject
	maxAttributeBytes = 8192 // bytes of all mapped attributes together
)

// mapping is one entry of an attribute mapping.
type mapping struct {
	target string // google.subject or attribute.<name>
	expr   cel.Expr
}

// provider is a parsed [Provider]. It is immutable.
type provider struct {
	Provider

	keys      *oidc.KeySet // uploaded keys, or nil
	mappings  []mapping    // google.subject first
	condition *cel.Expr
}

func (p Provider) parse() (*provider, error) {
	out := &provider{Provider: p}
	if !poolPattern.MatchString(p.ID) || strings.HasPrefix(p.ID, "gcp-") {
		return nil, setting.Invalid("id",
			"%q is not a provider ID: give 4 to 32 small letters, digits and hyphens, not beginning with gcp-", p.ID)
	}
	if len(p.AllowedAudiences) > maxAudiences {
		return nil, setting.Invalid("allowedAudiences", "give at most %d", maxAudiences)
	}
	for i, a := range p.AllowedAudiences {
		if n := utf8.RuneCountInString(a); n == 0 || n > maxAudience {
			return nil, setting.Invalid(setting.At("allowedAudiences", i), "give 1 to %d characters", maxAudience)
		}
	}
	var err error
	if out.keys, err = parseIssuer("issuerURI", p.IssuerURI, p.JWKS); err != nil {
		return nil, err
	}
	if out.mappings, err = parseMappings(p.AttributeMapping); err != nil {
		return nil, err
	}
	if p.AttributeCondition == "" {
		return out, nil
	}
	if utf8.RuneCountInString(p.AttributeCondition) > maxCondition {
		return nil, setting.Invalid("attributeCondition", "give at most %d characters", maxCondition)
	}
	condition, err := cel.Compile(p.AttributeCondition, "assertion", "google", "attribute")
	if err != nil {
		return nil, setting.Invalid("attributeCondition", "%w", err)
	}
	out.condition = &condition
	return out, nil
}

// parseIssuer checks an issuer and reads its uploaded keys, if there are any.
func parseIssuer(field, issuer string, jwks json.RawMessage) (*oidc.KeySet, error) {
	if _, err := oidc.ParseURL(issuer); err != nil {
		return nil, setting.Invalid(field, "%w", err)
	}
	if len(jwks) == 0 {
		return nil, nil
	}
	keys, err := oidc.ParseKeys(jwks)
	if err != nil {
		return nil, setting.Invalid("jwks", "%w", err)
	}
	return &keys, nil
}

var attributePattern = regexp.MustCompile(`\Aattribute\.[a-z0-9_]{1,100}\z`)

func parseMappings(texts map[string]string) ([]mapping, error) {
	const subject = "google.subject"
	if texts[subject] == "" {
		return nil, setting.Invalid("attributeMapping", "map %s, for example to assertion.sub", subject)
	}
	if len(texts)-1 > maxMappings {
		return nil, setting.Invalid("attributeMapping", "give at most %d attributes", maxMappings)
	}
	var out []mapping
	for target, text := range texts {
		field := setting.Of("attributeMapping", target)
		if target != subject && !attributePattern.MatchString(target) {
			return nil, setting.Invalid(field,
				"the local cloud maps %s and attribute.<name> with small letters, digits and underscores", subject)
		}
		if utf8.RuneCountInString(text) > maxMapping {
			return nil, setting.Invalid(field, "give at most %d characters", maxMapping)
		}
		expr, err := cel.Compile(text, "assertion")
		if err != nil {
			return nil, setting.Invalid(field, "%w", err)
		}
		m := mapping{target: target, expr: expr}
		if target == subject {
			out = append([]mapping{m}, out...)
		} else {
			out = append(out, m)
		}
	}
	return out, nil
}

func (p Pool) parse() (*pool, error) {
	if !poolPattern.MatchString(p.ID) || strings.HasPrefix(p.ID, "gcp-") {
		return nil, setting.Invalid("id",
			"%q is not a pool ID: give 4 to 32 small letters, digits and hyphens, not beginning with gcp-", p.ID)
	}
	out := &pool{id: p.ID, disabled: p.Disabled, providers: map[string]*provider{}}
	return out, setting.Fill("providers", "provider", p.Providers, func(x Provider) string { return x.ID }, func(x Provider) error {
		parsed, err := x.parse()
		out.providers[x.ID] = parsed
		return err
	})
}

func (c Cluster) parse(universe, projectID string) (*cluster, error) {
	switch {
	case !locationPattern.MatchString(c.Location):
		return nil, setting.Invalid("location", "%q is not a region or zone", c.Location)
	case !clusterPattern.MatchString(c.Name):
		return nil, setting.Invalid("name", "%q is not the name of a cluster", c.Name)
	}
	url := clusterURL(universe, projectID, c.Location, c.Name)
	issuer := cmp.Or(c.Issuer, url)
	keys, err := parseIssuer("issuer", issuer, c.JWKS)
	return &cluster{url: url, issuer: issuer, keys: keys}, err
}

func (s ServiceAccount) parse(p *project) (*account, error) {
	switch {
	case !isAddress(s.Email, p.id, p.number):
		return nil, setting.Invalid("email", "%q is no address of project %s: give <name of 6 to 30>@%s%s, %s%s or %s%s", s.Email, p.id,
			addressForm(p.id), userAccounts, p.number, computeAccounts, addressForm(p.id), appEngineAccounts)
	case s.UniqueID != "" && !uniqueIDPattern.MatchString(s.UniqueID):
		return nil, setting.Invalid("uniqueID", "%q is not a unique ID: give 21 digits", s.UniqueID)
	}
	bindings, err := parseBindings(s.Bindings, ofOther)
	if err != nil {
		return nil, err
	}
	return &account{email: s.Email, uniqueID: s.UniqueID, project: p.id, policy: bindings}, nil
}

func (r Repository) parse(universe string) (*repository, error) {
	switch {
	case !hasRepositories(universe, r.Location):
		return nil, setting.Invalid("location", "%q is not a location of Artifact Registry in the universe %s", r.Location, universe)
	case !repositoryPattern.MatchString(r.Name):
		return nil, setting.Invalid("name", "%q is not the name of a repository", r.Name)
	}
	if location, gcr := containerRegistryHosts()[r.Name]; gcr && location != r.Location {
		return nil, setting.Invalid("location", "what %s serves is in %q", r.Name, location)
	}
	bindings, err := parseBindings(r.Bindings, ofOther)
	if err != nil {
		return nil, err
	}
	return &repository{key: repositoryKey{r.Location, r.Name}, policy: bindings}, nil
}

func (b Bucket) parse(projectID string) (*bucket, error) {
	if !isBucketName(b.Name) {
		return nil, setting.Invalid("name", "%q is not the name of a bucket", b.Name)
	}
	bindings, err := parseBindings(b.Bindings, ofBucket)
	if err != nil {
		return nil, err
	}
	return &bucket{name: b.Name, project: projectID, policy: bindings}, nil
}
