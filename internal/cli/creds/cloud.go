package creds

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providers"
)

// cloudLogin returns a user and a password for a cloud's registry. It gets them with the identity
// that the same cloud gives to this machine.
func (f *Flags) cloudLogin(ctx context.Context, to Receiver) (Credential, error) {
	if err := checkCloudHost(f.Creds, to.Image); err != nil {
		return Credential{}, err
	}
	clouds, err := providers.New(providers.Config{Env: f.env, AzureWholeRegistry: true})
	if err != nil {
		return Credential{}, err
	}
	defer clouds.Close()
	provider, err := clouds.ByName(string(f.Creds))
	if err != nil {
		return Credential{}, err
	}
	token, err := auth.GetToken(ctx, provider, auth.WithController(), auth.WithImageRepository(to.Image))
	if err != nil {
		return Credential{}, explainCloud(f.Creds, err)
	}
	login, ok := token.(*auth.RegistryCredentials)
	if !ok {
		return Credential{}, fmt.Errorf("--%s=%s: a registry does not accept a %T", flagCreds, f.Creds, token)
	}
	return Credential{User: login.Username, Secret: login.Password, ExpiresAt: login.ExpiresAt}, nil
}

// explainCloud rewrites an error of an [auth.Provider] for users of the command line. Providers
// write their errors for users of the controller.
func explainCloud(kind Kind, err error) error {
	said, ok := errors.AsType[*auth.Error](err)
	if !ok {
		return fmt.Errorf("--%s=%s: %w", flagCreds, kind, err)
	}
	here := *said
	if here.Stage == auth.StageIdentity {
		here.Fix = giveIdentity(kind)
	}
	text := strings.NewReplacer("the controller's own", "this job's", "the controller's", "this job's").Replace(here.Error())
	return fmt.Errorf("--%s=%s: %s", flagCreds, kind, text)
}

// giveIdentity tells users how to give a job an identity of the cloud.
func giveIdentity(kind Kind) string {
	switch kind {
	case AWS:
		return "set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or run this on a machine or Pod with a role"
	case Azure:
		return "set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_FEDERATED_TOKEN_FILE, or run this on a machine with a managed identity"
	default:
		return "set GOOGLE_APPLICATION_CREDENTIALS to a configuration of Workload Identity Federation, " +
			"or run this on a machine with a service account"
	}
}

// checkCloudHost refuses a registry that is not the cloud's own.
func checkCloudHost(kind Kind, image string) error {
	host, _, _ := strings.Cut(image, "/")
	if host == "" {
		return fmt.Errorf("--%s=%s is for a registry alone: name its host", flagCreds, kind)
	}
	var err error
	switch kind {
	case AWS:
		_, err = endpoint.ParseECR(host)
	case Azure:
		_, err = endpoint.ParseACR(host)
	case GCP:
		_, err = endpoint.ParseGAR(host)
	default:
		err = errors.New("not a cloud")
	}
	if err != nil {
		return fmt.Errorf("--%s=%s is for the registries of %s alone. %.80q is none of them, "+
			"so this machine's identity does not go there", flagCreds, kind, kind, host)
	}
	return nil
}
