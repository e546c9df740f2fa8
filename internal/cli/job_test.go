package cli

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/cli/creds/credstest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const clusterIssuer = "https://kubernetes.default.svc.cluster.local"

// podCluster is a cluster as a Pod sees it: the API server, and the mounted files.
type podCluster struct {
	t      *testing.T
	issuer *oidc.Issuer
	url    *url.URL
	mount  string
	rights bool // the Pod's account may request tokens
}

func newPodCluster(t *testing.T) *podCluster {
	t.Helper()
	issuer, err := oidc.NewIssuer(clusterIssuer, oidc.ES256)
	must.Succeed(t, err)
	p := &podCluster{t: t, issuer: issuer, mount: t.TempDir(), rights: true}
	server := httptest.NewTLSServer(p)
	t.Cleanup(server.Close)
	if p.url, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	p.write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	p.write("namespace", "ci")
	p.write("token", p.token("runner", time.Hour, clusterIssuer))
	return p
}

func (p *podCluster) write(name, content string) {
	p.t.Helper()
	must.Succeed(p.t, os.WriteFile(filepath.Join(p.mount, name), []byte(content), 0o600))
}

func (p *podCluster) token(account string, life time.Duration, audiences ...string) string {
	token, err := p.issuer.Mint(oidc.Claims{"sub": "system:serviceaccount:ci:" + account, "aud": audiences, "exp": time.Now().Add(life).Unix()})
	if err != nil {
		p.t.Error(err)
	}
	return token
}

