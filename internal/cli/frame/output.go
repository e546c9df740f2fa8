package frame

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
	Table  = "table"
	Wide   = "wide"
	JSON   = "json"
	YAML   = "yaml"
	Text   = "text"
	Shell  = "shell"
	Dotenv = "dotenv"
)

// Format is the value of -o: one of the formats that a command has. It is a pflag.Value.
type Format struct {
	value   string
	allowed []string
}

// OutputFlag gives a command the flag -o. The first format is the default.
func OutputFlag(c *cobra.Command, allowed ...string) *Format {
	f := &Format{value: allowed[0], allowed: allowed}
	c.Flags().VarP(f, "output", "o", "format: "+strings.Join(allowed, ", "))
	CompleteValues(c, "output", allowed...)
	return f
}

// String returns the format.
func (f *Format) String() string { return f.value }

// Type returns the placeholder for the flag's value in help.
func (f *Format) Type() string { return "format" }

// Set sets the format. It refuses a format that the command does not have.
func (f *Format) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("write one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
}

// Write writes a value in the format json, with indentation, or in the format yaml. For another
// format, it calls the given function.
func Write(w io.Writer, f *Format, v any, text func(io.Writer) error) error {
	switch f.value {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	case YAML:
		return WriteYAML(w, v)
	}
	return text(w)
}

// WriteYAML writes values as YAML documents. Fields have the same names as in JSON.
func WriteYAML(w io.Writer, documents ...any) error {
	for i, v := range documents {
		data, err := yaml.Marshal(v)
		if err == nil && i > 0 {
			_, err = io.WriteString(w, "---\n")
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteRows writes rows in one of the formats table, wide, json and yaml. Without rows, it writes
// no table, not even a header.
func WriteRows(w io.Writer, f *Format, rows []report.Row) error {
	if rows == nil {
		rows = []report.Row{} // an empty list, not null
	}
	return Write(w, f, rows, func(w io.Writer) error {
		if len(rows) == 0 {
			return nil
		}
		return report.Table(w, rows, f.value == Wide)
	})
}
