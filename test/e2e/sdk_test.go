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

// TestNodeClients runs the clouds' unmodified official clients for Node. They exchange a
// ServiceAccount token at the local cloud. They must get a token for the tenant's own identity, but
// not for another identity. dev/node-packages installs these clients.
func TestNodeClients(t *testing.T) {
	beside(t)
	a, b := newTenant(t, "node-a"), newTenant(t, "node-b")
	applicationA, applicationB := a.atAzure(t), b.atAzure(t)
	accountA, accountB := a.atGoogle(t), b.atGoogle(t)
	begin := world.Cloud().Journal().Last()

	tests := []struct {
		name     string
		client   nodeClient
		audience string
		code     string // error code of the refusal; empty if the client gets a token
	}{
		{"azure/own application", atAzure(applicationA), azureAudience, ""},
		{"azure/other tenant's application", atAzure(applicationB), azureAudience, "AADSTS700213"},
		{"azure/wrong audience", atAzure(applicationA), stsAudience, "AADSTS700212"},
		{"google/own service account", atGoogle(googleAudience, accountA), googlePool, ""},
		{"google/itself", atGoogle(googleAudience, ""), googlePool, ""},
		{"google/other tenant's service account", atGoogle(googleAudience, accountB), googlePool, "PERMISSION_DENIED"},
		{"google/wrong audience", atGoogle(googleAudience, accountA), stsAudience, "invalid_grant"},
	}
	t.Run("clients", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tt.client.check(t, secretFile(t, "token", token(t, a.namespace, puller, tt.audience)), tt.code)
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

// nodeClient configures a run of a cloud's client for Node.js, which exchanges the token in a file.
// It returns a script, the scope of the requested token, and the environment.
type nodeClient func(t *testing.T, tokenFile string) (script, scope string, env []string)

// atAzure configures Azure's client for an application.
func atAzure(application string) nodeClient {
	return func(_ *testing.T, tokenFile string) (string, string, []string) {
		return node.AzureIdentity, "https://storage.azure.com/.default", []string{
			"AZURE_CLIENT_ID=" + application, "AZURE_TENANT_ID=" + local.AzureTenant, "AZURE_FEDERATED_TOKEN_FILE=" + tokenFile,
			"AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/",
		}
	}
}

// atGoogle configures Google's client to act as a service account, or as the principal itself if
// account is empty. The audience identifies the issuer of the token.
func atGoogle(audience, account string) nodeClient {
	return func(t *testing.T, tokenFile string) (string, string, []string) {
		t.Helper()
		external := map[string]any{ // Source: google.aip.dev/auth/4117
			"type": "external_account", "audience": audience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
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

// check exchanges the token in a file. If code is empty, the result must be a token that lives for
// an hour. If code is not empty, the result must be a refusal with this code.
func (c nodeClient) check(t *testing.T, tokenFile, code string) {
	t.Helper()
	script, scope, env := c(t, tokenFile)
	// Do not use a configuration of the person who runs the tests.
	env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())
	got, err := node.GetToken(t.Context(), script, scope, append(world.Cloud().Env(), env...))
	must(t, "run the client", err)
	switch life := time.Until(got.ExpiresOn); {
	case code != "" && (got.OK || got.Code != code):
		t.Errorf("%+v; want a refusal with code %s", got, code)
	case code == "" && (!got.OK || life < 50*time.Minute || life > 65*time.Minute):
		t.Errorf("%+v; want a token that lives for an hour", got)
	}
}

// secretFile writes a file that only its owner can read, like tokens that a kubelet mounts.
func secretFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, "write "+name, os.WriteFile(path, []byte(content), 0o600))
	return path
}
