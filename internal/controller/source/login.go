package source

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Login is as whom a service is used during one reconciliation. The zero Login is nobody.
type Login struct {
	// Identity is whose credential it is, for the object's status; nil for nobody's.
	Identity *meta.Identity
	// Token is the credential if it was minted, else nil.
	Token auth.Token

	key auth.Key // of Token; zero where memory has not heard of the subject yet
}

// Stored is the login of a stored password, of which nobody tells us more than where it came from.
func Stored(subject string) Login {
	return Login{Identity: &meta.Identity{Subject: subject, Provider: spec.Generic}}
}

// StoredIn is the login of a password in a Secret.
func StoredIn(namespace, secret string) Login { return Stored("secret:" + namespace + ":" + secret) }

// as says in an error whose credential was used.
func (l Login) as(err error) error {
	if err == nil || l.Identity == nil {
		return err
	}
	return fmt.Errorf("as %s: %w", cmp.Or(l.Identity.CloudIdentity, l.Identity.Subject), err)
}

func (l Login) login() Login { return l }

// Credential is what a kind's service is shown: a struct in which a [Login] is embedded.
type Credential interface{ login() Login }

// Use logs in and has work use the service over the connection. Who that is stands in the status, even if the service refuses, and in
// errors. ended tells from work's error that the service does not take the credential, or not any more: it may have ended a minted one
// early, so that work runs a second time with another. A tenant may have chosen a service that never takes any, so that a token is
// replaced once a minute at the most. login is told how long the credential must live.
func Use[C Credential](
	a *Access, conn *Connection, status *meta.Status,
	login func(minRemaining time.Duration) (C, error), work func(C) error, ended func(error) bool,
) error {
	attempt := func(minRemaining time.Duration) (Login, error) {
		c, err := login(minRemaining)
		if err != nil {
			if !auth.IsTemporary(err) {
				status.Identity = nil // it was refused
			}
			return Login{}, err
		}
		status.Identity = c.login().Identity
		return c.login(), c.login().as(conn.Explain(work(c)))
	}
	first, err := attempt(0)
	if first.Token == nil || !ended(err) || !a.ended.another(first.key, time.Now()) {
		return err
	}
	// One that lives longer than this one is another.
	_, err = attempt(first.Token.GetDuration() + time.Second)
	return err
}

// anotherAfter is the least time between two tokens that are got because a service did not take the one before. Whoever answers 401 to
// everything would otherwise have every reconciliation, of which there may be one a second, make an exchange at a token service that all
// tenants share; and a token that is so young is not refused for its age.
const anotherAfter = time.Minute

// endings knows for which keys another token was got lately. The zero value is ready for use.
type endings struct {
	mu     sync.Mutex             // guards the fields below
	began  time.Time              // of recent
	recent map[auth.Key]time.Time // when
	older  map[auth.Key]time.Time // what was recent until then
}

// another reports whether a token that a service did not take may be replaced now, which is then remembered. A token whose key is not
// known was got just now.
func (e *endings) another(key auth.Key, now time.Time) bool {
	if key == (auth.Key{}) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.began) >= anotherAfter {
		e.began, e.recent, e.older = now, map[auth.Key]time.Time{}, e.recent // nobody's key is kept for long
	}
	for _, known := range []map[auth.Key]time.Time{e.recent, e.older} {
		if at, ok := known[key]; ok && now.Sub(at) < anotherAfter {
			return false
		}
	}
	e.recent[key] = now
	return true
}
