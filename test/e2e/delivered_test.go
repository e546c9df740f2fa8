package e2e

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/node"
)

// delivered is a folder with the keys of a binding's Secret as files, as mounted in a Pod. Its
// methods run unmodified clients of other projects with the content of the folder.
type delivered string

// newDelivered writes a Secret's data into folder, which is the mount path.
func newDelivered(t *testing.T, folder string, data map[string][]byte) delivered {
	t.Helper()
	for key, value := range data {
		must(t, "write "+key, os.WriteFile(filepath.Join(folder, key), value, 0o600))
	}
	return delivered(folder)
}

// path returns the path of the file for a key of the Secret.
func (d delivered) path(key string) string { return filepath.Join(string(d), key) }

// read returns the value of a key of the Secret.
func (d delivered) read(t *testing.T, key string) string {
	t.Helper()
	content, err := os.ReadFile(d.path(key))
	must(t, "read "+key, err)
	return string(content)
}

// env returns the environment of a client in the local cloud. A key of the Secret becomes a
// variable if it is written in capital letters. The given variables are added.
func (d delivered) env(t *testing.T, further ...string) []string {
	t.Helper()
	// Do not use a profile of the person who runs the tests.
	env := append(world.Cloud().Env(), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
	entries, err := os.ReadDir(string(d))
	must(t, "list the keys", err)
	for _, entry := range entries {
		if name := entry.Name(); name == strings.ToUpper(name) && !strings.HasPrefix(name, ".") {
			env = append(env, name+"="+d.read(t, name))
		}
	}
	return append(env, further...)
}

// run runs a client and returns its output. The error contains the client's error output.
func (d delivered) run(t *testing.T, env []string, program string, args ...string) (stdout string, err error) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%s is missing: apt-get install awscli skopeo: %v", program, err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), err
}

// aws runs the aws command with the rendered config file, and without the environment variables of
// the Secret.
func (d delivered) aws(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return d.run(t, append(delivered(t.TempDir()).env(t), "AWS_CONFIG_FILE="+d.path("config"), "AWS_MAX_ATTEMPTS=1"), "aws", args...)
}

// awsKeys runs the aws command with the rendered credentials file, and without the environment
// variables of the Secret.
func (d delivered) awsKeys(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return d.run(t, append(delivered(t.TempDir()).env(t), "AWS_SHARED_CREDENTIALS_FILE="+d.path("credentials"), "AWS_REGION="+local.Region), "aws", args...)
}

// node runs a script of package [node] with the Secret's variables. The script gets a token from a
// cloud's client library for Node.js.
func (d delivered) node(t *testing.T, script, scope string) node.Token {
	t.Helper()
	token, err := node.GetToken(t.Context(), script, scope, d.env(t, "AZURE_AUTHORITY_HOST=https://login.microsoftonline.com/"))
	must(t, "run the client", err)
	return token
}

// vault logs in at Vault with three files in the folder:
//   - Vault's address
//   - the body of the login request
//   - the identity's providerConfig, which has the mount path of Vault's plugin
func (d delivered) vault(t *testing.T) verdict {
	t.Helper()
	var config struct {
		Mount string `json:"mount"`
	}
	must(t, "read the config", json.Unmarshal([]byte(d.read(t, delivery.ConfigKey)), &config))
	status, body := call(t, cloudClient(), http.MethodPost, d.read(t, "VAULT_ADDR")+"/v1/auth/"+config.Mount+"/login", "application/json", []byte(d.read(t, "login.json")), "")
	return verdict{status: status, message: string(body)}
}

// kubectl runs kubectl with the rendered kubeconfig.
func (d delivered) kubectl(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return d.run(t, d.env(t), binary("controlplane"), append([]string{"kubectl"}, args...)...)
}

// skopeo inspects an image with the rendered logins.
func (d delivered) skopeo(t *testing.T, image string) (stdout string, err error) {
	t.Helper()
	return d.run(t, d.env(t), "skopeo", "inspect", "--raw", "--authfile", d.path(".dockerconfigjson"), "docker://"+image)
}

// page runs the commands in a section of docs/delivery.md with the Secret's variables. In the
// commands, it first replaces two values of the page:
//   - the Secret's mount path, with the folder d
//   - the image repository, with the argument repository
func (d delivered) page(t *testing.T, heading, repository string) (stdout string, err error) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "delivery.md"))
	must(t, "read the page", err)
	_, part, found := strings.Cut(string(page), "\n## "+heading+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	commands, err := shellCommands([]byte(part))
	if must(t, "read the commands of the page", err); !found || len(commands) == 0 {
		t.Fatalf("docs/delivery.md has no commands in part %q", heading)
	}
	controlplane, err := filepath.Abs(binary("controlplane"))
	must(t, "find kubectl", err)
	programs := t.TempDir()
	must(t, "make kubectl", os.WriteFile(filepath.Join(programs, "kubectl"), []byte("#!/bin/sh\nexec "+controlplane+" kubectl \"$@\"\n"), 0o700))
	script := strings.NewReplacer(delivery.DefaultMountPath, string(d), pageRepository, repository).Replace(strings.Join(commands, "\n"))
	path := "PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH")
	return d.run(t, d.env(t, path, "AWS_MAX_ATTEMPTS=1", "AWS_DEFAULT_REGION="+local.Region), "sh", "-euc", script)
}

