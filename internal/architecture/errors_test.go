package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// TestEveryMetricIsDocumented holds that docs/metrics.md lists the metrics that the controller has, and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	metric := regexp.MustCompile(`lanyard_[a-z_]+`)
	defined := map[string]bool{}
	for _, folder := range []string{"auth", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, found := range regexp.MustCompile(`"`+metric.String()+`"`).FindAllString(string(source), -1) {
				defined[strings.Trim(found, `"`)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range defined {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
	for _, name := range metric.FindAllString(string(page), -1) {
		if !defined[name] && !defined[strings.TrimSuffix(name, "_count")] {
			t.Errorf("docs/metrics.md speaks of %s, which nothing measures", name)
		}
	}
	codes := constants(t, filepath.Join(root, "auth", "error.go"), "Code")
	alerts := regexp.MustCompile(`outcome=~"([^"]+)"`).FindAllStringSubmatch(string(page), -1)
	for _, alert := range alerts {
		for code := range strings.SplitSeq(alert[1], "|") {
			if !slices.Contains(codes, code) {
				t.Errorf("docs/metrics.md has an alert for the outcome %s, which there is not", code)
			}
		}
	}
	if len(alerts) == 0 {
		t.Error("no alert of outcomes was found: the test looks in the wrong place")
	}
	if len(defined) < 8 {
		t.Errorf("only %d metrics were found: the test looks in the wrong place", len(defined))
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
