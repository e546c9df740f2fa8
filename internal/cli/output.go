package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/report"
)

// The formats of -o.
const (
	formatTable  = "table"
	formatWide   = "wide"
	formatJSON   = "json"
	formatYAML   = "yaml"
	formatText   = "text"
	formatShell  = "shell"
	formatDotenv = "dotenv"
)

// format is the value of -o: one of the formats that a command has. It is a pflag.Value.
type format struct {
	value   string
	allowed []string
}

func outputFlag(c *cobra.Command, allowed ...string) *format {
	f := &format{value: allowed[0], allowed: allowed}
	c.Flags().VarP(f, "output", "o", "format: "+strings.Join(allowed, ", "))
	err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was defined above
	}
	return f
}

func (f *format) String() string { return f.value }
func (f *format) Type() string   { return "format" }

func (f *format) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("write one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func writeYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// writeRows writes rows in one of the formats table, wide, json and yaml.
func writeRows(w io.Writer, f *format, rows []report.Row) error {
	if rows == nil {
		rows = []report.Row{} // an empty list, not null
	}
	switch f.value {
	case formatJSON:
		return writeJSON(w, rows)
	case formatYAML:
		return writeYAML(w, rows)
	default:
		return report.Table(w, rows, f.value == formatWide)
	}
}
