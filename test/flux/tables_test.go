package flux

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// parse parses a Go file of Flux, and removes the import declarations from the result.
func parse(t *testing.T, path ...string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(path...), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool { // remove the imports
		general, ok := d.(*ast.GenDecl)
		return ok && general.Tok == token.IMPORT
	})
	return file
}

// function returns the function with this name in a file.
func function(t *testing.T, file *ast.File, name string) ast.Node {
	t.Helper()
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return f
		}
	}
	t.Fatalf("Flux has no function %s any more", name)
	return nil
}

// text returns the value of a string literal.
func text(node ast.Node) (string, bool) {
	literal, ok := node.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

// texts returns the values of all string literals, sorted, each once.
func texts(nodes ...ast.Node) []string {
	var found []string
	for _, node := range nodes {
		ast.Inspect(node, func(n ast.Node) bool {
			if value, ok := text(n); ok {
				found = append(found, value)
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// list returns the elements of a list of string literals. A single string is a list of one.
func list(node ast.Node) ([]string, bool) {
	if value, ok := text(node); ok {
		return []string{value}, true
	}
	literal, ok := node.(*ast.CompositeLit)
	if !ok || len(literal.Elts) == 0 {
		return nil, false
	}
	var values []string
	for _, element := range literal.Elts {
		value, ok := text(element)
		if !ok {
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// lists returns all lists of string literals.
func lists(node ast.Node) [][]string {
	var found [][]string
	ast.Inspect(node, func(n ast.Node) bool {
		if values, ok := list(n); ok {
			found = append(found, values)
		}
		return true
	})
	return found
}

// cases returns the rows of a test table in which the field with this name is set. A row maps field
// names to strings or lists of strings.
func cases(node ast.Node, field string) []map[string][]string {
	var found []map[string][]string
	ast.Inspect(node, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		row := map[string][]string{}
		for _, element := range literal.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, ok := pair.Key.(*ast.Ident)
			if !ok {
				continue
			}
			if values, ok := list(pair.Value); ok {
				row[key.Name] = values
			}
		}
		if row[field] != nil {
			found = append(found, row)
		}
		return true
	})
	return found
}
