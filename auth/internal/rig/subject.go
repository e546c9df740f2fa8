package rig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// SignFunc makes a proof of an account.
type SignFunc func(auth.Account, auth.ProofRequest) (string, error)

// Subject returns the option that makes a call act as the account, with proofs made by sign.
func Subject(account auth.Account, sign SignFunc) auth.Option {
	accounts := Accounts{Sign: sign, All: []auth.Account{account}}
	return auth.WithSubject(account.Subject, accounts)
}

// Accounts is an [auth.Accounts] whose accounts never change.
type Accounts struct {
	All []auth.Account
	// Sign makes the accounts' proofs.
	Sign SignFunc
}

// Lookup implements [auth.AccountReader].
func (a Accounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	for _, account := range a.All {
		if account.Subject == subject {
			return account, nil
		}
	}
	return auth.Account{}, &auth.Error{
		Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create it", Err: errors.New(subject.String() + " does not exist"),
	}
}

// Subscribe implements [auth.AccountReader].
func (Accounts) Subscribe(func(auth.Subject)) {}

// Read implements [auth.Prover].
func (a Accounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, subject)
}

// Prove implements [auth.Prover].
func (a Accounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	token, err := a.Sign(account, request)
	if err != nil {
		return nil, err
	}
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}

// ServiceAccount returns the account of a ServiceAccount with these annotations.
func ServiceAccount(namespace, name string, annotations map[string]string) auth.Account {
	subject, err := auth.ServiceAccount(namespace, name)
	if err != nil {
		panic(err)
	}
	return auth.Account{Subject: subject, UID: "uid-of-" + namespace + "-" + name, Attributes: annotations}
}

// SubjectClaim returns the sub claim that the account's issuer would write. The claim of a
// WorkloadIdentity ends with its UID.
func SubjectClaim(account auth.Account) string {
	if account.Subject.Kind() == auth.KindServiceAccount {
		return account.Subject.String()
	}
	return account.Subject.String() + ":" + account.UID
}

// WithAttribute returns the account with the attribute set to value, or without the attribute if
// value is empty.
func WithAttribute(account auth.Account, name, value string) auth.Account {
	attributes := map[string]string{}
	maps.Copy(attributes, account.Attributes)
	if attributes[name] = value; value == "" {
		delete(attributes, name)
	}
	account.Attributes = attributes
	return account
}

// JWT makes a token from its claims, a JSON object. The token's signature is invalid, so JWT is
// only for tests in which the server does not verify the token.
func JWT(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"ES256"}`)) + "." + enc([]byte(claims)) + "." + enc([]byte("no signature at all"))
}

// Proof returns a SignFunc that always returns token.
func Proof(token string) SignFunc {
	return func(auth.Account, auth.ProofRequest) (string, error) { return token, nil }
}

// Audience returns the audience of the JWT that the provider needs for the request.
func Audience(ctx context.Context, provider auth.Provider, request *auth.Request) (string, error) {
	asked, err := provider.GetProofRequest(ctx, request)
	if err != nil {
		return "", err
	}
	if asked.Form != auth.FormJWT || len(asked.Audiences) != 1 {
		return "", fmt.Errorf("a proof of form %q for audiences %q, not a JWT for one", asked.Form, asked.Audiences)
	}
	return asked.Audiences[0], nil
}
