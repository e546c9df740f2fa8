package cloudtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports checks the imports of the local cloud. The local cloud tests Lanyard's library and
// the clouds' SDKs. So it must not use their code that gets, checks or signs credentials. It may
// use CEL, which does none of this. Google's service uses CEL too.
func TestImports(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/lanyard-dev/lanyard/cloudtest/", "github.com/go-jose/go-jose/v4",
		"github.com/google/cel-go/", "cel.dev/expr", "github.com/antlr4-go/antlr/v4", "github.com/stoewer/go-strcase",
		"golang.org/x/exp/", "golang.org/x/text/", "google.golang.org/protobuf/", "google.golang.org/genproto/googleapis/",
	}
	own := false
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		switch {
		case path == "github.com/lanyard-dev/lanyard/cloudtest":
			own = true
		case slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(path, prefix) }):
		case path != "":
			t.Errorf("imports %s", path)
		}
	}
	if !own {
		t.Error("go list did not list this package")
	}
}
