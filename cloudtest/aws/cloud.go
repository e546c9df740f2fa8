// Package aws is the local AWS. It has accounts with roles, users and policies. Its services are
// the Security Token Service, Elastic Container Registry with its registries, S3 and Key Management
// Service. Of Identity and Access Management, it has only the operations that make an account trust
// a cluster. Other services, such as EC2, only check whether the caller may call them, see
// [GenericServices] and [HeaderCallerARN].
//
// It verifies what AWS verifies: tokens against their issuer's published keys, SigV4, trust and
// permission policies. It answers with AWS's error codes, HTTP statuses and bodies.
//
// A [Cloud] has a service for each of AWS's host names, see [Cloud.Service]. It evaluates the
// policies for each request. So a change of a role is in force at once, for existing sessions too.
//
// Every method that changes the cloud returns a [*setting.Error] if a setting is invalid. If the
// object to change does not exist, the error wraps [setting.ErrNotFound].
package aws

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/aws/policy"
	"github.com/lanyard-dev/lanyard/cloudtest/expiring"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// tokenLeeway is the allowed difference between an issuer's clock and the local clock.
const tokenLeeway = 60 * time.Second

// Registry identifies the private registry of one account in one region.
type Registry struct {
	// Account is the account's ID.
	Account string
	// Region is the region.
	Region string
}

// Cloud is the local AWS. It is safe for concurrent use. Make one with [New].
type Cloud struct {
	verifier *oidc.Verifier
	registry plane.Slot[Registry]
	public   plane.Slot[struct{}]
	objects  plane.Slot[struct{}]

	mu       sync.RWMutex // guards the fields below; never held during I/O
	accounts map[string]*account
	keys     map[string]keyOwner              // long-lived access keys by ID
	aliases  map[string]string                // public registry alias -> account ID
	buckets  map[string]*bucket               // by name
	kmsKeys  map[string]*kmsKey               // by ARN
	sessions expiring.Store[*session]         // by access key ID
	tokens   expiring.Store[registryToken]    // by password
	pushes   map[pushKey]map[string]time.Time // when manifests were pushed, by digest
}

type account struct {
	id        string
	partition partition
	providers map[string]provider // by URL
	managed   map[string]policy.Document
	roles     map[string]*role
	users     map[string]*user
	repos     map[repositoryKey]*repository
	public    map[string]bool // names of the repositories at public.ecr.aws, without the alias
}

type provider struct {
	OIDCProvider

	created time.Time
}

// role, user, repository and bucket are immutable once stored; a change replaces them. Replacing a
// role keeps its id and date. Deleting a role and creating it again gives a new id and date.
type role struct {
	id, path, name, arn string
	created             time.Time
	trust               policy.Document
	policies            map[string]policy.Document
	managed             []string
	maxSession          int // seconds
}

type user struct {
	id, name, arn string
	keys          []AccessKey
	policies      map[string]policy.Document
}

type keyOwner struct{ account, user, secret string }

type repositoryKey struct{ region, name string }

// String returns "region/name", the form used in error messages.
func (k repositoryKey) String() string { return k.region + "/" + k.name }

type repository struct {
	key     repositoryKey
	policy  policy.Document
	created time.Time
}

type bucket struct {
	account      string
	partition    partition
	region, name string
	created      time.Time
	policy       policy.Document
}

func (b *bucket) arn() string { return "arn:" + b.partition.id + ":s3:::" + b.name }

// New makes the local AWS that cfg describes. The cloud uses the given transport to fetch the
// discovery documents and keys of OIDC issuers. The transport must reach only hosts of the local
// cloud. The error is a [*setting.Error].
func New(cfg Config, issuers http.RoundTripper) (*Cloud, error) {
	c := &Cloud{
		verifier: oidc.NewVerifier(issuers, tokenLeeway),
		accounts: map[string]*account{},
		keys:     map[string]keyOwner{},
		aliases:  map[string]string{},
		buckets:  map[string]*bucket{},
		kmsKeys:  map[string]*kmsKey{},
		pushes:   map[pushKey]map[string]time.Time{},
	}
	if err := setting.Each("accounts", cfg.Accounts, c.AddAccount); err != nil {
		return nil, err
	}
	return c, nil
}

