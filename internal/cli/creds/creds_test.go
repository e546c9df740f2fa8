package creds_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/creds/credstest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	host       = "registry.example.com"
	repository = "oci://registry.example.com/team/app"
	issuerURL  = "https://issuer.example.com"
)

// world is the environment of a job: its variables, cluster and network, and a token issuer.
type world struct {
	env       map[string]string
	cluster   cluster
	transport http.RoundTripper
	issuer    *oidc.Issuer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	issuer, err := oidc.NewIssuer(issuerURL, oidc.ES256)
	must.Succeed(t, err)
	return &world{env: map[string]string{}, issuer: issuer, cluster: cluster{issuer: issuer}}
}

func (w *world) process() creds.Process {
	return creds.Process{
		Env: func(name string) string { return w.env[name] }, NewCluster: func() creds.Cluster { return &w.cluster }, Transport: w.transport,
	}
}

// flags parses a command line.
func (w *world) flags(t *testing.T, args ...string) (*creds.Flags, error) {
	t.Helper()
	f := creds.New(w.process())
	c := &cobra.Command{Use: "push"}
	f.AddTo(c)
	must.Succeed(t, c.ParseFlags(args))
	return f, f.Check()
}

// login logs in to the tests' registry for one repository.
func (w *world) login(t *testing.T, args ...string) (*creds.Login, error) {
	t.Helper()
	f, err := w.flags(t, args...)
	must.Succeed(t, err)
	repo, err := oci.ParseURL(repository)
	must.Succeed(t, err)
	return f.Login(t.Context(), repo)
}

// mint returns a token of the world's issuer.
func (w *world) mint(t *testing.T, claims oidc.Claims) string {
	t.Helper()
	if claims["sub"] == nil {
		claims["sub"] = "system:serviceaccount:ci:runner"
	}
	token, err := w.issuer.Mint(claims)
	must.Succeed(t, err)
	return token
}

// file writes a temporary file of the test, and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// cluster implements creds.Cluster. It issues tokens. Like an API server, it accepts only the
// tokens for one audience.
type cluster struct {
	issuer  *oidc.Issuer
	self    string // NAMESPACE/NAME; empty outside a Pod
	user    string // user name in an annotation of the ServiceAccount
	asked   []string
	accepts string // the audience of the tokens that the API server accepts
	down    error
}

func (c *cluster) AddTo(*cobra.Command) {}

func (c *cluster) Self(context.Context) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(c.self, "/")
	if !ok {
		return "", "", errors.New("this is no Pod")
	}
	return namespace, name, nil
}

func (c *cluster) ServiceAccountToken(_ context.Context, namespace, name string, audiences []string) (creds.Credential, error) {
	c.asked = append(c.asked, namespace+"/"+name)
	token, err := c.issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:" + namespace + ":" + name, "aud": audiences})
	return creds.Credential{User: c.user, Secret: auth.NewSecret(token)}, err
}

func (c *cluster) WorkloadIdentityToken(_ context.Context, name string, audiences []string) (creds.Credential, error) {
	token, err := c.issuer.Mint(oidc.Claims{"sub": "lanyard.dev:workloadidentity:" + name, "aud": audiences})
	return creds.Credential{Secret: auth.NewSecret(token)}, err
}

func (c *cluster) Accepts(_ context.Context, token auth.Secret) (bool, error) {
	read, err := oidc.Read(token.Reveal())
	if err != nil {
		return false, err
	}
	return slices.Contains(read.Audience, c.accepts), c.down
}

// shown returns the credential that a login sends to a registry, and the token's claims.
func shown(t *testing.T, login *creds.Login) (*authn.AuthConfig, oidc.Token) {
	t.Helper()
	config, err := authn.Authorization(t.Context(), login.Auth)
	must.Succeed(t, err)
	token, err := oidc.Read(config.RegistryToken)
	must.Succeed(t, err)
	return config, token
}

