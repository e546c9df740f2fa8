package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// mainVar is an environment variable that makes the test binary run as the program lanyard.
const mainVar = "LANYARD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVar) != "" {
		main()
	}
	os.Exit(m.Run())
}

// registry is a registry that accepts one token and has one tag. At each request, it records the
// command lines of all processes, which must not contain the token.
type registry struct {
	token string

	mu           sync.Mutex
	shown        bool // whether the latest request with the token used HTTP/2
	commandLines []byte
}

func (g *registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+g.token {
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+r.Host+`/token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	g.shown = r.ProtoMajor == 2
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file) // an error is ignored: the process may have ended
		g.commandLines = append(g.commandLines, line...)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(w, `{"name": "app", "tags": ["1.0.0"]}`)
}

// TestNothingSecret asserts that a credential reaches only the registry, even at the highest
// verbosity. The program's output, command lines and files must not contain it.
func TestNothingSecret(t *testing.T) {
	issuer, err := oidc.NewIssuer("https://issuer.example.com", oidc.ES256)
	must.Succeed(t, err)
	token, err := issuer.Mint(oidc.Claims{"sub": "job", "aud": "registry.example.com", "exp": time.Now().Add(time.Hour).Unix()})
	must.Succeed(t, err)
	asked := &registry{token: token}
	server := httptest.NewUnstartedServer(asked)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	home, temporary, given := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(given, name)
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	authority := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "list", "artifact", "oci://"+server.Listener.Addr().String()+"/app",
		"--token-file="+write("token", token), "--ca-file="+authority)
	cmd.Env = []string{
		mainVar + "=1", "HOME=" + home, "TMPDIR=" + temporary, "PATH=" + os.Getenv("PATH"),
		"GODEBUG=http2debug=2", "GRPC_GO_LOG_SEVERITY_LEVEL=info", "GRPC_GO_LOG_VERBOSITY_LEVEL=99",
	}
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("1.0.0")) {
		t.Fatalf("%v: %s", err, said)
	}
	asked.mu.Lock()
	defer asked.mu.Unlock()
	if !asked.shown || len(asked.commandLines) == 0 {
		t.Fatalf("the token was shown by HTTP/2: %v, and command lines were seen: %v", asked.shown, len(asked.commandLines) > 0)
	}
	signature := token[strings.LastIndex(token, ".")+1:]
	for where, text := range map[string][]byte{"what it says": said, "a command line": asked.commandLines} {
		if bytes.Contains(text, []byte(signature)) {
			t.Errorf("the token is in %s: %.2000s", where, text)
		}
	}
	for _, folder := range []string{home, temporary} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(signature)) {
				t.Errorf("the token is in %s", path)
			}
			return err
		})
		must.Succeed(t, err)
	}
}
