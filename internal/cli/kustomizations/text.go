package kustomizations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/lanyard-dev/lanyard/internal/apply"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// row is one difference in the formats json and yaml.
type row struct {
	Object  object              `json:"object"`
	Action  apply.Effect        `json:"action"`
	Changes []apply.FieldChange `json:"changes,omitempty"`
}

// object names an object.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// write writes the differences in the format of -o. Unchanged objects are only counted.
func write(w io.Writer, output *frame.Format, found []apply.Difference) error {
	rows, unchanged := []row{}, 0
	var text bytes.Buffer
	for _, d := range found {
		if d.Effect == apply.EffectUnchanged {
			unchanged++
			continue
		}
		rows = append(rows, row{
			Object: object{d.Key.GroupKind.WithVersion(d.Version).GroupVersion().String(), d.Key.GroupKind.Kind, d.Key.Namespace, d.Key.Name},
			Action: d.Effect, Changes: d.Changes,
		})
		fmt.Fprintf(&text, "%s %s\n", d.Effect, plain.Text(d.String()))
		for _, c := range d.Changes {
			writeChange(&text, c)
		}
	}
	fmt.Fprintf(&text, "unchanged objects: %d\n", unchanged)
	return frame.Write(w, output, rows, func(w io.Writer) error {
		_, err := text.WriteTo(w)
		return err
	})
}

// writeChange writes the path of a field, and the values before and after. Of texts with several
// lines, it writes the lines that differ.
func writeChange(b *bytes.Buffer, c apply.FieldChange) {
	fmt.Fprintf(b, "  %s\n", plain.Text(c.Path))
	old, wasText := c.Old.(string)
	changed, isText := c.New.(string)
	if wasText && isText && strings.Contains(old+changed, "\n") {
		_, lines, _ := strings.Cut(udiff.Unified("", "", old, changed), "+++ \n")
		for line := range strings.Lines(lines) {
			fmt.Fprintf(b, "  %s\n", plain.Text(strings.TrimSuffix(line, "\n")))
		}
		return
	}
	if c.Old != nil {
		fmt.Fprintf(b, "  - %s\n", inline(c.Old))
	}
	if c.New != nil {
		fmt.Fprintf(b, "  + %s\n", inline(c.New))
	}
}

// inline writes a value on one line.
func inline(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "(a value that cannot be shown)" // cannot happen: the value was read from JSON
	}
	return plain.Text(strings.TrimSpace(text.String()))
}
