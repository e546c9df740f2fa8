package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// defaultChain names the source of the controller's own credentials, for use in errors.
const defaultChain = "the AWS SDK's default chain"

// NewControllerToken implements [auth.ControllerProvider] with the SDK's default chain: environment
// variables, a web identity token file (IRSA), shared config, container credentials (EKS Pod
// Identity, ECS), instance metadata. Each call reads the environment anew.
//
// It refuses a credential_process, because Lanyard starts no program for a credential. It refuses
// endpoints and proxies that a tenant chose. It sends a web identity token only to the partition of
// the role.
func (p *Provider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	if err := refuseDetour(request.Key.STSEndpoint != "", request.ProxyURL != nil); err != nil {
		return nil, err
	}
	loaded, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(request.Key.STSRegion),
		config.WithHTTPClient(p.buildableClient()),
		config.WithRetryer(newRetryer),
		config.WithLogger(logging.Nop{}),
	)
	if err != nil {
		return nil, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "correct the controller's AWS_ variables, shared config file or CA bundle",
			Err: errors.New(defaultChain + " could not be set up: " + configurationFault(err)),
		}
	}
	sources := sourcesOf(loaded.Credentials)
	if slices.Contains(sources, awssdk.CredentialSourceProcess) {
		return nil, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeOptionUnsupported,
			Fix: "give the controller's ServiceAccount a role with IRSA or EKS Pod Identity instead of credential_process",
			Err: errors.New("the shared config has a credential_process, and no program is started for a credential"),
		}
	}
	if err := p.checkPartition(webIdentityRole(loaded.ConfigSources, sources), request.Key.STSRegion); err != nil {
		return nil, err
	}
	credentials, err := loaded.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, controllerFailure(ctx, err, sources)
	}
	if !credentials.HasKeys() {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeResponseInvalid,
			Fix: "check the controller's AWS_ variables", Err: errors.New(defaultChain + " found a credential without keys"),
		}
	}
	token := StaticToken(auth.NewSecret(credentials.AccessKeyID), auth.NewSecret(credentials.SecretAccessKey),
		auth.NewSecret(credentials.SessionToken))
	if credentials.CanExpire {
		token.ExpiresAt = credentials.Expires.UTC()
	}
	return token, nil
}

// buildableClient returns a copy of the provider's transport in the SDK's own client type. The SDK
// can add AWS_CA_BUNDLE only to this type. The client serves one call and keeps no connection open.
func (p *Provider) buildableClient() *awshttp.BuildableClient {
	own := p.calls.Environment()
	return awshttp.NewBuildableClient().WithTimeout(p.calls.Timeout()).WithTransportOptions(func(t *http.Transport) {
		t.Proxy, t.DialContext, t.DialTLSContext = own.Proxy, own.DialContext, own.DialTLSContext
		t.ProxyConnectHeader, t.GetProxyConnectHeader = own.ProxyConnectHeader, own.GetProxyConnectHeader
		t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = own.TLSHandshakeTimeout, own.ResponseHeaderTimeout
		t.MaxResponseHeaderBytes = own.MaxResponseHeaderBytes
		t.TLSClientConfig = own.TLSClientConfig
		if t.TLSClientConfig.RootCAs != nil {
			// Clone the set of root certificates, because the SDK adds to the set. All other
			// connections use the original set.
			t.TLSClientConfig.RootCAs = t.TLSClientConfig.RootCAs.Clone()
		}
		t.TLSClientConfig.NextProtos = nil
		t.DisableKeepAlives = own.DisableKeepAlives
	})
}

// sourcesOf returns the sources in the SDK's chain that the credentials come from.
func sourcesOf(provider awssdk.CredentialsProvider) []awssdk.CredentialSource {
	if s, ok := provider.(awssdk.CredentialProviderSource); ok {
		return s.ProviderSources()
	}
	return nil
}

// webIdentityRole returns the role for which the controller's web identity token is exchanged;
// empty if the controller's credentials have another source.
func webIdentityRole(configured []any, sources []awssdk.CredentialSource) string {
	for _, c := range configured {
		switch c := c.(type) {
		case config.EnvConfig:
			if slices.Contains(sources, awssdk.CredentialSourceEnvVarsSTSWebIDToken) {
				return c.RoleARN
			}
		case config.SharedConfig:
			if !slices.Contains(sources, awssdk.CredentialSourceProfileSTSWebIDToken) {
				continue
			}
			last := &c // only the last profile of a source_profile chain has a token
			for last.Source != nil {
				last = last.Source
			}
			return last.RoleARN
		}
	}
	return ""
}

