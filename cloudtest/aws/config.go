package aws

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // its size is the size of a thumbprint
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Config describes the accounts of the local AWS.
type Config struct {
	// Accounts are the accounts, unique by ID. Access key IDs, public registry aliases and bucket
	// names must be unique over all accounts.
	Accounts []Account `json:"accounts,omitempty"`
}

// Account is an AWS account with its issuers, policies, roles, users, repositories and buckets.
type Account struct {
	// ID is the account's ID, twelve digits.
	ID string `json:"id"`
	// Partition is "aws" (default), "aws-cn", "aws-us-gov", "aws-eusc" or one of "aws-iso…".
	Partition string `json:"partition,omitempty"`
	// OIDCProviders are the issuers that the account trusts.
	OIDCProviders []OIDCProvider `json:"oidcProviders,omitempty"`
	// ManagedPolicies are the account's managed permission policies by name. Their ARN is
	// arn:<partition>:iam::<id>:policy/<name>.
	ManagedPolicies map[string]json.RawMessage `json:"managedPolicies,omitempty"`
	// Roles are the account's roles, unique by name.
	Roles []Role `json:"roles,omitempty"`
	// Users are the account's users, unique by name.
	Users []User `json:"users,omitempty"`
	// Repositories are the account's private repositories, unique by region and name.
	Repositories []Repository `json:"repositories,omitempty"`
	// PublicRegistry is the account's registry at public.ecr.aws, if it has one.
	PublicRegistry *PublicRegistry `json:"publicRegistry,omitempty"`
	// Buckets are the account's S3 buckets.
	Buckets []Bucket `json:"buckets,omitempty"`
}

// OIDCProvider is an issuer. Its tokens may assume the roles whose trust policies name it.
type OIDCProvider struct {
	// URL is the issuer, equal to the claim iss: an https URL without port.
	URL string `json:"url"`
	// ClientIDs are the audiences that are accepted, at least one and at most a hundred.
	ClientIDs []string `json:"clientIDs"`
	// Thumbprints are SHA-1 fingerprints of certificate authorities, 40 hexadecimal digits each, at
	// most five. The local cloud stores but ignores them. AWS ignores them too, if a well-known
	// authority signed the issuer's certificate.
	Thumbprints []string `json:"thumbprints,omitempty"`
}

// Role is an IAM role.
type Role struct {
	// Name is the role's name: 1 to 64 letters, digits and +=,.@_-
	Name string `json:"name"`
	// Path is part of the role's ARN, "/" by default. It begins and ends with a slash.
	Path string `json:"path,omitempty"`
	// TrustPolicy says who may assume the role: an IAM policy document.
	TrustPolicy json.RawMessage `json:"trustPolicy"`
	// Policies are the role's inline permission policies by name.
	Policies map[string]json.RawMessage `json:"policies,omitempty"`
	// ManagedPolicies are the ARNs of the account's managed policies that the role has.
	ManagedPolicies []string `json:"managedPolicies,omitempty"`
	// MaxSessionDuration is the longest session in seconds, 3600 (default) to 43200.
	MaxSessionDuration int `json:"maxSessionDuration,omitempty"`
}

// User is an IAM user with long-lived keys.
type User struct {
	// Name is the user's name: 1 to 64 letters, digits and +=,.@_-
	Name string `json:"name"`
	// AccessKeys are the user's access keys, at most two.
	AccessKeys []AccessKey `json:"accessKeys,omitempty"`
	// Policies are the user's inline permission policies by name.
	Policies map[string]json.RawMessage `json:"policies,omitempty"`
}

// AccessKey is a long-lived key. It is valid in this local cloud only.
type AccessKey struct {
	// ID is the access key ID: "AKIA" and 16 capital letters and digits.
	ID string `json:"id"`
	// Secret is the secret access key, at least 16 characters.
	Secret string `json:"secret"`
}

// Repository is a private ECR repository.
type Repository struct {
	// Region is the repository's region.
	Region string `json:"region"`
	// Name is the repository's name, such as "tenant-a/app".
	Name string `json:"name"`
	// Policy is the repository's resource policy. Without it, other accounts have no access.
	Policy json.RawMessage `json:"policy,omitempty"`
}

