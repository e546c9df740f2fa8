// Package gcp is the local Google Cloud. It has projects with workload identity pools, GKE
// clusters, service accounts and IAM policies. Its services are the Security Token Service, the IAM
// Service Account Credentials API, the metadata server, Artifact Registry, Cloud Storage and Cloud
// KMS. It also has the management methods with which an administrator makes a project trust a
// cluster.
//
// It verifies what Google Cloud verifies: tokens against their issuer's keys, attribute mappings
// and conditions, IAM bindings. It answers with Google's error codes, HTTP statuses and bodies.
//
// [Cloud.Service] is the service at one of Google's host names. [Cloud.Metadata] is the metadata
// server. A [Cloud] checks a principal's permissions at each request. So a change of permissions
// takes effect at once, even for access tokens that were issued earlier.
//
// Every method that changes the cloud returns a [*setting.Error] if a setting is invalid. If the
// object to change does not exist, the error wraps [setting.ErrNotFound].
package gcp

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/expiring"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// tokenLeeway is the allowed difference between an issuer's clock and the local one.
const tokenLeeway = 60 * time.Second

// Cloud is the local Google Cloud. It is safe for concurrent use. Make one with [New].
type Cloud struct {
	verifier *oidc.Verifier
	google   func() *oidc.Issuer // the issuer of identity tokens, made at the first call
	registry plane.Slot[Registry]
	storage  plane.Slot[struct{}]
	metadata atomic.Pointer[Metadata]

	mu       sync.RWMutex        // guards the fields below; never held during I/O
	projects map[string]*project // by ID
	numbers  map[string]*project
	accounts map[string]*account // by address, of all projects
	buckets  map[string]*bucket  // by name, of all projects
	tokens   expiring.Store[accessToken]
}

type project struct {
	id, number, universe string
	policy               policy
	pools                map[string]*pool
	clusters             map[string]*cluster // by URL
	repos                map[repositoryKey]*repository
	keyRings             map[string]*keyRing // by location and name, see ringKey
}

// pool, cluster, account, repository and bucket are immutable once stored. A change stores a new
// object in the old one's place. A pool's serial distinguishes the pool from a later pool of the
// same name. An account's uniqueID does the same for accounts. Replacing a pool keeps its serial.
// Replacing an account keeps its uniqueID, unless the new account sets one. If an object is deleted
// and created again, its old serial or uniqueID is not kept.
type pool struct {
	id, serial string
	disabled   bool
	providers  map[string]*provider
}

type cluster struct {
	url, issuer string
	keys        *oidc.KeySet
}

type account struct {
	email, uniqueID, project string
	policy                   policy
}

type repositoryKey struct{ location, name string }

// String returns the key as it appears in refusals.
func (k repositoryKey) String() string { return k.location + "/" + k.name }

type repository struct {
	key    repositoryKey
	policy policy
}

type bucket struct {
	name, project string
	policy        policy
}

// New makes the local Google Cloud that cfg describes. The cloud fetches the discovery documents
// and keys of OIDC issuers through the given transport. The transport must reach only hosts of the
// local cloud. The error is a [*setting.Error].
func New(cfg Config, issuers http.RoundTripper) (*Cloud, error) {
	c := &Cloud{
		verifier: oidc.NewVerifier(issuers, tokenLeeway),
		google:   sync.OnceValue(func() *oidc.Issuer { return wire.Must(oidc.NewIssuer("https://"+issuerHost, oidc.RS256)) }),
		projects: map[string]*project{},
		numbers:  map[string]*project{},
		accounts: map[string]*account{},
		buckets:  map[string]*bucket{},
	}
	if err := setting.Each("projects", cfg.Projects, c.AddProject); err != nil {
		return nil, err
	}
	if cfg.Metadata != nil {
		if err := c.PutMetadata(*cfg.Metadata); err != nil {
			return nil, setting.In("metadata", err)
		}
	}
	return c, nil
}

