package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// serialTests matches the build constraint of files with serial tests. The script dev/unit-tests
// runs these tests without the race detector.
var serialTests = regexp.MustCompile(`(?m)^//go:build !concurrent$`)

// TestSerialTestsStartNoGoroutine asserts that serial tests start no goroutine. Only such tests may
// run without the race detector.
func TestSerialTestsStartNoGoroutine(t *testing.T) {
	found := 0
	for path, source := range testSources(t) {
		if !serialTests.Match(source) {
			continue
		}
		found++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if startsGoroutine(n) {
				t.Errorf("%s starts a goroutine: remove the build constraint of its file", set.Position(n.Pos()))
			}
			return true
		})
	}
	if found < 5 {
		t.Errorf("%d files of such tests were found: the test looks in the wrong place", found)
	}
}

// startsGoroutine reports whether a node is a go statement, or a call that starts goroutines. It
// knows such calls by the function's name: Go, Parallel, a server of httptest, or a helper such as
// startCloud.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		switch called := n.Fun.(type) {
		case *ast.SelectorExpr:
			return slices.Contains([]string{"Go", "Parallel", "NewServer", "NewTLSServer", "NewUnstartedServer"}, called.Sel.Name)
		case *ast.Ident:
			return strings.HasPrefix(called.Name, "start")
		}
	}
	return false
}