// PublicRegistry is an account's part of public.ecr.aws. Everybody may read it.
type PublicRegistry struct {
	// Alias is the first part of the repositories' names: public.ecr.aws/<alias>/<repository>.
	Alias string `json:"alias"`
	// Repositories are the repositories' names without the alias.
	Repositories []string `json:"repositories,omitempty"`
}

// Bucket is an S3 bucket. Like a bucket that AWS has created since 2023, it is never public:
// unsigned requests are refused.
type Bucket struct {
	// Region is the bucket's region.
	Region string `json:"region"`
	// Name is the bucket's name: 3 to 63 characters from a-z, 0-9, dot and hyphen.
	Name string `json:"name"`
	// Policy is the bucket's policy. Without it, other accounts have no access.
	Policy json.RawMessage `json:"policy,omitempty"`
}

var namePattern = regexp.MustCompile(`\A[\w+=,.@-]{1,64}\z`)

var repositoryPattern = regexp.MustCompile(`\A[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*\z`)

var bucketPattern = regexp.MustCompile(`\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\z`)

// isBucketName reports whether a bucket may have this name. Source: Amazon S3 User Guide, "General
// purpose bucket naming rules".
func isBucketName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	begins := func(reserved string) bool { return strings.HasPrefix(name, reserved) }
	ends := func(reserved string) bool { return strings.HasSuffix(name, reserved) }
	return bucketPattern.MatchString(name) && !strings.Contains(name, "..") &&
		!slices.ContainsFunc([]string{"xn--", "sthree-", "amzn-s3-demo-"}, begins) &&
		!slices.ContainsFunc([]string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}, ends)
}

func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return setting.Invalid("name", "%q is not a name: give 1 to 64 letters, digits and +=,.@_-", name)
	}
	return nil
}

// parsePolicy parses a policy document. It refuses a principal or a resource of another partition.
func parsePolicy(kind policy.Kind, partition string, raw []byte) (policy.Document, error) {
	doc, err := policy.Parse(kind, raw)
	if err == nil {
		err = doc.CheckPartition(partition)
	}
	return doc, err
}

// parseDocument is like parsePolicy, but its errors name the field.
func parseDocument(kind policy.Kind, part partition, field string, raw json.RawMessage) (policy.Document, error) {
	doc, err := parsePolicy(kind, part.id, raw)
	return doc, setting.In(field, err)
}

func parsePolicies(part partition, field string, docs map[string]json.RawMessage) (map[string]policy.Document, error) {
	out := map[string]policy.Document{}
	for name, raw := range docs {
		at := setting.Of(field, name)
		if name == "" {
			return nil, setting.Invalid(at, "give the policy a name")
		}
		doc, err := parseDocument(policy.Permissions, part, at, raw)
		if err != nil {
			return nil, err
		}
		out[name] = doc
	}
	return out, nil
}

func (p OIDCProvider) validate() error {
	if _, err := oidc.ParseURL(p.URL); err != nil {
		return &setting.Error{Field: "url", Err: err}
	}
	if len(p.ClientIDs) == 0 || len(p.ClientIDs) > 100 || slices.Contains(p.ClientIDs, "") {
		return setting.Invalid("clientIDs", "give 1 to 100 audiences, none empty")
	}
	if len(p.Thumbprints) > maxThumbprints {
		return setting.Invalid("thumbprints", "give at most five")
	}
	for i, thumbprint := range p.Thumbprints {
		if raw, err := hex.DecodeString(thumbprint); err != nil || len(raw) != sha1.Size {
			return setting.Invalid(setting.At("thumbprints", i), "give 40 hexadecimal digits")
		}
	}
	return nil
}

