package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestLibraryPageQuotesTheCode checks the Go code in docs/library.md. All of it must come from the
// example controller, or from an example in a package's documentation. These sources are compiled
// and tested.
func TestLibraryPageQuotesTheCode(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "library.md"))
	must.Succeed(t, err)
	examples, err := filepath.Glob(filepath.Join(root, "auth", "*", "example_test.go"))
	must.Succeed(t, err)
	var sources []string
	for _, file := range append(examples, filepath.Join(root, "examples", "controller", "main.go")) {
		source, err := os.ReadFile(file)
		must.Succeed(t, err)
		sources = append(sources, withoutIndent(string(source)))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		if !slices.ContainsFunc(sources, func(source string) bool { return quotes(block[1], source) }) {
			t.Errorf("docs/library.md has code that no example has:\n%s", block[1])
		}
	}
	if len(blocks) < 5 {
		t.Errorf("only %d pieces of code were found: the test looks in the wrong place", len(blocks))
	}
}

// quotes reports whether the source contains the parts of the block, in order. A line "…" in the
// block separates two parts, and stands for lines that are left out.
func quotes(block, source string) bool {
	for part := range strings.SplitSeq(withoutIndent(block), "\n…\n") {
		_, after, found := strings.Cut(source, strings.TrimSpace(part)+"\n")
		if !found {
			return false
		}
		source = after
	}
	return true
}

// withoutIndent returns text without indentation, and with one blank in place of several.
func withoutIndent(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return lines.String()
}