// AddProject adds a project with all its contents. If it fails, it adds nothing. The error is a
// [*setting.Error].
func (c *Cloud) AddProject(config Project) error {
	if err := config.check(); err != nil {
		return err
	}
	p := &project{
		id: config.ID, number: config.Number, universe: cmp.Or(config.UniverseDomain, DefaultUniverse),
		pools: map[string]*pool{}, clusters: map[string]*cluster{}, repos: map[repositoryKey]*repository{},
		keyRings: map[string]*keyRing{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.projects[p.id] != nil:
		return setting.Invalid("id", "project %s exists already", p.id)
	case c.numbers[p.number] != nil:
		return setting.Invalid("number", "project number %s exists already", p.number)
	}
	if err := c.fill(p, config); err != nil {
		maps.DeleteFunc(c.accounts, func(_ string, a *account) bool { return a.project == p.id })
		maps.DeleteFunc(c.buckets, func(_ string, b *bucket) bool { return b.project == p.id })
		return err
	}
	c.projects[p.id], c.numbers[p.number] = p, p
	return nil
}

// fill adds a project's service accounts and buckets to the cloud, and its other objects to the
// project.
func (c *Cloud) fill(p *project, config Project) error {
	putAccount := func(x ServiceAccount) error { return c.putAccount(p, x) }
	putBucket := func(x Bucket) error { return c.putBucket(p, x) }
	return cmp.Or(
		p.putBindings(config.Bindings),
		setting.Fill("pools", "pool", config.Pools, func(x Pool) string { return x.ID }, p.putPool),
		setting.Fill("clusters", "cluster", config.Clusters, func(x Cluster) string { return x.Location + "/" + x.Name }, p.putCluster),
		setting.Fill("serviceAccounts", "service account", config.ServiceAccounts,
			func(x ServiceAccount) string { return x.Email }, putAccount),
		setting.Fill("repositories", "repository", config.Repositories,
			func(x Repository) string { return repositoryKey{x.Location, x.Name}.String() }, p.putRepository),
		setting.Fill("buckets", "bucket", config.Buckets, func(x Bucket) string { return x.Name }, putBucket),
		setting.Fill("keyRings", "key ring", config.KeyRings, func(x KeyRing) string { return ringKey(x.Location, x.Name) }, p.putKeyRing),
	)
}

func (p *project) putBindings(bindings []Binding) error {
	parsed, err := parseBindings(bindings, ofProject)
	if err != nil {
		return err
	}
	p.policy = parsed
	return nil
}

func (p *project) putPool(config Pool) error {
	parsed, err := config.parse()
	if err != nil {
		return err
	}
	parsed.serial = cmp.Or(p.pools[config.ID], &pool{serial: randomText(16)}).serial
	p.pools[config.ID] = parsed
	return nil
}

func (p *project) putCluster(config Cluster) error {
	parsed, err := config.parse(p.universe, p.id)
	if err != nil {
		return err
	}
	p.clusters[parsed.url] = parsed
	return nil
}

func (c *Cloud) putAccount(p *project, config ServiceAccount) error {
	parsed, err := config.parse(p)
	if err != nil {
		return err
	}
	old := cmp.Or(c.accounts[config.Email], &account{})
	parsed.uniqueID = cmp.Or(parsed.uniqueID, old.uniqueID, newUniqueID())
	for _, other := range c.accounts {
		if other.uniqueID == parsed.uniqueID && other.email != parsed.email {
			return setting.Invalid("uniqueID", "%q is %s's", parsed.uniqueID, other.email)
		}
	}
	c.accounts[config.Email] = parsed
	return nil
}

func (p *project) putRepository(config Repository) error {
	parsed, err := config.parse(p.universe)
	if err != nil {
		return err
	}
	p.repos[parsed.key] = parsed
	return nil
}

func (c *Cloud) putBucket(p *project, config Bucket) error {
	parsed, err := config.parse(p.id)
	if err != nil {
		return err
	}
	if old := c.buckets[config.Name]; old != nil && old.project != p.id {
		return setting.Invalid("name", "bucket %q is of project %s", config.Name, old.project)
	}
	c.buckets[config.Name] = parsed
	return nil
}

// change calls f with a project, under the lock.
func (c *Cloud) change(projectID string, f func(*project) error) error {
	return setting.Change(&c.mu, c.projects, "project", projectID, f)
}

// PutBindings replaces a project's own IAM policy.
func (c *Cloud) PutBindings(projectID string, bindings []Binding) error {
	return c.change(projectID, func(p *project) error { return p.putBindings(bindings) })
}

// PutPool adds or replaces a workload identity pool with its providers.
func (c *Cloud) PutPool(projectID string, x Pool) error {
	return c.change(projectID, func(p *project) error { return p.putPool(x) })
}

// DeletePool removes a workload identity pool. Tokens that were exchanged through it become
// invalid, even if a pool with the same ID is created later.
func (c *Cloud) DeletePool(projectID, poolID string) error {
	return c.change(projectID, func(p *project) error { return setting.Remove(p.pools, poolID, "pool") })
}

// PutCluster adds or replaces a GKE cluster.
func (c *Cloud) PutCluster(projectID string, x Cluster) error {
	return c.change(projectID, func(p *project) error { return p.putCluster(x) })
}

// DeleteCluster removes a GKE cluster. Access tokens that its workloads obtained stay valid.
func (c *Cloud) DeleteCluster(projectID, location, name string) error {
	return c.change(projectID, func(p *project) error {
		return setting.Remove(p.clusters, clusterURL(p.universe, p.id, location, name), "cluster")
	})
}

// PutServiceAccount adds a service account or replaces its policy.
func (c *Cloud) PutServiceAccount(projectID string, x ServiceAccount) error {
	return c.change(projectID, func(p *project) error { return c.putAccount(p, x) })
}

// DeleteServiceAccount removes a service account, and removes it from all bindings. Its tokens
// become invalid. An account with the same address that is created later inherits nothing.
func (c *Cloud) DeleteServiceAccount(projectID, email string) error {
	return c.change(projectID, func(p *project) error {
		a := c.accounts[email]
		if a == nil || a.project != p.id {
			return setting.NotFound("service account", email)
		}
		delete(c.accounts, email)
		c.forget("serviceAccount:" + email)
		return nil
	})
}

// forget removes a member from all policies.
func (c *Cloud) forget(member string) {
	for email, old := range c.accounts {
		changed := *old
		changed.policy = old.policy.without(member)
		c.accounts[email] = &changed
	}
	for name, old := range c.buckets {
		changed := *old
		changed.policy = old.policy.without(member)
		c.buckets[name] = &changed
	}
	for _, p := range c.projects {
		p.policy = p.policy.without(member)
		for key, old := range p.repos {
			p.repos[key] = &repository{key: key, policy: old.policy.without(member)}
		}
		for _, ring := range p.keyRings {
			ring.policy = ring.policy.without(member)
			for _, key := range ring.keys {
				key.policy = key.policy.without(member)
			}
		}
	}
}

// PutRepository adds a repository of Artifact Registry or replaces its policy.
func (c *Cloud) PutRepository(projectID string, x Repository) error {
	return c.change(projectID, func(p *project) error { return p.putRepository(x) })
}

// DeleteRepository removes a repository. The data plane's content stays.
func (c *Cloud) DeleteRepository(projectID, location, name string) error {
	return c.change(projectID, func(p *project) error { return setting.Remove(p.repos, repositoryKey{location, name}, "repository") })
}

// PutBucket adds a bucket or replaces its policy. The bucket must also exist in the data plane.
func (c *Cloud) PutBucket(projectID string, x Bucket) error {
	return c.change(projectID, func(p *project) error { return c.putBucket(p, x) })
}

// DeleteBucket removes a bucket. The data plane's content stays.
func (c *Cloud) DeleteBucket(projectID, name string) error {
	return c.change(projectID, func(p *project) error {
		if b := c.buckets[name]; b == nil || b.project != p.id {
			return setting.NotFound("bucket", name)
		}
		delete(c.buckets, name)
		return nil
	})
}

// PutKeyRing adds a key ring of Cloud KMS with its keys. If the key ring exists, PutKeyRing replaces
// its policy, and the policies of the keys that x names. No key ever disappears or changes. As in
// Google Cloud, there is no way to delete a key ring.
func (c *Cloud) PutKeyRing(projectID string, x KeyRing) error {
	return c.change(projectID, func(p *project) error { return p.putKeyRing(x) })
}

// Service returns the service at a host, or nil if Google Cloud has no such host. The public
// universe and every project's universe have hosts for the APIs. Each of them also has hosts for
// the registries in all locations, if the local cloud knows the universe's registries. One more
// host belongs to Google's own issuer.
func (c *Cloud) Service(host string) service.Service {
	ep, ok := parseHost(host, c.universes())
	if !ok {
		return nil
	}
	return func(r *service.Request) (service.Protocol, service.Handler) {
		r.Call.Service = ep.service
		switch ep.service {
		case ServiceSTS:
			return c.readSTS(r, ep)
		case ServiceIAMCredentials:
			return c.readIAMCredentials(r, ep)
		case ServiceIAM:
			return c.readManagement(r, ep, iamMethods())
		case ServiceResourceManager:
			return c.readManagement(r, ep, projectMethods())
		case ServiceUsage:
			return c.readManagement(r, ep, usageMethods())
		case ServiceRegistryAPI:
			return c.readManagement(r, ep, repositoryMethods())
		case ServiceKMS:
			return c.readManagement(r, ep, kmsMethods(), scopeKMS)
		case ServiceAccounts:
			return c.readAccounts(r)
		case ServiceRegistry:
			return c.readRegistry(r, ep)
		default: // ServiceStorage
			return c.readStorage(r, ep)
		}
	}
}

func (c *Cloud) universes() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := []string{DefaultUniverse}
	for _, p := range c.projects {
		if !slices.Contains(out, p.universe) {
			out = append(out, p.universe)
		}
	}
	return out
}
