package gcp

import (
	"context"

	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/lease"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// tokenSource is an [oauth2.TokenSource].
type tokenSource struct {
	ctx      context.Context //nolint:containedctx // oauth2.TokenSource has no other place for it
	provider *Provider
	opts     []auth.Option
}

// NewTokenSource returns a token source for Google's clients. Every call of its Token method calls
// [auth.GetToken]. The source itself stores no token, so pass [auth.WithCache] among the options.
//
// Each token reports an expiry at most one minute ahead, so that clients soon call Token again. No
// client then uses a token for long after its grant is withdrawn. With option.WithTokenSource, a
// client keeps the token until the reported expiry is near (see [oauth2.ReuseTokenSource]). With an
// [oauth2.Transport] of this source in option.WithHTTPClient, it calls Token for each request.
//
// An [oauth2.TokenSource] takes no context, so ctx bounds all calls. Make a source for each piece
// of work.
func NewTokenSource(ctx context.Context, provider *Provider, opts ...auth.Option) oauth2.TokenSource {
	return &tokenSource{ctx, provider, opts}
}

// Token implements [oauth2.TokenSource].
func (s *tokenSource) Token() (*oauth2.Token, error) {
	token, err := auth.GetToken(s.ctx, s.provider, s.opts...)
	if err != nil {
		return nil, err
	}
	access, ok := token.(*Token)
	if !ok {
		return nil, refusal.NotForSDK("an access token", token)
	}
	forSDK := access.OAuth2()
	forSDK.Expiry = lease.Until(forSDK.Expiry)
	return forSDK, nil
}
