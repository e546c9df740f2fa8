package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// hang starts a server that accepts connections until the test ends, and answers nothing. For each
// accepted connection, it calls reached. It returns the server's address.
func hang(t *testing.T, network, address string, reached func()) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	must.Succeed(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close() // runs when the test ends: until then the connection hangs
			reached()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

// TestInterruptedCredential checks that Ctrl-C ends a command that waits for its credential. The
// exit status must be that of an interrupt, and no file may be left on the disk.
func TestInterruptedCredential(t *testing.T) {
	const app = "oci://registry.example.com/team/app:1.0.0"
	for source, prepare := range map[string]func(t *testing.T, reached func()) (env map[string]string, args []string){
		"GitHub": func(t *testing.T, reached func()) (map[string]string, []string) {
			t.Helper()
			server := "https://" + hang(t, "tcp", "127.0.0.1:0", reached)
			return map[string]string{
				"ACTIONS_ID_TOKEN_REQUEST_URL": server + "/idtoken?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "hunter2", "GITHUB_SERVER_URL": server,
			}, []string{"--creds=GitHubOIDCToken"}
		},
		"SpiffeJWT": func(t *testing.T, reached func()) (map[string]string, []string) {
			t.Helper()
			return map[string]string{"SPIFFE_ENDPOINT_SOCKET": "unix://" + hang(t, "unix", socketPath(t), reached)}, []string{"--creds=SpiffeJWT"}
		},
		"SpiffeCertificate": func(t *testing.T, reached func()) (map[string]string, []string) {
			t.Helper()
			return map[string]string{"SPIFFE_ENDPOINT_SOCKET": "unix://" + hang(t, "unix", socketPath(t), reached)}, []string{"--creds=SpiffeCertificate"}
		},
		"API server": func(t *testing.T, reached func()) (map[string]string, []string) {
			t.Helper()
			kubeconfig := kubeconfigOf(t, "https://"+hang(t, "tcp", "127.0.0.1:0", reached))
			return map[string]string{"KUBECONFIG": kubeconfig}, []string{"--creds=ServiceAccountToken", "--sa-name=runner"}
		},
	} {
		for name, args := range map[string][]string{
			"push":  {"push", "artifact", app, "--path=FOLDER"},
			"pull":  {"pull", "artifact", app, "--path=FOLDER/new"},
			"list":  {"list", "artifact", strings.TrimSuffix(app, ":1.0.0")},
			"tag":   {"tag", "artifact", app, "--tag=latest"},
			"diff":  {"diff", "artifact", app, "--path=FOLDER"},
			"token": {"token", "--audiences=registry.example.com"},
		} {
			if name == "token" && source == "SpiffeCertificate" {
				args = args[:1] // no --audiences: a certificate has no audience
			}
			t.Run(source+" "+name, func(t *testing.T) {
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				env, flags := prepare(t, interrupt)
				folder, temporary := t.TempDir(), t.TempDir()
				t.Setenv("TMPDIR", temporary)
				c := command{env: env}
				line := strings.Split(strings.ReplaceAll(strings.Join(append(args, flags...), "\n"), "FOLDER", folder), "\n")
				if status := c.run(ctx, line...); status != frame.Interrupted || c.err.String() != "lanyard: interrupted\n" || c.out.Len() > 0 {
					t.Errorf("status %d, prints %q, says %q", status, c.out.String(), c.err.String())
				}
				for _, place := range []string{folder, temporary} {
					if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
						t.Errorf("it leaves %v, %v", left, err)
					}
				}
			})
		}
	}
}

// socketPath returns a short path for a socket, because such a path may have at most 107 bytes.
func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "socket") //nolint:usetesting // its paths are too long
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "agent.sock")
}
