package gcp

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// principal is an authenticated caller: a service account or a federated identity. The zero value
// is an anonymous caller, who is a member of allUsers only.
type principal struct {
	universe string
	// email and uniqueID are set for a service account.
	email, uniqueID string
	// pool is set for a federated identity. It is the resource name of the identity's workload
	// identity pool. serial and project are the pool's serial, and the ID of the pool's project.
	// The serial distinguishes the pool from a later pool of the same name. A GKE pool cannot be
	// deleted, so its identities have neither serial nor project.
	pool, serial, project string
	subject               string
	// others are further names that a binding can use for a federated identity.
	others []string
}

func (p principal) anonymous() bool { return p.email == "" && p.pool == "" }

func (p principal) federated() bool { return p.pool != "" }

// name returns the principal's name in the form of a binding's member.
func (p principal) name() string {
	switch {
	case p.federated():
		return "principal://" + iamHost + "/" + p.pool + "/subject/" + p.subject
	case p.email != "":
		return "serviceAccount:" + p.email
	}
	return ""
}

// members returns all names that a binding can use for the principal. A federated identity is not
// in allAuthenticatedUsers. Source: IAM, "Principal identifiers".
func (p principal) members() []string {
	out := append([]string{allUsers}, p.others...)
	switch {
	case p.federated():
		out = append(out, p.name(), "principalSet://"+iamHost+"/"+p.pool+"/*")
	case p.email != "":
		out = append(out, p.name(), allAuthenticatedUsers)
	}
	return out
}

// Reasons why a token is not accepted. Each API has its own error texts for these reasons.
var (
	errNoCredentials = errors.New("no credentials were sent")
	errBadToken      = errors.New("the token is not one that was given out here")
	errExpired       = errors.New("the token has expired")
	errEnded         = errors.New("the token's principal was deleted or disabled")
)

// redeem looks up an issued token. If registry is empty, the token must be an access token.
// Otherwise it must be a token that this registry issued. A token whose principal was deleted or
// disabled is refused.
func (c *Cloud) redeem(token, universe, registry string, now time.Time) (accessToken, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.tokens.Get(token)
	switch {
	case !ok || t.registry != registry:
		return accessToken{}, errBadToken
	case t.who.universe != universe:
		return accessToken{}, fmt.Errorf("%w: it is of the universe %s", errBadToken, t.who.universe)
	case !now.Before(t.expires):
		return accessToken{}, fmt.Errorf("%w at %s", errExpired, t.expires.UTC().Format(time.RFC3339))
	case !c.lives(t.who):
		return accessToken{}, errEnded
	}
	return t, nil
}

// lives reports whether a token's principal still exists. Disabling a pool makes its tokens
// invalid. Disabling or deleting a provider does not. The lock must be held. Source: IAM, "Manage
// workload identity pools and providers".
func (c *Cloud) lives(p principal) bool {
	switch {
	case p.email != "":
		a := c.accounts[p.email]
		return a != nil && a.uniqueID == p.uniqueID
	case p.serial != "":
		pool := cmp.Or(c.projects[p.project], &project{}).pools[p.pool[strings.LastIndexByte(p.pool, '/')+1:]]
		return pool != nil && pool.serial == p.serial && !pool.disabled
	}
	return true
}

// allowed reports whether a resource's own policy, or the policy of the resource's project, gives a
// permission to a principal. The lock must be held.
func (c *Cloud) allowed(p principal, permission, projectID string, own policy) bool {
	members := p.members()
	if own.allows(permission, members) {
		return true
	}
	pr := c.projects[projectID]
	return pr != nil && pr.policy.allows(permission, members)
}

// accountOf returns a service account's principal. The lock must be held.
func (c *Cloud) accountOf(a *account) principal {
	return principal{universe: c.projects[a.project].universe, email: a.email, uniqueID: a.uniqueID}
}