// TestCheck checks which flags may be set together, and the errors for other combinations.
func TestCheck(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--creds=ServiceAccountToken --audiences=a,b --sa-name=x --sa-namespace=y": "",
		"--creds=ServiceAccountToken --sa-token=/f":                                "",
		"--creds=SpiffeJWT --audiences=a,b":                                        "",
		"--creds=SpiffeCertificate":                                                "",
		"--creds=GitHubOIDCToken --audiences=a":                                    "",
		"--creds=GitLabOIDCToken --token-env=X":                                    "",
		"--creds=WorkloadIdentityToken --workload-identity=app":                    "",
		"--creds=aws":                                            "",
		"--token-file=/f --audiences=a":                          "",
		"--creds=serviceaccounttoken":                            `--creds: there is no credential "serviceaccounttoken"; write one of ServiceAccountToken,`,
		"--audiences=a":                                          "--audiences does not go with the Docker configuration; it is for ServiceAccountToken, WorkloadIdentityToken,",
		"--sa-name=x":                                            "--sa-name does not go with the Docker configuration; it is for ServiceAccountToken",
		"--creds=SpiffeCertificate --audiences=a":                "--audiences does not go with --creds=SpiffeCertificate",
		"--creds=aws --audiences=a":                              "--audiences does not go with --creds=aws",
		"--creds=SpiffeJWT --sa-name=x":                          "--sa-name does not go with --creds=SpiffeJWT",
		"--creds=ServiceAccountToken --sa-token=/f --sa-name=x":  "--sa-token and --sa-name exclude each other",
		"--creds=ServiceAccountToken --token-file=/f":            "--token-file stands in place of --creds",
		"--token-file=/f --sa-name=x":                            "--sa-name does not go with --token-file",
		"--creds=WorkloadIdentityToken":                          "needs --workload-identity",
		"--creds=GitHubOIDCToken --audiences=a,b":                "a token of GitHub has one audience",
		"--creds=GitHubOIDCToken --token-env=X":                  "--token-env does not go with --creds=GitHubOIDCToken; it is for GitLabOIDCToken",
		"--creds=ServiceAccountToken --workload-identity=app":    "--workload-identity does not go with",
		"--creds=ServiceAccountToken --sa-token=/f --audiences=": "",
	} {
		_, err := newWorld(t).flags(t, strings.Fields(args)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestServiceAccountToken asserts for which ServiceAccount and audiences a token is requested, and
// which requests are refused.
func TestServiceAccountToken(t *testing.T) {
	const kind = "--creds=ServiceAccountToken"
	for name, c := range map[string]struct {
		args     []string
		self     string // the Pod's account
		user     string // user name in an annotation of the ServiceAccount
		accepts  string // the audience of the tokens that the API server accepts
		down     error
		subject  string
		audience []string // default: the artifact's URL
		says     string   // text in the error of a refusal
	}{
		"an account":            {args: []string{"--sa-name=puller", "--sa-namespace=ci"}, subject: "ci:puller"},
		"the default namespace": {args: []string{"--sa-name=puller"}, subject: ":puller"},
		"the Pod's account":     {self: "ci/runner", subject: "ci:runner"},
		"the Pod's account, its namespace named": {
			args: []string{"--sa-namespace=ci"}, self: "ci/runner", subject: "ci:runner",
		},
		"audiences": {
			args: []string{"--sa-name=puller", "--audiences=aud1,aud2"}, subject: ":puller", audience: []string{"aud1", "aud2"},
		},
		"a user": {args: []string{"--sa-name=puller"}, user: "robot", subject: ":puller"},

		"no account":        {says: "--sa-name names no ServiceAccount"},
		"another namespace": {args: []string{"--sa-namespace=other"}, self: "ci/runner", says: "--sa-namespace needs --sa-name"},
		"an audience of a cloud": {
			args: []string{"--sa-name=puller", "--audiences=sts.amazonaws.com"}, says: "would be valid at AWS STS",
		},
		"an audience of the cluster": {
			args: []string{"--sa-name=puller", "--audiences=https://kubernetes.default.svc.cluster.local"}, says: "opens a cluster",
		},
		"the cluster's issuer":               {args: []string{"--sa-name=puller", "--audiences=" + issuerURL}, says: "opens a cluster"},
		"an audience that the cluster takes": {args: []string{"--sa-name=puller", "--audiences=api"}, accepts: "api", says: "opens a cluster"},
		"the cluster cannot be asked":        {args: []string{"--sa-name=puller"}, down: errors.New("the cluster is down"), says: "the cluster is down"},
		"an empty audience":                  {args: []string{"--sa-name=puller", "--audiences=a,,b"}, says: "audience must have only printable"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster.self, w.cluster.user, w.cluster.accepts, w.cluster.down = c.self, c.user, c.accepts, c.down
			login, err := w.login(t, append([]string{kind}, c.args...)...)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
				return
			}
			must.Succeed(t, err)
			config, token := shown(t, login)
			want := c.audience
			if want == nil {
				want = []string{repository}
			}
			if token.Subject != "system:serviceaccount:"+c.subject || !slices.Equal(token.Audience, want) || !login.ShortLived {
				t.Errorf("token of %s for %q", token.Subject, token.Audience)
			}
			if want := cmp.Or(c.user, "token"); config.Username != want {
				t.Errorf("user %q, want %q", config.Username, want)
			}
		})
	}
}

