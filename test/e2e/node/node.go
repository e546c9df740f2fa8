// Package node runs programs from npm for the end-to-end tests: the clouds' unmodified official
// clients for Node, Azurite, and Node itself. The file package-lock.json lists the packages and
// their versions. dev/node-packages installs them.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Scripts that print a [Token].
const (
	// AzureIdentity uses @azure/identity with its WorkloadIdentityCredential.
	AzureIdentity = "azure-token.mjs"
	// GoogleAuthLibrary uses google-auth-library with an external_account.
	GoogleAuthLibrary = "google-token.mjs"
	// AlibabaCredentials uses @alicloud/credentials with its default chain. It needs no scope.
	AlibabaCredentials = "alibaba-token.mjs"
)

// Azurite is the script of Azurite's blob service, for [Command].
const Azurite = "node_modules/azurite/dist/src/blob/main.js"

// Token is the output of a script: it describes a token or a refusal.
type Token struct {
	// OK reports whether the client got a token.
	OK bool `json:"ok"`
	// ExpiresOn is the time when the token expires; zero if the client does not return it.
	ExpiresOn time.Time `json:"expiresOn"`
	// Code is the cloud's error code: "AADSTS70021", "invalid_grant", "PERMISSION_DENIED",
	// "EntityNotExist.Role".
	Code string `json:"code"`
	// Message is the client's error message.
	Message string `json:"message"`
}

// GetToken runs a script for a scope, with only these environment variables. It returns an error if
// the script fails. If the cloud refuses a token, the returned Token says so.
func GetToken(ctx context.Context, script, scope string, env []string) (Token, error) {
	cmd, err := Command(ctx, script, scope)
	if err != nil {
		return Token{}, err
	}
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return Token{}, fmt.Errorf("%s: %w: %s", script, err, exit.Stderr)
		}
		return Token{}, fmt.Errorf("%s: %w", script, err)
	}
	var token Token
	if err := json.Unmarshal(out, &token); err != nil {
		return Token{}, fmt.Errorf("%s printed %q: %w", script, out, err)
	}
	return token, nil
}

// folder returns the folder of this package. Tests run in a folder of the same module, so folder
// searches upwards for the module's root.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, "node"), nil
		}
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("%s is in no module", dir)
		}
	}
}

// Command returns a command that runs a script in this package's folder with Node. The command ends
// with this process. Node itself is a package from npm, so that all machines have the same version.
func Command(ctx context.Context, script string, args ...string) (*exec.Cmd, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	// Use the program in the package node-linux-*: Debian's npm does not link it in
	// node_modules/.bin.
	machine := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(dir, "node_modules", "node-linux-"+machine, "bin", "node")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("the packages of npm are missing; run dev/node-packages: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{filepath.Join(dir, script)}, args...)...) //nolint:gosec // scripts of this folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}
