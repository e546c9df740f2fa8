package binding

import (
	"context"
	"fmt"
	"maps"
	"strings"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
)

// borrower adds a binding's name to the account of the binding's identity. The name becomes part of
// the account's fingerprint. The fingerprint is part of a token's [auth.Key], so bindings share no
// token. At AWS, the name also becomes part of the session name.
type borrower struct {
	auth.Accounts

	uid    string // UID of the identity; another identity of the same name is refused
	suffix string // added to the account's fingerprint
	name   string // name of the binding, for session names
}

// lend returns the accounts for one binding. They give proofs only for the identity with this UID.
func lend(accounts auth.Accounts, o *identityv1.WorkloadIdentityBinding, uid string) auth.Accounts {
	// A namespace has no dot, so the last dot separates name and namespace.
	name := o.Name + "." + o.Namespace
	// Each binding has its own suffix. It begins with a space, and Kubernetes names have no spaces,
	// so no suffix is the end of another suffix.
	return borrower{Accounts: accounts, uid: uid, suffix: " " + name, name: name}
}

// Lookup implements [auth.AccountReader].
func (b borrower) Lookup(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	account, err := b.Accounts.Lookup(ctx, subject)
	return b.as(account), err
}

// Read implements [auth.Prover].
func (b borrower) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	account, err := b.Accounts.Read(ctx, subject)
	if err == nil && account.UID != b.uid {
		return auth.Account{}, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectReplaced, Fix: "try again",
			Err: fmt.Errorf("%s was created again while its credential was got", subject),
		}
	}
	return b.as(account), err
}

// Prove implements [auth.Prover].
func (b borrower) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	account.Fingerprint = strings.TrimSuffix(account.Fingerprint, b.suffix)
	return b.Accounts.Prove(ctx, account, request)
}

// as returns the account, changed for the binding. It appends the field suffix to the account's
// fingerprint, and sets a session name that is made from the binding's name.
func (b borrower) as(account auth.Account) auth.Account {
	if account.UID == "" {
		return account
	}
	attributes := make(map[string]string, len(account.Attributes)+1)
	maps.Copy(attributes, account.Attributes)
	session := b.name + "@" + identityv1.WorkloadIdentityBindingKind
	if own := account.Attributes[aws.SessionNameAttribute]; own != "" {
		session = aws.FitSessionName(own + "@" + b.name)
	}
	attributes[aws.SessionNameAttribute] = session
	account.Attributes = attributes
	account.Fingerprint += b.suffix
	return account
}
