package cli

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // the registry's storage
	"github.com/sirupsen/logrus"

	"github.com/lanyard-dev/lanyard/internal/cli/creds/credstest"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// mountVar is the environment variable with the folder that is mounted into a Pod. If mountVar is
// set, the test binary runs as the program lanyard in the Pod.
const mountVar = "LANYARD_TEST_MOUNT"

// tunnel starts a proxy that connects to one server, whatever host a client asks for.
func tunnel(t *testing.T, to string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		server, err := new(net.Dialer).DialContext(r.Context(), "tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer server.Close()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		_, _ = io.Copy(client, server)
		_ = client.Close()
		both.Wait()
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// digestPattern finds the digest in an example. No artifact has this digest, so the test replaces
// it.
var digestPattern = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// runExample runs a script in a folder. It returns the script's standard output, and all that the
// script printed. On a busy machine, a TLS handshake may exceed its limit of ten seconds. Then
// runExample runs the script again, up to three times in all.
func runExample(ctx context.Context, script, folder string, env []string) (out []byte, printed string, err error) {
	for range 3 {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", script)
		cmd.Dir, cmd.Env = folder, env
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err = cmd.Output()
		// Errors may be on either stream: a credential helper writes its errors to standard output,
		// as Docker wants.
		printed = string(out) + stderr.String()
		if err == nil || !strings.Contains(printed, "no answer in time") {
			break
		}
	}
	return out, printed, err
}

// TestExamples runs the examples from the help of the commands that CI jobs use. The examples run
// in a shell, against a real registry. The shell has all identities that the examples use. The
// digest in an example is replaced by the digest of the pushed artifact.
func TestExamples(t *testing.T) {
	const github = "github.example.com"
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret, config.HTTP.RelativeURLs = "for one test", true
	config.Log.Level, config.Log.AccessLog.Disabled = "panic", true
	registry, gitHub := handlers.NewApp(t.Context(), config), credstest.NewGitHub(t, "https://token.actions.githubusercontent.com")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == github {
			gitHub.ServeHTTP(w, r)
			return
		}
		registry.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cluster := newPodCluster(t)
	self, err := os.Executable()
	must.Succeed(t, err)
	folder := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(folder, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o700))
	}
	write("bin/lanyard", "#!/bin/sh\nexec "+self+` "$@"`)
	write("deploy/app.yaml", "kind: ConfigMap\n")
	write(".local/bin/other", "")
	write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	env := []string{
		mountVar + "=" + cluster.mount, "PATH=" + filepath.Join(folder, "bin") + ":" + os.Getenv("PATH"), "HOME=" + folder, "TMPDIR=" + t.TempDir(),
		"HTTPS_PROXY=" + tunnel(t, server.Listener.Addr().String()), "NO_PROXY=127.0.0.1", "SSL_CERT_FILE=" + filepath.Join(folder, "ca.pem"),
		"ACTIONS_ID_TOKEN_REQUEST_URL=https://" + github + credstest.GitHubPath, "ACTIONS_ID_TOKEN_REQUEST_TOKEN=" + gitHub.RequestToken,
		"GITHUB_SERVER_URL=https://" + github,
	}
	for name, value := range cluster.pod().env {
		env = append(env, name+"="+value)
	}
	digest := ""
	for _, name := range []string{"push", "tag", "list", "diff", "pull", "token", "credential-helper", "version"} {
		found, _, err := newRoot(IO{IO: frame.IO{Kinds: kinds.All()}}).Find([]string{name})
		must.Succeed(t, err)
		for example := range strings.SplitSeq(found.Example, "\n\n") {
			if name == "token" && !strings.Contains(example, "--creds=") {
				continue // the example needs Lanyard's issuer, which this test does not have
			}
			script := digestPattern.ReplaceAllString(example, digest)
			out, printed, err := runExample(t.Context(), script, folder, env)
			if err != nil {
				t.Fatalf("%s\n%v: %s", script, err, printed)
			}
			if name == "push" && digest == "" {
				digest = digestPattern.FindString(string(out))
			}
		}
	}
	if gitHub.Asked() != 3 { // one for each of the commands push, token and credential-helper
		t.Errorf("GitHub was asked %d times, want 3", gitHub.Asked())
	}
}
