package architecture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestLinkedProgramsAreKept asserts that dev/link-tests links a test's program once, and again when
// the test changes. The number of kept programs is bounded.
func TestLinkedProgramsAreKept(t *testing.T) {
	script, err := filepath.Abs(filepath.Join("..", "..", "dev", "link-tests"))
	must.Succeed(t, err)
	goCache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	must.Succeed(t, err)
	module, home := t.TempDir(), t.TempDir()
	kept := filepath.Join(home, "lanyard", "tests")
	write(t, filepath.Join(module, "go.mod"), "module example.com/greeting\n\ngo 1.26\n")
	greet := func(greeting string) string {
		t.Helper()
		write(t, filepath.Join(module, "greeting_test.go"),
			fmt.Sprintf("package greeting\n\nimport \"testing\"\n\nfunc Test(t *testing.T) { t.Log(%q) }\n", greeting))
		cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-v",
			"-toolexec='"+script+"'", ".")
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOCACHE="+strings.TrimSpace(string(goCache)), "GOWORK=off", "CGO_ENABLED=0",
			"XDG_CACHE_HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go test: %v\n%s", err, out)
		}
		return string(out)
	}

	if got := greet("good morning"); !strings.Contains(got, "good morning") {
		t.Errorf("the test printed %q", got)
	}
	programs := filesIn(t, kept)
	if len(programs) != 1 {
		t.Fatalf("%d programs are kept, want 1", len(programs))
	}

	// Replace the kept program by a script that prints something else. Its output shows that the go
	// command runs the kept program.
	mark := filepath.Join(kept, programs[0])
	write(t, mark, "#!/bin/sh\necho the kept program\n")
	if got := greet("good morning"); !strings.Contains(got, "the kept program") {
		t.Errorf("the kept program did not run. The test printed %q", got)
	}
	if got := greet("good evening"); !strings.Contains(got, "good evening") {
		t.Errorf("the changed test printed %q", got)
	}

	// Add 400 files to the folder of kept programs, more than dev/link-tests keeps. Each stands for
	// a program that was used some time ago. Its name begins with a dash, as a hash in a build ID
	// can. After the next link, dev/link-tests must delete the files that were used longest ago.
	const older = 400
	for i := range older {
		path := filepath.Join(kept, fmt.Sprintf("-older-%04d", i))
		write(t, path, "")
		used := time.Now().Add(-time.Duration(i+1) * time.Minute)
		must.Succeed(t, os.Chtimes(path, used, used))
	}
	if got := greet("good night"); !strings.Contains(got, "good night") {
		t.Errorf("the changed test printed %q", got)
	}
	programs = filesIn(t, kept)
	if len(programs) >= older || len(programs) < 200 {
		t.Errorf("%d programs are kept, want some hundreds", len(programs))
	}
	// Three of the kept programs were linked by the calls of greet above. The others are the added
	// ones that were used most recently: -older-0000, -older-0001 and so on.
	if last := fmt.Sprintf("-older-%04d", len(programs)-3-1); !slices.Contains(programs, last) {
		t.Errorf("%d programs are kept, but not %s, which was used last of the others", len(programs), last)
	}

	// Even if dev/link-tests cannot store the linked program, the go command must get it. Here,
	// storing fails because XDG_CACHE_HOME is a file, and not a folder.
	home = filepath.Join(module, "go.mod")
	if got := greet("good day"); !strings.Contains(got, "good day") {
		t.Errorf("without a cache folder, the test printed %q", got)
	}
}

// write writes a file that can be run.
func write(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o700))
}

// filesIn returns the names of a folder's files.
func filesIn(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must.Succeed(t, err)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