// pageRepository is the image repository in docs/delivery.md.
const pageRepository = "123456789123.dkr.ecr.eu-west-1.amazonaws.com/tenant-a/app"

// wantPage asserts that the commands in a section of docs/delivery.md print the wanted text.
func (d delivered) wantPage(t *testing.T, heading, repository, want string) {
	t.Helper()
	if out, err := d.page(t, heading, repository); err != nil || !strings.Contains(out, want) {
		t.Errorf("docs/delivery.md, %s: %q, %v; want %s", heading, out, err, want)
	}
}

// aliyun is the ID of the tests' account at Alibaba Cloud. The account is configured in
// examples/cloud/cloud.yaml.
const (
	aliyun          = "1234567890123456"
	aliyunARN       = "acs:ram::" + aliyun + ":"
	aliyunAudience  = "sts.aliyuncs.com"
	aliyunTrustForm = `{"Version":"1","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Federated":%q},"Condition":{"StringEquals":{"oidc:iss":%q,"oidc:aud":%q,"oidc:sub":%q}}}]}`
)

// aliyunProvider returns the ARN of the OIDC provider for an issuer.
func aliyunProvider(issuer string) string {
	return aliyunARN + "oidc-provider/" + strings.NewReplacer("https://", "", "/", "-").Replace(issuer)
}

// trustAtAliyun creates an OIDC provider for an issuer, with the fingerprint of the issuer's CA.
func trustAtAliyun(t *testing.T, issuer string) {
	t.Helper()
	_, name, _ := strings.Cut(aliyunProvider(issuer), "/")
	block, _ := pem.Decode(world.Cloud().CAPEM())
	sum := sha1.Sum(block.Bytes)
	must(t, "trust the issuer at Alibaba Cloud", world.Cloud().Alibaba().PutOIDCProvider(aliyun, alibaba.OIDCProvider{
		Name: name, IssuerURL: issuer, ClientIDs: []string{aliyunAudience}, Fingerprints: []string{hex.EncodeToString(sum[:])},
	}))
}

// atAliyun creates a role that a subject of an issuer may assume, and returns its ARN.
func atAliyun(t *testing.T, name, issuer, subject string) string {
	t.Helper()
	must(t, "make a role", world.Cloud().Alibaba().PutRole(aliyun, alibaba.Role{
		Name: name, TrustPolicy: fmt.Appendf(nil, aliyunTrustForm, aliyunProvider(issuer), issuer, aliyunAudience, subject),
	}))
	return aliyunARN + "role/" + name
}

// aliyunAssume requests a session of a role from Alibaba Cloud's STS, with a token of an issuer.
func aliyunAssume(t *testing.T, issuer, role, token string) verdict {
	t.Helper()
	form := url.Values{
		"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"}, "RoleSessionName": {"e2e"},
		"OIDCProviderArn": {aliyunProvider(issuer)}, "RoleArn": {role}, "OIDCToken": {token},
	}
	status, body := call(t, cloudClient(), http.MethodPost, "https://sts.aliyuncs.com/", "application/x-www-form-urlencoded", []byte(form.Encode()), "")
	var answer struct {
		Code, Message string
		Credentials   struct{ SecurityToken string }
	}
	must(t, "read the answer of Alibaba Cloud's STS", json.Unmarshal(body, &answer))
	_, v := judged(t, "Alibaba Cloud's STS", answer.Credentials.SecurityToken, verdict{status: status, code: answer.Code, message: answer.Message})
	return v
}

// ofDelivery gets an identity's token from `lanyard token`, and writes the files that a binding's
// Secret would contain for this target.
func ofDelivery(t *testing.T, w *issuerWorld, identity federated, audience, target string, config map[string]string) delivered {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(t.TempDir(), "token")
	if out, err := w.command(t, "token", "workloadidentity/"+identity.Name, "-n", identity.Namespace, "--audience", audience, "-o", file); err != nil {
		t.Fatalf("lanyard token: %v\n%s", err, out)
	}
	token, err := os.ReadFile(file)
	must(t, "read the token", err)
	raw, err := json.Marshal(config)
	must(t, "write the config", err)
	return rendered(t, folder, delivery.Input{
		Format: identityv1.StoreSDK, MountPath: folder, Token: auth.NewSecret(strings.TrimSpace(string(token))),
		Target: identityv1.TargetSystem{Type: target, ProviderConfig: &runtime.RawExtension{Raw: raw}},
	})
}

