package clouds_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	cloudazure "github.com/lanyard-dev/lanyard/cloudtest/azure"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Names and identities in docs/clouds.md, in its commands and in the error messages that it shows.
const (
	pageIssuer  = "https://issuer.example.com"
	pageSubject = "system:serviceaccount:tenant-a:app-reader"
	pageOther   = "system:serviceaccount:tenant-b:app-reader"

	pageAccount   = "123456789123"
	pageRole      = "arn:aws:iam::" + pageAccount + ":role/tenant-a-app-reader"
	pageDirectory = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	pageClient    = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	pageBare      = "4a7272f9-f186-41af-9f84-6a92e32d7cd0" // client without a federated credential
	// pageResources is the client ID of an administrator of the resource group.
	pageResources = "8f4d2c66-3a1b-4f0e-9b7a-2f1f5c9f6a10"
	// pageEntra is the client ID of an administrator of both the resource group and the directory.
	pageEntra = "0a9be3d5-6a5d-4c3e-8d1e-7c4b8a2f5e31"

	pageProject = "my-org-project"
	pageNumber  = "123456789012"
	pagePool    = "projects/" + pageNumber + "/locations/global/workloadIdentityPools/my-cluster"
	pageEmail   = "tenant-a-app-reader@" + pageProject + ".iam.gserviceaccount.com"
)

// patience bounds each request of a provider. A request waits until the cloud has made its RSA key.
// With the race detector on a busy machine, this takes seconds.
const patience = time.Minute

// page is docs/clouds.md, with the local cloud in which its commands run. The cloud has an issuer,
// and administrators at AWS and Azure. The page's kubectl makes tokens for one audience.
type page struct {
	text   string
	cloud  *cloudtest.Cloud
	issuer *oidc.Issuer
	base   *http.Transport
	env    []string
	dir    string // where the commands run
}

func openPage(t *testing.T, audience string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "clouds.md"))
	must.Succeed(t, err)
	administrator := cloudaws.AccessKey{ID: "AKIAADMINISTRATOR000", Secret: "only-for-the-local-cloud"}
	cloud, err := cloudtest.New(cloudtest.Config{
		AWS: cloudaws.Config{Accounts: []cloudaws.Account{{ID: pageAccount, Users: []cloudaws.User{{
			Name: "administrator", AccessKeys: []cloudaws.AccessKey{administrator},
			Policies: map[string]json.RawMessage{"iam": json.RawMessage(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:*","Resource":"*"}]}`)},
		}}}}},
		Azure: cloudazure.Config{Tenants: []cloudazure.Tenant{{ID: pageDirectory, Applications: []cloudazure.Application{
			{ClientID: pageResources, FederatedCredentials: []cloudazure.FederatedCredential{{Name: "cluster", Issuer: pageIssuer, Subject: "administrator"}}},
			{
				ClientID: pageEntra, FederatedCredentials: []cloudazure.FederatedCredential{{Name: "cluster", Issuer: pageIssuer, Subject: "administrator"}},
				GraphPermissions: []string{"Application.ReadWrite.All"},
			},
		}, Registries: []cloudazure.RegistryConfig{{Name: "contoso"}}, Subscriptions: []cloudazure.Subscription{{
			ID: "3f9d0c1e-5b7a-4e52-9a58-0d4b6f1c2a77", Name: "tenants",
			ResourceGroups: []cloudazure.ResourceGroup{{Name: "tenants", Location: "westeurope", Registries: []string{"contoso"}}},
			RoleAssignments: []cloudazure.SubscriptionRole{
				{ClientID: pageResources, Role: "Owner", ResourceGroup: "tenants"}, {ClientID: pageEntra, Role: "Owner", ResourceGroup: "tenants"},
			},
		}}}}},
		GCP: cloudgcp.Config{Projects: []cloudgcp.Project{{ID: pageProject, Number: pageNumber}}},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, cloud.Close()) })
	issuer, err := oidc.NewIssuer(pageIssuer, oidc.RS256)
	must.Succeed(t, err)
	must.Succeed(t, cloud.HandleIssuer(issuer))
	must.Succeed(t, cloud.Start(t.Context()))
	proxy, err := url.Parse(cloud.ProxyURL())
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cloud.CAPEM())
	p := &page{text: string(text), cloud: cloud, issuer: issuer, dir: t.TempDir(), base: &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.Succeed(t, cloud.WriteCA(ca))
	p.env = append(cloud.Env(ca),
		"PATH="+p.kubectl(t, audience)+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+p.dir, "LC_ALL=C.UTF-8",
		"AWS_ACCESS_KEY_ID="+administrator.ID, "AWS_SECRET_ACCESS_KEY="+administrator.Secret,
		"AWS_DEFAULT_REGION=eu-west-1", "AWS_REGION=eu-west-1", "AWS_MAX_ATTEMPTS=1", "AWS_PAGER=",
		"AZURE_CONFIG_DIR="+filepath.Join(p.dir, ".azure"), "AZURE_CORE_COLLECT_TELEMETRY=no",
	)
	return p
}

