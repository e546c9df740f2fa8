package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/lease"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// NewCredentialsProvider is [auth.GetToken] for the AWS SDK: set it as aws.Config.Credentials itself, with
// [auth.WithCache] among the options. Each call is bound by the context of the SDK's request and no other. The credentials claim
// to expire after a minute, so that a cache of the SDK's (aws.NewCredentialsCache, which config.LoadDefaultConfig adds) asks again
// and none is used for long after its grant is withdrawn.
func NewCredentialsProvider(provider *Provider, opts ...auth.Option) awssdk.CredentialsProvider {
	return awssdk.CredentialsProviderFunc(func(ctx context.Context) (awssdk.Credentials, error) {
		token, err := auth.GetToken(ctx, provider, opts...)
		if err != nil {
			return awssdk.Credentials{}, err
		}
		session, ok := token.(*Token)
		if !ok {
			return awssdk.Credentials{}, refusal.NotForSDK("a session", token)
		}
		credentials := session.Credentials()
		credentials.Expires = lease.Until(credentials.Expires)
		return credentials, nil
	})
}
