package azure

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// credentialsVariable is the environment variable that selects the credential. Its value is the
// name of a credential type of the Azure SDKs. Source: package azidentity, DefaultAzureCredential,
// "Selecting credentials".
const credentialsVariable = "AZURE_TOKEN_CREDENTIALS" //nolint:gosec // a name, no credential

// Supported values of [credentialsVariable].
const (
	environmentCredential      = "EnvironmentCredential"
	workloadIdentityCredential = "WorkloadIdentityCredential"
	managedIdentityCredential  = "ManagedIdentityCredential"
)

// giveIdentity is the fix for a controller without an identity. Source of the label: Azure Workload
// Identity, "Labels and annotations".
const giveIdentity = `annotate the controller's ServiceAccount with ` + ClientAnnotation +
	` and label its Pod azure.workload.identity/use: "true", ` +
	`or set ` + credentialsVariable + `=` + managedIdentityCredential + ` in its environment to be the managed identity of the host, ` +
	`or name a ServiceAccount in the object`

// credentialName returns the name of the credential that the environment configures.
// [credentialsVariable] selects it; otherwise it is the first credential whose variables are set.
// The managed identity must be selected by name.
func credentialName(env func(string) string) (string, error) {
	application := env("AZURE_CLIENT_SECRET") != "" || env("AZURE_CLIENT_CERTIFICATE_PATH") != ""
	switch named := env(credentialsVariable); {
	case strings.EqualFold(named, managedIdentityCredential):
		return managedIdentityCredential, nil
	case strings.EqualFold(named, workloadIdentityCredential), named == "" && !application && env("AZURE_FEDERATED_TOKEN_FILE") != "":
		return workloadIdentityCredential, nil
	case application && (named == "" || strings.EqualFold(named, environmentCredential)):
		return environmentCredential, nil
	case named == "":
		return "", &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing, Fix: giveIdentity,
			Err: errors.New("the controller's environment has no identity of Microsoft Entra: AZURE_FEDERATED_TOKEN_FILE is not set"),
		}
	case strings.EqualFold(named, environmentCredential):
		return "", &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
			Fix: "set AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH of the controller, or remove " + credentialsVariable,
			Err: errors.New(credentialsVariable + " names a client secret or certificate, and the controller's environment has neither"),
		}
	default:
		// Other values name chains of credentials. In a chain the first credential that answers
		// would decide the identity.
		return "", &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeOptionUnsupported,
			Fix: "set " + credentialsVariable + " of the controller to " + environmentCredential + ", " + workloadIdentityCredential + " or " +
				managedIdentityCredential + ", or remove it",
			Err: fmt.Errorf("%s is %q, which is not the name of one supported credential",
				credentialsVariable, remote.Printable(named, remote.MaxName)),
		}
	}
}

// source is the source of the controller's tokens, as the environment configures it.
type source struct {
	credential azcore.TokenCredential
	// Texts for people: the name of the source, the service that issues its token, and the fix.
	name, where, mend string
	// managed is true if the host's own service issues the token, and not Microsoft Entra.
	managed bool
}

// source returns the token source with the given name. Even if there is an error, it sets the
// fields name, where and mend of s, so that the caller can explain the error with them.
func (p *Provider) source(name string, client *http.Client) (s source, err error) {
	options := azcore.ClientOptions{
		Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: p.cloud.Authority},
		Transport: client,
		// No retries here: the cache decides when to ask again.
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}
	// Instance discovery would ask the public cloud whether the authority is genuine. The
	// administrator named the authority, so this is not needed.
	const known = true
	switch name {
	case environmentCredential:
		s = source{
			name: "the client secret or certificate", where: p.where(),
			mend: "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH of the controller",
		}
		s.credential, err = azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: known,
		})
	case workloadIdentityCredential:
		s = source{
			name: "the workload identity", where: p.where(),
			mend: "check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE of the controller, and the federated credential for " +
				"its ServiceAccount",
		}
		s.credential, err = azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: known, TenantID: p.tenant,
		})
	default:
		s = source{
			name: "the managed identity", where: "the host's identity endpoint", managed: true,
			mend: "check that the host has the managed identity (AZURE_CLIENT_ID of the controller says which), or remove " + credentialsVariable +
				" and give the controller's ServiceAccount a workload identity",
		}
		managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
		if id := os.Getenv("AZURE_CLIENT_ID"); id != "" { //nolint:forbidigo // as above
			managed.ID = azidentity.ClientID(id)
		}
		s.credential, err = azidentity.NewManagedIdentityCredential(managed)
	}
	return s, err
}