// kubectl makes a folder with a script named kubectl. The script answers the kubectl commands of
// docs/clouds.md. It can print tokens of two ServiceAccounts, for the given audience.
func (p *page) kubectl(t *testing.T, audience string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, namespace := range []string{"tenant-a", "tenant-b"} {
		token, err := p.issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:" + namespace + ":app-reader", "aud": []string{audience}})
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(folder, namespace), []byte(token), 0o600))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kubectl"), []byte(`#!/bin/sh
case "$*" in
"get --raw /.well-known/openid-configuration") echo '{"issuer":"`+pageIssuer+`","jwks_uri":"`+pageIssuer+`/keys"}' ;;
"create token app-reader --namespace tenant-"?" --audience `+audience+`") cat "`+folder+`/$5" ;;
"create serviceaccount "* | "annotate serviceaccount "*) echo "$@" >> annotated ;;
*) echo "unexpected: kubectl $*" >&2; exit 1 ;;
esac
`), 0o700))
	return folder
}

// commands returns the sh blocks of the page from a heading to the next heading of the same level.
func (p *page) commands(t *testing.T, heading string) []string {
	t.Helper()
	_, part, found := strings.Cut(p.text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/clouds.md has no part %q", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(part, -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/clouds.md has no commands in part %q", heading)
	}
	return blocks
}

// checkOf returns the block of commands that checks whether the cloud trusts the ServiceAccount.
func checkOf(t *testing.T, blocks []string) string {
	t.Helper()
	for _, block := range blocks {
		if strings.Contains(block, "kubectl create token") {
			return block
		}
	}
	t.Fatal("docs/clouds.md has no check")
	return ""
}

// run runs commands in one shell, which ends at the first command that fails.
func (p *page) run(t *testing.T, commands ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // long, because the az command takes seconds to start
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-euc", strings.Join(commands, "\n"))
	shell.Dir, shell.Env = p.dir, p.env
	printed, err := shell.CombinedOutput()
	return strings.TrimSpace(string(printed)), err
}

// TestPageOfClouds runs the commands of docs/clouds.md at AWS with the aws command. A token of the
// page's ServiceAccount gets a session of the role. A token of another ServiceAccount does not.
func TestPageOfClouds(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Fatal("the aws command is missing: apt-get install awscli")
	}
	p := openPage(t, "sts.amazonaws.com")
	begin, blocks := p.commands(t, "Before you begin"), p.commands(t, "AWS")
	output, err := p.run(t, append(begin, blocks...)...)
	if want := "arn:aws:sts::" + pageAccount + ":assumed-role/tenant-a-app-reader/check"; err != nil || !strings.HasSuffix(output, want) {
		t.Fatalf("%v, want %s at the end:\n%s", err, want, output)
	}
	annotated, err := os.ReadFile(filepath.Join(p.dir, "annotated"))
	if want := "annotate serviceaccount app-reader --namespace tenant-a eks.amazonaws.com/role-arn=" + pageRole + "\n"; err != nil || !strings.Contains(string(annotated), want) {
		t.Errorf("%q, %v; want %q", annotated, err, want)
	}
	check := checkOf(t, blocks)
	if output, err := p.run(t, "NAMESPACE=tenant-b SERVICE_ACCOUNT=app-reader ROLE="+pageRole, check); err == nil || !strings.Contains(output, "(AccessDenied)") {
		t.Errorf("another ServiceAccount: %v, want AccessDenied:\n%s", err, output)
	}

	p.refuses(t, p.aws(t), pageOther, aws.RoleAnnotation, pageRole)
	must.Succeed(t, p.cloud.AWS().DeleteOIDCProvider(pageAccount, pageIssuer))
	p.refuses(t, p.aws(t), pageSubject, aws.RoleAnnotation, pageRole)
}

// TestPageOfCloudsRefusals compares the messages from Azure and Google in docs/clouds.md with
// Lanyard's errors.
func TestPageOfCloudsRefusals(t *testing.T) {
	p := openPage(t, "none")
	must.Succeed(t, p.cloud.Azure().PutApplication(pageDirectory, cloudazure.Application{
		ClientID: pageClient, FederatedCredentials: []cloudazure.FederatedCredential{{Name: "cluster", Issuer: pageIssuer, Subject: pageSubject}},
	}))
	must.Succeed(t, p.cloud.Azure().PutApplication(pageDirectory, cloudazure.Application{ClientID: pageBare}))
	must.Succeed(t, p.cloud.GCP().PutPool(pageProject, cloudgcp.Pool{ID: "my-cluster", Providers: []cloudgcp.Provider{kubernetesProvider()}}))
	must.Succeed(t, p.cloud.GCP().PutServiceAccount(pageProject, cloudgcp.ServiceAccount{Email: pageEmail, Bindings: []cloudgcp.Binding{{
		Role: "roles/iam.workloadIdentityUser", Members: []string{"principal://iam.googleapis.com/" + pagePool + "/subject/" + pageSubject},
	}}}))

	entra, err := azure.NewProvider(azure.Config{TenantID: pageDirectory, Transport: p.base, Timeout: patience})
	must.Succeed(t, err)
	t.Cleanup(entra.Close)
	p.refuses(t, entra, pageOther, azure.ClientAnnotation, pageClient)
	p.refuses(t, entra, pageSubject, azure.ClientAnnotation, pageBare)

	google, err := gcp.NewProvider(gcp.Config{Transport: p.base, Timeout: patience})
	must.Succeed(t, err)
	t.Cleanup(google.Close)
	p.refuses(t, google, pageOther, gcp.ProviderAnnotation, pageProvider, gcp.ServiceAccountAnnotation, pageEmail)
	p.refuses(t, google, pageSubject, gcp.ProviderAnnotation, pagePool+"/providers/none")
}

func (p *page) aws(t *testing.T) auth.Provider {
	t.Helper()
	provider, err := aws.NewProvider(aws.Config{Region: "eu-west-1", Transport: p.base})
	must.Succeed(t, err)
	t.Cleanup(provider.Close)
	return provider
}

// refuses checks that a subject with these annotations is refused, and that the page has the error
// message.
func (p *page) refuses(t *testing.T, provider auth.Provider, subject string, annotations ...string) {
	t.Helper()
	name := strings.Split(subject, ":")
	account := auth.Account{UID: "1", Attributes: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		account.Attributes[annotations[i]] = annotations[i+1]
	}
	_, err := auth.GetToken(t.Context(), provider, auth.WithServiceAccount(name[2], name[3], pageAccounts{p, account}))
	if auth.CodeOf(err) != auth.CodeTrustRefused {
		t.Fatalf("%s as %q: %v, want %s", subject, annotations, err, auth.CodeTrustRefused)
	}
	if !strings.Contains(oneLine(p.text), "```text "+err.Error()+" ```") {
		t.Errorf("docs/clouds.md does not have the message\n%s", err)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// pageAccounts returns the same account for every name.
type pageAccounts struct {
	page    *page
	account auth.Account
}

func (a pageAccounts) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	a.account.Subject = subject
	return a.account, nil
}

func (a pageAccounts) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	return a.Lookup(ctx, subject)
}

func (pageAccounts) Subscribe(func(auth.Subject)) {}

func (a pageAccounts) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	token, err := a.page.issuer.Mint(oidc.Claims{"sub": account.Subject.String(), "aud": request.Audiences})
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(auth.ProofLifetime)}, err
}
