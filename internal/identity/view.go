package identity

import (
	"context"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
)

// view is the access of one namespace to the identities.
type view struct {
	*Identities

	namespace string
	own       bool // true for the view that Own returns: it checks no grants
	chained   bool // true if the identity is used as the source of another identity
}

// Lookup implements [auth.AccountReader]. It checks the grants of the whole chain.
func (v view) Lookup(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return v.account(v.chain(ctx, subject))
}

// account returns the first identity of a chain if the namespace may use the chain.
func (v view) account(c *chain) (auth.Account, error) {
	err := c.err
	if !v.own {
		err = v.admits(c, v.namespace, v.chained)
	}
	if err != nil {
		return auth.Account{}, v.certain(err)
	}
	return c.account(v.namespace)
}

// Read implements [auth.Prover]. It reads the identities in memory, which are updated by watches.
// Their state is part of the cache key of credentials. So a cached credential is never served after
// this state has changed.
func (v view) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	account, err := v.Lookup(ctx, subject)
	return account, withoutConsumer(subject, err)
}

// Prove implements [auth.Prover]. The proof of a role is the credential of its source. The proof of
// a static identity is its keys. The proof of the program's own identity is the program's
// credential. The proof of an AWSServiceAccountIdentity is a token of the ServiceAccount.
func (v view) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	proof, err := v.prove(ctx, account, request)
	return proof, withoutConsumer(account.Subject, err)
}

func (v view) prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	c := v.chain(ctx, account.Subject)
	current, err := v.account(c)
	switch {
	case err != nil:
		return nil, err
	case current.UID != account.UID || current.Fingerprint != account.Fingerprint:
		return nil, errReplaced(account.Subject)
	}
	l := c.links[0]
	switch l.subject.Kind() {
	case kindStatic:
		return aws.StaticToken(c.keys.accessKeyID, c.keys.secretAccessKey, c.keys.sessionToken), nil
	case kindController:
		return v.token(ctx, request.STSRegion, auth.WithController())
	case kindServiceAccount:
		return v.proveAccount(ctx, l, request)
	default:
		source := v
		source.chained = true
		return v.token(ctx, request.STSRegion, auth.WithSubject(l.source(), source))
	}
}

// token returns the token of a source, from the cache if the cache has the token.
func (v view) token(ctx context.Context, region string, source auth.Option) (auth.Proof, error) {
	return auth.GetToken(ctx, v.provider, source,
		auth.WithTenant(v.namespace), auth.WithSTSRegion(region),
		auth.WithCache(v.cache, auth.InvolvedObject{}), auth.WithObserver(v.observer))
}

// proveAccount returns a token of the ServiceAccount with the identity's namespace and name.
func (v view) proveAccount(ctx context.Context, l *link, request auth.ProofRequest) (auth.Proof, error) {
	subject, err := auth.ServiceAccount(l.subject.Namespace(), l.subject.Name())
	if err != nil {
		return nil, err
	}
	account, err := v.accounts.Read(ctx, subject)
	if err != nil {
		return nil, err
	}
	return v.accounts.Prove(ctx, account, request)
}
