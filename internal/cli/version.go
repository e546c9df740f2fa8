package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// Build has the versions that a program was built from, and its platform.
type Build struct {
	// Version is the module's version, such as "v0.1.0".
	Version string `json:"version"`
	// Commit is the version control's revision; empty if it is not known.
	Commit string `json:"commit,omitempty"`
	// Go is the version of Go, such as "go1.26.0".
	Go string `json:"go"`
	// Platform is the operating system and the architecture, such as "linux/amd64".
	Platform string `json:"platform"`
}

func newVersion(std IO) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  lanyard version

  # For programs
  lanyard version -o json`,
	}
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	c.RunE = func(*cobra.Command, []string) error { return writeVersion(std, output) }
	return c
}

// addVersionFlag gives the root command the flag --version, which does what the command version
// does.
func addVersionFlag(root *cobra.Command, std IO) {
	output := frame.OutputFlag(root, frame.Text, frame.JSON, frame.YAML)
	root.Flags().Lookup("output").Usage += ", with --version"
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case *version:
			return writeVersion(std, output)
		case c.Flags().Changed("output"):
			return frame.UsageError(c, errors.New("-o is about --version, or follows a command"))
		}
		return c.Help()
	}
}

// writeVersion writes the program's Build.
func writeVersion(std IO, output *frame.Format) error {
	b := std.Build
	return frame.Write(std.Out, output, b, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "lanyard %s\ncommit   %s\ngo       %s\nplatform %s\n",
			b.Version, cmp.Or(b.Commit, "unknown"), b.Go, b.Platform)
		return err
	})
}