// AddAccount adds an account with everything in it. On an error it adds nothing. The error is a
// [*setting.Error].
func (c *Cloud) AddAccount(a Account) error {
	if !policy.IsAccountID(a.ID) {
		return setting.Invalid("id", "%q is not an account ID: give twelve digits", a.ID)
	}
	a.Partition = cmp.Or(a.Partition, "aws")
	part, ok := partitionByID(a.Partition)
	if !ok {
		return setting.Invalid("partition", "%q is not a partition", a.Partition)
	}
	managed, err := parsePolicies(part, "managedPolicies", a.ManagedPolicies)
	if err != nil {
		return err
	}
	acc := &account{
		id: a.ID, partition: part, managed: map[string]policy.Document{},
		providers: map[string]provider{}, roles: map[string]*role{}, users: map[string]*user{},
		repos: map[repositoryKey]*repository{}, public: map[string]bool{},
	}
	for name, doc := range managed {
		acc.managed["arn:"+part.id+":iam::"+a.ID+":policy/"+name] = doc
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.accounts[a.ID] != nil {
		return setting.Invalid("id", "account %s exists already", a.ID)
	}
	if err := c.fill(acc, a); err != nil {
		maps.DeleteFunc(c.keys, func(_ string, owner keyOwner) bool { return owner.account == a.ID })
		maps.DeleteFunc(c.buckets, func(_ string, b *bucket) bool { return b.account == a.ID })
		return err
	}
	c.accounts[a.ID] = acc
	if a.PublicRegistry != nil {
		c.aliases[a.PublicRegistry.Alias] = a.ID
	}
	return nil
}

// fill adds an account's objects. If fill fails, AddAccount drops the account with all its objects.
func (c *Cloud) fill(acc *account, a Account) error {
	putUser := func(x User) error { return c.putUser(acc, x) }
	putBucket := func(x Bucket) error { return c.putBucket(acc, x) }
	if err := cmp.Or(
		setting.Fill("oidcProviders", "issuer", a.OIDCProviders, func(x OIDCProvider) string { return x.URL }, acc.putProvider),
		setting.Fill("roles", "role", a.Roles, func(x Role) string { return x.Name }, acc.putRole),
		setting.Fill("users", "user", a.Users, func(x User) string { return x.Name }, putUser),
		setting.Fill("repositories", "repository", a.Repositories,
			func(x Repository) string { return repositoryKey{x.Region, x.Name}.String() }, acc.putRepository),
		setting.Fill("buckets", "bucket", a.Buckets, func(x Bucket) string { return x.Name }, putBucket),
	); err != nil || a.PublicRegistry == nil {
		return err
	}
	if err := a.PublicRegistry.validate(); err != nil {
		return setting.In("publicRegistry", err)
	}
	if owner, taken := c.aliases[a.PublicRegistry.Alias]; taken {
		return setting.Invalid("publicRegistry.alias", "%q is taken by account %s", a.PublicRegistry.Alias, owner)
	}
	for _, name := range a.PublicRegistry.Repositories {
		acc.public[name] = true
	}
	return nil
}

func (a *account) putProvider(p OIDCProvider) error {
	if err := p.validate(); err != nil {
		return err
	}
	a.providers[p.URL] = provider{p, cmp.Or(a.providers[p.URL].created, time.Now())}
	return nil
}

func (a *account) putRole(r Role) error {
	parsed, err := r.parse(a.id, a.partition)
	if err != nil {
		return err
	}
	for i, arn := range parsed.managed {
		if _, ok := a.managed[arn]; !ok {
			return setting.Invalid(setting.At("managedPolicies", i), "account %s has no managed policy %q", a.id, arn)
		}
	}
	old := cmp.Or(a.roles[r.Name], &role{id: newID("AROA"), created: time.Now()})
	parsed.id, parsed.created = old.id, old.created
	a.roles[r.Name] = parsed
	return nil
}

func (c *Cloud) putUser(a *account, u User) error {
	parsed, err := u.parse(a.id, a.partition)
	if err != nil {
		return err
	}
	for i, k := range parsed.keys {
		owner, taken := c.keys[k.ID]
		if taken && (owner.account != a.id || owner.user != u.Name) {
			return setting.Invalid(setting.At("accessKeys", i)+".id", "the access key ID is taken by another user")
		}
	}
	parsed.id = newID("AIDA")
	if old := a.users[u.Name]; old != nil {
		parsed.id = old.id
		c.dropKeys(old)
	}
	for _, k := range parsed.keys {
		c.keys[k.ID] = keyOwner{account: a.id, user: u.Name, secret: k.Secret}
	}
	a.users[u.Name] = parsed
	return nil
}

func (c *Cloud) dropKeys(u *user) {
	for _, k := range u.keys {
		delete(c.keys, k.ID)
	}
}

func (a *account) putRepository(r Repository) error {
	parsed, err := r.parse(a.partition)
	if err != nil {
		return err
	}
	parsed.created = cmp.Or(a.repos[parsed.key], &repository{created: time.Now()}).created
	a.repos[parsed.key] = parsed
	return nil
}

func (c *Cloud) putBucket(a *account, b Bucket) error {
	parsed, err := b.parse(a.id, a.partition)
	if err != nil {
		return err
	}
	old := c.buckets[b.Name]
	switch {
	case old != nil && old.account != a.id:
		return setting.Invalid("name", "bucket %q is account %s's", b.Name, old.account)
	case old != nil && old.region != b.Region:
		return setting.Invalid("region", "bucket %q is in %s, and buckets do not move", b.Name, old.region)
	}
	parsed.created = cmp.Or(old, &bucket{created: time.Now()}).created
	c.buckets[b.Name] = parsed
	return nil
}

// change runs f on an account under the lock.
func (c *Cloud) change(accountID string, f func(*account) error) error {
	return setting.Change(&c.mu, c.accounts, "account", accountID, f)
}

// account returns an account, or an empty one if the account does not exist. The lock must be held.
func (c *Cloud) account(id string) *account { return cmp.Or(c.accounts[id], &account{}) }

// PutOIDCProvider adds or replaces an issuer of an account.
func (c *Cloud) PutOIDCProvider(accountID string, p OIDCProvider) error {
	return c.change(accountID, func(a *account) error { return a.putProvider(p) })
}

// DeleteOIDCProvider removes an issuer from an account. Sessions that were opened with the issuer's
// tokens stay valid, as at AWS.
func (c *Cloud) DeleteOIDCProvider(accountID, url string) error {
	return c.change(accountID, func(a *account) error { return setting.Remove(a.providers, url, "OIDC provider") })
}

// PutRole adds a role or replaces its policies. Existing sessions get the new permission policies.
// The trust policy decides about new sessions only.
func (c *Cloud) PutRole(accountID string, r Role) error {
	return c.change(accountID, func(a *account) error { return a.putRole(r) })
}

// PutTrustPolicy replaces only a role's trust policy. Existing sessions stay valid.
func (c *Cloud) PutTrustPolicy(accountID, roleName string, document json.RawMessage) error {
	return c.change(accountID, func(a *account) error {
		old := a.roles[roleName]
		if old == nil {
			return setting.NotFound("role", roleName)
		}
		trust, err := parseDocument(policy.Trust, a.partition, "trustPolicy", document)
		if err != nil {
			return err
		}
		changed := *old
		changed.trust = trust
		a.roles[roleName] = &changed
		return nil
	})
}

// DeleteRole removes a role. Its sessions lose all permissions, even if a role of the same name is
// created later.
func (c *Cloud) DeleteRole(accountID, roleName string) error {
	return c.change(accountID, func(a *account) error { return setting.Remove(a.roles, roleName, "role") })
}

// PutUser adds or replaces a user with keys and policies.
func (c *Cloud) PutUser(accountID string, u User) error {
	return c.change(accountID, func(a *account) error { return c.putUser(a, u) })
}

// DeleteUser removes a user and its keys.
func (c *Cloud) DeleteUser(accountID, userName string) error {
	return c.change(accountID, func(a *account) error {
		if u := a.users[userName]; u != nil {
			c.dropKeys(u)
		}
		return setting.Remove(a.users, userName, "user")
	})
}

// PutRepository adds a private repository or replaces its policy.
func (c *Cloud) PutRepository(accountID string, r Repository) error {
	return c.change(accountID, func(a *account) error { return a.putRepository(r) })
}

// DeleteRepository removes a private repository. Its content in the data plane stays.
func (c *Cloud) DeleteRepository(accountID, region, name string) error {
	return c.change(accountID, func(a *account) error { return setting.Remove(a.repos, repositoryKey{region, name}, "repository") })
}

// PutBucket adds an S3 bucket or replaces its policy.
func (c *Cloud) PutBucket(accountID string, b Bucket) error {
	return c.change(accountID, func(a *account) error { return c.putBucket(a, b) })
}

// DeleteBucket removes an S3 bucket. Its content in the data plane stays.
func (c *Cloud) DeleteBucket(accountID, name string) error {
	return c.change(accountID, func(*account) error {
		if b := c.buckets[name]; b == nil || b.account != accountID {
			return setting.NotFound("bucket", name)
		}
		delete(c.buckets, name)
		return nil
	})
}

// ServeRegistry sets the data plane of the private registries. Each account has its own registry in
// each region. The given function returns a registry's OCI distribution handler. The handler gets
// only authenticated and authorized requests. They have the client's path and host, and no
// Authorization header. Registries with the same handler share the content of repositories with the
// same name.
func (c *Cloud) ServeRegistry(registry func(Registry) http.Handler) { c.registry.Set(registry) }

// ServePublicRegistry sets the data plane of public.ecr.aws. The handler gets requests of the same
// kind as the handlers of [Cloud.ServeRegistry].
func (c *Cloud) ServePublicRegistry(h http.Handler) {
	c.public.Set(func(struct{}) http.Handler { return h })
}

// ServeS3 sets the data plane of S3. The handler gets only authenticated and authorized requests,
// without their credentials. Paths have the form "/bucket/key", even if the client used a virtual
// host. Bodies have no chunk framing, and their checksums have been checked.
func (c *Cloud) ServeS3(h http.Handler) { c.objects.Set(func(struct{}) http.Handler { return h }) }

// Service returns the service of a host, or nil if AWS has no such host. It knows the hosts of IAM
// in every partition. It knows those of STS, ECR, S3, KMS and [GenericServices] in every partition
// and region. A registry's host is known only if its account exists. Hosts of buckets belong to S3
// even if the bucket does not exist, as at AWS.
func (c *Cloud) Service(host string) service.Service {
	ep, ok := parseHost(host)
	if !ok || !c.hasAccount(ep) {
		return nil
	}
	return func(r *service.Request) (service.Protocol, service.Handler) {
		r.Call.Service = ep.service
		switch ep.service {
		case ServiceIAM:
			return c.readQuery(r, ep, iamAPI())
		case ServiceSTS:
			return c.readQuery(r, ep, stsAPI())
		case ServiceECR:
			return c.readJSON(r, ep, ecrAPI())
		case ServiceECRPublic:
			return c.readJSON(r, ep, ecrPublicAPI())
		case ServiceKMS:
			return c.readJSON(r, ep, kmsAPI())
		case ServiceRegistry:
			return c.readRegistry(r, ep)
		case ServicePublicRegistry:
			return c.readPublicRegistry(r, ep)
		case ServiceS3:
			return c.readS3(r, ep)
		default: // one of GenericServices
			return c.readGeneric(r, ep)
		}
	}
}

// hasAccount reports whether the account in an endpoint's host name exists. It is true for a host
// without an account.
func (c *Cloud) hasAccount(ep endpoint) bool {
	if ep.account == "" {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.account(ep.account).partition.id == ep.partition
}
