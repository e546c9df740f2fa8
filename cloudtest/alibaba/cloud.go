// Package alibaba is the local Alibaba Cloud. It has accounts of Resource Access Management (RAM)
// with OIDC providers and roles. Its only service is the Security Token Service (STS), with the
// operation AssumeRoleWithOIDC.
//
// It verifies what Alibaba Cloud verifies:
//   - the token's issuer, audience, age and signature
//   - the fingerprints of the certificates of the issuer's host
//   - the role's trust policy
//
// It answers with Alibaba Cloud's error codes, HTTP statuses and bodies.
//
// A [Cloud] serves all host names of STS, see [Cloud.Service]. It evaluates the policies for each
// request, so that a change is in force at once.
//
// Every method that changes the cloud returns a [*setting.Error] if a setting is invalid. If the
// object to change does not exist, the error wraps [setting.ErrNotFound].
package alibaba

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// tokenLeeway is the allowed difference between an issuer's clock and the local clock.
const tokenLeeway = 60 * time.Second

// Cloud is the local Alibaba Cloud. It is safe for concurrent use. Make one with [New].
type Cloud struct {
	issuers http.RoundTripper

	mu       sync.RWMutex // guards the fields below; never held during I/O
	accounts map[string]*account
}

type account struct {
	id        string
	providers map[string]OIDCProvider // by name
	roles     map[string]role         // by name, in lower case
}

// role is immutable once stored. Replacing a role keeps its ID. Deleting a role and creating it
// again gives a new ID.
type role struct {
	Role

	id    string
	trust trustPolicy
}

// New makes the local Alibaba Cloud that cfg describes. The cloud uses the given transport to fetch
// the discovery documents and keys of OIDC issuers over TLS. The transport must reach only hosts of
// the local cloud. The error is a [*setting.Error].
func New(cfg Config, issuers http.RoundTripper) (*Cloud, error) {
	c := &Cloud{issuers: issuers, accounts: map[string]*account{}}
	if err := setting.Each("accounts", cfg.Accounts, c.AddAccount); err != nil {
		return nil, err
	}
	return c, nil
}

// AddAccount adds an account with its OIDC providers and roles. On an error it adds nothing. The
// error is a [*setting.Error].
func (c *Cloud) AddAccount(config Account) error {
	if !accountPattern.MatchString(config.ID) {
		return setting.Invalid("id", "%q is not sixteen digits", config.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.accounts[config.ID] != nil {
		return setting.Invalid("id", "account %s exists already", config.ID)
	}
	a := &account{id: config.ID, providers: map[string]OIDCProvider{}, roles: map[string]role{}}
	if err := cmp.Or(
		setting.Fill("oidcProviders", "OIDC provider", config.OIDCProviders, func(p OIDCProvider) string { return p.Name }, a.putProvider),
		setting.Fill("roles", "role", config.Roles, func(r Role) string { return strings.ToLower(r.Name) }, a.putRole),
	); err != nil {
		return err
	}
	c.accounts[a.id] = a
	return nil
}

// change runs f on an account under the lock.
func (c *Cloud) change(accountID string, f func(*account) error) error {
	return setting.Change(&c.mu, c.accounts, "account", accountID, f)
}

// account returns an account, or an empty one if the account does not exist. The lock must be held.
func (c *Cloud) account(id string) *account { return cmp.Or(c.accounts[id], &account{}) }

// PutOIDCProvider adds or replaces an OIDC provider.
func (c *Cloud) PutOIDCProvider(accountID string, p OIDCProvider) error {
	return c.change(accountID, func(a *account) error { return a.putProvider(p) })
}

// DeleteOIDCProvider removes an OIDC provider.
func (c *Cloud) DeleteOIDCProvider(accountID, name string) error {
	return c.change(accountID, func(a *account) error { return setting.Remove(a.providers, name, "OIDC provider") })
}

// PutRole adds or replaces a role.
func (c *Cloud) PutRole(accountID string, r Role) error {
	return c.change(accountID, func(a *account) error { return a.putRole(r) })
}

// DeleteRole removes a role.
func (c *Cloud) DeleteRole(accountID, name string) error {
	return c.change(accountID, func(a *account) error { return setting.Remove(a.roles, strings.ToLower(name), "role") })
}

func (a *account) putProvider(p OIDCProvider) error {
	if err := p.check(); err != nil {
		return err
	}
	p.IssuanceLimitHours = cmp.Or(p.IssuanceLimitHours, defaultIssuanceLimit)
	a.providers[p.Name] = p
	return nil
}

func (a *account) putRole(r Role) error {
	trust, err := r.parse()
	if err != nil {
		return err
	}
	r.MaxSessionDuration = cmp.Or(r.MaxSessionDuration, defaultDuration)
	name := strings.ToLower(r.Name)
	a.roles[name] = role{Role: r, id: cmp.Or(a.roles[name].id, newID()), trust: trust}
	return nil
}

// newID makes the ID of a role: eighteen digits.
func newID() string { return "3" + wire.Text("0123456789", 17) }

// Service returns the service at a host, or nil if Alibaba Cloud's STS has no such host.
func (c *Cloud) Service(host string) service.Service {
	if host != globalHost && !regionalHost.MatchString(host) {
		return nil
	}
	return c.readSTS
}
