package main

import (
	"context"
	"time"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"
	corev1 "k8s.io/api/core/v1"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
)

// ourProvider is a provider for Lanyard's library. All it does is to exchange tokens at a [cloud].
type ourProvider struct{ cloud *cloud }

func (ourProvider) GetName() string { return "bench" }
func (ourProvider) GetTarget(o *auth.Options) (auth.Target, error) {
	return auth.Target{Scopes: o.Scopes}, nil
}
func (ourProvider) GetIdentity(account auth.Account) (string, error) { return account.UID, nil }
func (ourProvider) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"bench"}}, nil
}

func (p ourProvider) NewToken(ctx context.Context, _ auth.Proof, request *auth.Request) (auth.Token, error) {
	return p.cloud.exchange(ctx, request.Key.Scopes.String())
}

func (p ourProvider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	return p.cloud.exchange(ctx, request.Key.Scopes.String())
}

// fluxProvider is like ourProvider, for Flux's library.
type fluxProvider struct{ cloud *cloud }

func (fluxProvider) GetName() string { return "bench" }
func (fluxProvider) GetAudiences(context.Context, corev1.ServiceAccount) ([]string, error) {
	return []string{"bench"}, nil
}

func (fluxProvider) GetIdentity(account corev1.ServiceAccount) (string, error) {
	return string(account.UID), nil
}

func (p fluxProvider) NewControllerToken(ctx context.Context, opts ...fluxauth.Option) (fluxauth.Token, error) {
	var o fluxauth.Options
	o.Apply(opts...)
	return p.cloud.exchange(ctx, o.Scopes[0])
}

func (p fluxProvider) NewTokenForServiceAccount(
	ctx context.Context, _ string, _ corev1.ServiceAccount, _ ...fluxauth.Option,
) (fluxauth.Token, error) {
	return p.cloud.exchange(ctx, "")
}

// ourAWS is the AWS provider of Lanyard's library without the call to AWS.
type ourAWS struct{ *aws.Provider }

func (ourAWS) NewToken(context.Context, auth.Proof, *auth.Request) (auth.Token, error) {
	return &token{ends: time.Now().Add(time.Hour)}, nil
}

// fluxAWS is the AWS provider of Flux's library without the call to AWS.
type fluxAWS struct{ fluxaws.Provider }

func (fluxAWS) NewTokenForServiceAccount(context.Context, string, corev1.ServiceAccount, ...fluxauth.Option) (fluxauth.Token, error) {
	return &token{ends: time.Now().Add(time.Hour)}, nil
}
