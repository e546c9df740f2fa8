package gcp

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// principal is a proved caller: a service account or a federated identity. Its zero value is
// nobody: it is a member of allUsers and of nothing else.
type principal struct {
	universe string
	// email and uniqueID are a service account's.
	email, uniqueID string
	// pool is the resource name of a federated identity's pool, serial its serial number, and
	// project the ID of its project. The serial is empty for a pool of GKE, which lives as long as
	// its project.
	pool, serial, project string
	subject               string
	// others are further names of a federated identity, as members of bindings.
	others []string
}

func (p principal) anonymous() bool { return p.email == "" && p.pool == "" }

func (p principal) federated() bool { return p.pool != "" }

// name is the principal as a member of a binding.
func (p principal) name() string {
	switch {
	case p.federated():
		return "principal://" + iamHost + "/" + p.pool + "/subject/" + p.subject
	case p.email != "":
		return "serviceAccount:" + p.email
	}
	return ""
}

// members are all members of bindings that the principal is. Nobody who is federated is one of
// allAuthenticatedUsers. Source: IAM, "Principal identifiers".
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

// Reasons why a token does not prove its bearer. Each API has its own words for its callers.
var (
	errNoCredentials = errors.New("no credentials were sent")
	errBadToken      = errors.New("the token is not one that was given out here")
	errExpired       = errors.New("the token has expired")
	errEnded         = errors.New("the token's principal was deleted or disabled")
)

// redeem finds out whose a token is: an access token, or the own one of a registry that is named.
// Its principal must still be.
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

// lives reports whether a token's principal is unchanged. A disabled pool ends tokens, a disabled
// or deleted provider does not. The lock must be held. Source: IAM, "Manage workload identity pools
// and providers".
func (c *Cloud) lives(p principal) bool {
	switch {
	case p.email != "":
		a := c.accounts[p.email]
		return a != nil && a.uniqueID == p.uniqueID
	case p.serial != "":
		pr := c.projects[p.project]
		if pr == nil {
			return false
		}
		pool := pr.pools[p.pool[strings.LastIndexByte(p.pool, '/')+1:]]
		return pool != nil && pool.serial == p.serial && !pool.disabled
	}
	return true
}

// allowed reports whether a principal may do something, by the resource's own policy or its
// project's. The lock must be held.
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
