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
	// Identity is whose credential it is, for the object's status; nil for nobody's.
	Identity *meta.Identity
	// Token is the credential if it was minted, else nil.
	Token auth.Token
	// Credential is sent to the service. It is zero if the Login is anonymous, or if an SDK signs
	// requests with Token, or shows it.
	Credential Credential

	key auth.Key // of Token; zero if memory has not heard of the subject yet
}

// Credential is sent to a service: any combination of the fields. The zero Credential sends
// nothing.
type Credential struct {
	// Basic are a user and a password, which the service's client shows: some services take them
	// only at a token endpoint. Nil for none.
	Basic *Basic
	// Bearer is a token that the service takes as it is (RFC 6750, section 2.1), and which the
	// service's client shows; zero for none.
	Bearer auth.Secret
	// Certificate is the client's in TLS; nil for none. [Connection.As] adds it.
	Certificate *tls.Certificate
}

// IsZero reports whether nothing is shown.
func (c Credential) IsZero() bool { return c.Basic == nil && c.Bearer.IsZero() && c.Certificate == nil }

// Basic are a user and a password, or the two keys of a user of an S3-compatible service.
type Basic struct {
	// User is not secret.
	User string
	// Password is.
	Password auth.Secret
	// Refresh is a refresh token, which a token endpoint takes in place of the password (Docker's
	// identitytoken); zero for none.
	Refresh auth.Secret
}

// StaticLogin returns the login with a stored credential. subject says where the credential came
// from; nothing else is known of it.
func StaticLogin(subject string, shown Credential) Login {
	return Login{Identity: &meta.Identity{Subject: subject, Provider: spec.Generic}, Credential: shown}
}

// nameIdentity adds to an error whose credential was used.
func (l Login) nameIdentity(err error) error {
	if err == nil || l.Identity == nil {
		return err
	}
	return fmt.Errorf("as %s: %w", cmp.Or(l.Identity.CloudIdentity, l.Identity.Subject), err)
}

// WithCredential logs in and has work use the service over the connection. The status and errors
// name the identity, even if the service refuses it.
//
// rejected reports whether work's error says that the service does not accept the credential. A
// minted token may have been revoked early, so work runs once more with another token. login's
// argument is the least remaining life of that token. A tenant may choose a service that rejects
// every credential, so a token is replaced at most once a minute.
func (a *Access) WithCredential(
	conn *Connection, status *meta.FetchStatus,
	login func(minRemaining time.Duration) (Login, error), work func(Login) error, rejected func(error) bool,
) error {
	attempt := func(minRemaining time.Duration) (Login, error) {
		l, err := login(minRemaining)
		if err != nil {
			if !auth.IsTemporary(err) {
				status.Identity = nil // it was refused
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
	// A token that lives longer than the first is another one.
	_, err = attempt(first.Token.GetDuration() + time.Second)
	return err
}

// replaceAfter is the least time between two replacements of a rejected token. Otherwise a server
// that answers 401 to everything would have each reconciliation, up to one a second, make an
// exchange at a token service that all tenants share. A younger token was not rejected for its age.
const replaceAfter = time.Minute

// lately remembers what was done lately, by key. The zero value is ready for use.
type lately[K comparable] struct {
	mu     sync.Mutex      // guards the fields below
	began  time.Time       // of recent
	recent map[K]time.Time // when
	older  map[K]time.Time // recent, until began
}

// allow reports whether nothing was allowed for the key in the time before now that every says, and
// remembers that something is. Calls for one lately have the same every.
func (l *lately[K]) allow(key K, now time.Time, every time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.began) >= every {
		l.began, l.recent, l.older = now, map[K]time.Time{}, l.recent // no key is kept for long
	}
	for _, known := range []map[K]time.Time{l.recent, l.older} {
		if at, ok := known[key]; ok && now.Sub(at) < every {
			return false
		}
	}
	l.recent[key] = now
	return true
}
