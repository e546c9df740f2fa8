package clouds_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestPageOfCloudsAtAzure runs the commands of docs/clouds.md at Azure with the az command. They
// run once for a managed identity, and once for an application. After the commands that assign a
// role, the page's ServiceAccount can pull the image. Another ServiceAccount cannot.
func TestPageOfCloudsAtAzure(t *testing.T) {
	if _, err := exec.LookPath("az"); err != nil {
		t.Fatal("the az command is missing: apt-get install azure-cli")
	}
	for name, variant := range map[string]struct {
		administrator string
		block         int // index of the block, in the part Azure, that makes the identity
	}{
		"managed identity": {pageResources, 1},
		"application":      {pageEntra, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPage(t, "api://AzureADTokenExchange")
			begin, blocks := p.commands(t, "Before you begin"), p.commands(t, "Azure")
			if len(blocks) != 5 {
				t.Fatalf("docs/clouds.md has %d blocks of commands at Azure, want 5: names, identity, application, role, check", len(blocks))
			}
			names, identity, role, check := append(begin, blocks[0]), blocks[variant.block], blocks[3], checkOf(t, blocks)
			token, err := p.issuer.Mint(oidc.Claims{"sub": "administrator", "aud": "api://AzureADTokenExchange"})
			must.Succeed(t, err)
			login := "az login --output none --service-principal --username " + variant.administrator + " --tenant " + pageDirectory + " --federated-token " + token

			output, err := p.run(t, append(names, login, identity, `echo "CLIENT_ID=$CLIENT_ID PRINCIPAL_ID=$PRINCIPAL_ID"`)...)
			made := regexp.MustCompile(`CLIENT_ID=([0-9a-f-]{36}) PRINCIPAL_ID=[0-9a-f-]{36}$`).FindStringSubmatch(output)
			if err != nil || made == nil {
				t.Fatalf("%v:\n%s", err, output)
			}
			if code := p.pull(t, pageSubject, made[1]); code != auth.CodePermissionDenied {
				t.Errorf("without the role: %s, want %s", code, auth.CodePermissionDenied)
			}
			p.env = append(p.env, "PYTHONPATH="+mendAz(t))
			if output, err := p.run(t, append(names, made[0], role, check)...); err != nil || !strings.HasSuffix(output, "\n200") {
				t.Fatalf("%v, want 200 at the end:\n%s", err, output)
			}
			if code := p.pull(t, pageSubject, made[1]); code != "" {
				t.Errorf("with the role: %s", code)
			}
			annotated, err := os.ReadFile(filepath.Join(p.dir, "annotated"))
			want := "annotate serviceaccount app-reader --namespace tenant-a azure.workload.identity/client-id=" + made[1] + " azure.workload.identity/tenant-id=" + pageDirectory + "\n"
			if err != nil || !strings.Contains(string(annotated), want) {
				t.Errorf("%q, %v; want %q", annotated, err, want)
			}
			other := "NAMESPACE=tenant-b SERVICE_ACCOUNT=app-reader CLIENT_ID=" + made[1] + " TENANT_ID=" + pageDirectory
			if output, err := p.run(t, other, check); err != nil || output != "401" {
				t.Errorf("another ServiceAccount: %q, %v; want 401", output, err)
			}
			if code := p.pull(t, pageOther, made[1]); code != auth.CodeTrustRefused {
				t.Errorf("another ServiceAccount: %s, want %s", code, auth.CodeTrustRefused)
			}
		})
	}
}

// mendAz makes a folder with a module that Python loads before az. The module adds an attribute
// that Debian's az 2.45.0 needs, but that its library has renamed. Without the attribute, "az role
// assignment create" fails.
func mendAz(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "sitecustomize.py"), []byte(
		`from azure.mgmt.authorization.v2020_04_01_preview.operations import RoleAssignmentsOperations
RoleAssignmentsOperations.config = property(lambda self: self._config)
`), 0o600))
	return folder
}

// pull gets a token for a repository of the registry contoso.azurecr.io in the local cloud. It does
// so for the ServiceAccount that subject names, annotated with the given client ID. pull returns
// the code of the error, or an empty code after success.
func (p *page) pull(t *testing.T, subject, client string) auth.Code {
	t.Helper()
	provider, err := azure.NewProvider(azure.Config{TenantID: pageDirectory, Transport: p.base, Timeout: patience})
	must.Succeed(t, err)
	defer provider.Close()
	name := strings.Split(subject, ":")
	accounts := pageAccounts{p, auth.Account{UID: "1", Attributes: map[string]string{azure.ClientAnnotation: client}}}
	_, err = auth.GetToken(t.Context(), provider, auth.WithServiceAccount(name[2], name[3], accounts), auth.WithImageRepository("contoso.azurecr.io/app"))
	return auth.CodeOf(err)
}
