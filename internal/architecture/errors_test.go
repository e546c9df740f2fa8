package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryReasonIsDocumented: whoever meets a reason finds what to do about it, and no section outlives its reason.
func TestEveryReasonIsDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	var reasons []string
	reasons = append(reasons, constants(t, filepath.Join(root, "auth", "error.go"), "Code")...)
	reasons = append(reasons, constants(t, filepath.Join(root, "api", "meta", "condition.go"), "Reason")...)
	page, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(string(page)) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			sections = append(sections, strings.TrimSpace(title))
		}
	}
	for _, r := range reasons {
		if !slices.Contains(sections, r) {
			t.Errorf("docs/errors.md has no section %s", r)
		}
	}
	for _, s := range sections {
		if !slices.Contains(reasons, s) {
			t.Errorf("docs/errors.md explains %s, which nothing says", s)
		}
	}
	if len(reasons) < 30 {
		t.Errorf("only %d reasons were found: the test looks in the wrong place", len(reasons))
	}
}

// constants are the values of the string constants in a file whose names begin with prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, prefix) || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}