// parse checks a role and reads its policies.
func (r Role) parse(accountID string, part partition) (*role, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	r.Path = cmp.Or(r.Path, "/")
	if !strings.HasPrefix(r.Path, "/") || !strings.HasSuffix(r.Path, "/") || strings.Contains(r.Path, "//") ||
		strings.Trim(r.Path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/+=,.@_-") != "" {
		return nil, setting.Invalid("path", "%q must begin and end with a slash and hold letters, digits and +=,.@_-", r.Path)
	}
	r.MaxSessionDuration = cmp.Or(r.MaxSessionDuration, 3600)
	if r.MaxSessionDuration < 3600 || r.MaxSessionDuration > 43200 {
		return nil, setting.Invalid("maxSessionDuration", "give 3600 to 43200 seconds")
	}
	trust, err := parseDocument(policy.Trust, part, "trustPolicy", r.TrustPolicy)
	if err != nil {
		return nil, err
	}
	policies, err := parsePolicies(part, "policies", r.Policies)
	if err != nil {
		return nil, err
	}
	return &role{
		path: r.Path, name: r.Name, arn: "arn:" + part.id + ":iam::" + accountID + ":role" + r.Path + r.Name,
		trust: trust, policies: policies, managed: slices.Clone(r.ManagedPolicies), maxSession: r.MaxSessionDuration,
	}, nil
}

func (u User) parse(accountID string, part partition) (*user, error) {
	if err := checkName(u.Name); err != nil {
		return nil, err
	}
	if len(u.AccessKeys) > 2 {
		return nil, setting.Invalid("accessKeys", "give at most two")
	}
	for i, k := range u.AccessKeys {
		field := setting.At("accessKeys", i)
		if len(k.ID) != 20 || !strings.HasPrefix(k.ID, "AKIA") || strings.Trim(k.ID, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			return nil, setting.Invalid(field+".id", `give "AKIA" and 16 capital letters and digits`)
		}
		if len(k.Secret) < 16 {
			return nil, setting.Invalid(field+".secret", "give at least 16 characters")
		}
	}
	policies, err := parsePolicies(part, "policies", u.Policies)
	if err != nil {
		return nil, err
	}
	return &user{
		name: u.Name, arn: "arn:" + part.id + ":iam::" + accountID + ":user/" + u.Name,
		keys: slices.Clone(u.AccessKeys), policies: policies,
	}, nil
}

func (r Repository) parse(part partition) (*repository, error) {
	if !slices.Contains(part.regions, r.Region) {
		return nil, setting.Invalid("region", "%q is not a region of partition %s", r.Region, part.id)
	}
	if len(r.Name) < 2 || len(r.Name) > 256 || !repositoryPattern.MatchString(r.Name) {
		return nil, setting.Invalid("name", "%q is not a repository's name: give 2 to 256 of a-z0-9, separated by ._-/", r.Name)
	}
	repo := &repository{key: repositoryKey{r.Region, r.Name}}
	if len(r.Policy) > 0 {
		var err error
		if repo.policy, err = parseDocument(policy.Resource, part, "policy", r.Policy); err != nil {
			return nil, err
		}
	}
	return repo, nil
}

// parse checks a bucket of an account and reads its policy.
func (b Bucket) parse(accountID string, part partition) (*bucket, error) {
	if !slices.Contains(part.regions, b.Region) {
		return nil, setting.Invalid("region", "%q is not a region of partition %s", b.Region, part.id)
	}
	if !isBucketName(b.Name) {
		return nil, setting.Invalid("name",
			"%q is not a bucket's name: give 3 to 63 of a-z0-9.-, beginning and ending with a letter or digit", b.Name)
	}
	parsed := &bucket{account: accountID, partition: part, region: b.Region, name: b.Name}
	if len(b.Policy) > 0 {
		doc, err := parsePolicy(policy.Bucket, part.id, b.Policy)
		if err == nil {
			err = doc.CheckBucket(parsed.arn())
		}
		if err != nil {
			return nil, setting.In("policy", err)
		}
		parsed.policy = doc
	}
	return parsed, nil
}

func (p PublicRegistry) validate() error {
	if !repositoryPattern.MatchString(p.Alias) || strings.Contains(p.Alias, "/") {
		return setting.Invalid("alias", "%q is not an alias: give a-z0-9, separated by ._-", p.Alias)
	}
	for i, name := range p.Repositories {
		if !repositoryPattern.MatchString(name) {
			return setting.Invalid(setting.At("repositories", i), "%q is not a repository's name", name)
		}
	}
	return nil
}
