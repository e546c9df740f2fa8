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

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestEveryReasonIsDocumented checks that docs/errors.md has a section for each reason, and no
// other sections.
func TestEveryReasonIsDocumented(t *testing.T) {
	root := filepath.Join("..", "..")
	var reasons []string
	reasons = append(reasons, constants(t, filepath.Join(root, "auth", "error.go"), "Code")...)
	reasons = append(reasons, constants(t, filepath.Join(root, "api", "meta", "condition.go"), "Reason")...)
	reasons = append(reasons, constants(t, filepath.Join(root, "api", "identity", "v1alpha1", "keyring.go"), "Reason")...)
	page, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	must.Succeed(t, err)
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

// TestEveryErrorHasANextStep checks that each error that becomes a condition has a next step (Fix).
func TestEveryErrorHasANextStep(t *testing.T) {
	typed := regexp.MustCompile(`^(auth|archive|object)?\.?(Error|SecretError|PullSecretsError)$`)
	later := map[string]int{ // errors whose Fix is set later, counted per file
		"auth/kube/failure.go": 1, "internal/artifact/objectstore/index.go": 2, "internal/clouds/location/location.go": 1,
		"internal/yamlfile/yamlfile.go": 2, // errors of the command line, which never become conditions
	}
	found := 0
	for _, folder := range []string{"auth", "internal"} {
		goFiles(t, folder, func(path string, file *ast.File) {
			without := 0
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.CompositeLit)
				if !ok || !typed.MatchString(typeName(literal.Type)) || len(literal.Elts) == 0 {
					return true
				}
				fields := map[string]bool{}
				for _, e := range literal.Elts {
					if pair, ok := e.(*ast.KeyValueExpr); ok {
						fields[typeName(pair.Key)] = true
					}
				}
				if _, isDetail := fields["Err"]; isDetail || fields["Stage"] {
					found++
					if !fields["Fix"] {
						without++
					}
				}
				return true
			})
			if without != later[path] {
				t.Errorf("%s makes %d errors without a next step (Fix), want %d", path, without, later[path])
			}
		})
	}
	if found < 40 {
		t.Errorf("only %d errors were found: the test looks in the wrong place", found)
	}
}

// goFiles parses the Go files below a folder of the repository, and calls visit for each. It leaves
// out tests and other files that are not linked into programs.
func goFiles(t *testing.T, folder string, visit func(path string, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		tests := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") || strings.HasSuffix(filepath.Dir(path), "/rig")
		// Skip package origin: its errors get their next step from a table, which has a test of its
		// own.
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || tests || strings.HasSuffix(filepath.Dir(path), "/origin") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			name, _ := filepath.Rel(root, path)
			visit(filepath.ToSlash(name), file)
		}
		return err
	})
	must.Succeed(t, err)
}

// typeName returns the name of a type or field as it is written, such as "auth.Error". For any
// other expression it returns "".
func typeName(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.SelectorExpr:
		return typeName(n.X) + "." + n.Sel.Name
	default:
		return ""
	}
}

// TestEveryMetricIsDocumented checks that docs/metrics.md lists the metrics of the controller, and
// no others.
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
		must.Succeed(t, err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	must.Succeed(t, err)
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

// constants returns the values of a file's string constants whose names begin with the prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must.Succeed(t, err)
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, prefix) || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			must.Succeed(t, err)
			values = append(values, value)
		}
		return true
	})
	return values
}
