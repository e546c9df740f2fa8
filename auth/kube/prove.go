package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// Prove implements [auth.Prover] with a TokenRequest that is bound to the account's UID. It
// compares the token's claims with the request, because API servers before 1.34 may ignore the UID.
func (a *Accounts) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	subject := account.Subject
	if err := cmp.Or(
		checkKind(subject, auth.KindServiceAccount), checkProofRequest(account, request), checkAudiences(request.Audiences, a.apiAudiences),
	); err != nil {
		return nil, err
	}
	if request.ContextObject != (auth.ObjectReference{}) {
		return nil, &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeOptionUnsupported,
			Fix: "leave out the context object",
			Err: fmt.Errorf("a token of %s cannot name the object that it is used for", subject),
		}
	}
	token, said, err := mint(ctx, a.client, a.caller, account, request.Audiences, cmp.Or(request.Lifetime, auth.ProofLifetime))
	if err != nil {
		return nil, err
	}
	if err := said.check(account, request.Audiences); err != nil {
		return nil, err
	}
	return &auth.JWT{Token: token, ExpiresAt: said.expiresAt()}, nil
}

// checkProofRequest refuses a request that no token of a subject can satisfy. It also refuses a
// request without an audience. Without an audience, a ServiceAccount's token would be for the API
// server, and a WorkloadIdentity's token for all audiences of the identity.
func checkProofRequest(account auth.Account, request auth.ProofRequest) error {
	switch subject := account.Subject; {
	case request.Form != auth.FormJWT:
		return &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeOptionUnsupported,
			Fix: fmt.Sprintf("use a provider that takes the JWT of a %s", subject.Kind()),
			Err: fmt.Errorf("%s cannot have a proof of form %s", subject, request.Form),
		}
	case account.UID == "":
		return &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeSubjectInvalid,
			Fix: "prove only accounts that were read",
			Err: fmt.Errorf("%s has no UID", subject),
		}
	case len(request.Audiences) == 0 || slices.Contains(request.Audiences, ""):
		return &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeAudienceRefused,
			Fix: "name the receivers of the proof",
			Err: fmt.Errorf("a token of %s without audience would be for more receivers than one", subject),
		}
	}
	return nil
}

// checkAudiences refuses a token for an audience of the API server. The receiver of such a token
// could act in the cluster as the account.
func checkAudiences(audiences, ofAPIServer []string) error {
	for _, audience := range audiences {
		if slices.Contains(ofAPIServer, audience) {
			return &auth.Error{
				Stage: auth.StageTokenRequest, Code: auth.CodeAudienceRefused,
				Fix: "name the receiver of the proof by an audience that the API server does not accept",
				Err: fmt.Errorf("a token for audience %q would be valid at the API server itself", audience),
			}
		}
	}
	return nil
}

// mint requests a token. It returns the token and its claims, which it does not check.
func mint(
	ctx context.Context, c client.Client, by caller, account auth.Account, audiences []string, lifetime time.Duration,
) (auth.Secret, claims, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	subject := account.Subject
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(account.UID)},
		Spec:       authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace(), Name: subject.Name()}}
	if err := c.SubResource("token").Create(ctx, object, request); err != nil {
		return auth.Secret{}, claims{}, by.failure(ctx, err, auth.StageTokenRequest, subject)
	}
	said, err := readClaims(request.Status.Token)
	if err != nil {
		return auth.Secret{}, claims{}, proofInvalid(subject, err)
	}
	return auth.NewSecret(request.Status.Token), said, nil
}

// LearnAPIAudiences returns the audiences that the API server accepts for itself. It requests a
// token for this program's own account, and names no audience. Such a token is for all audiences of
// the API server. The token is not stored.
//
// The program needs "create" on serviceaccounts/token of its own account, and on
// selfsubjectreviews.authentication.k8s.io. The client's scheme must contain v1 and
// authentication.k8s.io/v1.
func LearnAPIAudiences(ctx context.Context, c client.Client) ([]string, error) {
	_, audiences, err := learnAudiences(ctx, c, accountCaller())
	return audiences, err
}

// learnAudiences is LearnAPIAudiences; it also returns this program's user name at the API server.
func learnAudiences(ctx context.Context, c client.Client, by caller) (self string, audiences []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		failed := by.failure(ctx, err, auth.StageSubject, auth.Controller())
		if !failed.Temporary() {
			failed.Fix = `grant "create" on selfsubjectreviews.authentication.k8s.io to this program, ` +
				`for example with the ClusterRole system:basic-user`
		}
		return "", nil, failed
	}
	user := review.Status.UserInfo
	account, err := auth.ParseSubject(user.Username)
	if err != nil || account.Kind() != auth.KindServiceAccount {
		return "", nil, &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
			Fix: "run this program as a ServiceAccount",
			Err: fmt.Errorf("this program is user %q at the API server, which is not a ServiceAccount", user.Username),
		}
	}
	by.self = user.Username
	_, said, err := mint(ctx, c, by, auth.Account{Subject: account, UID: user.UID}, nil, auth.ProofLifetime)
	if err != nil {
		return "", nil, err
	}
	if said.Subject != account.String() || len(said.Audience) == 0 || slices.Contains(said.Audience, "") {
		return "", nil, proofInvalid(account, errors.New("a token without audience names no audience, or another account"))
	}
	return user.Username, said.Audience, nil
}

// proofInvalid returns the error for a token that differs from the request.
func proofInvalid(subject auth.Subject, err error) *auth.Error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeProofInvalid,
		Fix: "check that the answers to TokenRequests come from the API server itself, and compare the API server's clock with this machine's",
		Err: fmt.Errorf("token of %s: %w", subject, err),
	}
}
