package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/lease"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
)

// NewCredentialsProvider returns a credentials provider for the AWS SDK. It calls [auth.GetToken]
// with the context of the SDK's request. Set the provider directly as aws.Config.Credentials, and
// include [auth.WithCache] in the options.
//
// The SDK gets credentials that expire after at most one minute. So the SDK's cache soon asks
// again, and no client uses credentials for long after their grant is withdrawn. This cache is that
// of aws.NewCredentialsCache, which config.LoadDefaultConfig adds.
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
