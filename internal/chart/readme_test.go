//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package chart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// property is a JSON schema. It has only the fields that TestREADME reads.
type property struct {
	Description string              `json:"description"`
	Properties  map[string]property `json:"properties"`
	Definitions map[string]property `json:"definitions"`
	Ref         string              `json:"$ref"`
}

// resolve follows a property's reference within the schema, such as #/definitions/program. A
// property with its own description is returned unchanged.
func (p property) resolve(schema property) property {
	if p.Ref == "" || p.Description != "" {
		return p
	}
	at := schema
	for step := range strings.SplitSeq(strings.TrimPrefix(p.Ref, "#/"), "/") {
		switch step {
		case "definitions":
			at.Properties = at.Definitions
		case "properties":
		default:
			at = at.Properties[step]
		}
	}
	return at
}

// TestREADME checks that the README's table of values has the descriptions from values.schema.json
// and the defaults from values.yaml, and that every value is described.
func TestREADME(t *testing.T) {
	const dir = "../../charts/lanyard/"
	var schema property
	var defaults map[string]any
	for file, into := range map[string]any{"values.schema.json": &schema, "values.yaml": &defaults} {
		data, err := os.ReadFile(dir + file)
		must.Succeed(t, err)
		must.Succeed(t, yaml.Unmarshal(data, into))
	}
	// The table omits the value global: Helm passes it to every chart, and this chart ignores it.
	delete(schema.Properties, "global")

	var table bytes.Buffer
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	writeRows(t, &table, "", schema, schema, defaults)

	readme, err := os.ReadFile(dir + "README.md")
	must.Succeed(t, err)
	const begin, end = "<!-- values: made from values.schema.json and values.yaml -->\n", "<!-- end of values -->\n"
	before, rest, found := strings.Cut(string(readme), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("README.md lacks the lines %q and %q", begin, end)
	}
	golden.Compare(t, dir+"README.md", []byte(before+begin+table.String()+end+after))
}

func writeRows(t *testing.T, table *bytes.Buffer, prefix string, whole, schema property, defaults map[string]any) {
	t.Helper()
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for name := range defaults {
		if !slices.Contains(names, name) {
			t.Errorf("values.yaml has %s%s, values.schema.json has not", prefix, name)
		}
	}
	for _, name := range names {
		value, exists := defaults[name]
		if !exists {
			t.Errorf("values.schema.json has %s%s, values.yaml has not", prefix, name)
		}
		child := schema.Properties[name].resolve(whole)
		inner, isMap := value.(map[string]any)
		if child.Description == "" && isMap {
			writeRows(t, table, prefix+name+".", whole, child, inner)
			continue
		}
		if len(child.Description) < 10 {
			t.Errorf("%s%s has no description", prefix, name)
		}
		shown, err := json.Marshal(value)
		must.Succeed(t, err)
		fmt.Fprintf(table, "| `%s%s` | `%s` | %s |\n", prefix, name, shown, child.Description)
	}
}