// TestFiles checks which tokens in files, and in GitLab's variable, may be sent to a registry.
func TestFiles(t *testing.T) {
	w := newWorld(t)
	hour := time.Now().Add(time.Hour).Unix()
	expired := w.mint(t, oidc.Claims{"aud": host, "exp": time.Now().Add(-time.Minute).Unix()})
	unsigned, err := w.issuer.MintUnsigned(oidc.Claims{"aud": host})
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		token     string
		audiences string
		says      string // text in the error of a refusal
	}{
		"for the registry":     {token: w.mint(t, oidc.Claims{"aud": host, "exp": hour})},
		"for the artifact":     {token: w.mint(t, oidc.Claims{"aud": []string{repository}})},
		"as named":             {token: w.mint(t, oidc.Claims{"aud": []string{"a", "b"}}), audiences: "a,b,c"},
		"with white space":     {token: "\n" + w.mint(t, oidc.Claims{"aud": host}) + "\r\n"},
		"not as named":         {token: w.mint(t, oidc.Claims{"aud": []string{"a", "other"}}), audiences: "a,b", says: `is for audience "other", which --audiences does not name`},
		"expired":              {token: expired, says: "expired at "},
		"without an end":       {token: w.mint(t, oidc.Claims{"aud": host, "exp": nil}), says: "never expires"},
		"for nobody":           {token: w.mint(t, oidc.Claims{"aud": nil}), says: "names no audience"},
		"for the cluster":      {token: w.mint(t, oidc.Claims{"aud": []string{"https://kubernetes.default.svc", "k3s"}}), says: "opens a cluster"},
		"for its own issuer":   {token: w.mint(t, oidc.Claims{"aud": issuerURL + "/"}), says: "opens a cluster"},
		"for AKS":              {token: w.mint(t, oidc.Claims{"aud": "https://x.hcp.westeurope.azmk8s.io:443"}), says: "opens a cluster"},
		"for a cloud":          {token: w.mint(t, oidc.Claims{"aud": "api://AzureADTokenExchange"}), says: "Microsoft Entra"},
		"for a cloud as named": {token: w.mint(t, oidc.Claims{"aud": "sts.amazonaws.com"}), audiences: "sts.amazonaws.com", says: "AWS STS"},
		"unsigned":             {token: unsigned, says: "is not a signed JWT"},
		"no JWT":               {token: "hunter2", says: "is not a signed JWT"},
		"empty":                {token: " ", says: ""},
		"too long":             {token: strings.Repeat("hunter2", 10_000), says: "longer than a token"},
	} {
		for source, args := range map[string][]string{
			"--sa-token":   {"--creds=ServiceAccountToken", "--sa-token=" + file(t, c.token)},
			"--token-file": {"--token-file=" + file(t, c.token)},
			"GitLab":       {"--creds=GitLabOIDCToken"},
			"--token-env":  {"--creds=GitLabOIDCToken", "--token-env=REGISTRY_TOKEN"},
		} {
			isFile := strings.HasPrefix(source, "--sa") || source == "--token-file"
			if !isFile && (name == "too long" || name == "with white space") {
				continue // GitLab's variable is never too long, and has no white space
			}
			t.Run(source+" "+name, func(t *testing.T) {
				w.env = map[string]string{"LANYARD_ID_TOKEN": c.token}
				if source == "--token-env" {
					w.env = map[string]string{"REGISTRY_TOKEN": c.token}
				}
				if c.audiences != "" {
					args = append(args, "--audiences="+c.audiences)
				}
				login, err := w.login(t, args...)
				if (err != nil) != (c.says != "" || name == "empty") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Fatalf("%v, want %q", err, c.says)
				}
				if err != nil {
					if strings.Contains(err.Error(), strings.TrimSpace(c.token)) && name != "empty" || strings.Contains(err.Error(), "hunter2") {
						t.Errorf("the error shows the token: %v", err)
					}
					return
				}
				if config, _ := shown(t, login); config.RegistryToken != strings.TrimSpace(c.token) {
					t.Error("another token is shown")
				}
			})
		}
	}
	t.Run("no variable", func(t *testing.T) {
		w.env = nil
		if _, err := w.login(t, "--creds=GitLabOIDCToken"); err == nil || !strings.Contains(err.Error(), "LANYARD_ID_TOKEN is empty; give the job an id_tokens entry") {
			t.Error(err)
		}
	})
	t.Run("no file", func(t *testing.T) {
		if _, err := w.login(t, "--token-file=/nonexistent/token"); err == nil || !strings.Contains(err.Error(), "--token-file: open /nonexistent/token") {
			t.Error(err)
		}
	})
}