// checkPartition refuses to send the controller's web identity token to a region outside the role's
// partition. The region may come from an object. STS in another partition does not know the role.
// But the operator of that STS could use the token in the role's own partition.
func (p *Provider) checkPartition(arn, region string) error {
	if arn == "" {
		return nil
	}
	r, err := p.regions.Parse(region)
	if err != nil {
		return refusal.Of(auth.StageExchange, auth.CodeOptionInvalid, "STS region", err)
	}
	role, err := endpoint.ParseRoleARN(arn)
	switch {
	case err != nil:
		return refusal.Of(auth.StageIdentity, auth.CodeIdentityInvalid, "the controller's own role", err)
	case role.Partition != r.Partition.ID:
		return &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "name a ServiceAccount in the object, with a role in partition " + r.Partition.ID,
			Err: fmt.Errorf("the controller's role %s is in partition %s, but region %s is in partition %s",
				role, role.Partition, region, r.Partition.ID),
		}
	default:
		return nil
	}
}

// configurationFault returns a text that names the unusable part of the configuration. It quotes no
// other text of the SDK, because that text may contain a secret.
func configurationFault(err error) string {
	if e, ok := errors.AsType[config.SharedConfigLoadError](err); ok {
		return "the shared config file " + remote.Printable(e.Filename, remote.MaxName) + " cannot be read"
	}
	if e, ok := errors.AsType[config.SharedConfigProfileNotExistError](err); ok {
		return "the profile " + remote.Printable(e.Profile, remote.MaxName) + " does not exist"
	}
	if e, ok := errors.AsType[config.SharedConfigAssumeRoleError](err); ok {
		return "the role of profile " + remote.Printable(e.Profile, remote.MaxName) + " cannot be assumed as configured"
	}
	if e, ok := errors.AsType[config.CredentialRequiresARNError](err); ok {
		return "the profile " + remote.Printable(e.Profile, remote.MaxName) + " names no role"
	}
	return "a setting is not valid"
}

// controllerFailure returns the error for a failed attempt to get the controller's own credentials.
func controllerFailure(ctx context.Context, err error, sources []awssdk.CredentialSource) error {
	const give = "give the controller's ServiceAccount a role with IRSA or EKS Pod Identity, or name a ServiceAccount in the object"
	f := classify(ctx, err, defaultChain)
	status, _ := responseOf(err)
	// Drop the message. It comes from a server that the environment names, and may repeat secrets
	// that classify cannot recognize.
	f.message = ""
	switch {
	case f.Code == auth.CodeEndpointRefused, f.Code == auth.CodeThrottled, f.Code == auth.CodeUnavailable:
	case f.api == "AccessDenied" || f.api == "InvalidIdentityToken":
		f.Code, f.Fix = auth.CodeTrustRefused, "check the trust policy of the role that the controller's environment names (AWS_ROLE_ARN)"
	case slices.Contains(sources, awssdk.CredentialSourceIMDS):
		// The chain reached its last source, instance metadata, so nothing else is configured. The
		// fix is to give the controller a role of its own.
		f.Fix = give
		switch {
		case f.Code == auth.CodeUnreachable, f.Code == auth.CodeResponseInvalid:
		case errors.Is(err, context.DeadlineExceeded): // reading the answer took too long
			f.Code, f.What = auth.CodeUnreachable, "no answer in time"
		case isMalformed(err):
			f.Code, f.What = auth.CodeResponseInvalid, "the answer does not come from the metadata service"
		default:
			f.Code, f.What = auth.CodeIdentityMissing, "no identity is configured, and the node has none"
		}
	case f.Code == auth.CodeRefused && status == 0:
		f.Code, f.What = auth.CodeIdentityInvalid, "no request could be made"
		f.Fix = "check the controller's AWS_ variables, and that the token file they name is mounted"
	default:
		f.Fix = "check the controller's AWS_ variables, and that the service they name can be reached"
	}
	stage := auth.StageExchange
	if f.Code == auth.CodeIdentityMissing || f.Code == auth.CodeIdentityInvalid {
		stage = auth.StageIdentity
	}
	return f.error(stage, "the controller's own credentials")
}

// isMalformed reports whether err means that an answer is not the expected JSON.
func isMalformed(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, value := errors.AsType[*json.UnmarshalTypeError](err)
	_, date := errors.AsType[*time.ParseError](err)
	return syntax || value || date || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
