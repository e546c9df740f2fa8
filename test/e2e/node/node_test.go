package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/test/e2e/node"
)

const (
	issuerURL     = "https://issuer.cluster.example"
	directory     = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	clientA       = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	clientB       = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	azureAudience = "api://AzureADTokenExchange"
	storageScope  = "https://storage.azure.com/.default"

	project      = "my-org-project"
	pool         = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/tenants/providers/kubernetes"
	googleScope  = "https://www.googleapis.com/auth/cloud-platform"
	subjectA     = "system:serviceaccount:tenant-a:app"
	subjectB     = "system:serviceaccount:tenant-b:app"
	googleUser   = "roles/iam.workloadIdentityUser"
	aliyun       = "acs:ram::1234567890123456:"
	aliyunAud    = "sts.aliyuncs.com"
	googleMember = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/tenants/subject/"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func accountOf(tenant string) string { return tenant + "@" + project + ".iam.gserviceaccount.com" }

// world starts a local cloud with two tenants at Azure, Google and Alibaba. It returns the
// environment for programs that use the cloud.
func world(t *testing.T) (issuer *oidc.Issuer, env []string) {
	t.Helper()
	app := func(client, subject string) azure.Application {
		return azure.Application{ClientID: client, FederatedCredentials: []azure.FederatedCredential{{Name: "cluster", Issuer: issuerURL, Subject: subject}}}
	}
	account := func(tenant, subject string) gcp.ServiceAccount {
		return gcp.ServiceAccount{Email: accountOf(tenant), Bindings: []gcp.Binding{{Role: googleUser, Members: []string{googleMember + subject}}}}
	}
	role := func(tenant, subject string) alibaba.Role {
		return alibaba.Role{Name: tenant, TrustPolicy: fmt.Appendf(nil, `{"Version":"1","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",
			"Principal":{"Federated":"%soidc-provider/cluster"},"Condition":{"StringEquals":{"oidc:sub":%q}}}]}`, aliyun, subject)}
	}
	cloud, err := cloudtest.New(cloudtest.Config{
		Alibaba: alibaba.Config{Accounts: []alibaba.Account{{
			ID: "1234567890123456", OIDCProviders: []alibaba.OIDCProvider{{Name: "cluster", IssuerURL: issuerURL, ClientIDs: []string{aliyunAud}}},
			Roles: []alibaba.Role{role("tenant-a", subjectA), role("tenant-b", subjectB)},
		}}},
		Azure: azure.Config{Tenants: []azure.Tenant{{ID: directory, Applications: []azure.Application{app(clientA, subjectA), app(clientB, subjectB)}}}},
		GCP: gcp.Config{Projects: []gcp.Project{{
			ID: project, Number: "123456789012",
			Pools: []gcp.Pool{{ID: "tenants", Providers: []gcp.Provider{{
				ID: "kubernetes", IssuerURI: issuerURL, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
			}}}},
			ServiceAccounts: []gcp.ServiceAccount{account("tenant-a", subjectA), account("tenant-b", subjectB)},
		}}},
	})
	must(t, err)
	t.Cleanup(func() { _ = cloud.Close() })
	issuer, err = oidc.NewIssuer(issuerURL, oidc.RS256)
	must(t, err)
	must(t, cloud.HandleIssuer(issuer))
	must(t, cloud.Start(t.Context()))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, cloud.WriteCA(ca))
	return issuer, append(cloud.Env(ca), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func check(t *testing.T, token node.Token, code, message string) {
	t.Helper()
	if code != "" {
		if token.OK || token.Code != code || !strings.Contains(token.Message, message) {
			t.Errorf("%+v, want code %s with %q", token, code, message)
		}
		return
	}
	if life := time.Until(token.ExpiresOn); !token.OK || life < 50*time.Minute || life > 25*time.Hour {
		t.Errorf("%+v, which lives for %s", token, life)
	}
}

// TestAzureToken asserts that the unmodified @azure/identity gets tokens for a tenant's application
// with the token of that tenant's ServiceAccount. It gets no token for the other tenant's
// application.
func TestAzureToken(t *testing.T) {
	issuer, env := world(t)
	for name, tt := range map[string]struct {
		client, subject, audience string
		code                      string
	}{
		"own":                    {clientA, subjectA, azureAudience, ""},
		"other tenant's":         {clientB, subjectA, azureAudience, "AADSTS700213"},
		"wrong audience":         {clientA, subjectA, "sts.amazonaws.com", "AADSTS700212"},
		"unknown application":    {"00000000-c5b2-4a72-9f84-6a92e3f06b08", subjectA, azureAudience, "AADSTS700016"},
		"another ServiceAccount": {clientA, subjectA + "x", azureAudience, "AADSTS700213"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := issuer.Mint(oidc.Claims{"sub": tt.subject, "aud": []string{tt.audience}})
			must(t, err)
			token, err := node.GetToken(t.Context(), node.AzureIdentity, storageScope, append(env,
				"AZURE_CLIENT_ID="+tt.client, "AZURE_TENANT_ID="+directory, "AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/",
				"AZURE_FEDERATED_TOKEN_FILE="+writeFile(t, raw)))
			must(t, err)
			check(t, token, tt.code, tt.code)
		})
	}
}

// TestGoogleToken asserts that the unmodified google-auth-library gets tokens for a tenant's
// federated identity and for that tenant's service account. It gets no token for another tenant's
// service account.
func TestGoogleToken(t *testing.T) {
	issuer, env := world(t)
	for name, tt := range map[string]struct {
		account, audience string
		code, message     string
	}{
		"itself":              {"", "https:" + pool, "", ""},
		"own account":         {accountOf("tenant-a"), "https:" + pool, "", ""},
		"other tenant's":      {accountOf("tenant-b"), "https:" + pool, "PERMISSION_DENIED", "iam.serviceAccounts.getAccessToken"},
		"wrong audience":      {"", "sts.amazonaws.com", "invalid_grant", "audience"},
		"account that is not": {accountOf("nobody"), "https:" + pool, "NOT_FOUND", "not found for email"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := issuer.Mint(oidc.Claims{"sub": subjectA, "aud": []string{tt.audience}})
			must(t, err)
			external := map[string]any{
				"type": "external_account", "audience": pool, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
				"token_url": "https://sts.googleapis.com/v1/token", "credential_source": map[string]any{"file": writeFile(t, raw)},
			}
			if tt.account != "" {
				external["service_account_impersonation_url"] = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + tt.account + ":generateAccessToken"
			}
			config, err := json.Marshal(external)
			must(t, err)
			token, err := node.GetToken(t.Context(), node.GoogleAuthLibrary, googleScope, append(env,
				"GOOGLE_CLOUD_PROJECT="+project, "GOOGLE_APPLICATION_CREDENTIALS="+writeFile(t, string(config))))
			must(t, err)
			check(t, token, tt.code, tt.message)
		})
	}
}

