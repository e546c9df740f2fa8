package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/lease"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// tokenCredential implements [azcore.TokenCredential].
type tokenCredential struct {
	provider *Provider
	opts     []auth.Option
}

// NewTokenCredential returns a credential for the Azure SDK that calls [auth.GetToken]. Include
// [auth.WithCache] in the options. Each call uses the context of the SDK's request and the scope of
// the SDK's client.
//
// The SDK gets tokens that expire after at most one minute. The SDK's clients keep a token until it
// expires, so they ask again soon. No client uses a token for long after its grant is withdrawn.
//
// Two kinds of request are refused. The first is a claims challenge (continuous access evaluation):
// it asks for a new sign-in, which a proof cannot give. The second is a request for a tenant other
// than the identity's own.
func NewTokenCredential(provider *Provider, opts ...auth.Option) azcore.TokenCredential {
	return &tokenCredential{provider, slices.Clone(opts)}
}

// GetToken implements [azcore.TokenCredential].
func (c *tokenCredential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	// Refuse a request with Claims, because a proof cannot answer a claims challenge. Accept
	// EnableCAE, which says only that the client could handle a challenge.
	if options.Claims != "" {
		return azcore.AccessToken{}, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeOptionUnsupported,
			Fix: "see the sign-in logs of Microsoft Entra for why the resource refused the token",
			Err: errors.New("the resource withdrew the token (a claims challenge), and a proof cannot answer a challenge"),
		}
	}
	if len(options.Scopes) == 0 {
		return azcore.AccessToken{}, scopeError("the Azure SDK asks for no scope", "name the scope of the resource")
	}
	opts := append(slices.Clone(c.opts), auth.WithScopes(options.Scopes...))
	if err := c.refuseOtherTenant(ctx, options.TenantID, opts); err != nil {
		return azcore.AccessToken{}, err
	}
	token, err := auth.GetToken(ctx, c.provider, opts...)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	bearer, ok := token.(*Token)
	if !ok {
		return azcore.AccessToken{}, refusal.NotForSDK("a token of Microsoft Entra", token)
	}
	return azcore.AccessToken{Token: bearer.Secret.Reveal(), ExpiresOn: lease.Until(bearer.ExpiresAt)}, nil
}

// refuseOtherTenant refuses an Entra tenant other than the identity's.
func (c *tokenCredential) refuseOtherTenant(ctx context.Context, tenant string, opts []auth.Option) error {
	if tenant == "" {
		return nil
	}
	key, err := auth.Resolve(ctx, c.provider, opts...)
	if err != nil {
		return err
	}
	own := c.provider.tenantOf(&auth.Request{Key: key})
	if strings.EqualFold(own, tenant) {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeOptionUnsupported,
		Fix: "use a resource of the identity's own tenant, or name an application of the resource's tenant",
		Err: fmt.Errorf("the resource asks for a token of tenant %q, but the identity is in tenant %q",
			remote.Printable(tenant, remote.MaxQuoted), own),
	}
}
