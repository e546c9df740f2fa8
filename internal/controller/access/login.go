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
	// Identity says whose credential it is, for the object's status; nil if the Login is anonymous.
	Identity *meta.Identity
	// Token is the credential if it was minted, and nil otherwise.
	Token auth.Token
	// Credential is sent to the service. It is zero if the Login is anonymous, or if an SDK signs
	// requests with Token or sends Token itself.
	Credential Credential

	key auth.Key // key of Token; zero if Token is nil
}

// Credential has the secrets for a service: any combination of the fields. The zero Credential
// sends nothing.
type Credential struct {
	// Basic has a user and a password; nil if there are none. The service's client sends them,
	// because some services accept them only at a token endpoint.
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

// WithCredential logs in and uses the service over the connection by a call of the function work.
// The status and errors contain the identity, even if the service refuses the identity.
//
// The function rejected reports whether an error of work says that the service does not accept the
// credential. A minted token may be rejected because it was revoked early. So after a rejection of
// a minted token, work runs once more with another token. The argument of login is the minimum
// remaining life of the token that login returns. A tenant may choose a service that rejects every
// credential, so a token is replaced at most once a minute.
func (a *Access) WithCredential(
	conn *Connection, status *meta.FetchStatus,
	login func(minRemaining time.Duration) (Login, error), work func(Login) error, rejected func(error) bool,
) error {
	attempt := func(minRemaining time.Duration) (Login, error) {
		l, err := login(minRemaining)
		if err != nil {
			if !auth.IsTemporary(err) {
				status.Identity = nil // the identity was refused
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
	// Ask for a token that lives longer than the first token. Such a token is a different token.
	_, err = attempt(first.Token.GetDuration() + time.Second)
	return err
}

// replaceAfter is the least time between two replacements of a rejected token. A server may answer
// every request with 401. Without this limit, each reconciliation, up to one a second, would make
// an exchange at a token service that all tenants share. If a token that is younger than
// replaceAfter is rejected, its age is not the reason.
const replaceAfter = time.Minute

// lately limits how often an action may be repeated for a key. The zero value is ready for use.
type lately[K comparable] struct {
	mu     sync.Mutex      // guards the fields below
	began  time.Time       // time when recent was last emptied
	recent map[K]time.Time // time of the last action for each key
	older  map[K]time.Time // the map recent until began
}

// allow reports whether the action is allowed for the key now, and records an allowed action. The
// parameter every is the minimum time between two allowed actions of a key. All calls for one
// lately must have the same value of every.
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
