package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
)

// startForeign runs another project's server until the test ends. It waits until the server answers
// readyURL with 200.
func startForeign(t *testing.T, name, readyURL string, client *http.Client, env []string, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	must(t, "open a log", err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	// Use SIGTERM: SIGKILL would leave the server's worker processes behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace // after this time, the server is killed
	must(t, "start "+name, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the log of %s:\n%s", name, text)
		}
		_ = log.Close()
	})
	eventually(t, "the start of "+name, func(ctx context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v", name, err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, readyURL, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		return wantf(res.StatusCode == http.StatusOK, "HTTP %d", res.StatusCode)
	})
}

// vault is Vault's JWT plugin with one role for one subject.
type vault struct{ url string }

// startVault starts a server with Vault's JWT plugin, and gives the plugin one role for the
// subject. The plugin uses the local cloud's proxy to read the issuer's discovery document and
// keys.
func startVault(t *testing.T, issuer, audience, subject string) *vault {
	t.Helper()
	address := freeAddress(t)
	v := &vault{url: "http://" + address}
	startForeign(t, "vault-jwt", v.url+"/v1/sys/health", direct, append(world.Cloud().Env(), "HOME="+t.TempDir()), binary("vault-jwt"), address)
	v.write(t, "config", map[string]any{
		"oidc_discovery_url": issuer, "oidc_discovery_ca_pem": string(world.Cloud().CAPEM()), "bound_issuer": issuer,
	})
	v.write(t, "role/app", map[string]any{
		"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{audience}, "bound_subject": subject, "token_policies": []string{"app"},
	})
	return v
}

func (v *vault) write(t *testing.T, path string, request map[string]any) {
	t.Helper()
	if status, errors := v.post(t, path, request); status != http.StatusOK {
		t.Fatalf("configure Vault's plugin: HTTP %d %s", status, errors)
	}
}

// login logs in with a token. Source: Vault API, "JWT/OIDC auth method", "JWT login".
func (v *vault) login(t *testing.T, token string) verdict {
	t.Helper()
	status, errors := v.post(t, "login", map[string]any{"role": "app", "jwt": token})
	return verdict{status: status, message: errors}
}

func (v *vault) post(t *testing.T, path string, request map[string]any) (status int, errors string) {
	t.Helper()
	encoded, err := json.Marshal(request)
	must(t, "write a request", err)
	status, body := call(t, direct, http.MethodPost, v.url+"/v1/auth/jwt/"+path, "application/json", encoded, "")
	var answer struct{ Errors []string }
	must(t, "read the answer of Vault's plugin", json.Unmarshal(body, &answer))
	return status, strings.Join(answer.Errors, "; ")
}

// apacheModules is the folder of Apache's modules in Debian's packages.
const apacheModules = "/usr/lib/apache2/modules"

// apacheBase is the common start of Apache's configurations. Apache serves the file "ready" to
// everybody.
const apacheBase = `
ServerRoot {{.Dir}}
ServerName localhost
Listen {{.Address}}
PidFile {{.Dir}}/pid
DefaultRuntimeDir {{.Dir}}
ErrorLog {{.Dir}}/error.log
LogLevel warn auth_openidc:info
{{if .Root}}User www-data
Group www-data{{end}}
{{range .Modules}}LoadModule {{.}}_module {{$.ModuleDir}}/mod_{{.}}.so
{{end}}
DocumentRoot {{.Dir}}/files
`

// apacheConfig serves files to clients with a token of one subject.
var apacheConfig = template.Must(template.New("apache").Parse(apacheBase + `
OIDCOAuthVerifyJwksUri {{.Issuer}}/jwks
OIDCOAuthRemoteUserClaim sub
OIDCOutgoingProxy {{.Proxy}}
OIDCCABundlePath {{.Dir}}/ca.pem
<Location /private>
  AuthType oauth20
  <RequireAll>
    Require claim iss:{{.Issuer}}
    Require claim aud:{{.Audience}}
    Require claim sub:{{.Subject}}
  </RequireAll>
</Location>
`))

// startApache starts Apache with mod_auth_openidc. It returns the URL of a file that needs a token
// of the subject.
func startApache(t *testing.T, issuer, audience, subject string) (private string) {
	t.Helper()
	return "http://" + runApache(t, apacheConfig, map[string]any{"Issuer": issuer, "Audience": audience, "Subject": subject}, "auth_openidc") + "/private"
}

// runApache runs Apache with a configuration and these modules until the test ends. It returns
// Apache's address.
func runApache(t *testing.T, configuration *template.Template, values map[string]any, modules ...string) (address string) {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/apache2")
	if err == nil {
		_, err = os.Stat(filepath.Join(apacheModules, "mod_auth_openidc.so"))
	}
	if err != nil {
		t.Fatalf("Apache's server or its module mod_auth_openidc is missing: apt-get install apache2 libapache2-mod-auth-openidc: %v", err)
	}
	// If the tests run as root, Apache's workers run as another user. This user must be able to
	// read the folder.
	dir, err := os.MkdirTemp("", "lanyard-apache-") //nolint:usetesting // a test's own folder is closed to other users
	must(t, "make a folder", err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, "make a folder readable", os.Chmod(dir, 0o755))
	must(t, "make a folder", os.Mkdir(filepath.Join(dir, "files"), 0o755))
	for name, content := range map[string][]byte{"ca.pem": world.Cloud().CAPEM(), "files/private": []byte("private"), "files/ready": []byte("ready")} {
		must(t, "write a file", os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	address = freeAddress(t)
	all := map[string]any{
		"Dir": dir, "Address": address, "Root": os.Getuid() == 0, "ModuleDir": apacheModules,
		"Proxy":   strings.TrimPrefix(world.Cloud().ProxyURL(), "http://"),
		"Modules": append([]string{"mpm_event", "authn_core", "authz_core", "authz_user"}, modules...),
	}
	maps.Copy(all, values)
	var config bytes.Buffer
	must(t, "write Apache's configuration", configuration.Execute(&config, all))
	path := filepath.Join(dir, "apache.conf")
	must(t, "write Apache's configuration", os.WriteFile(path, config.Bytes(), 0o644))
	startForeign(t, "apache", "http://"+address+"/ready", direct, []string{"PATH=" + os.Getenv("PATH")}, program, "-f", path, "-DFOREGROUND")
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			t.Logf("Apache's log:\n%s", text)
		}
	})
	return address
}
