package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// pluginConfig writes a kubeconfig whose user's credential comes from a script. The script counts
// its starts in a file, and fails at the fifth.
func pluginConfig(t *testing.T, server, name, script string) (path, starts string) {
	t.Helper()
	folder := t.TempDir()
	path, starts = filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "starts")
	program := filepath.Join(folder, name)
	text := fmt.Sprintf("#!/bin/sh\necho >> %[1]s\n[ $(wc -l < %[1]s) -lt 5 ] || exit 1\n%[2]s\n", starts, script)
	must.Succeed(t, os.WriteFile(program, []byte(text), 0o700))
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "c", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": %q}}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "ci"}}]}`, server, program)
	must.Succeed(t, os.WriteFile(path, []byte(config), 0o600))
	return path, starts
}

// TestPluginOfItself checks kubeconfigs whose credential plugin is this command. If the plugin uses
// the same kubeconfig, the command would start itself without end. Such a kubeconfig must be
// refused, even if a wrapper starts the command. A plugin that uses another kubeconfig must be
// accepted.
func TestPluginOfItself(t *testing.T) {
	self, err := os.Executable()
	must.Succeed(t, err)
	cluster := newPodCluster(t)
	t.Setenv(mountVar, cluster.mount)
	plugin := self + " token sa/runner --audiences=" + clusterIssuer + " --format=exec-credential"
	other, _ := pluginConfig(t, cluster.url.String(), "cloud-login", fmt.Sprintf(
		`echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'`, cluster.token("runner", time.Hour, clusterIssuer)))
	for name, tt := range map[string]struct {
		script string
		starts int
		says   string // text in the error; empty if the command must succeed
	}{
		"itself":     {script: "exec " + plugin, starts: 1, says: "add --kubeconfig to the plugin's args"},
		"a wrapper":  {script: plugin + "; exit $?", starts: 1, says: "add --kubeconfig to the plugin's args"},
		"another":    {script: "exec " + plugin + " --kubeconfig=" + other, starts: 1},
		"not at all": {script: "exec " + plugin + " --creds=SpiffeJWT --kubeconfig=" + other, starts: 1, says: "name two holders"},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig, starts := pluginConfig(t, cluster.url.String(), "lanyard", tt.script)
			t.Setenv("KUBECONFIG", kubeconfig)
			out, said, err := processOutput(t, self, "token", "sa/runner", "--audiences=registry.example.com")
			if (err == nil) != (tt.says == "") || !strings.Contains(said, tt.says) || (err == nil) != strings.HasPrefix(out, "eyJ") {
				t.Errorf("%v: %s%s", err, out, said)
			}
			if lines, err := os.ReadFile(starts); err != nil || len(lines) != tt.starts {
				t.Errorf("the plugin was started %d times, %v", len(lines), err)
			}
		})
	}
}

// processOutput runs a program with this process's environment.
func processOutput(t *testing.T, program string, args ...string) (out, said string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}
