package keyservice

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// decryptAzure decrypts with Azure Key Vault. Source: Key Vault REST API, "Decrypt".
func (s *Service) decryptAzure(ctx context.Context, key masterkey.Key, options []auth.Option) ([]byte, error) {
	provider := s.Clouds.Azure
	named, err := provider.Cloud().ParseVaultKey(key.Azure.VaultURL, key.Azure.Name, key.Azure.Version)
	if err != nil {
		return nil, err
	}
	encrypted, err := decode(base64.RawURLEncoding, key.Encrypted)
	if err != nil {
		return nil, err
	}
	credential := oneScope{azure.NewTokenCredential(provider, options...), named.Audience + "/.default"}
	client, err := azkeys.NewClient("https://"+named.Host, credential, &azkeys.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: s.client(named.Host), Telemetry: policy.TelemetryOptions{Disabled: true}, Retry: policy.RetryOptions{MaxRetries: attempts - 1},
	}})
	if err != nil {
		return nil, fmt.Errorf("make the client of the vault: %w", err)
	}
	algorithm := azkeys.EncryptionAlgorithmRSAOAEP256
	answer, err := client.Decrypt(ctx, named.Name, named.Version, azkeys.KeyOperationParameters{Algorithm: &algorithm, Value: encrypted}, nil)
	if err != nil {
		return nil, azureError(err)
	}
	return answer.Result, nil
}

// oneScope is a credential for one scope. The client takes the scope from the vault's answer, and
// the vault must not choose what its caller's token is for.
type oneScope struct {
	azcore.TokenCredential

	scope string
}

// GetToken implements azcore.TokenCredential.
func (c oneScope) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if !slices.Equal(options.Scopes, []string{c.scope}) {
		return azcore.AccessToken{}, &auth.Error{
			Stage: auth.StageExchange, Code: auth.CodeOptionUnsupported, Fix: "correct the vault's address",
			Err: fmt.Errorf("the vault asks for a token for %.200q, and only %s is allowed", options.Scopes, c.scope),
		}
	}
	return c.TokenCredential.GetToken(ctx, options)
}

// azureError converts an error of the Azure SDK.
func azureError(err error) error {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		return refused // without the words of the SDK around it
	}
	failure := &serviceError{service: "Azure Key Vault"}
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		failure.status, failure.code, failure.message = answer.StatusCode, answer.ErrorCode, messageOf(answer)
		return failure
	}
	failure.err = err
	return failure
}

// messageOf returns the message of a vault's refusal.
func messageOf(answer *azcore.ResponseError) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if answer.RawResponse == nil {
		return ""
	}
	content, err := runtime.Payload(answer.RawResponse)
	if err != nil || json.Unmarshal(content, &body) != nil {
		return ""
	}
	return body.Error.Message
}
