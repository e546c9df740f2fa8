package kube

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// Live reads ServiceAccounts and WorkloadIdentities from the API server, each time with one GET. It
// returns the same accounts as [Accounts] and [WorkloadIdentities]. It has no cache and no watch,
// and makes no proofs. It is for programs that call [auth.Resolve] to show an [auth.Key] to people.
// The Lookup of Live does I/O, unlike the Lookup of Accounts and WorkloadIdentities.
type Live struct{ reader client.Reader }

var _ auth.Accounts = (*Live)(nil)

// NewLive makes a Live that reads with the permissions of reader.
func NewLive(reader client.Reader) *Live { return &Live{reader} }

// Lookup implements [auth.AccountReader] with a live GET.
func (l *Live) Lookup(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return l.Read(ctx, subject)
}

// Subscribe implements [auth.AccountReader]. It never calls the function.
func (*Live) Subscribe(func(auth.Subject)) {}

// Read implements [auth.Prover]. If the caller may not read the subject, the error has the code
// [auth.CodeProofDenied] and says which permission is missing.
func (l *Live) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	by := accountCaller()
	by.self = "the user who asks"
	if subject.Kind() == auth.KindWorkloadIdentity {
		by.read = "workloadidentities." + identityGroup().Group
		return newIndex(identitySource()).read(ctx, l.reader, by, subject, identityObject())
	}
	if err := checkKind(subject, auth.KindServiceAccount); err != nil {
		return auth.Account{}, err
	}
	return newIndex(DefaultAnnotations().source()).read(ctx, l.reader, by, subject, metadata())
}

// Prove implements [auth.Prover]. It always returns an error.
func (*Live) Prove(_ context.Context, account auth.Account, _ auth.ProofRequest) (auth.Proof, error) {
	return nil, &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeOptionUnsupported,
		Fix: "pass the Accounts or the WorkloadIdentities of this package",
		Err: fmt.Errorf("this program requests no token, also not of %s", account.Subject),
	}
}