// TestAlibabaCredentials asserts that the unmodified @alicloud/credentials gets a session of a
// tenant's role with the token of that tenant's ServiceAccount. It gets no session of the other
// tenant's role.
func TestAlibabaCredentials(t *testing.T) {
	issuer, env := world(t)
	for name, tt := range map[string]struct{ role, audience, code string }{
		"own":            {"tenant-a", aliyunAud, ""},
		"other tenant's": {"tenant-b", aliyunAud, "AuthenticationFail.NoPermission"},
		"wrong audience": {"tenant-a", "sts.amazonaws.com", "AuthenticationFail.OIDCToken.AudienceNotMatch"},
		"unknown role":   {"nobody", aliyunAud, "EntityNotExist.Role"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := issuer.Mint(oidc.Claims{"sub": subjectA, "aud": []string{tt.audience}})
			must(t, err)
			token, err := node.GetToken(t.Context(), node.AlibabaCredentials, "", append(env,
				"ALIBABA_CLOUD_ROLE_ARN="+aliyun+"role/"+tt.role, "ALIBABA_CLOUD_OIDC_PROVIDER_ARN="+aliyun+"oidc-provider/cluster",
				"ALIBABA_CLOUD_OIDC_TOKEN_FILE="+writeFile(t, raw)))
			must(t, err)
			if token.OK != (tt.code == "") || token.Code != tt.code {
				t.Errorf("%+v, want code %q", token, tt.code)
			}
		})
	}
}
