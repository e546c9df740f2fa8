package access

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
)

// Login is the identity and the credential with which a service is used during one reconciliation.
// The zero Login is anonymous.
type Login struct {
	// Identity says whose credential the Login has, for the object's status; nil if the Login is
	// anonymous.
	Identity *meta.Identity
	// Token is the credential if it was minted, and nil otherwise.
	Token auth.Token
	// Credential is sent to the service. It is zero if the Login is anonymous. It is also zero if
	// an SDK signs requests with Token, or sends Token itself.
	Credential Credential

	key auth.Key // key of Token; zero if Token is nil
}

// Credential has the secrets for a service: any combination of the fields. The zero Credential
// sends nothing.
type Credential struct {
	// Basic has a user and a password; nil if there are none. The service's client sends them. It
	// knows where to send them: some services accept them only at a token endpoint.
	Basic *Basic
	// Bearer is a token that the service accepts as it is (RFC 6750, section 2.1); zero if there is
	// none. The service's client sends it.
	Bearer auth.Secret
	// Certificate is the client certificate for TLS; nil if there is none. [Connection.As] adds it.
	Certificate *tls.Certificate
}

// IsZero reports whether no field is set.
func (c Credential) IsZero() bool { return c.Basic == nil && c.Bearer.IsZero() && c.Certificate == nil }

// Basic is a user and a password, or the access key and the secret key of a user of an
// S3-compatible service.
type Basic struct {
	// User is the user or the access key. It is not secret.
	User string
	// Password is the password or the secret key.
	Password auth.Secret
	// Refresh is a refresh token, which a token endpoint accepts instead of the password (Docker's
	// identitytoken); zero if there is none.
	Refresh auth.Secret
}

// StaticLogin returns the login with a stored credential. The subject says where the credential is
// stored, because the identity of a stored credential is not known.
func StaticLogin(subject string, shown Credential) Login {
	return Login{Identity: &meta.Identity{Subject: subject, Provider: spec.Generic}, Credential: shown}
}

// nameIdentity adds to an error the identity whose credential was used.
func (l Login) nameIdentity(err error) error {
	if err == nil || l.Identity == nil {
		return err
	}
	return fmt.Errorf("as %s: %w", cmp.Or(l.Identity.CloudIdentity, l.Identity.Subject), err)
}

// WithCredential calls login() to get a credential, and work() to use the service with it. The
// status and errors contain the identity whose credential was used, even if the service rejects
// this credential. A token that login() returns must be valid for at least minRemaining.
//
// If rejected() is true for the error of work(), the service did not accept the credential. A
// short-lived token may have been revoked early. So WithCredential calls login() and work() once
// more, with another token. A tenant may choose a service that rejects every credential. To spare
// the token services, a token is replaced at most once a minute.
func (a *Access) WithCredential(
	conn *Connection, status *meta.FetchStatus,
	login func(minRemaining time.Duration) (Login, error), work func(Login) error, rejected func(error) bool,
) error {
	attempt := func(minRemaining time.Duration) (Login, error) {
		l, err := login(minRemaining)
		if err != nil {
			if !auth.IsTemporary(err) {
				status.Identity = nil // the identity can get no credential
			}
			return Login{}, err
		}
		status.Identity = l.Identity
		return l, l.nameIdentity(conn.Explain(work(l)))
	}
	first, err := attempt(0)
	if first.Token == nil || !rejected(err) || !a.replaced.allow(first.key, time.Now(), replaceAfter) {
		return err
	}
	// Ask for a token that lives longer than the first one, so that it is not the same token.
	_, err = attempt(first.Token.GetDuration() + time.Second)
	return err
}

// replaceAfter is the least time between two replacements of a rejected token. A server may answer
// every request with 401. Without this limit, each reconciliation, perhaps one a second, would
// burden a token service that all tenants share.
const replaceAfter = time.Minute

// lately limits how often an action may be repeated for a key. The zero value is ready for use.
type lately[K comparable] struct {
	mu     sync.Mutex      // guards the fields below
	began  time.Time       // time when the field recent was last emptied
	recent map[K]time.Time // time of the last action for each key
	older  map[K]time.Time // entries that the field recent had before it was last emptied
}

// allow reports whether the action is allowed for the key now, and records an allowed action. The
// argument every is the minimum time between two allowed actions for a key. It must be the same in
// all calls on one receiver.
func (l *lately[K]) allow(key K, now time.Time, every time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= every {
		// Drop the older keys, so that the maps do not grow forever.
		l.began, l.recent, l.older = now, map[K]time.Time{}, l.recent
	}
	for _, known := range []map[K]time.Time{l.recent, l.older} {
		if at, ok := known[key]; ok && now.Sub(at) < every {
			return false
		}
	}
	l.recent[key] = now
	return true
}
