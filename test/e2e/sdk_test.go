package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"

	"github.com/lanyard-dev/lanyard/test/e2e/node"
)

// TestNodeClients has the clouds' official clients for Node, unmodified, get a token with a token of the API server, through
// the local cloud: as the tenant's own identity, and not as another's. `npm ci` in node/ installs them.
func TestNodeClients(t *testing.T) {
	a, b := newTenant(t, "node-a"), newTenant(t, "node-b")
	applicationA, applicationB := a.atAzure(t), b.atAzure(t)
	accountA, accountB := a.atGoogle(t), b.atGoogle(t)
	begin := world.Cloud().Journal().Last()

	type client func(t *testing.T, tokenFile string) (script, scope string, env []string)
	azure := func(application string) client {
		return func(_ *testing.T, tokenFile string) (string, string, []string) {
			return node.AzureIdentity, "https://storage.azure.com/.default", []string{
				"AZURE_CLIENT_ID=" + application, "AZURE_TENANT_ID=" + local.AzureTenant, "AZURE_FEDERATED_TOKEN_FILE=" + tokenFile,
				"AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/",
			}
		}
	}
	google := func(account string) client {
		return func(t *testing.T, tokenFile string) (string, string, []string) {
			t.Helper()
			external := map[string]any{ // Source: google.aip.dev/auth/4117
				"type": "external_account", "audience": googleAudience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
				"token_url": "https://sts.googleapis.com/v1/token", "credential_source": map[string]any{"file": tokenFile},
			}
			if account != "" {
				external["service_account_impersonation_url"] = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
			}
			config, err := json.Marshal(external)
			must(t, "write the credential configuration", err)
			return node.GoogleAuthLibrary, googleScope, []string{
				"GOOGLE_CLOUD_PROJECT=" + googleProject, "GOOGLE_APPLICATION_CREDENTIALS=" + secretFile(t, "external.json", string(config)),
			}
		}
	}
	tests := []struct {
		name     string
		client   client
		audience string
		code     string // of the refusal; empty for a token
	}{
		{"azure/own application", azure(applicationA), azureAudience, ""},
		{"azure/other tenant's application", azure(applicationB), azureAudience, "AADSTS700213"},
		{"azure/wrong audience", azure(applicationA), stsAudience, "AADSTS700212"},
		{"google/own service account", google(accountA), googlePool, ""},
		{"google/itself", google(""), googlePool, ""},
		{"google/other tenant's service account", google(accountB), googlePool, "PERMISSION_DENIED"},
		{"google/wrong audience", google(accountA), stsAudience, "invalid_grant"},
	}
	t.Run("clients", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				script, scope, env := tt.client(t, secretFile(t, "token", token(t, a.namespace, puller, tt.audience)))
				env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir()) // no configuration of whoever runs the tests
				got, err := node.GetToken(t.Context(), script, scope, append(world.Env(), env...))
				must(t, "run the client", err)
				switch life := time.Until(got.ExpiresOn); {
				case tt.code != "" && (got.OK || got.Code != tt.code):
					t.Errorf("%+v; want a refusal with code %s", got, tt.code)
				case tt.code == "" && (!got.OK || life < 50*time.Minute || life > 65*time.Minute):
					t.Errorf("%+v; want a token that lives for an hour", got)
				}
			})
		}
	})
	for identity, asking := range map[string]string{applicationA: a.subject, accountA: googlePrincipal(a.namespace, puller), applicationB: "", accountB: ""} {
		for _, call := range world.Cloud().Journal().Calls(journal.Filter{Role: identity, Verdict: journal.Granted, After: begin}) {
			if call.Subject != asking && call.Principal != asking {
				t.Errorf("%s was granted: %+v", identity, call)
			}
		}
	}
}

// secretFile is a file that only its owner reads, as a kubelet mounts tokens.
func secretFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, "write "+name, os.WriteFile(path, []byte(content), 0o600))
	return path
}
