//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package archive_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestPatterns(t *testing.T) {
	cases := []struct {
		patterns string
		out      string // paths that are left out of the archive; a directory ends in "/"
		in       string // paths that stay in the archive
	}{
		{"*.md", "a.md d/b.md d.md/ d.md/x", "a.mdx md"},
		{"/a", "a a/b", "d/a"},
		{"a/", "a/ a/b d/a/ d/a/b", "a d/a"},
		{"d/a", "d/a d/a/b", "a x/d/a"},
		{"/d/*.txt", "d/a.txt", "d/e/a.txt a.txt"},
		{"**/a", "a d/a d/e/a d/a/b", "ab"},
		{"a/**", "a/b a/b/c", "a a/ b/a/c"},
		{"a/**/b", "a/b a/x/b a/x/y/b", "b a/xb x/a/b"},
		{"/deploy/**/*.md", "deploy/a.md deploy/x/y/a.md", "a.md x/deploy/a.md"},
		{"**", "a a/b", ""},
		{"a**b", "ab axb d/axxb", "a/b"},
		{"a?c", "abc aéc", "ac a/c"},
		{"[a-c]x", "ax bx cx", "dx Ax"},
		{"[!a]x", "bx", "ax"},
		{"[]]x", "]x", "x"},
		{`\#a`, "#a", "a"},
		{`\!a`, "!a", "a"},
		{`a\*`, "a*", "ab"},
		{`a\ `, "a\u0020x", ""}, // has its own check below, because the path contains a space
		{"a   ", "a", "ab"},
		{"# comment\n\n  \na", "a", "comment #"},
		{"a\r\nb\r\n", "a b", "c"},
		{"*\n!*.yaml", "a d/b", "a.yaml d/b.yaml"},
		{"/*\n!/deploy", "a x/y", "deploy/ deploy/a deploy/x/y"},
		{"/*\n!/deploy\n/deploy/**/*.md", "a deploy/a.md deploy/x/a.md", "deploy/a"},
		{"a/\n!a/b", "a/ a/c", "a/b"},
		{"!a", "", "a"},
		{"/", "", "a"},
		{"", "", ".git/ .git/config a.jpg"},
	}
	for _, c := range cases {
		p, err := archive.ParsePatterns(c.patterns)
		if err != nil {
			t.Errorf("%q: %v", c.patterns, err)
			continue
		}
		if c.patterns == `a\ ` {
			if !excludes(t, p, "a ", false) || excludes(t, p, "a", false) {
				t.Error("an escaped trailing space")
			}
			continue
		}
		for path := range strings.FieldsSeq(c.out) {
			if !excludes(t, p, strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")) {
				t.Errorf("%q keeps %s", c.patterns, path)
			}
		}
		for path := range strings.FieldsSeq(c.in) {
			if excludes(t, p, strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")) {
				t.Errorf("%q leaves out %s", c.patterns, path)
			}
		}
	}
}

func TestDefaultPatterns(t *testing.T) {
	p := archive.DefaultPatterns()
	for path := range strings.FieldsSeq(`.git/config .gitignore d/.gitattributes a.jpg d/e/f.tar.gz .github/workflows/x.yaml
		.travis.yml d/.sops.yaml .flux.yaml x/.goreleaser.yml cloudbuild.yaml`) {
		if !excludes(t, p, path, false) {
			t.Errorf("%s stays", path)
		}
	}
	for path := range strings.FieldsSeq("a.yaml kustomization.yaml d/git/x .sourceignore a.tar sops.yaml") {
		if excludes(t, p, path, false) {
			t.Errorf("%s is left out", path)
		}
	}
	if excludes(t, archive.Patterns{}, ".git", true) {
		t.Error("no patterns leave something out")
	}
}

// TestPatternsOverDefaults checks when a text replaces the default patterns. As in Flux's code,
// comments and empty lines replace nothing. Any other text replaces all default patterns except
// those for version control files.
func TestPatternsOverDefaults(t *testing.T) {
	for text, c := range map[string]struct{ out, in string }{
		"":                  {".git/config a.jpg .github/x", "a.yaml"},
		"\n# a comment\n\n": {".git/config a.jpg .github/x", "a.yaml"},
		"/":                 {".git/config", "a.jpg .github/x"}, // a pattern that matches no path
		"*.md":              {".git/config d/.git/x .gitignore a.md", ".gith a.jpg .github/x"},
		"!*.zip":            {".git/config", "a.zip a.jpg"},
		"!.git/":            {"", ".git/config"},
	} {
		p, err := archive.ParseOver(archive.DefaultPatterns(), "spec.ignore", text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		for path := range strings.FieldsSeq(c.out) {
			if !excludes(t, p, path, false) {
				t.Errorf("%q keeps %s", text, path)
			}
		}
		for path := range strings.FieldsSeq(c.in) {
			if excludes(t, p, path, false) {
				t.Errorf("%q leaves out %s", text, path)
			}
		}
	}
	if _, err := archive.ParseOver(archive.DefaultPatterns(), "spec.ignore", "a\n[b"); archive.ReasonOf(err) != archive.ReasonPattern || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("an invalid pattern: %v", err)
	}
}

func TestParsePatternsRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a\n[b":                        "line 2",
		`x\`:                           "line 1",
		"a\xff":                        "UTF-8",
		strings.Repeat("a\n", 600):     "500 patterns",
		strings.Repeat("a", 17<<10):    "bytes",
		"ok\nok\nd/[a-":                "line 3",
		"a\x00b":                       "line 1",
		strings.Repeat("*", 100) + "[": "line 1",
		strings.Repeat("a/", 64) + "b": "deeper",
	} {
		_, err := archive.ParsePatterns(text)
		if archive.ReasonOf(err) != archive.ReasonPattern || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// TestMatcherRemembersFolders checks that remembered folders do not change a decision: each path
// alone gives the same result as all paths in any order.
func TestMatcherRemembersFolders(t *testing.T) {
	p, err := archive.ParsePatterns("*.md\n/a/**/x\n!/a/b/keep\nc/\n!c/*.txt\n**/d/*/e\n")
	must.Succeed(t, err)
	var paths []string
	names := []string{"a", "b", "c", "d", "e", "x", "keep", "n.md", "n.txt"}
	for _, first := range names {
		for _, second := range names {
			for _, third := range names {
				paths = append(paths, first, first+"/"+second+"/"+third, first+"/"+second)
			}
		}
	}
	for seed := range uint64(20) {
		m := p.Matcher()
		order := rand.New(rand.NewPCG(seed, 0)).Perm(len(paths))
		if seed == 0 {
			slices.Sort(order)
		}
		for i, at := range order {
			isDir := i%3 == 0
			if got, err := m.Excludes(paths[at], isDir); err != nil || got != excludes(t, p, paths[at], isDir) {
				t.Fatalf("%s (folder: %t): %t, %v", paths[at], isDir, got, err)
			}
		}
	}
}

// hostilePatterns returns patterns that are slow to match, as many as fit into spec.ignore. Because
// of the "**", a match of each pattern may begin in any folder of hostilePath.
func hostilePatterns(tb testing.TB) archive.Patterns {
	tb.Helper()
	var text strings.Builder
	for i := range 409 {
		text.WriteString("**/*aaaab/*aaaab/*aaaab/*aaaab/*aaaab/" + string(rune('a'+i%26)) + "\n")
	}
	p, err := archive.ParsePatterns(text.String())
	must.Succeed(tb, err)
	return p
}

// hostilePath returns a path of 64 elements.
func hostilePath(i int) string {
	return fmt.Sprintf("%014x/", i) + strings.Repeat("aaaaaaaaaaaaab/", 62) + "aaaaaaaaaaaaac"
}

// TestPatternsAreBounded checks that patterns that take too long are refused after a few paths.
func TestPatternsAreBounded(t *testing.T) {
	m := hostilePatterns(t).Matcher()
	for i := range 50_000 {
		excluded, err := m.Excludes(hostilePath(i), false)
		if err == nil {
			continue
		}
		if archive.ReasonOf(err) != archive.ReasonPattern || !strings.Contains(err.Error(), "spec.ignore") || excluded {
			t.Errorf("%t, %v", excluded, err)
		}
		if _, again := m.Excludes("a", false); again == nil {
			t.Error("a refusal is forgotten")
		}
		return
	}
	t.Error("matched to the end")
}

// TestManyOrdinaryPatternsAreTaken checks that ordinary patterns never take too long to match. A
// path takes fewer steps than a Matcher allows for each path.
func TestManyOrdinaryPatternsAreTaken(t *testing.T) {
	var text strings.Builder
	for i := range 490 {
		fmt.Fprintf(&text, "*.suffix%d%s\n", i, "*"[i%2:])
	}
	p, err := archive.ParsePatterns(text.String())
	must.Succeed(t, err)
	m := p.Matcher()
	for i := range 20_000 {
		if excluded, err := m.Excludes(fmt.Sprintf("apps/team-%d/some-service/values-%d.yaml", i/100, i), false); excluded || err != nil {
			t.Fatalf("path %d: %t, %v", i, excluded, err)
		}
	}
}

// TestOrdinaryPatternsOfDeepTreesAreTaken checks that ordinary patterns with a "?" do not take too
// long, even if each of many files is in its own folder.
func TestOrdinaryPatternsOfDeepTreesAreTaken(t *testing.T) {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "*-%d-*.y?ml\n", i)
	}
	p, err := archive.ParsePatterns(text.String())
	must.Succeed(t, err)
	m := p.Matcher()
	for i := range 20_000 {
		name := fmt.Sprintf("clusters/production-eu/namespace-%d/apps-and-more/some-deployment-name-%d.yaml", i, i)
		if excluded, err := m.Excludes(name, false); excluded || err != nil {
			t.Fatalf("path %d: %t, %v", i, excluded, err)
		}
	}
}

func BenchmarkPatterns(b *testing.B) {
	b.Run("hostile", func(b *testing.B) {
		p := hostilePatterns(b)
		name := hostilePath(0)
		for b.Loop() {
			if _, err := p.Matcher().Excludes(name, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("default", func(b *testing.B) {
		m := archive.DefaultPatterns().Matcher()
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("apps/team-%d/some-service/values-%d.yaml", i/100, i)
		}
		i := 0
		for b.Loop() {
			if _, err := m.Excludes(names[i%len(names)], false); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}