// TestReadAccount asserts that the ServiceAccount is read from a mounted token, unless the token
// has expired.
func TestReadAccount(t *testing.T) {
	w := newWorld(t)
	for subject, want := range map[string]string{
		"system:serviceaccount:ci:runner": "ci/runner",
		"system:serviceaccount:ci":        "", "system:node:a": "", "system:serviceaccount:ci:a:b": "", "system:serviceaccount:CI:a": "",
	} {
		namespace, name, err := creds.ReadAccount(file(t, w.mint(t, oidc.Claims{"sub": subject, "aud": "https://kubernetes.default.svc"})))
		if (err == nil) != (want != "") || err == nil && namespace+"/"+name != want {
			t.Errorf("%s: %s/%s, %v", subject, namespace, name, err)
		}
	}
	expired := file(t, w.mint(t, oidc.Claims{"sub": "system:serviceaccount:ci:runner", "exp": time.Now().Add(-time.Second).Unix()}))
	if _, _, err := creds.ReadAccount(expired); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Error(err)
	}
}

// TestWorkloadIdentityToken asserts that the audience of the identity's token is the artifact's
// URL.
func TestWorkloadIdentityToken(t *testing.T) {
	login, err := newWorld(t).login(t, "--creds=WorkloadIdentityToken", "--workload-identity=app")
	must.Succeed(t, err)
	if _, token := shown(t, login); token.Subject != "lanyard.dev:workloadidentity:app" || !slices.Equal(token.Audience, []string{repository}) {
		t.Errorf("token of %s for %q", token.Subject, token.Audience)
	}
}

// gitHub starts GitHub's endpoint for tokens, and sets w up as a job of GitHub Actions.
func (w *world) gitHub(t *testing.T) *credstest.GitHub {
	t.Helper()
	gitHub := credstest.NewGitHub(t, "https://token.actions.githubusercontent.com")
	server := httptest.NewTLSServer(gitHub)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	w.transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, // the host name in the certificate of httptest
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	w.env = map[string]string{
		"ACTIONS_ID_TOKEN_REQUEST_URL":   "https://run-actions-1-azure-eastus.actions.githubusercontent.com" + credstest.GitHubPath,
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN": gitHub.RequestToken,
		"GITHUB_SERVER_URL":              "https://github.com",
	}
	return gitHub
}

