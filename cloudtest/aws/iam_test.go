package aws_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

// iamRequest returns a request to IAM, signed if the caller has keys.
func iamRequest(t *testing.T, caller awssdk.Credentials, pairs ...string) *http.Request {
	t.Helper()
	values := url.Values{"Version": {"2010-05-08"}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	r := rig.NewRequest(t, http.MethodPost, "https://iam.amazonaws.com/", "application/x-www-form-urlencoded", values.Encode())
	if !caller.HasKeys() {
		return r
	}
	return signIn(t, "us-east-1", r, "iam", caller)
}

// TestIAMAnswers makes an issuer and a role as an administrator does, step by step. It compares
// every answer with golden files, byte for byte.
func TestIAMAnswers(t *testing.T) {
	const (
		provider = "arn:aws:iam::" + account + ":oidc-provider/"
		issuer   = "https://issuer.tenant-b.example" // w.Rogue's URL; not trusted at first
		trust    = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + provider + `issuer.tenant-b.example"},` +
			`"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"issuer.tenant-b.example:sub":"` + subjectB + `"}}}]}`
		nobody = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"sts:AssumeRoleWithWebIdentity"}]}`
		pull   = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}]}`
	)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.Client()
		defer client.CloseIdleConnections()
		administrator := awssdk.Credentials{AccessKeyID: pusherKey, SecretAccessKey: pusherSecret} // a user who may do everything
		tenant, err := w.assume(t, roleA, subjectA).Retrieve(t.Context())
		must.Succeed(t, err)
		made := strings.Replace(roleA, "tenant-a-ecr", "apps/made", 1)
		files := rig.Golden{Dir: filepath.Join("testdata", "iam"), Update: *update, Mask: mask}
		for _, step := range []struct {
			name   string
			caller awssdk.Credentials
			call   []string // empty if assume is set
			// If assume is set, the step assumes the new role with a token of the new issuer.
			// assume is the answer that STS must give: an error code, or "granted".
			assume string
		}{
			{name: "provider-unsigned", call: []string{"Action", "CreateOpenIDConnectProvider", "Url", issuer, "ClientIDList.member.1", audience}},
			{name: "provider-refused", caller: tenant, call: []string{"Action", "CreateOpenIDConnectProvider", "Url", issuer, "ClientIDList.member.1", audience}},
			{name: "provider-missing", caller: administrator, call: []string{"Action", "GetOpenIDConnectProvider", "OpenIDConnectProviderArn", provider + "issuer.tenant-b.example"}},
			{name: "provider-not-https", caller: administrator, call: []string{"Action", "CreateOpenIDConnectProvider", "Url", "http://issuer.tenant-b.example", "ClientIDList.member.1", audience}},
			{name: "provider-thumbprint", caller: administrator, call: []string{"Action", "CreateOpenIDConnectProvider", "Url", issuer, "ClientIDList.member.1", audience, "ThumbprintList.member.1", "none"}},
			{assume: "InvalidIdentityToken"},
			{name: "provider-created", caller: administrator, call: []string{"Action", "CreateOpenIDConnectProvider", "Url", issuer, "ClientIDList.member.1", audience, "ThumbprintList.member.1", strings.Repeat("f", 40)}},
			{assume: "AccessDenied"},
			{name: "provider-exists", caller: administrator, call: []string{"Action", "CreateOpenIDConnectProvider", "Url", issuer, "ClientIDList.member.1", audience}},
			{name: "provider", caller: administrator, call: []string{"Action", "GetOpenIDConnectProvider", "OpenIDConnectProviderArn", provider + "issuer.tenant-b.example"}},
			{name: "providers", caller: administrator, call: []string{"Action", "ListOpenIDConnectProviders"}},
			{name: "providers-refused", caller: tenant, call: []string{"Action", "ListOpenIDConnectProviders"}},

			{name: "role-missing", caller: administrator, call: []string{"Action", "GetRole", "RoleName", "made"}},
			{name: "role-no-name", caller: administrator, call: []string{"Action", "CreateRole", "AssumeRolePolicyDocument", trust}},
			{name: "role-refused", caller: tenant, call: []string{"Action", "CreateRole", "RoleName", "made", "AssumeRolePolicyDocument", trust}},
			{name: "role-malformed-trust", caller: administrator, call: []string{"Action", "CreateRole", "RoleName", "made", "AssumeRolePolicyDocument", pull}},
			{name: "role-malformed-path", caller: administrator, call: []string{"Action", "CreateRole", "RoleName", "made", "Path", "apps", "AssumeRolePolicyDocument", trust}},
			{name: "role-tags", caller: administrator, call: []string{"Action", "CreateRole", "RoleName", "made", "AssumeRolePolicyDocument", trust, "Tags.member.1.Key", "k", "Tags.member.1.Value", "v"}},
			{name: "role-created", caller: administrator, call: []string{"Action", "CreateRole", "RoleName", "made", "Path", "/apps/", "AssumeRolePolicyDocument", trust}},
			{assume: "granted"},
			{name: "role-exists", caller: administrator, call: []string{"Action", "CreateRole", "RoleName", "made", "AssumeRolePolicyDocument", trust}},
			{name: "role", caller: administrator, call: []string{"Action", "GetRole", "RoleName", "made"}},

			{name: "trust-refused", caller: tenant, call: []string{"Action", "UpdateAssumeRolePolicy", "RoleName", "made", "PolicyDocument", nobody}},
			{name: "trust-malformed", caller: administrator, call: []string{"Action", "UpdateAssumeRolePolicy", "RoleName", "made", "PolicyDocument", "{"}},
			{assume: "granted"},
			{name: "trust-updated", caller: administrator, call: []string{"Action", "UpdateAssumeRolePolicy", "RoleName", "made", "PolicyDocument", nobody}},
			{assume: "AccessDenied"},

			{name: "policy-missing", caller: administrator, call: []string{"Action", "GetRolePolicy", "RoleName", "made", "PolicyName", "pull"}},
			{name: "policy-refused", caller: tenant, call: []string{"Action", "PutRolePolicy", "RoleName", "tenant-a-ecr", "PolicyName", "pull", "PolicyDocument", pull}},
			{name: "policy-malformed", caller: administrator, call: []string{"Action", "PutRolePolicy", "RoleName", "made", "PolicyName", "pull", "PolicyDocument", trust}},
			{name: "policy-put", caller: administrator, call: []string{"Action", "PutRolePolicy", "RoleName", "made", "PolicyName", "pull", "PolicyDocument", pull}},
			{name: "policy", caller: administrator, call: []string{"Action", "GetRolePolicy", "RoleName", "made", "PolicyName", "pull"}},

			{name: "role-with-policy", caller: administrator, call: []string{"Action", "DeleteRole", "RoleName", "made"}},
			{name: "policy-deleted", caller: administrator, call: []string{"Action", "DeleteRolePolicy", "RoleName", "made", "PolicyName", "pull"}},
			{name: "policy-deleted-twice", caller: administrator, call: []string{"Action", "DeleteRolePolicy", "RoleName", "made", "PolicyName", "pull"}},
			{name: "role-deleted", caller: administrator, call: []string{"Action", "DeleteRole", "RoleName", "made"}},
			{name: "role-deleted-twice", caller: administrator, call: []string{"Action", "DeleteRole", "RoleName", "made"}},
			{assume: "AccessDenied"},
		} {
			if step.assume != "" {
				token, err := w.Rogue.Mint(map[string]any{"sub": subjectB, "aud": audience})
				must.Succeed(t, err)
				if got := w.Assume(t, w.Transport(), made, token); got != strings.TrimPrefix(step.assume, "granted") {
					t.Errorf("STS says %q, want %s", got, step.assume)
				}
				continue
			}
			res, err := client.Do(iamRequest(t, step.caller, step.call...))
			must.Succeed(t, err)
			files.Answer(t, step.name, res)
		}
		files.Complete(t)
	})
}

