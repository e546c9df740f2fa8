package controllertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// Accounts is a fake [auth.Accounts] without an API server. It has accounts for ServiceAccounts and
// other subjects. Subscribers are called after changes and deletions. The zero value has no
// accounts.
type Accounts struct {
	mu          sync.Mutex // guards the fields below
	known       map[auth.Subject]auth.Account
	unheard     bool
	subscribers []func(auth.Subject)
}

var _ auth.Accounts = (*Accounts)(nil)

// Put makes or changes an account.
func (a *Accounts) Put(t *testing.T, namespace, name, uid string, attributes map[string]string) {
	t.Helper()
	a.PutSubject(subjectOf(t, namespace, name), uid, attributes)
}

// PutSubject makes or changes the account of a subject of any kind.
func (a *Accounts) PutSubject(subject auth.Subject, uid string, attributes map[string]string) {
	a.mu.Lock()
	if a.known == nil {
		a.known = map[auth.Subject]auth.Account{}
	}
	_, known := a.known[subject]
	a.known[subject] = auth.Account{Subject: subject, UID: uid, Attributes: attributes}
	a.mu.Unlock()
	if known {
		a.Tell(subject)
	}
}

// Remove deletes an account.
func (a *Accounts) Remove(t *testing.T, namespace, name string) {
	t.Helper()
	subject := subjectOf(t, namespace, name)
	a.mu.Lock()
	delete(a.known, subject)
	a.mu.Unlock()
	a.Tell(subject)
}

// Unheard sets whether the cache of accounts is still empty. While it is empty, Lookup finds no
// account, but Read does.
func (a *Accounts) Unheard(unheard bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unheard = unheard
}

func subjectOf(t *testing.T, namespace, name string) auth.Subject {
	t.Helper()
	subject, err := auth.ServiceAccount(namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return subject
}

// Tell calls the subscribers, to report that the subject has changed.
func (a *Accounts) Tell(subject auth.Subject) {
	a.mu.Lock()
	subscribers := a.subscribers
	a.mu.Unlock()
	for _, changed := range subscribers {
		changed(subject)
	}
}

// Lookup implements auth.AccountReader.
func (a *Accounts) Lookup(ctx context.Context, s auth.Subject) (auth.Account, error) {
	a.mu.Lock()
	unheard := a.unheard
	a.mu.Unlock()
	if unheard {
		return auth.Account{}, notFound(s)
	}
	return a.Read(ctx, s)
}

// Read implements auth.Prover.
func (a *Accounts) Read(_ context.Context, s auth.Subject) (auth.Account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	account, ok := a.known[s]
	if !ok {
		return auth.Account{}, notFound(s)
	}
	return account, nil
}

func notFound(s auth.Subject) error {
	return &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: fmt.Sprintf("create %s %s", s.Kind(), s.Name()), Err: errors.New("does not exist"),
	}
}

// Subscribe implements auth.AccountReader.
func (a *Accounts) Subscribe(changed func(auth.Subject)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.subscribers = append(a.subscribers, changed)
}

// Prove implements auth.Prover. The text of the proof has the subject and the audiences.
func (*Accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	return &auth.JWT{Token: auth.NewSecret(account.Subject.String() + " for " + strings.Join(request.Audiences, " and ")), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}