func TestGitHubOIDCToken(t *testing.T) {
	const kind = "--creds=GitHubOIDCToken"
	w := newWorld(t)
	gitHub := w.gitHub(t)
	for _, c := range []struct{ args, audience string }{{"", repository}, {"--audiences=" + host, host}, {"--audiences=https://a.example/?x=1&audience=b", "https://a.example/?x=1&audience=b"}} {
		login, err := w.login(t, append([]string{kind}, strings.Fields(c.args)...)...)
		must.Succeed(t, err)
		if _, token := shown(t, login); token.Subject != credstest.GitHubSubject || !slices.Equal(token.Audience, []string{c.audience}) {
			t.Errorf("token of %s for %q", token.Subject, token.Audience)
		}
	}

	for name, c := range map[string]struct {
		statuses []int
		tries    int
		says     string // empty for success
	}{
		"the third try":    {[]int{503, 500}, 3, ""},
		"three faults":     {[]int{503, 502, 500, 500}, 3, "HTTP status 500"},
		"not accepted":     {[]int{401}, 1, "the job's own token is not accepted"},
		"a redirect":       {[]int{302}, 1, "HTTP status 302"},
		"too many":         {[]int{429}, 1, "HTTP status 429"},
		"there is nothing": {[]int{404}, 1, "HTTP status 404"},
	} {
		t.Run(name, func(t *testing.T) {
			before := gitHub.Asked()
			gitHub.Fail(c.statuses...)
			defer gitHub.Fail()
			_, err := w.login(t, kind)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if tries := gitHub.Asked() - before; tries != c.tries {
				t.Errorf("%d tries, want %d", tries, c.tries)
			}
			if err != nil && strings.Contains(err.Error(), gitHub.RequestToken) {
				t.Errorf("the error shows the request's token: %v", err)
			}
		})
	}
}

// TestWhereGitHubsTokenGoes asserts that only GitHub gets the job's request token. With the URL of
// another host, no request is sent.
func TestWhereGitHubsTokenGoes(t *testing.T) {
	for name, c := range map[string]struct {
		url, server string
		says        string // empty for success
	}{
		"github.com":                {url: "https://pipelines.actions.githubusercontent.com" + credstest.GitHubPath, server: "https://github.com"},
		"upper case":                {url: "https://PIPELINES.actions.GitHubUserContent.com" + credstest.GitHubPath},
		"GitHub Enterprise Server":  {url: "https://git.corp.example:8443" + credstest.GitHubPath, server: "https://git.corp.example:8443"},
		"data residency":            {url: "https://run-1.actions.octocorp.ghe.com" + credstest.GitHubPath, server: "https://octocorp.ghe.com"},
		"without TLS":               {url: "http://pipelines.actions.githubusercontent.com" + credstest.GitHubPath, says: "does not begin with https://"},
		"elsewhere":                 {url: "https://evil.example" + credstest.GitHubPath, server: "https://github.com", says: `leads to "evil.example"`},
		"a look-alike":              {url: "https://actions.githubusercontent.com.evil.example/" + credstest.GitHubPath, says: "leads to"},
		"a look-alike's beginning":  {url: "https://evilactions.githubusercontent.com" + credstest.GitHubPath, says: "leads to"},
		"another letter":            {url: "https://x.actions.gİthubusercontent.com" + credstest.GitHubPath, says: "leads to"},
		"another letter, encoded":   {url: "https://x.actions.g%C4%B0thubusercontent.com" + credstest.GitHubPath, says: "leads to"},
		"another port of a server":  {url: "https://git.corp.example:9000" + credstest.GitHubPath, server: "https://git.corp.example", says: "leads to"},
		"below a server":            {url: "https://x.actions.git.corp.example" + credstest.GitHubPath, server: "https://git.corp.example", says: "leads to"},
		"a server without TLS":      {url: "https://git.corp.example" + credstest.GitHubPath, server: "http://git.corp.example", says: "leads to"},
		"user information":          {url: "https://hunter2@pipelines.actions.githubusercontent.com/", says: "has user information"},
		"no URL":                    {url: "https://%zz", says: "is not a URL"},
		"a pull request of a fork":  {url: "", says: "permissions: id-token: write"},
		"a host in user's clothing": {url: "https://x.actions.githubusercontent.com:hunter2@evil.example/", says: "has user information"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gitHub := w.gitHub(t)
			w.env["ACTIONS_ID_TOKEN_REQUEST_URL"], w.env["GITHUB_SERVER_URL"] = c.url, c.server
			_, err := w.login(t, "--creds=GitHubOIDCToken")
			if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if c.says != "" && gitHub.Asked() > 0 {
				t.Error("a request was sent")
			}
		})
	}
}

