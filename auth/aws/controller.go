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

// staticLifetime is how long keys that never expire are used before the environment is read again.
const staticLifetime = time.Hour

// NewControllerToken implements [auth.ControllerProvider] with the SDK's default chain: variables, a web identity token file
// (IRSA), shared config, container credentials (EKS Pod Identity, ECS), instance metadata. The environment is read anew each
// time. It refuses a credential_process, since no program is started for a credential, endpoints and proxies chosen by a tenant, and
// to send a web identity token to another partition than the role's.
func (p *Provider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	if err := refuseDetour(request.Key.STSEndpoint != "", request.ProxyURL != nil); err != nil {
		return nil, err
	}
	const where = "the AWS SDK's default chain"
	loaded, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(request.Key.STSRegion),
		config.WithHTTPClient(p.buildableClient()),
		config.WithRetryer(newRetryer),
		config.WithLogger(logging.Nop{}),
	)
	if err != nil {
		return nil, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "mend the controller's AWS_ variables, shared config file or CA bundle",
			Err: errors.New(where + " could not be set up: " + configurationFault(err)),
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
	if err := p.checkPartition(roleOf(loaded.ConfigSources, sources), request.Key.STSRegion); err != nil {
		return nil, err
	}
	credentials, err := loaded.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, controllerError(ctx, err, sources)
	}
	if !credentials.HasKeys() {
		return nil, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeResponseInvalid,
			Fix: "check the controller's AWS_ variables", Err: errors.New(where + " found a credential without keys"),
		}
	}
	token := &Token{
		AccessKeyID:     auth.NewSecret(credentials.AccessKeyID),
		SecretAccessKey: auth.NewSecret(credentials.SecretAccessKey),
		SessionToken:    auth.NewSecret(credentials.SessionToken),
		ExpiresAt:       credentials.Expires.UTC(),
	}
	if !credentials.CanExpire {
		token.ExpiresAt = time.Now().Add(staticLifetime).UTC()
	}
	return token, nil
}

// buildableClient is the provider's transport in the one form to which the SDK can add AWS_CA_BUNDLE. It keeps no connection,
// since it is made for one call.
func (p *Provider) buildableClient() *awshttp.BuildableClient {
	own := p.calls.Environment()
	return awshttp.NewBuildableClient().WithTimeout(p.calls.Timeout()).WithTransportOptions(func(t *http.Transport) {
		t.Proxy, t.DialContext, t.DialTLSContext = own.Proxy, own.DialContext, own.DialTLSContext
		t.ProxyConnectHeader, t.GetProxyConnectHeader = own.ProxyConnectHeader, own.GetProxyConnectHeader
		t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = own.TLSHandshakeTimeout, own.ResponseHeaderTimeout
		t.MaxResponseHeaderBytes = own.MaxResponseHeaderBytes
		t.TLSClientConfig = own.TLSClientConfig
		if t.TLSClientConfig.RootCAs != nil {
			// The SDK adds to the set that it finds, which all other connections use.
			t.TLSClientConfig.RootCAs = t.TLSClientConfig.RootCAs.Clone()
		}
		t.TLSClientConfig.NextProtos = nil
		t.DisableKeepAlives = own.DisableKeepAlives
	})
}

// sourcesOf are the sources in the chain that the credentials come from.
func sourcesOf(provider awssdk.CredentialsProvider) []awssdk.CredentialSource {
	if s, ok := provider.(awssdk.CredentialProviderSource); ok {
		return s.ProviderSources()
	}
	return nil
}

// roleOf is the role for which the controller's web identity token is exchanged; empty if its credentials come from elsewhere.
func roleOf(configured []any, sources []awssdk.CredentialSource) string {
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
			last := &c // of the chain of source_profile, which alone has a token
			for last.Source != nil {
				last = last.Source
			}
			return last.RoleARN
		}
	}
	return ""
}

// checkPartition refuses to exchange the controller's web identity token for a role in a region of another partition. An object may name
// the region, the role may not be had there, and whoever runs that partition could use the token in the role's own.
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
			Fix: "name a ServiceAccount in the object, with a role of partition " + r.Partition.ID,
			Err: fmt.Errorf("the controller's role %s is of partition %s, the region %s of partition %s", role, role.Partition, region, r.Partition.ID),
		}
	default:
		return nil
	}
}

// configurationFault names the configuration that cannot be used. Other texts of the SDK may hold anything.
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

func controllerError(ctx context.Context, err error, sources []awssdk.CredentialSource) error {
	const (
		where = "the AWS SDK's default chain"
		give  = "give the controller's ServiceAccount a role with IRSA or EKS Pod Identity, or name a ServiceAccount in the object"
	)
	f := sortFailure(ctx, err, where)
	status, _ := responseOf(err)
	f.message = "" // a server of the environment wrote it, and what we sent is not known here
	switch {
	case f.Code == auth.CodeEndpointRefused, f.Code == auth.CodeThrottled, f.Code == auth.CodeUnavailable:
	case f.api == "AccessDenied" || f.api == "InvalidIdentityToken":
		f.Code, f.Fix = auth.CodeTrustRefused, "check the trust policy of the role that the controller's environment names (AWS_ROLE_ARN)"
	case slices.Contains(sources, awssdk.CredentialSourceIMDS):
		// Instance metadata is asked last: whoever comes here has configured nothing, or runs on a node with a role.
		f.Fix = give
		switch {
		case f.Code == auth.CodeUnreachable, f.Code == auth.CodeResponseInvalid:
		case errors.Is(err, context.DeadlineExceeded): // while the answer was read
			f.Code, f.What = auth.CodeUnreachable, "no answer in time"
		case isMalformed(err):
			f.Code, f.What = auth.CodeResponseInvalid, "an answer that is not the metadata service's"
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

// isMalformed reports whether err is that of an answer that is not the JSON that was asked for.
func isMalformed(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, value := errors.AsType[*json.UnmarshalTypeError](err)
	_, date := errors.AsType[*time.ParseError](err)
	return syntax || value || date || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
