package flux

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/sourceignore/gitignore"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// ignored returns texts for spec.ignore, and paths. The texts are the examples in Flux's
// documentation and every string in the tests of Flux's library. The paths are from the lists and
// strings in the library's tests, with a few of our own.
func ignored(t *testing.T) (ignores, paths []string) {
	t.Helper()
	for _, page := range []string{"ocirepositories.md", "buckets.md"} {
		doc, err := os.ReadFile(filepath.Join(module(t, sourceController), "docs/spec/v1", page))
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile(`(?m)^  ignore: \|\n((?:    .*\n)+)`).FindAllStringSubmatch(string(doc), -1)
		if len(blocks) == 0 {
			t.Fatalf("%s has no example of spec.ignore", page)
		}
		for _, block := range blocks {
			ignores = append(ignores, strings.ReplaceAll(block[1], "    ", ""))
		}
	}
	library := strings.TrimSpace(output(t, "list", "-f", "{{.Dir}}", "github.com/fluxcd/pkg/sourceignore"))
	set := map[string]bool{"deploy": true, "deploy/a.yaml": true, "deploy/x/a.md": true, "deploy/x/y/a.txt": true, "a.md": true}
	for _, name := range []string{"sourceignore_test.go", "gitignore/pattern_test.go", "gitignore/matcher_test.go"} {
		file := parse(t, library, name)
		ignores = append(ignores, texts(file)...)
		for _, elements := range lists(file) {
			if path := strings.Join(elements, "/"); fs.ValidPath(path) && path != "." {
				set[path] = true
			}
		}
	}
	return ignores, slices.Sorted(maps.Keys(set))
}

// matchers maps each kind to the functions with which Lanyard and Flux read its spec.ignore.
var matchers = map[string]struct {
	ours   func(string) (archive.Patterns, error)
	theirs func([]gitignore.Pattern) gitignore.Matcher
	before string // patterns that precede those of spec.ignore
}{
	"Bucket": {
		ours:   archive.ParsePatterns,
		theirs: sourceignore.NewMatcher,
	},
	"OCIRepository": {
		ours: func(text string) (archive.Patterns, error) {
			return archive.ParseOver(archive.DefaultPatterns(), "spec.ignore", text)
		},
		theirs: func(own []gitignore.Pattern) gitignore.Matcher {
			if len(own) == 0 {
				return sourceignore.NewDefaultMatcher(nil, nil)
			}
			return sourceignore.NewMatcher(append(sourceignore.VCSPatterns(nil), own...))
		},
		before: strings.ReplaceAll(sourceignore.ExcludeVCS, ",", "\n") + "\n",
	},
}

// TestIgnoreAsFlux asserts that every text of spec.ignore excludes the same paths as in Flux.
// Lanyard may differ in the two cases that docs/deviations.md lists: if Git decides as Lanyard
// does, and if Lanyard refuses the pattern.
func TestIgnoreAsFlux(t *testing.T) {
	ignores, paths := ignored(t)
	for kind, matcher := range matchers {
		t.Run(kind, func(t *testing.T) {
			compared, differ, refused := 0, 0, 0
			for _, ignore := range ignores {
				theirs := matcher.theirs(sourceignore.ReadPatterns(strings.NewReader(ignore), nil))
				ours, err := matcher.ours(ignore)
				if err != nil {
					refused++
					if !strings.Contains(err.Error(), `a "[" is not closed`) {
						t.Errorf("%q is refused: %v", ignore, err)
					}
				}
				for _, path := range paths {
					for _, isDir := range []bool{false, true} {
						compared++
						want := theirs.Match(strings.Split(path, "/"), isDir)
						got, mistake := ours.Matcher().Excludes(path, isDir)
						switch {
						case mistake != nil:
							t.Errorf("%q, path %s: %v", ignore, path, mistake)
						case err == nil && got != want:
							differ++
							if git(t, matcher.before+ignore, path, isDir) != got {
								t.Errorf("%q, path %s (folder: %t): Lanyard says %t, Flux and Git say %t", ignore, path, isDir, got, want)
							}
						}
					}
				}
			}
			t.Logf("%d comparisons; %d differ, and Git agrees with Lanyard; %d of %d patterns are refused", compared, differ, refused, len(ignores))
			if compared < 20_000 || differ == 0 || refused == 0 {
				t.Error("there was too little to compare")
			}
		})
	}
}

// git reports whether Git ignores a path.
func git(t *testing.T, ignore, path string, isDir bool) bool {
	t.Helper()
	dir := t.TempDir()
	run := func(args ...string) error {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "core.excludesFile=/dev/null"}, args...)...)
		return cmd.Run()
	}
	file := filepath.Join(dir, path)
	if isDir {
		file = filepath.Join(file, "file")
	}
	err := errors.Join(
		run("init", "--quiet", "--template="),
		os.MkdirAll(filepath.Join(dir, ".git/info"), 0o700),
		os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte(ignore), 0o600),
		os.MkdirAll(filepath.Dir(file), 0o700),
		os.WriteFile(file, nil, 0o600),
	)
	if err != nil {
		t.Fatalf("git: %v", err)
	}
	err = run("check-ignore", "--quiet", "--no-index", "--", path)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return false
	}
	if err != nil {
		t.Fatalf("git check-ignore: %v", err)
	}
	return true
}
