package architecture

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestPrerequisitesAreComplete asserts that dev/prerequisites lists each program that a test looks
// up. Otherwise `make test` could fail for a missing program after a long build.
func TestPrerequisitesAreComplete(t *testing.T) {
	root := filepath.Join("..", "..")
	script, err := os.ReadFile(filepath.Join(root, "dev", "prerequisites"))
	must.Succeed(t, err)
	var known []string
	for _, row := range regexp.MustCompile(`(?m)^(?:demo|test) +(\S+) +\S+ +\S`).FindAllStringSubmatch(string(script), -1) {
		known = append(known, filepath.Base(row[1]))
	}
	lookup := regexp.MustCompile(`exec\.LookPath\("([^"]+)"\)`)
	found := 0
	for path, source := range testSources(t) {
		for _, match := range lookup.FindAllSubmatch(source, -1) {
			found++
			// dev/prerequisites is a bash script, so it does not list bash.
			if program := filepath.Base(string(match[1])); program != "bash" && !slices.Contains(known, program) {
				t.Errorf("%s looks for %s, which dev/prerequisites does not know", path, program)
			}
		}
	}
	if found < 5 || len(known) < 10 {
		t.Errorf("%d look-ups and %d programs were found: the test looks in the wrong place", found, len(known))
	}
}

// testSources returns the test files of all modules, keyed by path.
func testSources(t *testing.T) map[string][]byte {
	t.Helper()
	sources := map[string][]byte{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// Skip folders without source, which other programs may change while this test reads them.
		name := entry.Name()
		if entry.IsDir() && (name == "node_modules" || name == "bin" || strings.HasPrefix(name, ".") && name != "..") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		sources[path], err = os.ReadFile(path)
		return err
	})
	must.Succeed(t, err)
	return sources
}

// TestPrerequisitesWithoutRights asserts that dev/prerequisites prints the command that installs
// the missing packages, if the caller may not install them.
func TestPrerequisitesWithoutRights(t *testing.T) {
	// The folder has the command "go", and a few programs that every machine has. Its command "id"
	// is a fake, which says that the caller is not root.
	programs := t.TempDir()
	for _, name := range []string{"bash", "cat", "mktemp", "rm", "go"} {
		path, err := exec.LookPath(name)
		must.Succeed(t, err)
		must.Succeed(t, os.Symlink(path, filepath.Join(programs, name)))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(programs, "id"), []byte("#!/bin/sh\necho 1000\n"), 0o700))
	script, err := filepath.Abs(filepath.Join("..", "..", "dev", "prerequisites"))
	must.Succeed(t, err)
	for purpose, want := range map[string]string{"demo": "make", "test": "skopeo nodejs npm"} {
		cmd := exec.CommandContext(t.Context(), script, purpose)
		cmd.Env = []string{"PATH=" + programs}
		said, err := cmd.CombinedOutput()
		if text := string(said); err == nil || !strings.Contains(text, "apt-get install -y --no-install-recommends") || !strings.Contains(text, want) ||
			!strings.Contains(text, "then run make "+purpose+" again") {
			t.Errorf("dev/prerequisites %s: %v:\n%s", purpose, err, said)
		}
	}
}
