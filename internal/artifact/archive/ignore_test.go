package archive_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

func TestPatterns(t *testing.T) {
	cases := []struct {
		patterns string
		out      string // paths that are left out; a directory ends in "/"
		in       string // paths that stay
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
		{`a\ `, "a\u0020x", ""}, // see below: a path with a space cannot stand in this table
		{"a   ", "a", "ab"},
		{"# comment\n\n  \na", "a", "comment #"},
		{"a\r\nb\r\n", "a b", "c"},
		{"*\n!*.yaml", "a d/b", "a.yaml d/b.yaml"},
		{"/*\n!/deploy", "a x/y", "deploy/ deploy/a deploy/x/y"},
		{"/*\n!/deploy\n/deploy/**/*.md", "a deploy/a.md deploy/x/a.md", "deploy/a"},
		{"a/\n!a/b", "a/ a/c", "a/b"},
		{"!a", "", "a"},
		{"/", "", "a"},
		{"", ".git/ .git/config d/.git/x .gitignore", ".gith a.jpg"},
		{"!.git/", "", ".git/ .git/config"},
	}
	for _, c := range cases {
		p, err := archive.ParsePatterns(c.patterns)
		if err != nil {
			t.Errorf("%q: %v", c.patterns, err)
			continue
		}
		if c.patterns == `a\ ` {
			if !p.Excludes("a ", false) || p.Excludes("a", false) {
				t.Error("an escaped trailing space")
			}
			continue
		}
		for path := range strings.FieldsSeq(c.out) {
			if !p.Excludes(strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")) {
				t.Errorf("%q keeps %s", c.patterns, path)
			}
		}
		for path := range strings.FieldsSeq(c.in) {
			if p.Excludes(strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")) {
				t.Errorf("%q leaves out %s", c.patterns, path)
			}
		}
	}
}

func TestDefaultPatterns(t *testing.T) {
	p := archive.DefaultPatterns()
	for path := range strings.FieldsSeq(`.git/config .gitignore d/.gitattributes a.jpg d/e/f.tar.gz .github/workflows/x.yaml
		.travis.yml d/.sops.yaml .flux.yaml x/.goreleaser.yml cloudbuild.yaml`) {
		if !p.Excludes(path, false) {
			t.Errorf("%s stays", path)
		}
	}
	for path := range strings.FieldsSeq("a.yaml kustomization.yaml d/git/x .sourceignore a.tar sops.yaml") {
		if p.Excludes(path, false) {
			t.Errorf("%s is left out", path)
		}
	}
	if (archive.Patterns{}).Excludes(".git", true) {
		t.Error("no patterns leave something out")
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
	} {
		_, err := archive.ParsePatterns(text)
		if archive.ReasonOf(err) != archive.ReasonPattern || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// A tenant's pattern must not cost more than pattern times name.
func TestPatternsAreNotExponential(t *testing.T) {
	p, err := archive.ParsePatterns(strings.Repeat("*a", 120) + "b\n" + strings.Repeat("**/a/", 60) + "b")
	if err != nil {
		t.Fatal(err)
	}
	if p.Excludes(strings.Repeat("a", 255)+"/"+strings.TrimSuffix(strings.Repeat("a/", 60), "/"), false) {
		t.Error("matched")
	}
}
