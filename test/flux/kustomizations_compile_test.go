//go:build flux

package flux

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/go/ast/astutil"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// compiler prepares Flux's test files for package kustomization.
type compiler struct {
	own   map[string]bool // the functions that package kustomization declares itself
	used  map[string]bool // the keys of leftOut and differences that were found
	tests []string        // the names of Flux's tests
}

// compile compiles the test files in a folder of Flux together with package kustomization. It returns
// the path of the program and the names of the tests.
func compile(t *testing.T, folder string) (binary string, tests []string) {
	t.Helper()
	c := &compiler{own: functionsOf(t, "kustomization/*_test.go"), used: map[string]bool{}}
	temp := t.TempDir()
	overlay := map[string]string{}
	for _, file := range glob(t, filepath.Join(folder, "*_test.go")) {
		name := filepath.Base(file)
		if _, out := leftOut()[name]; out {
			c.used[name] = true
			continue
		}
		changed := filepath.Join(temp, name)
		must.Succeed(t, os.WriteFile(changed, c.change(t, file), 0o600))
		at, err := filepath.Abs(filepath.Join("kustomization", "flux_"+name))
		must.Succeed(t, err)
		overlay[at] = changed
	}
	c.check(t)
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	must.Succeed(t, err)
	list := filepath.Join(temp, "overlay.json")
	must.Succeed(t, os.WriteFile(list, data, 0o600))
	binary = filepath.Join(temp, "kustomizations.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags=flux", "-overlay="+list, "-o", binary, ".")
	cmd.Dir = "kustomization"
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile Flux's tests: %v\n%s", err, out)
	}
	return binary, c.tests
}

// check asserts that all that leftOut and differences list exists in Flux's tests.
func (c *compiler) check(t *testing.T) {
	t.Helper()
	for name := range leftOut() {
		test, _, isSubtest := strings.Cut(name, "/")
		if !c.used[name] && !(isSubtest && slices.Contains(c.tests, test)) {
			t.Errorf("leftOut has %s, which Flux does not have", name)
		}
	}
	for text := range differences() {
		if !c.used[text] {
			t.Errorf("differences has %q, which no assertion of Flux contains", text)
		}
	}
}

// change returns the text of a test file without what Lanyard has differently.
func (c *compiler) change(t *testing.T, file string) []byte {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	must.Succeed(t, err)
	parsed.Decls = slices.DeleteFunc(parsed.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Recv == nil && c.leaveOut(f.Name.Name)
	})
	c.leaveOutDifferences(t, set, parsed)
	removeUnusedImports(parsed)
	var out bytes.Buffer
	must.Succeed(t, format.Node(&out, set, parsed))
	return out.Bytes()
}

// leaveOut reports whether a function is left out. It notes the names of the other tests.
func (c *compiler) leaveOut(name string) bool {
	if _, out := leftOut()[name]; out {
		c.used[name] = true
		return true
	}
	switch {
	// The first two start Flux's controller.
	case name == "runInContext", name == "createVaultTestInstance", c.own[name]:
		return true
	case strings.HasPrefix(name, "Test"):
		c.tests = append(c.tests, name)
	}
	return false
}

// leaveOutDifferences puts the assertions of differences into functions that are not called. So their
// variables stay in use.
func (c *compiler) leaveOutDifferences(t *testing.T, set *token.FileSet, file *ast.File) {
	t.Helper()
	astutil.Apply(file, func(at *astutil.Cursor) bool {
		statement, ok := at.Node().(*ast.ExprStmt)
		if !ok || !isAssertion(statement.X) {
			return true
		}
		var source bytes.Buffer
		must.Succeed(t, format.Node(&source, set, statement))
		differs := false
		for text := range differences() {
			if strings.Contains(source.String(), text) {
				c.used[text], differs = true, true
			}
		}
		if differs {
			body := &ast.FuncLit{Type: &ast.FuncType{Params: &ast.FieldList{}}, Body: &ast.BlockStmt{List: []ast.Stmt{statement}}}
			at.Replace(&ast.ExprStmt{X: &ast.CallExpr{Fun: ast.NewIdent("notCompared"), Args: []ast.Expr{body}}})
		}
		return false
	}, nil)
}

// isAssertion reports whether an expression is g.Expect(…).To(…), or has Eventually or Consistently for
// Expect, or another method for To.
func isAssertion(x ast.Expr) bool {
	actual, ok := receiver(x).(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := actual.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Expect", "Eventually", "Consistently"}, method.Sel.Name)
}

// receiver returns x of a call x.Method(…); nil for another expression.
func receiver(call ast.Expr) ast.Expr {
	if call, ok := call.(*ast.CallExpr); ok {
		if method, ok := call.Fun.(*ast.SelectorExpr); ok {
			return method.X
		}
	}
	return nil
}

// removeUnusedImports removes the imports of what is left out.
func removeUnusedImports(file *ast.File) {
	used := map[string]bool{".": true, "_": true}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			d.Specs = slices.DeleteFunc(d.Specs, func(s ast.Spec) bool {
				i, ok := s.(*ast.ImportSpec)
				return ok && !used[nameOf(i)]
			})
		}
	}
}

// nameOf returns the name of a package in a file that imports the package. It knows what Flux's tests
// import: a last element of the path may be a version, and may have the prefix "go-".
func nameOf(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	importPath, _ := strconv.Unquote(i.Path.Value)
	name := path.Base(importPath)
	if version, ok := strings.CutPrefix(name, "v"); ok && version != "" && version[0] <= '9' {
		name = path.Base(path.Dir(importPath))
	}
	return strings.TrimPrefix(name, "go-")
}

// functionsOf returns the names of the functions in Go files.
func functionsOf(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range glob(t, pattern) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// glob returns the files that match a pattern. There must be some.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must.Succeed(t, err)
	if len(files) == 0 {
		t.Fatalf("no files match %s", pattern)
	}
	return files
}
