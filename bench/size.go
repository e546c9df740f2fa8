package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// sizes builds the programs in this module's folder size/, without symbols. For each program, it
// prints the size, and how many Go modules of each cloud the program contains. All programs connect
// to a cluster in the same way. They differ in the library, which is Lanyard's or Flux's, and in
// the library's providers.
func sizes(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "lanyard-bench-size-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programs := []string{"flux", "all", "aws", "azure", "gcp", "core"}
	var whole int64 // size of the program flux
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "PROGRAM\tSTRIPPED\tOF FLUX'S\tCLOUDS' MODULES")
	for _, name := range programs {
		binary := filepath.Join(dir, name)
		build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", binary, "./size/"+name) //nolint:gosec // our own programs
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build size/%s: %w: %s", name, err, text)
		}
		file, err := os.Stat(binary)
		if err != nil {
			return err
		}
		if name == "flux" {
			whole = file.Size()
		}
		clouds, err := linked(binary)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(table, "%s\t%.1f MiB\t%.0f %%\t%s\n", name,
			float64(file.Size())/(1<<20), 100*float64(file.Size())/float64(whole), clouds)
	}
	return table.Flush()
}

// linked counts the Go modules of each cloud in a binary. The result has the form "AWS 9, Azure 2",
// or is "none".
func linked(binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, c := range []struct {
		name  string
		paths []string
	}{
		{"AWS", []string{"github.com/aws/"}},
		{"Azure", []string{"github.com/Azure/azure-sdk-for-go/", "github.com/AzureAD/"}},
		{"Google", []string{"cloud.google.com/", "google.golang.org/api", "github.com/googleapis/"}},
	} {
		n := 0
		for _, module := range info.Deps {
			if slices.ContainsFunc(c.paths, func(prefix string) bool { return strings.HasPrefix(module.Path, prefix) }) {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c.name, n))
		}
	}
	if len(parts) == 0 {
		return "none", nil
	}
	return strings.Join(parts, ", "), nil
}
