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

// borrower is an identity as one binding uses it. The binding is in the fingerprint of the account,
// and so in the key of a token, and in the name of its sessions at AWS.
type borrower struct {
	auth.Accounts

	uid    string // of the identity; another one of its name is refused
	suffix string // of the fingerprint
	name   string // of the binding in the names of sessions
}

// lend returns the identity of that UID as the binding uses it.
func lend(accounts auth.Accounts, o *identityv1.WorkloadIdentityBinding, uid string) auth.Accounts {
	name := o.Name + "." + o.Namespace // a namespace has no dot, so the last dot separates
	// No Kubernetes name has a space, so no two bindings share a suffix, and none ends another one.
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

// as returns the account as the binding's.
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
