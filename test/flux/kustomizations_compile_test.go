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

// compiler changes Flux's test files so that they compile together with package kustomization.
type compiler struct {
	t     *testing.T
	own   []string            // the functions of package kustomization
	found []string            // the names of Flux's files, functions and subtests
	tests []string            // the names of the tests that are compiled
	used  map[difference]bool // the differences that were found in assertions
}

// compile compiles the test files in a folder of Flux together with package kustomization. It returns
// the path of the program and the names of the tests.
func compile(t *testing.T, folder string) (binary string, tests []string) {
	t.Helper()
	c := &compiler{t: t, own: functionsIn(t, "kustomization/*_test.go"), used: map[difference]bool{}}
	temp := t.TempDir()
	overlay := map[string]string{} // from a path in package kustomization to the path of the changed file
	for _, file := range glob(t, filepath.Join(folder, "*_test.go")) {
		name := filepath.Base(file)
		c.found = append(c.found, name)
		if isLeftOut(name) {
			continue
		}
		changed := filepath.Join(temp, name)
		must.Succeed(t, os.WriteFile(changed, c.changed(file), 0o600))
		place, err := filepath.Abs(filepath.Join("kustomization", "flux_"+name))
		must.Succeed(t, err)
		overlay[place] = changed
	}
	c.checkLists()
	const module = "github.com/fluxcd/kustomize-controller"
	if version := strings.TrimSpace(output(t, "-C", "kustomization", "list", "-m", "-f", "{{.Version}}", module+"/api")); module+"@"+version != kustomizeController {
		t.Errorf("kustomization/go.mod has %s/api %s, and the tests are of %s", module, version, kustomizeController)
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(temp, "overlay.json"), list, 0o600))
	binary = filepath.Join(temp, "kustomizations.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-tags=flux", "-overlay="+filepath.Join(temp, "overlay.json"), "-o", binary, ".")
	cmd.Dir = "kustomization"
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile Flux's tests: %v\n%s", err, out)
	}
	return binary, c.tests
}

// checkLists asserts that Flux has all that is left out, and all differences.
func (c *compiler) checkLists() {
	c.t.Helper()
	for name := range leftOut() {
		if !slices.Contains(c.found, name) {
			c.t.Errorf("leftOut has %s, which Flux does not have", name)
		}
	}
	for _, d := range differences() {
		if !c.used[d] {
			c.t.Errorf("differences has %q in %q, which Flux does not have", d.text, d.test)
		}
	}
}

func isLeftOut(name string) bool {
	_, out := leftOut()[name]
	return out
}

// changed returns the text of a test file without the functions that are left out, and without the
// assertions that differ.
func (c *compiler) changed(file string) []byte {
	c.t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	must.Succeed(c.t, err)
	parsed.Decls = slices.DeleteFunc(parsed.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			return false
		}
		name := f.Name.Name
		c.found = append(c.found, name)
		if isLeftOut(name) || slices.Contains(c.own, name) {
			return true
		}
		if strings.HasPrefix(name, "Test") {
			c.tests = append(c.tests, name)
			c.changeTest(set, f)
		}
		return false
	})
	removeUnusedImports(parsed)
	var out bytes.Buffer
	must.Succeed(c.t, format.Node(&out, set, parsed))
	return out.Bytes()
}

// changeTest puts the assertions of a test that differ into functions that are not called. So the
// variables of the test stay in use.
func (c *compiler) changeTest(set *token.FileSet, test *ast.FuncDecl) {
	c.t.Helper()
	titles := []string{test.Name.Name} // of the test and its subtests
	astutil.Apply(test, func(at *astutil.Cursor) bool {
		if title, ok := titleOf(at.Node()); ok {
			titles = append(titles, title)
			c.found = append(c.found, strings.Join(titles, "/"))
		}
		statement, ok := at.Node().(*ast.ExprStmt)
		if !ok {
			return true
		}
		matcher, source := c.assertion(set, statement.X)
		if matcher == "" {
			return true
		}
		if !c.differs(titles, matcher, source) {
			return true
		}
		body := &ast.FuncLit{Type: &ast.FuncType{Params: &ast.FieldList{}}, Body: &ast.BlockStmt{List: []ast.Stmt{statement}}}
		at.Replace(&ast.ExprStmt{X: &ast.CallExpr{Fun: ast.NewIdent("notCompared"), Args: []ast.Expr{body}}})
		return false
	}, func(at *astutil.Cursor) bool {
		if _, ok := titleOf(at.Node()); ok {
			titles = titles[:len(titles)-1]
		}
		return true
	})
}

// titleOf returns the title of a subtest: t.Run("title", …).
func titleOf(n ast.Node) (title string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return "", false
	}
	run, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || run.Sel.Name != "Run" {
		return "", false
	}
	text, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	title, err := strconv.Unquote(text.Value)
	return strings.ReplaceAll(title, " ", "_"), err == nil
}

// assertion returns the name of the method To in an assertion such as g.Expect(a).To(b), and the source
// of a and b. Functions are not part of the source. The name is empty for other expressions.
func (c *compiler) assertion(set *token.FileSet, x ast.Expr) (matcher, source string) {
	c.t.Helper()
	outer, ok := x.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	to, ok := outer.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	inner, ok := to.X.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	expect, ok := inner.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Expect", "Eventually", "Consistently"}, expect.Sel.Name) {
		return "", ""
	}
	var out bytes.Buffer
	for _, argument := range slices.Concat(inner.Args, outer.Args) {
		if _, isFunction := argument.(*ast.FuncLit); !isFunction {
			must.Succeed(c.t, format.Node(&out, set, argument))
			out.WriteByte('\n')
		}
	}
	return to.Sel.Name, out.String()
}

// differs reports whether an assertion is among the differences. Assertions that something is not so
// must hold. ToNot(BeNil()) asserts that something exists.
func (c *compiler) differs(titles []string, matcher, source string) bool {
	c.t.Helper()
	found := false
	for _, d := range differences() {
		if !strings.Contains(source, d.text) || d.test != "" && !slices.Contains(titles, d.test) {
			continue
		}
		c.used[d], found = true, true
		if strings.Contains(matcher, "Not") && !strings.Contains(source, "BeNil()") {
			c.t.Errorf("%q leaves out %s: %s", d.text, matcher, source)
		}
	}
	return found
}

// removeUnusedImports removes imports that only the left out functions use.
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

// nameOf returns the name of a package in a file that imports the package. It knows the paths that
// Flux's tests import: the last element may be a version, and may have the prefix "go-".
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

// functionsIn returns the names of the functions in Go files.
func functionsIn(t *testing.T, pattern string) []string {
	t.Helper()
	var names []string
	for _, file := range glob(t, pattern) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// glob returns the files that match a pattern. It fails if no file matches.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	must.Succeed(t, err)
	if len(files) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return files
}
