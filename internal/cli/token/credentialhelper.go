package token

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// helperProgram is the name under which Docker calls this program: "docker-credential-" and the
// helper's name in Docker's configuration.
const helperProgram = "docker-credential-lanyard"

const helperCommand = "credential-helper"

// HelperArgs returns the command line of the command credential-helper if the program was called by
// the helper's name. Otherwise it returns args unchanged.
func HelperArgs(program string, args []string) []string {
	if strings.TrimSuffix(filepath.Base(program), ".exe") != helperProgram {
		return args
	}
	return append([]string{helperCommand}, args...)
}

func newCredentialHelper(std frame.IO) *cobra.Command {
	c := &cobra.Command{
		Use:   helperCommand + " " + strings.Join(creds.HelperActions(), "|"),
		Short: "Give docker, podman, skopeo, helm and oras the short-lived credentials of registries",
		Long: `Give docker, podman, skopeo, helm and oras the short-lived credentials of registries.

They call a program docker-credential-lanyard, which is a link to lanyard, and speak to it by the protocol of Docker's
credential helpers: one word as argument, the registry's host in the standard input, the answer in the standard output.

Any image name in a Dockerfile asks for a credential, so only the registries in a file of the helper's own get one:
~/.config/lanyard/credentials.yaml, or the file that LANYARD_CREDENTIALS_FILE names. The file maps the exact host to a
credential, with the names of the flags of "lanyard token": creds, audiences, saName, saNamespace, saToken, tokenFile,
tokenEnv, workloadIdentity, and user. The identity that a cloud gives to this machine goes only to the registries of the
same cloud. The helper stores nothing: docker login and docker logout are refused.`,
		Example: `  # Configure it: a link, the file, and Docker's own configuration. Files that are there already stay: add the lines to them
  ln -s "$(command -v lanyard)" ~/.local/bin/docker-credential-lanyard
  mkdir -p ~/.config/lanyard ~/.docker
  test -e ~/.config/lanyard/credentials.yaml ||
    echo '{registries: {registry.example.com: {creds: GitHubOIDCToken, audiences: [registry.example.com]}}}' > ~/.config/lanyard/credentials.yaml
  test -e ~/.docker/config.json || echo '{"credHelpers": {"registry.example.com": "lanyard"}}' > ~/.docker/config.json

  # Ask it, as Docker does
  echo registry.example.com | lanyard credential-helper get`,
		ValidArgs: creds.HelperActions(),
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || !slices.Contains(creds.HelperActions(), args[0]) {
			return fmt.Errorf("write one of %s", strings.Join(creds.HelperActions(), ", "))
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		helper := creds.Helper{Process: JobProcess(std), Home: std.Home, In: std.In, Out: std.Out, Err: std.Err}
		if helper.Run(c.Context(), args[0]) != nil {
			return frame.ErrSaid
		}
		return nil
	}
	return c
}
