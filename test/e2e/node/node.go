// Package node runs what the end-to-end tests take from npm: the clouds' official clients for Node,
// which know nothing of this project, Azurite, and Node itself. The packages and their versions are
// those of package-lock.json; dev/node-packages installs them.
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
	// AzureIdentity is @azure/identity with its WorkloadIdentityCredential.
	AzureIdentity = "azure-token.mjs"
	// GoogleAuthLibrary is google-auth-library with an external_account.
	GoogleAuthLibrary = "google-token.mjs"
	// AlibabaCredentials is @alicloud/credentials with its default chain. It takes no scope.
	AlibabaCredentials = "alibaba-token.mjs"
)

// Azurite is Azurite's blob service.
const Azurite = "node_modules/azurite/dist/src/blob/main.js"

// Token is what a script says of the token that it got, or did not get.
type Token struct {
	// OK reports whether there is a token.
	OK bool `json:"ok"`
	// ExpiresOn is the token's end; zero if the client does not tell.
	ExpiresOn time.Time `json:"expiresOn"`
	// Code is the cloud's error code: "AADSTS70021", "invalid_grant", "PERMISSION_DENIED",
	// "EntityNotExist.Role".
	Code string `json:"code"`
	// Message is the client's own text.
	Message string `json:"message"`
}

// GetToken runs a script for a scope, with exactly these environment variables. The error is about
// the run; a refusal is in the token.
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

// folder is the folder of this package. A test runs in its own package's folder, in the same module.
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

// Command is Node with a script of this folder. It ends with this process. Node is a package of npm
// too, so that its version is the same on every machine.
func Command(ctx context.Context, script string, args ...string) (*exec.Cmd, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	// The name is the package's: Debian's npm makes no link to the program in node_modules/.bin.
	machine := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(dir, "node_modules", "node-linux-"+machine, "bin", "node")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("the packages of npm are missing; run dev/node-packages: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{filepath.Join(dir, script)}, args...)...) //nolint:gosec // scripts of this folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}
