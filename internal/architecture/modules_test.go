package architecture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesAgree checks that all modules of the repository require one version of each module
// that they share. With two versions, all packages that depend on the shared module are compiled
// twice. Tests may then run another version than the one that is shipped.
func TestModulesAgree(t *testing.T) {
	type use struct{ version, module string }
	uses := map[string]use{}
	for _, module := range []string{".", "api", "auth", "cloudtest", "test/e2e", "test/flux", "dev/controlplane", "bench"} {
		text, err := os.ReadFile(filepath.Join("..", "..", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for path, version := range versions(string(text)) {
			if path == "github.com/opencontainers/go-digest" && module == "test/flux" {
				continue // test/flux replaces go-digest by the version that Flux uses
			}
			first, known := uses[path]
			switch {
			case !known:
				uses[path] = use{version, module}
			case version != first.version:
				t.Errorf("%s/go.mod has %s %s, and %s/go.mod has %s: use the newer one in both", module, path, version, first.module, first.version)
			}
		}
	}
	if len(uses) < 100 {
		t.Errorf("only %d modules were found: the test looks in the wrong place", len(uses))
	}
}

// versions returns the version of each module that a go.mod file requires. If the file replaces a
// module by another version, that version counts.
func versions(text string) map[string]string {
	found, replaced := map[string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		switch fields := strings.Fields(strings.TrimPrefix(strings.TrimPrefix(line, "require "), "replace ")); {
		case len(fields) >= 4 && fields[1] == "=>" && strings.HasPrefix(fields[3], "v"):
			replaced[fields[0]] = fields[3]
		case len(fields) >= 2 && strings.HasPrefix(fields[1], "v"):
			found[fields[0]] = fields[1]
		}
	}
	for path, version := range replaced {
		if _, required := found[path]; required {
			found[path] = version
		}
	}
	return found
}
