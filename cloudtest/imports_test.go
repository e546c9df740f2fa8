package cloudtest_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports: the local cloud checks the library and its SDKs, so it may share nothing with them.
func TestImports(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	own := false
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		switch {
		case path == "github.com/lanyard-dev/lanyard/cloudtest":
			own = true
		case strings.HasPrefix(path, "github.com/lanyard-dev/lanyard/cloudtest/"), strings.HasPrefix(path, "github.com/go-jose/go-jose/v4"):
		case path != "":
			t.Errorf("imports %s", path)
		}
	}
	if !own {
		t.Error("go list did not list this package")
	}
}
