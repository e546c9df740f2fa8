package world

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/local"
)

func newCloudEnv(std IO) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "env",
		Short: "Print the environment with which programs reach the local cloud",
		Long: `Print the environment with which programs reach the running local cloud.

It overrides settings by which programs would bypass the local cloud: other proxies, other CAs, configured endpoints. It
names no identity; each program has its own. Loopback addresses, such as the cluster's API server, are reached directly.`,
		Example: `  # For this shell
  eval "$(lanyard cloud env)"

  # For one program
  (eval "$(lanyard cloud env)"; aws sts get-caller-identity)

  # A file for docker run --env-file
  lanyard cloud env -o dotenv > cloud.env`,
	}
	output := frame.OutputFlag(c, frame.Shell, frame.Dotenv, frame.JSON, frame.YAML)
	dirFlag(c, &dir, "folder of the running lanyard up or lanyard cloud")
	c.RunE = func(c *cobra.Command, _ []string) error {
		state, err := local.ReadCloud(c.Context(), dir)
		if err != nil {
			return err
		}
		env, err := (&cloudtest.Admin{URL: state.ProxyURL}).Env(c.Context(), state.CAFile)
		if err != nil {
			return fmt.Errorf("ask the local cloud for its environment: %w", err)
		}
		return writeEnv(std.Out, output, env)
	}
	return c
}

// writeEnv writes NAME=VALUE pairs in one of the formats shell, dotenv, json and yaml.
func writeEnv(w io.Writer, output *frame.Format, env []string) error {
	values := map[string]string{}
	var lines strings.Builder
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
		switch output.String() {
		case frame.Shell:
			fmt.Fprintf(&lines, "export %s=%s\n", name, shellQuote(value))
		case frame.Dotenv:
			fmt.Fprintf(&lines, "%s=%s\n", name, dotenvWord(value))
		}
	}
	return frame.Write(w, output, values, func(w io.Writer) error {
		_, err := io.WriteString(w, lines.String())
		return err
	})
}

// shellQuote quotes a value so that a POSIX shell reads it unchanged (XCU §2.2.2, single quotes).
func shellQuote(value string) string {
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// plainCharacters need no quotes, in a shell or elsewhere.
const plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=@+"

// shellWord is like shellQuote, but adds no quotes to a value that needs none.
func shellWord(value string) string {
	if value != "" && strings.Trim(value, plainCharacters) == "" {
		return value
	}
	return shellQuote(value)
}

// dotenvWord quotes a value only if it must: not all programs that read .env files understand
// quotes.
func dotenvWord(value string) string {
	if strings.Trim(value, plainCharacters) == "" {
		return value
	}
	return strconv.Quote(value)
}
