package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/auth"
)

// Prove implements [auth.Prover] with a TokenRequest that is bound to the account's UID. The token's claims are compared with
// the request, because API servers before 1.34 may ignore the UID.
func (a *Accounts) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	subject := account.Subject
	if err := isServiceAccount(subject); err != nil {
		return auth.Proof{}, err
	}
	if account.UID == "" {
		return auth.Proof{}, &auth.Error{
			Stage: auth.StageTokenRequest, Code: auth.CodeSubjectInvalid,
			Fix: "prove only accounts that were read",
			Err: fmt.Errorf("%s comes without its UID", subject),
		}
	}
	if err := a.mayReceive(request.Audience); err != nil {
		return auth.Proof{}, err
	}
	lifetime := request.Lifetime
	if lifetime == 0 {
		lifetime = auth.ProofLifetime
	}
	token, said, err := a.mint(ctx, account, []string{request.Audience}, lifetime)
	if err != nil {
		return auth.Proof{}, err
	}
	if err := said.answers(account, request.Audience); err != nil {
		return auth.Proof{}, err
	}
	return auth.Proof{Token: token, ExpiresAt: said.expiresAt()}, nil
}

// mayReceive refuses an empty audience and those of the API server: whoever receives such a proof could act in the cluster as
// the account.
func (a *Accounts) mayReceive(audience string) error {
	refused := &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeAudienceRefused}
	switch {
	case audience == "":
		refused.Fix = "name the receiver of the proof"
		refused.Err = errors.New("the API server itself would be the receiver of a token without audience")
	case slices.Contains(a.apiAudiences, audience):
		refused.Fix = "name the receiver of the proof by an audience of its own"
		refused.Err = fmt.Errorf("a token for audience %q would open the API server", audience)
	default:
		return nil
	}
	return refused
}

// mint requests a token and reads its claims, without checking them.
func (a *Accounts) mint(ctx context.Context, account auth.Account, audiences []string, lifetime time.Duration) (auth.Secret, claims, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	subject := account.Subject
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(account.UID)},
		Spec:       authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace(), Name: subject.Name()}}
	if err := a.client.SubResource("token").Create(ctx, object, request); err != nil {
		return auth.Secret{}, claims{}, a.failure(ctx, err, auth.StageTokenRequest, subject)
	}
	said, err := readClaims(request.Status.Token)
	if err != nil {
		return auth.Secret{}, claims{}, proofInvalid(subject, err)
	}
	return auth.NewSecret(request.Status.Token), said, nil
}

// learnAudiences asks the API server for a token of this program's own account without naming an audience. Such a token is for all
// the audiences that the API server itself accepts. It is not kept. This takes "create" on serviceaccounts/token in the program's own
// namespace too, not only in those of tenants.
func (a *Accounts) learnAudiences(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*callTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if err := a.client.Create(ctx, review); err != nil {
		failed := a.failure(ctx, err, auth.StageSubject, auth.Controller())
		if !failed.Temporary() {
			failed.Fix = `grant "create" on selfsubjectreviews.authentication.k8s.io to this program, as ClusterRole system:basic-user does`
		}
		return failed
	}
	user := review.Status.UserInfo
	namespace, name, _ := strings.Cut(strings.TrimPrefix(user.Username, "system:serviceaccount:"), ":")
	self, err := auth.ServiceAccount(namespace, name)
	if err != nil || self.String() != user.Username {
		return &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectInvalid,
			Fix: "run this program as a ServiceAccount",
			Err: fmt.Errorf("this program is user %q at the API server, which is not a ServiceAccount", user.Username),
		}
	}
	a.self = user.Username
	_, said, err := a.mint(ctx, auth.Account{Subject: self, UID: user.UID}, nil, auth.ProofLifetime)
	if err != nil {
		return err
	}
	if said.Subject != self.String() || len(said.Audience) == 0 || slices.Contains(said.Audience, "") {
		return proofInvalid(self, errors.New("a token without audience names no audience, or another account"))
	}
	a.apiAudiences = said.Audience
	return nil
}

func proofInvalid(subject auth.Subject, err error) *auth.Error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeProofInvalid,
		Fix: "check that the answers to TokenRequests come from the API server itself, and compare its clock with this machine's",
		Err: fmt.Errorf("token of %s: %w", subject, err),
	}
}