// ServeHTTP answers as an API server that accepts only tokens for the audience clusterIssuer.
func (p *podCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	status, answer := p.answer(r)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *podCluster) answer(r *http.Request) (int, any) {
	caller, err := oidc.Read(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if err != nil || p.issuer.CheckSignature(caller) != nil || !slices.Contains(caller.Audience, clusterIssuer) {
		return failure(http.StatusUnauthorized, "Unauthorized")
	}
	account, isToken := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/token"), "/api/v1/namespaces/ci/serviceaccounts/")
	switch {
	case r.URL.Path == "/api":
		return http.StatusOK, object{"kind": "APIVersions", "versions": []string{"v1"}}
	case r.URL.Path == "/apis":
		return http.StatusOK, object{"kind": "APIGroupList", "groups": []any{}}
	case r.URL.Path == "/api/v1":
		return http.StatusOK, object{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
			object{"name": "serviceaccounts", "singularName": "serviceaccount", "namespaced": true, "kind": "ServiceAccount", "verbs": []string{"get"}},
		}}
	case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		return http.StatusCreated, object{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1", "status": object{"userInfo": object{"username": caller.Subject}}}
	case !isToken || r.Method != http.MethodPost:
		return failure(http.StatusNotFound, "NotFound")
	case !p.rights:
		return failure(http.StatusForbidden, "Forbidden")
	}
	var request struct {
		Spec struct {
			Audiences []string `json:"audiences"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		p.t.Error(err)
	}
	return http.StatusCreated, object{"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": object{
		"token": p.token(account, time.Hour, request.Spec.Audiences...), "expirationTimestamp": time.Now().Add(time.Hour).Format(time.RFC3339),
	}}
}

// pod returns a command that runs in the Pod.
func (p *podCluster) pod() *command {
	return &command{mount: p.mount, env: map[string]string{"KUBERNETES_SERVICE_HOST": p.url.Hostname(), "KUBERNETES_SERVICE_PORT": p.url.Port()}}
}

// TestTokenInAPod asserts that a job in a Pod needs no kubeconfig and no name of an account. It
// also checks the error of each refusal.
func TestTokenInAPod(t *testing.T) {
	token := []string{"token", "--creds=ServiceAccountToken", "--audiences=registry.example.com"}
	for name, c := range map[string]struct {
		args    []string
		change  func(*podCluster, *command)
		subject string // empty if the command fails
		says    string
	}{
		"the Pod's account": {args: token, subject: "system:serviceaccount:ci:runner"},
		"another account":   {args: append(token, "--sa-name=puller"), subject: "system:serviceaccount:ci:puller"},
		"by its kind":       {args: []string{"token", "serviceaccount/puller", "--audience=registry.example.com"}, subject: "system:serviceaccount:ci:puller"},
		"the mounted token has expired": {
			args: token, change: func(p *podCluster, _ *command) { p.write("token", p.token("runner", -time.Minute, clusterIssuer)) }, says: "expired at",
		},
		"no right": {
			args: token, change: func(p *podCluster, _ *command) { p.rights = false },
			says: `the caller needs "create" on serviceaccounts/token in namespace ci`,
		},
		"nothing is mounted": {
			args: token, change: func(p *podCluster, _ *command) { p.write("namespace", ""); _ = os.RemoveAll(p.mount) }, says: "this Pod mounts no ServiceAccount",
		},
		"outside a Pod": {args: token, change: func(_ *podCluster, c *command) { c.env = nil }, says: "there is no kubeconfig"},
		"a kubeconfig": {
			args: token, change: func(p *podCluster, c *command) { c.env["KUBECONFIG"] = kubeconfigOf(t, p.url.String()) },
			says: "a kubeconfig names the cluster, which may be another one",
		},
		"a registry gets no token for the cluster": {
			args: []string{"token", "--creds=ServiceAccountToken", "--audiences=" + clusterIssuer, "--format=docker", "--registry=registry.example.com"},
			says: "opens a cluster",
		},
		"nor the mounted one": {
			args: []string{"token", "--creds=ServiceAccountToken", "--sa-token=MOUNT/token", "--format=docker", "--registry=registry.example.com"},
			says: "opens a cluster",
		},
		"a duration": {args: append(token, "--duration=10m"), says: "--duration is for identities and accounts"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPodCluster(t)
			run := p.pod()
			if c.change != nil {
				c.change(p, run)
			}
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "MOUNT", p.mount)
			}
			status := run.run(t.Context(), c.args...)
			if c.subject == "" {
				if status != 1 || !strings.Contains(run.err.String(), c.says) || run.out.Len() > 0 {
					t.Errorf("status %d, says %s", status, run.err.String())
				}
				return
			}
			got, err := oidc.Read(strings.TrimSpace(run.out.String()))
			if status != 0 || err != nil || got.Subject != c.subject || !slices.Equal(got.Audience, []string{"registry.example.com"}) {
				t.Errorf("status %d, %+v, %v: %s", status, got, err, run.err.String())
			}
		})
	}
}

// TestTokenFormats asserts that the credential of a job is printed in every format, and only on the
// standard output.
func TestTokenFormats(t *testing.T) {
	agent := credstest.NewAgent(t, "spiffe://example.org/ci/app", "https://oidc.example.org")
	for format, read := range map[string]func(out []byte) (jwt string, err error){
		"raw": func(out []byte) (string, error) { return strings.TrimSpace(string(out)), nil },
		"env": func(out []byte) (string, error) {
			first, _, _ := strings.Cut(string(out), "\n")
			return strings.TrimPrefix(first, "LANYARD_TOKEN="), nil
		},
		"docker": func(out []byte) (string, error) {
			var config struct {
				Auths map[string]struct{ Auth []byte }
			}
			err := json.Unmarshal(out, &config)
			_, password, _ := strings.Cut(string(config.Auths["registry.example.com"].Auth), ":")
			return password, err
		},
		"exec-credential": func(out []byte) (string, error) {
			var credential struct {
				Status struct{ Token, ExpirationTimestamp string }
			}
			return credential.Status.Token, json.Unmarshal(out, &credential)
		},
		"json": func(out []byte) (string, error) {
			var answer struct{ Token string }
			return answer.Token, json.Unmarshal(out, &answer)
		},
	} {
		c := command{env: map[string]string{"SPIFFE_ENDPOINT_SOCKET": agent.Address()}}
		args := []string{"token", "--creds=SpiffeJWT", "--audiences=registry.example.com", "--format=" + format}
		if format == "docker" {
			args = append(args, "--registry=registry.example.com")
		}
		status := c.run(t.Context(), args...)
		jwt, err := read(c.out.Bytes())
		got, unread := oidc.Read(jwt)
		if status != 0 || err != nil || unread != nil || got.Subject != agent.ID.String() || c.err.Len() > 0 {
			t.Errorf("%s: status %d, %v, %v: %s%s", format, status, err, unread, c.out.String(), c.err.String())
		}
	}
	c := command{env: map[string]string{"SPIFFE_ENDPOINT_SOCKET": agent.Address()}}
	if status := c.run(t.Context(), "token", "--creds=SpiffeCertificate", "--format=exec-credential"); status != 0 {
		t.Fatal(c.err.String())
	}
	var credential struct {
		Status struct{ ClientCertificateData, ClientKeyData string }
	}
	if err := json.Unmarshal(c.out.Bytes(), &credential); err != nil || !strings.HasPrefix(credential.Status.ClientCertificateData, "-----BEGIN CERTIFICATE") ||
		!strings.HasPrefix(credential.Status.ClientKeyData, "-----BEGIN PRIVATE KEY") {
		t.Errorf("%+v, %v", credential, err)
	}
}

// TestCredentialHelper asserts that the program speaks Docker's protocol if it is called by the
// helper's name. Errors are on the standard output, where the protocol's clients read them.
func TestCredentialHelper(t *testing.T) {
	home := t.TempDir()
	folder := filepath.Join(home, ".config", "lanyard")
	must.Succeed(t, os.MkdirAll(folder, 0o700))
	config := `registries: {registry.example.com: {creds: ServiceAccountToken, audiences: [registry.example.com]}}`
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "credentials.yaml"), []byte(config), 0o600))
	for name, c := range map[string]struct {
		action, in string
		status     int
		out        string // part of the output
	}{
		"get":       {"get", "registry.example.com", 0, `"ServerURL":"registry.example.com","Username":"token"`},
		"unknown":   {"get", "evil.example", 1, "credentials not found in native keychain\n"},
		"list":      {"list", "", 0, `{"registry.example.com":"token"}`},
		"erase":     {"erase", "registry.example.com", 1, "stores nothing"},
		"no server": {"get", "", 1, "no credentials server URL"},
		"no action": {"drop", "", 2, ""},
	} {
		run := newPodCluster(t).pod()
		run.program, run.home, run.in = "/usr/local/bin/docker-credential-lanyard", home, c.in
		if status := run.run(t.Context(), c.action); status != c.status || !strings.Contains(run.out.String(), c.out) {
			t.Errorf("%s: status %d: %s%s", name, status, run.out.String(), run.err.String())
		}
		if c.status < 2 && run.err.Len() > 0 {
			t.Errorf("%s: Docker would show %q", name, run.err.String())
		}
	}
}
