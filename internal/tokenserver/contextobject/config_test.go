package contextobject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const widget = `
contexts:
- apiVersion: example.com/v1
  kind: Widget
  resource: widgets
  relation: object.spec.identity == identity.metadata.name
`

// load calls Load with a file that has the given content.
func load(t *testing.T, content string) (Kinds, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	return Load(kinds.All(), file)
}

// TestLoadRefuses checks that Load returns an error for a wrong file. The error names line, kind
// and field.
func TestLoadRefuses(t *testing.T) {
	via := func(fields string) string {
		return widget + "  via:\n  - {apiVersion: v1, kind: ConfigMap, resource: configmaps, " + fields + "}\n"
	}
	claim := func(name, value string) string { return widget + "  claims:\n    " + name + ": " + value + "\n" }
	replaced := func(old, with string) string { return strings.Replace(widget, old, with, 1) }
	for name, c := range map[string]struct{ content, want string }{
		"no document":              {"# nothing\n", "has 0 YAML documents, want one"},
		"two documents":            {widget + "---" + widget, "has 2 YAML documents, want one"},
		"an unknown field":         {widget + "  relations: x\n", `claims.yaml:7: unknown field "contexts[0].relations"`},
		"an unknown field of via":  {via("as: a, name: object.a, nam: b"), `unknown field "contexts[0].via[0].nam"`},
		"a field twice":            {widget + "  kind: Other\n", "already"},
		"no apiVersion":            {replaced("apiVersion: example.com/v1", "scope: Cluster"), "contexts[0].apiVersion (Widget): "},
		"a malformed apiVersion":   {replaced("example.com/v1", "a/b/c"), "claims.yaml:3: contexts[0].apiVersion (Widget): "},
		"a malformed kind":         {replaced("Widget", "widget"), "claims.yaml:4: contexts[0].kind (widget): "},
		"a subresource":            {replaced("widgets", "widgets/status"), "claims.yaml:5: contexts[0].resource (Widget): "},
		"Secrets":                  {replaced("example.com/v1\n  kind: Widget\n  resource: widgets", "v1\n  kind: Secret\n  resource: secrets"), "resource (Secret): must not be secrets"},
		"Secrets by via":           {strings.ReplaceAll(via("as: a, name: object.a, namespace: object.b"), "configmaps", "secrets"), "contexts[0].via[0].resource (Widget): must not be secrets"},
		"a kind twice":             {widget + strings.TrimPrefix(widget, "\ncontexts:\n"), "claims.yaml:8: contexts[1].kind (Widget): is there already"},
		"a kind of Lanyard's":      {strings.NewReplacer("example.com/v1", "toolkit.lanyard.dev/v1alpha1", "Widget", "Bucket", "widgets", "buckets").Replace(widget), "contexts[0].kind (Bucket): is there already"},
		"an unknown scope":         {widget + "  scope: Everywhere\n", "claims.yaml:7: contexts[0].scope (Widget): must be IdentityNamespace, AnyNamespace or Cluster"},
		"no relation":              {replaced("  relation: object.spec.identity == identity.metadata.name\n", ""), "contexts[0].relation (Widget): is required"},
		"no CEL":                   {replaced("== identity", "= identity"), "claims.yaml:6: contexts[0].relation (Widget): is no valid CEL: line 1, column 22: "},
		"an unknown variable":      {replaced("== identity", "== identty"), "undeclared reference to 'identty'"},
		"an unknown function":      {replaced("identity.metadata.name", "identity.metadata.name.trimm()"), "undeclared reference to 'trimm'"},
		"a relation of no bool":    {replaced(" == identity.metadata.name", ""), "contexts[0].relation (Widget): must be a bool, but is dyn"},
		"a relation that is true":  {replaced("object.spec.identity == identity.metadata.name", `"true"`), "must mention identity"},
		"no object":                {replaced("object.spec.identity ==", "identity.kind =="), "must mention object, or an object of via"},
		"no identity":              {replaced("identity.metadata.name", "'x'"), "must mention identity: otherwise the object would belong to every identity"},
		"the identity leads":       {via("as: a, name: identity.metadata.name"), "contexts[0].via[0].name (Widget): is no valid CEL: line 1, column 1: undeclared reference to 'identity'"},
		"via without name":         {via("as: a"), "contexts[0].via[0].name (Widget): is required"},
		"a name of no string":      {via("as: a, name: 1 + 1"), "contexts[0].via[0].name (Widget): must be a string, but is int"},
		"a namespace of no string": {via("as: a, name: object.a, namespace: 'true'"), "contexts[0].via[0].namespace (Widget): must be a string, but is bool"},
		"namespaces for nothing":   {via("as: a, name: object.a, namespaces: [b]"), "contexts[0].via[0].namespaces (Widget): needs namespace"},
		"every namespace":          {via("as: a, name: object.a, namespace: object.b, namespaces: ['*']"), `contexts[0].via[0].namespaces (Widget): "*" is not a namespace`},
		"a variable twice":         {via("as: object, name: object.a"), "contexts[0].via[0].as (Widget): there is a variable object already"},
		"a reserved word":          {via("as: namespace, name: object.a"), `contexts[0].via[0].as (Widget): "namespace" cannot be a variable of CEL`},
		"a variable with a path":   {via("as: a.b, name: object.a"), `contexts[0].via[0].as (Widget): "a.b" cannot be a variable of CEL`},
		"an empty variable":        {via("as: '', name: object.a"), `contexts[0].via[0].as (Widget): "" cannot be a variable of CEL`},
		"too many objects":         {widget + "  via:\n" + strings.Repeat("  - {}\n", 9), "contexts[0].via (Widget): has 9 entries, at most 8 are allowed"},
		"the claim sub":            {claim("sub", "'x'"), `claims.yaml:8: contexts[0].claims["sub"] (Widget): is a claim that every token has`},
		"the claim lanyard.dev":    {claim("lanyard.dev", "'x'"), `contexts[0].claims["lanyard.dev"] (Widget): is a claim that every token has`},
		"a claim twice":            {claim("a", "'x'") + "    a: \"'y'\"\n", "already"},
		"a claim without name":     {claim("''", "'x'"), "must have a name of printable ASCII characters"},
		"a claim of no CEL":        {claim("a", "'1 +'"), `contexts[0].claims["a"] (Widget): is no valid CEL`},
		"an empty claim":           {claim("a", "''"), `contexts[0].claims["a"] (Widget): is required`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, c.content); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	if _, err := Load(kinds.All(), filepath.Join(t.TempDir(), "missing.yaml")); err == nil {
		t.Error("a missing file is no error")
	}
}

// TestLoadReportsEverything checks that the error of Load reports the mistakes in all entries of
// the file.
func TestLoadReportsEverything(t *testing.T) {
	wrong := strings.Replace(widget, "object.spec", "objct.spec", 1)
	_, err := load(t, wrong+strings.Replace(strings.TrimPrefix(wrong, "\ncontexts:\n"), "Widget", "Gadget", 1))
	if err == nil || !strings.Contains(err.Error(), "(Widget)") || !strings.Contains(err.Error(), "(Gadget)") {
		t.Errorf("%v, want mistakes of both kinds", err)
	}
}

// TestLoad checks that Load accepts Gardener's configuration and an empty path, and that the result
// always has Lanyard's own kinds.
func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		want int
	}{
		"no file":    {"", 4},
		"gardener's": {gardener, 8},
	} {
		t.Run(name, func(t *testing.T) {
			if known, err := Load(kinds.All(), c.path); err != nil || len(known) != c.want {
				t.Errorf("%d kinds %v, want %d", len(known), err, c.want)
			}
		})
	}
}

// TestExampleOfTheDocumentation checks that the configuration in docs/claims.md is valid.
func TestExampleOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/claims.md")
	must.Succeed(t, err)
	_, example, found := strings.Cut(string(page), "```yaml\ncontexts:")
	if !found {
		t.Fatal("docs/claims.md has no configuration")
	}
	example, _, _ = strings.Cut(example, "```")
	if _, err := load(t, "contexts:"+example); err != nil {
		t.Error(err)
	}
}
