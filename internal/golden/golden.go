// Package golden compares a program's output with files that people have reviewed. Only tests
// import this package.
package golden

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

//nolint:gochecknoglobals // a flag of the tests that link this package
var update = flag.Bool("update", false, "rewrite golden files")

// Compare fails the test if got differs from the file. With the flag -update, Compare first writes
// got to the file.
func Compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must.Succeed(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path) //nolint:gosec // a file of this repository
	if err != nil {
		t.Fatalf("%v; run with -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; look at it and run with -update:\n%s", path, FirstDifference(got, want))
	}
}

// FirstDifference returns the number of the first line that differs, and that line in both texts.
func FirstDifference(got, want []byte) string {
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\ngot:  %s\nwant: %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("one is the beginning of the other: %d lines, want %d", len(g), len(w))
}