// TestSpiffeJWT asserts the subject and the audiences of the JWT-SVID that a registry gets. The
// JWT-SVID is fetched again before it ends.
func TestSpiffeJWT(t *testing.T) {
	const id = "spiffe://example.org/ci/app"
	w := newWorld(t)
	agent := credstest.NewAgent(t, id, "https://oidc.example.org")
	w.env["SPIFFE_ENDPOINT_SOCKET"] = agent.Address()
	login, err := w.login(t, "--creds=SpiffeJWT", "--audiences=aud1,aud2")
	must.Succeed(t, err)
	if _, token := shown(t, login); token.Subject != id || !slices.Equal(token.Audience, []string{"aud1", "aud2"}) {
		t.Errorf("token of %s for %q", token.Subject, token.Audience)
	}
	if n := agent.Issued(); n != 1 {
		t.Errorf("%d were issued", n)
	}
	agent.SetLife(3 * time.Second)
	short, err := w.login(t, "--creds=SpiffeJWT")
	must.Succeed(t, err)
	first, _ := shown(t, short)
	timer := time.NewTimer(2500 * time.Millisecond) // the JWT-SVID lives for 3 seconds
	<-timer.C
	if second, _ := shown(t, short); second.RegistryToken == first.RegistryToken {
		t.Error("the JWT-SVID is not fetched again before it ends")
	}
}

// TestSpiffeCertificate asserts that a TLS connection presents the newest X.509-SVID.
func TestSpiffeCertificate(t *testing.T) {
	w := newWorld(t)
	agent := credstest.NewAgent(t, "spiffe://example.org/ci/app", "https://oidc.example.org")
	w.env["SPIFFE_ENDPOINT_SOCKET"] = agent.Address()
	login, err := w.login(t, "--creds=SpiffeCertificate")
	must.Succeed(t, err)
	defer login.Close()
	if login.Auth != nil || !login.ShortLived {
		t.Errorf("%+v", login)
	}
	leaf := func() *x509.Certificate {
		t.Helper()
		shown, err := login.Certificate(nil)
		must.Succeed(t, err)
		c, err := x509.ParseCertificate(shown.Certificate[0])
		if err != nil || c.URIs[0].String() != agent.ID.String() {
			t.Fatal(c.URIs, err)
		}
		return c
	}
	first := leaf()
	agent.Rotate()
	for ends := time.Now().Add(10 * time.Second); leaf().Equal(first); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(ends) {
			t.Fatal("the certificate is not replaced")
		}
	}
	login.Close()
	if _, err := login.Certificate(nil); err == nil {
		t.Error("a closed login still shows a certificate")
	}
}

