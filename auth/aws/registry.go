package aws

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// registryOperation is the call's name, for use in errors.
const registryOperation = "GetAuthorizationToken"

// NewRegistryToken implements [auth.RegistryProvider] with GetAuthorizationToken of Amazon ECR or
// Amazon ECR Public. The region and the variant (FIPS, dual-stack) are those of the image
// repository's host.
func (p *Provider) NewRegistryToken(ctx context.Context, token auth.Token, request *auth.Request) (*auth.RegistryCredentials, error) {
	session, ok := token.(*Token)
	if !ok || session == nil {
		return nil, refusal.ForeignToken("an AWS session", token)
	}
	registry, err := p.registry(request.ImageRepository)
	if err != nil {
		return nil, err
	}
	authorize := p.privateAuthorization
	if registry.Public {
		authorize = p.publicAuthorization
	}
	encoded, expiresAt, err := authorize(ctx, session, registry, request)
	if err != nil {
		return nil, registryFailure(ctx, err, session, registry, request)
	}
	credentials, err := parseRegistryToken(encoded, expiresAt)
	if err != nil {
		return nil, remote.Invalid(registryAPI(registry), "credentials", err).Error(auth.StageRegistry, registryOperation)
	}
	return credentials, nil
}

func (p *Provider) privateAuthorization(
	ctx context.Context, session *Token, registry *ecrRegistry, request *auth.Request,
) (encoded *string, expiresAt *time.Time, err error) {
	options := ecr.Options{
		Region: registry.Region, Credentials: session.provider(), HTTPClient: p.calls.Via(request.ProxyURL), Retryer: newRetryer(),
	}
	if registry.FIPS {
		options.EndpointOptions.UseFIPSEndpoint = awssdk.FIPSEndpointStateEnabled
	}
	if registry.DualStack {
		options.EndpointOptions.UseDualStackEndpoint = awssdk.DualStackEndpointStateEnabled
	}
	answer, err := ecr.New(options).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil || len(answer.AuthorizationData) == 0 {
		return nil, nil, err
	}
	return answer.AuthorizationData[0].AuthorizationToken, answer.AuthorizationData[0].ExpiresAt, nil
}

func (p *Provider) publicAuthorization(
	ctx context.Context, session *Token, registry *ecrRegistry, request *auth.Request,
) (encoded *string, expiresAt *time.Time, err error) {
	options := ecrpublic.Options{
		Region: registry.Region, Credentials: session.provider(), HTTPClient: p.calls.Via(request.ProxyURL), Retryer: newRetryer(),
	}
	if registry.DualStack {
		options.EndpointOptions.UseDualStackEndpoint = awssdk.DualStackEndpointStateEnabled
	}
	answer, err := ecrpublic.New(options).GetAuthorizationToken(ctx, &ecrpublic.GetAuthorizationTokenInput{})
	if err != nil || answer.AuthorizationData == nil {
		return nil, nil, err
	}
	return answer.AuthorizationData.AuthorizationToken, answer.AuthorizationData.ExpiresAt, nil
}

// provider returns a credentials provider of the SDK for the session.
func (t Token) provider() awssdk.CredentialsProvider {
	return awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) { return t.Credentials(), nil })
}

// parseRegistryToken reads an authorization token, base64("<user>:<password>"). Its errors quote
// nothing of the token.
func parseRegistryToken(encoded *string, expiresAt *time.Time) (*auth.RegistryCredentials, error) {
	if awssdk.ToString(encoded) == "" {
		return nil, errors.New("no authorization token in it")
	}
	decoded, err := base64.StdEncoding.DecodeString(*encoded)
	if err != nil {
		return nil, errors.New("the authorization token is not base64")
	}
	user, password, ok := strings.Cut(string(decoded), ":")
	if !ok || user == "" || password == "" {
		return nil, errors.New("the authorization token is not <user>:<password>")
	}
	if expiresAt == nil {
		return nil, errors.New("no expiration in it")
	}
	return &auth.RegistryCredentials{Username: user, Password: auth.NewSecret(password), ExpiresAt: expiresAt.UTC()}, nil
}

// registryAPI returns the name of the API that issues the registry's credentials, for use in
// errors.
func registryAPI(registry *ecrRegistry) string {
	name := "Amazon ECR"
	if registry.Public {
		name = "Amazon ECR Public"
	}
	if registry.FIPS {
		name += " (FIPS)"
	}
	if registry.DualStack {
		name += " (dual-stack)"
	}
	if !registry.Public {
		name += " in " + registry.Region
	}
	return name
}

// registryFailure returns the error for a failed call for registry credentials.
func registryFailure(ctx context.Context, err error, session *Token, registry *ecrRegistry, request *auth.Request) error {
	f := classify(ctx, err, registryAPI(registry), session.SecretAccessKey, session.SessionToken)
	switch f.api {
	case "AccessDenied", "AccessDeniedException":
		f.Code = auth.CodePermissionDenied
		identity := "role " + request.Key.Identity
		if request.Key.Identity == "" {
			identity = "the controller's own identity"
		}
		f.Fix = "allow ecr:GetAuthorizationToken on resource * in the permission policy of " + identity
		if registry.Public {
			f.Fix = "allow ecr-public:GetAuthorizationToken and sts:GetServiceBearerToken on resource * in the permission policy of " + identity
		}
	case "UnrecognizedClientException", "InvalidClientTokenId", "ExpiredTokenException", "InvalidSignatureException", "SignatureDoesNotMatch":
		f.Code = auth.CodeRefused
		f.message = "" // each message differs: it contains the time of day or the signed text
		f.Fix = "check that region " + registry.Region + " is enabled for the account, and compare the controller's clock with AWS's"
	}
	return f.error(auth.StageRegistry, registryOperation)
}