// rendered renders the data of a Secret into a folder.
func rendered(t *testing.T, folder string, in delivery.Input) delivered {
	t.Helper()
	content, err := delivery.Render(in)
	must(t, "render", err)
	return newDelivered(t, folder, content.Data)
}

// deliveredFiles makes each target's own client use the files that Lanyard renders for it. With
// another tenant's identity in these files, the target must refuse the client.
func deliveredFiles(t *testing.T, w *issuerWorld, a, b federated) {
	t.Helper()
	t.Run("aws", func(t *testing.T) { deliveredToAWS(t, w, a, b) })
	for _, tt := range []struct {
		name, heading, audience, target, script, scope string
		// config has tenant A's identity, and other has tenant B's.
		config, other map[string]string
		code          string // error code with which the target refuses tenant B's identity
	}{
		{
			"azure", "Azure", azureAudience, identityv1.TargetAzure, node.AzureIdentity, "https://storage.azure.com/.default",
			map[string]string{"clientID": a.application, "tenantID": local.AzureTenant},
			map[string]string{"clientID": b.application},
			"AADSTS700213",
		},
		{
			"google", "Google Cloud", "https:" + poolOf(ownIssuer), identityv1.TargetGCP, node.GoogleAuthLibrary, googleScope,
			map[string]string{"workloadIdentityProvider": strings.TrimPrefix(poolOf(ownIssuer), "//iam.googleapis.com/"), "serviceAccountEmail": a.account, "projectID": googleProject},
			map[string]string{"serviceAccountEmail": b.account},
			"PERMISSION_DENIED",
		},
		{
			"alibaba", "Alibaba Cloud", aliyunAudience, identityv1.TargetAlibaba, node.AlibabaCredentials, "",
			map[string]string{"roleARN": a.aliyunRole, "oidcProviderARN": aliyunProvider(ownIssuer)},
			map[string]string{"roleARN": b.aliyunRole},
			"AuthenticationFail.NoPermission",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := ofDelivery(t, w, a, tt.audience, tt.target, tt.config)
			d.wantPage(t, tt.heading, "", "200")
			got := d.node(t, tt.script, tt.scope)
			if life := time.Until(got.ExpiresOn); !got.OK || !got.ExpiresOn.IsZero() && life < 50*time.Minute {
				t.Errorf("%+v; want a credential", got)
			}
			other := maps.Clone(tt.config)
			maps.Copy(other, tt.other)
			if got := ofDelivery(t, w, a, tt.audience, tt.target, other).node(t, tt.script, tt.scope); got.OK || got.Code != tt.code {
				t.Errorf("as tenant B: %+v; want %s", got, tt.code)
			}
		})
	}
	t.Run("vault", func(t *testing.T) { deliveredToVault(t, w, a, b) })
	t.Run("kubernetes", func(t *testing.T) { deliveredToKubernetes(t, w, a, b) })
}