// TestSpiffeRefusals checks the errors about an agent that gives no SVID.
func TestSpiffeRefusals(t *testing.T) {
	silent := filepath.Join(os.TempDir(), fmt.Sprintf("silent-%d.sock", os.Getpid()))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", silent)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	for name, c := range map[string]struct {
		agent   func(*credstest.Agent)
		address string
		says    string
		slow    bool
	}{
		"no variable":       {says: "SPIFFE_ENDPOINT_SOCKET is not set; name the socket"},
		"no address":        {address: "/run/agent.sock", says: "SPIFFE_ENDPOINT_SOCKET: "},
		"another machine":   {address: "tcp://192.0.2.1:8081", says: "must be on this machine"},
		"no socket":         {address: "unix:///nonexistent/agent.sock", says: "cannot be reached"},
		"no identity":       {agent: (*credstest.Agent).Deny, says: "knows no identity for this process; register the workload"},
		"a call that hangs": {agent: (*credstest.Agent).Hang, says: "did not answer within 10s", slow: true},
		"a socket that hangs": {
			address: "unix://" + silent, says: "did not answer within 10s", slow: true,
		},
	} {
		for _, kind := range []string{"SpiffeJWT", "SpiffeCertificate"} {
			if c.slow && (kind == "SpiffeJWT") == (c.agent == nil) {
				continue // test a slow case with one kind only: both kinds have the same deadline
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.env["SPIFFE_ENDPOINT_SOCKET"] = c.address
				if c.agent != nil {
					agent := credstest.NewAgent(t, "spiffe://example.org/ci/app", "https://oidc.example.org")
					w.env["SPIFFE_ENDPOINT_SOCKET"] = agent.Address()
					c.agent(agent)
				}
				began := time.Now()
				_, err := w.login(t, "--creds="+kind)
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
				if took := time.Since(began); took > 15*time.Second || !c.slow && took > 5*time.Second {
					t.Errorf("took %s", took)
				}
			})
		}
	}
}

// TestClouds asserts that the identity of this machine goes only to the registries of its cloud.
func TestClouds(t *testing.T) {
	for _, kind := range []string{"aws", "azure", "gcp"} {
		_, err := newWorld(t).login(t, "--creds="+kind)
		if err == nil || !strings.Contains(err.Error(), "this machine's identity does not go there") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestNoIdentityOfACloud checks the error for a job that has no cloud identity. The error must say
// how to fix the job, not the controller.
func TestNoIdentityOfACloud(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	f, err := newWorld(t).flags(t, "--creds=aws")
	must.Succeed(t, err)
	_, err = f.Issue(t.Context(), creds.Receiver{Image: "123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"})
	if err == nil || !strings.Contains(err.Error(), "--creds=aws: ") || !strings.Contains(err.Error(), "AWS_ROLE_ARN") || strings.Contains(err.Error(), "controller") {
		t.Error(err)
	}
}

// TestDockerConfiguration asserts that, if --creds is absent, the Docker configuration is used.
func TestDockerConfiguration(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("HOME", folder)
	t.Setenv("DOCKER_CONFIG", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("REGISTRY_AUTH_FILE", "")
	login, err := newWorld(t).login(t)
	if err != nil || login.Auth != nil || login.ShortLived {
		t.Fatalf("%+v, %v", login, err)
	}
	must.Succeed(t, os.Mkdir(filepath.Join(folder, ".docker"), 0o700))
	config := `{"auths":{"registry.example.com":{"auth":"YTpodW50ZXIy"},"other.example.com":{"auth":"Yjpi"}}}`
	must.Succeed(t, os.WriteFile(filepath.Join(folder, ".docker", "config.json"), []byte(config), 0o600))
	login, err = newWorld(t).login(t)
	if err != nil || login.ShortLived {
		t.Fatalf("%+v, %v", login, err)
	}
	if found, err := authn.Authorization(t.Context(), login.Auth); err != nil || found.Username != "a" || found.Password != "hunter2" {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestRenewal asserts that a token is requested again in the last fifth of its life, and not
// before.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		login, err := w.login(t, "--creds=ServiceAccountToken", "--sa-name=puller")
		must.Succeed(t, err)
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {47 * time.Minute, 1}, {2 * time.Minute, 2}} { // the token lives for an hour
			time.Sleep(step.after)
			shown(t, login)
			if n := len(w.cluster.asked); n != step.want {
				t.Errorf("%s later: %d requests, want %d", step.after, n, step.want)
			}
		}
	})
}