// TestIAMJudgesByPolicy checks that the caller's policies decide about each operation on each
// resource. The caller may write the policies of one role. It must not write another role's
// policies or a trust policy.
func TestIAMJudgesByPolicy(t *testing.T) {
	w := newWorld(t)
	admin := rig.TenantRole("tenant-a", subjectA)
	admin.Policies["iam"] = []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:PutRolePolicy","Resource":"` + roleB + `"}]}`)
	must.Succeed(t, w.AWS().PutRole(account, admin))
	session, err := w.assume(t, roleA, subjectA).Retrieve(t.Context())
	must.Succeed(t, err)
	for _, tt := range []struct {
		action, role string
		status       int
	}{
		{"PutRolePolicy", "tenant-b-ecr", http.StatusOK},
		{"PutRolePolicy", "tenant-a-ecr", http.StatusForbidden},
		{"PutRolePolicy", "none", http.StatusForbidden}, // permission is checked before existence
		{"UpdateAssumeRolePolicy", "tenant-b-ecr", http.StatusForbidden},
		{"GetRole", "tenant-b-ecr", http.StatusForbidden},
	} {
		res, err := w.Client().Do(iamRequest(t, session, "Action", tt.action, "RoleName", tt.role, "PolicyName", "pull",
			"PolicyDocument", string(rig.PullPolicy("tenant-b/*"))))
		must.Succeed(t, err)
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s of role %s: HTTP %d, want %d", tt.action, tt.role, res.StatusCode, tt.status)
		}
	}
}