// deliveredToAWS makes the aws command use the rendered config and session keys. It makes skopeo
// use the rendered login at ECR.
func deliveredToAWS(t *testing.T, w *issuerWorld, a, b federated) {
	t.Helper()
	identity := []string{"sts", "get-caller-identity", "--query", "Arn", "--output", "text"}
	d := ofDelivery(t, w, a, stsAudience, identityv1.TargetAWS, map[string]string{"iamRoleARN": a.role, "region": local.Region})
	out, err := d.aws(t, identity...)
	if want := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.Namespace + "/"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("with the config: %q, %v; want %s…", out, err, want)
	}
	d.wantPage(t, "AWS", "", ":assumed-role/"+a.Namespace+"/")
	theft := ofDelivery(t, w, a, stsAudience, identityv1.TargetAWS, map[string]string{"iamRoleARN": b.role, "region": local.Region})
	if out, err := theft.aws(t, identity...); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("with tenant B's role: %q, %v; want AccessDenied", out, err)
	}

	out, err = d.aws(t, "sts", "assume-role-with-web-identity", "--role-arn", a.role, "--role-session-name", "keys",
		"--web-identity-token", "file://"+d.path(delivery.TokenKey), "--query", "Credentials", "--output", "json")
	must(t, "assume the role", err)
	var session struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      time.Time
	}
	must(t, "read the session", json.Unmarshal([]byte(out), &session))
	keys := rendered(t, t.TempDir(), delivery.Input{Format: identityv1.StoreAWSSessionKeys, Session: &delivery.Session{
		AccessKeyID: auth.NewSecret(session.AccessKeyID), SecretAccessKey: auth.NewSecret(session.SecretAccessKey), SessionToken: auth.NewSecret(session.SessionToken),
		ExpiresAt: session.Expiration,
	}})
	want := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.Namespace + "/keys"
	keys.wantPage(t, "AWS session keys", "", want)
	if out, err := keys.awsKeys(t, identity...); err != nil || out != want {
		t.Errorf("with the session keys: %q, %v; want %s", out, err, want)
	}
	if out, err := keys.run(t, keys.env(t, "AWS_REGION="+local.Region), "aws", identity...); err != nil || out != want {
		t.Errorf("with the variables: %q, %v; want %s", out, err, want)
	}

	repository := registryHost + "/" + a.Namespace + "/app"
	publish(t, "oci://"+repository, "1.0.0", layer(t, file("app.yaml", a.Namespace)), publisher(t))
	password, err := d.aws(t, "ecr", "get-login-password")
	must(t, "get a login", err)
	login := func(password string) delivered {
		return rendered(t, t.TempDir(), delivery.Input{Format: identityv1.StoreDockerConfigJSON, Logins: []delivery.Login{{
			Repository: repository, Credentials: &auth.RegistryCredentials{Username: "AWS", Password: auth.NewSecret(password)},
		}}})
	}
	login(password).wantPage(t, "Image pulls", repository, `"schemaVersion"`)
	if out, err := login(password).skopeo(t, repository+":1.0.0"); err != nil || !strings.Contains(out, `"schemaVersion"`) {
		t.Errorf("skopeo says of %s: %q, %v", repository, out, err)
	}
	if out, err := login(base64.StdEncoding.EncodeToString([]byte("AWS:stolen"))).skopeo(t, repository+":1.0.0"); err == nil {
		t.Errorf("skopeo pulls with a forged login: %q", out)
	}
	if out, err := login(password).skopeo(t, registryHost+"/"+b.Namespace+"/app:1.0.0"); err == nil || strings.Contains(err.Error(), password) {
		t.Errorf("skopeo pulls tenant B's image: %q, %v", out, err)
	}
}

// deliveredToVault presents the rendered login to Vault's JWT plugin, which is served at an https
// URL.
func deliveredToVault(t *testing.T, w *issuerWorld, a, b federated) {
	t.Helper()
	vault := startVault(t, ownIssuer, vaultAudience, a.subject)
	backend, err := url.Parse(vault.url)
	must(t, "parse the address", err)
	const host = "vault.delivered.example.com"
	must(t, "serve Vault's plugin", world.Cloud().Handle(host, httputil.NewSingleHostReverseProxy(backend)))
	t.Cleanup(func() { must(t, "serve no plugin", world.Cloud().Handle(host, nil)) })
	config := map[string]string{"address": "https://" + host, "mount": "jwt", "role": "app"}
	d := ofDelivery(t, w, a, vaultAudience, identityv1.TargetVault, config)
	wantVerdict(t, "Vault, of the rendered login", d.vault(t), true)
	d.wantPage(t, "Vault", "", "200")
	wantVerdict(t, "Vault, of tenant B's login", ofDelivery(t, w, b, vaultAudience, identityv1.TargetVault, config).vault(t), false)
}

// deliveredToKubernetes makes kubectl use the rendered kubeconfig at another cluster's API server.
func deliveredToKubernetes(t *testing.T, w *issuerWorld, a, b federated) {
	t.Helper()
	connection := world.Config()
	authority := connection.CAData
	if connection.CAFile != "" {
		var err error
		authority, err = os.ReadFile(connection.CAFile)
		must(t, "read the authority", err)
	}
	config := map[string]string{"server": connection.Host, "certificateAuthorityData": base64.StdEncoding.EncodeToString(authority)}
	for who, identity := range map[string]federated{"A": a, "B": b} {
		d := ofDelivery(t, w, identity, clusterAudience, identityv1.TargetKubernetes, config)
		out, err := d.kubectl(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if want := "lanyard:" + identity.subject; err != nil || out != want {
			t.Errorf("kubectl as tenant %s: %q, %v; want %s", who, out, err, want)
		}
		d.wantPage(t, "Kubernetes", "", identity.subject)
		out, err = d.kubectl(t, "get", "configmaps", "--namespace", "default", "-o", "name")
		if granted := identity.subject == a.subject; granted != (err == nil) || granted != slices.Contains(strings.Fields(out), "configmap/kube-root-ca.crt") {
			t.Errorf("kubectl reads as tenant %s: %q, %v", who, out, err)
		}
	}
}
