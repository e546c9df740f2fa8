package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Build is what a program was built from.
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
	output := outputFlag(c, formatText, formatJSON, formatYAML)
	c.RunE = func(*cobra.Command, []string) error {
		b := std.Build
		switch output.value {
		case formatJSON:
			return writeJSON(std.Out, b)
		case formatYAML:
			return writeYAML(std.Out, b)
		}
		commit := b.Commit
		if commit == "" {
			commit = "unknown"
		}
		_, err := fmt.Fprintf(std.Out, "lanyard %s\ncommit   %s\ngo       %s\nplatform %s\n", b.Version, commit, b.Go, b.Platform)
		return err
	}
	return c
}
