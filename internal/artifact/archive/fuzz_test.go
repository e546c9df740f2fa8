package archive_test

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// FuzzNormalize checks that the outputs of Normalize and Copy pass [harmless]. It also checks that
// normalizing Normalize's output again changes nothing.
func FuzzNormalize(f *testing.F) {
	limits := archive.Limits{MaxBytes: 1 << 20, MaxFiles: 100}
	f.Add(pack(f, dir("d"), reg("d/x", "1"), link("l", "d")), "")
	f.Add(pack(f, reg("../x", "1")), "")
	f.Add(pack(f, link("l", ".."), reg("l/x", "1")), "")
	f.Add(pack(f, reg(strings.Repeat("a/", 60)+"x", "1"), reg("é", "2")), "*\n!é")
	f.Add(zip(f, pack(f, reg("a", strings.Repeat("x", 600)))), "/a")
	f.Add(retype(pack(f, reg("x", "")), tar.TypeLink), "")
	f.Add(oldSparseSeed(f), "")
	f.Fuzz(func(t *testing.T, in []byte, ignore string) { holds(t, in, ignore, limits) })
}

// FuzzEntries checks the same as FuzzNormalize, but for well-formed tar archives. Random bytes
// seldom have a header with the right checksum. Each line of the fuzzed script describes one entry:
// a byte for its type, its name, a NUL, and its link's target.
func FuzzEntries(f *testing.F) {
	f.Add("0d/x\x00\n5d\n2l\x00d\n0l/x", "")
	f.Add("0d\x00/", "") // a file whose content ends with a slash
	f.Add("2a\x00b\n2b\x00..\n0a/../x", "a")
	f.Add("0../x\n1x\x00/etc/passwd\n0./a//b\n0a", "**/b")
	f.Add("2l\x00x/../../..\n5l/\n0l/y\nSs\n3dev", "!l")
	f.Fuzz(func(t *testing.T, script, ignore string) {
		var buf bytes.Buffer
		tw := tar.NewWriter(&buf)
		for line := range strings.SplitSeq(script, "\n") {
			if line == "" {
				continue
			}
			name, target, _ := strings.Cut(line[1:], "\x00")
			hdr := &tar.Header{Typeflag: line[0], Name: name, Linkname: target}
			if line[0] == tar.TypeReg {
				hdr.Size = int64(len(line))
			}
			if tw.WriteHeader(hdr) != nil {
				return
			}
			if hdr.Size > 0 {
				if _, err := io.WriteString(tw, line); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		holds(t, buf.Bytes(), ignore, archive.Limits{MaxBytes: 1 << 20, MaxFiles: 100})
	})
}

func holds(t *testing.T, in []byte, ignore string, limits archive.Limits) {
	t.Helper()
	patterns, err := archive.ParsePatterns(ignore)
	if err != nil {
		patterns = archive.DefaultPatterns()
	}
	var out, same bytes.Buffer
	_, err = archive.Copy(t.Context(), bytes.NewReader(in), &same, limits)
	switch {
	case err != nil && archive.ReasonOf(err) == "":
		t.Fatalf("an error that is no refusal: %v", err)
	case err == nil && !bytes.Equal(same.Bytes(), in):
		t.Fatal("the copy is another archive")
	case err == nil:
		harmless(t, in, limits.MaxBytes)
	}
	copied := err == nil
	if _, err := archive.Normalize(t.Context(), bytes.NewReader(in), &out, archive.Options{Ignore: patterns, Limits: limits}); err != nil {
		if archive.ReasonOf(err) == "" {
			t.Fatalf("an error that is no refusal: %v", err)
		}
		if copied {
			t.Fatalf("Copy takes what Normalize refuses: %v", err)
		}
		return
	}
	var again bytes.Buffer
	if _, err := archive.Normalize(t.Context(), bytes.NewReader(out.Bytes()), &again, archive.Options{Ignore: patterns, Limits: limits}); err != nil {
		t.Fatalf("the output is refused: %v", err)
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Fatal("normalising again changes the output")
	}
	harmless(t, out.Bytes(), limits.MaxBytes)
	files, err := extract(t, in, archive.Options{Ignore: patterns, Limits: limits})
	if err != nil {
		t.Fatalf("Extract refuses what Normalize takes: %v", err)
	}
	var want []string
	for _, line := range unpack(t, out.Bytes()) {
		if folder := strings.HasSuffix(line, "/ rwxr-xr-x"); !folder {
			want = append(want, line)
		}
	}
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Fatalf("Extract writes %q, want %q", files, want)
	}
}

func oldSparseSeed(f *testing.F) []byte {
	f.Helper()
	in := pack(f, reg("s", strings.Repeat("x", 512)))
	return retype(in, tar.TypeGNUSparse)
}

// FuzzPatterns checks that patterns never panic, and that a slow and simple matcher gives the same
// results.
func FuzzPatterns(f *testing.F) {
	f.Add("a/**/b\n!c", "a/x/b", false)
	f.Add("[a-", "a", true)
	f.Add("*a?b*[!c-e]*.x\n!a/**/[]]*", "xaybzz.x", false)
	f.Add("a/*b*c/d*\ne/**", "a/xbxbc/d", true)
	f.Add("!a\n**/\\*", "d/*", false)
	f.Add(`\`, "a", true)
	f.Add("**/*/b", "/b", false)
	f.Fuzz(func(t *testing.T, text, path string, isDir bool) {
		p, err := archive.ParsePatterns(text)
		if err != nil {
			if archive.ReasonOf(err) != archive.ReasonPattern {
				t.Fatalf("an error without its reason: %v", err)
			}
			return
		}
		got := excludes(t, p, path, isDir)
		// Excludes accepts only clean paths, and reference() is slow for many path elements.
		if simple := strings.Count(text, "/")+strings.Count(path, "/") < 10; simple && fs.ValidPath(path) {
			if want := reference(text, path, isDir); got != want {
				t.Fatalf("%q, folder: %t: %t, want %t", path, isDir, got, want)
			}
		}
		// A last pattern "!*" must include every excluded path again.
		all, err := archive.ParsePatterns(text + "\n!*")
		if err == nil && path != "" && excludes(t, all, path, isDir) {
			t.Fatalf("%q is left out although the last pattern takes everything in", path)
		}
	})
}

// excludes asks a new Matcher about one path.
func excludes(t *testing.T, p archive.Patterns, name string, isDir bool) bool {
	t.Helper()
	excluded, err := p.Matcher().Excludes(name, isDir)
	if err != nil {
		t.Errorf("%q: %v", name, err)
	}
	return excluded
}
