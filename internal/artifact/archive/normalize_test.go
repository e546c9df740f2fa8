package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// entry is one entry of a test archive.
type entry struct {
	tar.Header
	body string
}

func reg(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(body))}, body}
}

func dir(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o700}, ""}
}

func link(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, ""}
}

func pack(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		must.Succeed(tb, tw.WriteHeader(&e.Header))
		if _, err := io.WriteString(tw, e.body); err != nil {
			tb.Fatal(err)
		}
	}
	must.Succeed(tb, tw.Close())
	return buf.Bytes()
}

func zip(tb testing.TB, plain []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	if _, err := gz.Write(plain); err != nil {
		tb.Fatal(err)
	}
	must.Succeed(tb, gz.Close())
	return buf.Bytes()
}

// unpack returns the entries of an output as "name mode body".
func unpack(t *testing.T, packed []byte) []string {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(packed))
	must.Succeed(t, err)
	var out []string
	tr := tar.NewReader(gz)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must.Succeed(t, err)
		if hdr.Uid != 0 || hdr.Gid != 0 || hdr.Uname != "" || hdr.Gname != "" || !hdr.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: header is not uniform: %+v", hdr.Name, hdr)
		}
		body, err := io.ReadAll(tr)
		must.Succeed(t, err)
		out = append(out, strings.TrimSpace(hdr.Name+" "+fs.FileMode(hdr.Mode).String()[1:]+" "+string(body)))
	}
}

func normalize(t *testing.T, in []byte, opts archive.Options) ([]byte, archive.Summary, error) {
	t.Helper()
	var out bytes.Buffer
	sum, err := archive.Normalize(t.Context(), bytes.NewReader(in), &out, opts)
	return out.Bytes(), sum, err
}

func TestNormalizeKeepsContent(t *testing.T) {
	exec := reg("./bin//run", "#!")
	exec.Mode = 0o4711
	exec.Uid, exec.Gid, exec.Uname, exec.ModTime = 1000, 1000, "alice", time.Now()
	exec.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "evil"}
	exec.Format = tar.FormatPAX
	in := pack(t,
		entry{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "0123abcd"}}, ""},
		dir("./"), dir("./bin/"), exec,
		dir("bin"), // a second time, as tar writes it for overlapping arguments
		reg("deep/er/é.yaml", "kind: é"),
		dir("deep"),
		link("bin/self", "run"), link("up", "bin/../deep/er"),
		reg("empty", ""),
	)
	want := []string{
		"bin/ rwxr-xr-x", "bin/run rwxr-xr-x #!", "deep/er/é.yaml rw-r--r-- kind: é", "deep/ rwxr-xr-x", "empty rw-r--r--",
	}
	for name, stream := range map[string][]byte{"plain": in, "gzip": zip(t, in), "padded": append(slices.Clone(in), make([]byte, 8192)...)} {
		t.Run(name, func(t *testing.T) {
			out, sum, err := normalize(t, stream, archive.Options{})
			must.Succeed(t, err)
			if got := unpack(t, out); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			if sum.Files != 3 || sum.Dirs != 2 || sum.SkippedLinks != 2 || sum.Ignored != 0 {
				t.Errorf("summary %+v", sum)
			}
			again, sum2, err := normalize(t, out, archive.Options{})
			if err != nil || !bytes.Equal(again, out) {
				t.Errorf("normalising again changes the bytes (%v)", err)
			}
			if sum2.Bytes != sum.Bytes {
				t.Errorf("lengths %d and %d", sum.Bytes, sum2.Bytes)
			}
		})
	}
}

// TestNormalizeIsIndependentOfReads splits the input at different places. The output must always be
// the same.
func TestNormalizeIsIndependentOfReads(t *testing.T) {
	noise := make([]byte, 70<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\n", 3_000)
	in := zip(t, pack(t, reg("a", string(noise)), reg("b", text), reg("c", text[:4097]), reg("d", string(noise[:5000])+text)))
	want, _, err := normalize(t, in, archive.Options{})
	must.Succeed(t, err)
	for name, r := range map[string]io.Reader{
		"byte by byte": iotest.OneByteReader(bytes.NewReader(in)),
		"halves":       iotest.HalfReader(bytes.NewReader(in)),
		"early EOF":    iotest.DataErrReader(bytes.NewReader(in)),
	} {
		var out bytes.Buffer
		if _, err := archive.Normalize(t.Context(), r, &out, archive.Options{}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: other bytes", name)
		}
	}
	plain, err := gzip.NewReader(bytes.NewReader(in))
	must.Succeed(t, err)
	var out bytes.Buffer
	if _, err := archive.Normalize(t.Context(), plain, &out, archive.Options{}); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("plain: other bytes (%v)", err)
	}
}

func TestNormalizeRefuses(t *testing.T) {
	typed := func(flag byte, name string) entry {
		return entry{tar.Header{Typeflag: flag, Name: name, Linkname: "x"}, ""}
	}
	bomb := zip(t, pack(t, reg("bomb", strings.Repeat("\x00", 1<<20))))
	slashFile := pack(t, reg("x", ""))
	slashFile = rename(slashFile, "x", "x/")
	good := pack(t, reg("good", strings.Repeat("y", 2000)))
	cases := []struct {
		name   string
		in     []byte
		limits archive.Limits
		reason archive.Reason
		entry  string
	}{
		{name: "parent", in: pack(t, reg("../x", "")), reason: archive.ReasonPath, entry: "../x"},
		{name: "parent inside", in: pack(t, reg("a/../b", "")), reason: archive.ReasonPath, entry: "a/../b"},
		{name: "parent folder", in: pack(t, dir("a/..")), reason: archive.ReasonPath},
		{name: "absolute", in: pack(t, reg("/etc/passwd", "")), reason: archive.ReasonPath, entry: "/etc/passwd"},
		{name: "absolute twice", in: pack(t, reg("//etc/passwd", "")), reason: archive.ReasonPath},
		{name: "backslash", in: pack(t, reg(`..\x`, "")), reason: archive.ReasonPath},
		{name: "newline", in: pack(t, reg("a\nb", "")), reason: archive.ReasonPath},
		{name: "escape", in: pack(t, reg("a\x1b[2J", "")), reason: archive.ReasonPath},
		{name: "not UTF-8", in: pack(t, reg("a\xff", "")), reason: archive.ReasonPath},
		{name: "empty name", in: rename(pack(t, reg("x", "")), "x", "\x00"), reason: archive.ReasonPath},
		{name: "file with slash", in: slashFile, reason: archive.ReasonPath},
		{name: "file named dot", in: pack(t, reg(".", "")), reason: archive.ReasonPath},
		{name: "long path", in: pack(t, reg(strings.Repeat("abcdefg/", 200)+"x", "")), reason: archive.ReasonPath},
		{name: "long element", in: pack(t, reg(strings.Repeat("a", 256), "")), reason: archive.ReasonPath},
		{name: "deep path", in: pack(t, reg(strings.Repeat("a/", 64)+"x", "")), reason: archive.ReasonPath},
		{name: "symlink out", in: pack(t, link("d/l", "../../x")), reason: archive.ReasonLink, entry: "d/l"},
		{name: "symlink to the parent", in: pack(t, link("l", "..")), reason: archive.ReasonLink},
		{name: "symlink absolute", in: pack(t, link("l", "/etc")), reason: archive.ReasonLink},
		{name: "symlink backslash", in: pack(t, link("l", `..\x`)), reason: archive.ReasonLink},
		{name: "symlink empty", in: pack(t, link("l", "")), reason: archive.ReasonLink},
		{name: "hard link out", in: pack(t, typed(tar.TypeLink, "l")), reason: archive.ReasonLink},
		{name: "write through symlink", in: pack(t, dir("d"), link("l", "d"), reg("l/x", "")), reason: archive.ReasonDuplicate, entry: "l/x"},
		{name: "symlink becomes file", in: pack(t, link("l", "d"), reg("l", "")), reason: archive.ReasonDuplicate},
		{name: "file becomes folder", in: pack(t, reg("a", ""), reg("a/b", "")), reason: archive.ReasonDuplicate},
		{name: "deep below a file", in: pack(t, reg("a", ""), reg("a/b/c/d", "")), reason: archive.ReasonDuplicate},
		{name: "folder becomes file", in: pack(t, reg("a/b", ""), reg("a", "")), reason: archive.ReasonDuplicate},
		{name: "folder entry becomes file", in: pack(t, dir("a"), reg("a", "")), reason: archive.ReasonDuplicate},
		{name: "file becomes folder entry", in: pack(t, reg("a", ""), dir("a/")), reason: archive.ReasonDuplicate},
		{name: "file twice", in: pack(t, reg("a", "1"), reg("./a", "2")), reason: archive.ReasonDuplicate},
		{name: "char device", in: pack(t, typed(tar.TypeChar, "null")), reason: archive.ReasonType, entry: "null"},
		{name: "block device", in: pack(t, typed(tar.TypeBlock, "sda")), reason: archive.ReasonType},
		{name: "fifo", in: pack(t, typed(tar.TypeFifo, "pipe")), reason: archive.ReasonType},
		{name: "contiguous", in: retype(pack(t, reg("x", "")), '7'), reason: archive.ReasonType},
		{name: "unknown type", in: retype(pack(t, reg("x", "")), 'Z'), reason: archive.ReasonType},
		{name: "old GNU sparse", in: oldSparse(t), reason: archive.ReasonType},
		{name: "PAX sparse", in: paxSparse(t), reason: archive.ReasonType},
		{name: "bomb", in: bomb, limits: archive.Limits{MaxBytes: 1 << 20}, reason: archive.ReasonTooLarge},
		{name: "bomb in ignored padding", in: zip(t, append(slices.Clone(good), make([]byte, 1<<20)...)), limits: archive.Limits{MaxBytes: 1 << 20}, reason: archive.ReasonTooLarge},
		{name: "too many files", in: pack(t, reg("a", ""), reg("b", ""), reg("c", "")), limits: archive.Limits{MaxFiles: 2}, reason: archive.ReasonTooMany},
		{name: "too many implied folders", in: pack(t, reg("a/b/c", "")), limits: archive.Limits{MaxFiles: 2}, reason: archive.ReasonTooMany},
		{name: "too many repeated folders", in: pack(t, dir("a"), dir("a"), dir("a")), limits: archive.Limits{MaxFiles: 2}, reason: archive.ReasonTooMany},
		{name: "too many roots", in: pack(t, dir("."), dir("."), dir(".")), limits: archive.Limits{MaxFiles: 2}, reason: archive.ReasonTooMany},
		{name: "empty", in: nil, reason: archive.ReasonCorrupt},
		{name: "no tar", in: bytes.Repeat([]byte("hello"), 500), reason: archive.ReasonCorrupt},
		{name: "truncated gzip", in: zip(t, good)[:40], reason: archive.ReasonCorrupt},
		{name: "gzip without checksum", in: zip(t, good)[:len(zip(t, good))-8], reason: archive.ReasonCorrupt},
		{name: "wrong checksum", in: flip(zip(t, good), -6), reason: archive.ReasonCorrupt},
		{name: "damaged deflate", in: flip(zip(t, good), 14), reason: archive.ReasonCorrupt},
		{name: "truncated tar", in: good[:1000], reason: archive.ReasonCorrupt},
		{name: "damaged header", in: flip(slices.Clone(good), 0), reason: archive.ReasonCorrupt},
		{name: "data after tar", in: append(slices.Clone(good), good...), reason: archive.ReasonCorrupt},
		{name: "data after gzip", in: append(zip(t, good), "garbage"...), reason: archive.ReasonCorrupt},
		{name: "second archive in gzip", in: append(zip(t, good), zip(t, good)...), reason: archive.ReasonCorrupt},
		{name: "zstd", in: []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0}, reason: archive.ReasonCompression},
		{name: "bzip2", in: []byte("BZh91AY"), reason: archive.ReasonCompression},
		{name: "xz", in: []byte{0xfd, '7', 'z', 'X', 'Z', 0}, reason: archive.ReasonCompression},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := normalize(t, c.in, archive.Options{Limits: c.limits})
			var refused *archive.Error
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want an *archive.Error", err)
			}
			if refused.Reason != c.reason {
				t.Errorf("got %s (%v), want %s", refused.Reason, err, c.reason)
			}
			if c.entry != "" && refused.Entry != c.entry {
				t.Errorf("got entry %q, want %q", refused.Entry, c.entry)
			}
			if refused.Fix == "" {
				t.Error("no fix")
			}
			if strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 500 {
				t.Errorf("the text is not fit for a condition: %q", err)
			}
			// Copy must fail for c.reason too, or for ReasonLink, because Copy refuses links.
			_, err = archive.Copy(t.Context(), bytes.NewReader(c.in), io.Discard, c.limits)
			if reason := archive.ReasonOf(err); reason != c.reason && reason != archive.ReasonLink {
				t.Errorf("Copy says %v", err)
			}
			// Extract must give the same reason. Only ReasonTooLarge may differ, because Extract
			// writes no headers.
			if _, err := extract(t, c.in, archive.Options{Limits: c.limits}); archive.ReasonOf(err) != c.reason && c.reason != archive.ReasonTooLarge {
				t.Errorf("Extract says %v", err)
			}
			// Ignored entries must be safe too.
			ignore, perr := archive.ParsePatterns("*")
			must.Succeed(t, perr)
			if _, _, err := normalize(t, c.in, archive.Options{Limits: c.limits, Ignore: ignore}); archive.ReasonOf(err) != c.reason {
				t.Errorf("with everything ignored: %v", err)
			}
		})
	}
}

// checksum corrects the checksum of a tar's first header after a change.
func checksum(in []byte) []byte {
	copy(in[148:156], "        ")
	sum := 0
	for _, b := range in[:512] {
		sum += int(b)
	}
	for i := range 6 {
		in[148+5-i] = byte('0' + sum>>(3*i)&7)
	}
	in[154] = 0
	return in
}

func rename(in []byte, from, to string) []byte {
	clear(in[:len(from)])
	copy(in, to)
	return checksum(in)
}

func retype(in []byte, flag byte) []byte {
	in[156] = flag
	return checksum(in)
}

func flip(in []byte, at int) []byte {
	if at < 0 {
		at += len(in)
	}
	in[at] ^= 0xff
	return in
}

// oldSparse returns an archive with one sparse file of GNU tar's type S, which has a large hole.
func oldSparse(t *testing.T) []byte {
	t.Helper()
	h := entry{tar.Header{Typeflag: tar.TypeReg, Name: "s", Size: 512, Format: tar.FormatGNU}, strings.Repeat("x", 512)}
	in := pack(t, h)
	copy(in[386:], "00000000000\x0000000001000\x00") // the only data: offset 0, 512 bytes
	copy(in[483:], "07777777777\x00")                // size of the file with its hole
	return retype(in, tar.TypeGNUSparse)
}

// paxSparse returns a PAX 1.0 sparse file. Its name and size are not in the usual fields.
func paxSparse(t *testing.T) []byte {
	t.Helper()
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=evil", "GNU.sparse.realsize=8589934592"} {
		n := len(r) + 3
		for len(itoa(n))+len(r)+2 != n {
			n = len(itoa(n)) + len(r) + 2
		}
		records += itoa(n) + " " + r + "\n"
	}
	ext := pack(t, reg("PaxHeaders.0/x", records))
	ext = retype(ext, tar.TypeXHeader)
	ext = ext[:1024] // header and one block of records
	body := "1\n0\n512\n" + strings.Repeat("\x00", 512-8) + strings.Repeat("x", 512)
	return append(ext, pack(t, reg("x", body))...)
}

func itoa(n int) string {
	var digits []byte
	for ; n > 0; n /= 10 {
		digits = append([]byte{byte('0' + n%10)}, digits...)
	}
	return string(digits)
}

func TestNormalizeExactLimit(t *testing.T) {
	in := pack(t, reg("a", strings.Repeat("x", 512)))
	out, sum, err := normalize(t, in, archive.Options{Limits: archive.Limits{MaxBytes: int64(len(in)), MaxFiles: 1}})
	if err != nil {
		t.Fatalf("an archive of exactly the limit: %v", err)
	}
	if sum.Bytes != int64(len(in)) {
		t.Errorf("%d bytes written, want %d", sum.Bytes, len(in))
	}
	if _, _, err := normalize(t, out, archive.Options{Limits: archive.Limits{MaxBytes: int64(len(in)) - 1}}); archive.ReasonOf(err) != archive.ReasonTooLarge {
		t.Errorf("one byte above the limit: %v", err)
	}
}

// TestNormalizePassesForeignErrors checks that errors of the source and of the sink are returned
// unchanged, even if the archive looks damaged.
func TestNormalizePassesForeignErrors(t *testing.T) {
	broken := errors.New("connection lost")
	packed := zip(t, pack(t, reg("a", strings.Repeat("x", 4000)), reg("b", "")))
	for cut := range len(packed) {
		r := io.MultiReader(bytes.NewReader(packed[:cut]), iotest.ErrReader(broken))
		if _, err := archive.Normalize(t.Context(), r, io.Discard, archive.Options{}); !errors.Is(err, broken) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	// A reader that verifies a digest fails only at its end. Normalize detects the damage
	// before that.
	damaged := flip(slices.Clone(packed), 14)
	r := io.MultiReader(bytes.NewReader(damaged), iotest.ErrReader(broken))
	if _, err := archive.Normalize(t.Context(), r, io.Discard, archive.Options{}); !errors.Is(err, broken) {
		t.Errorf("damage hides the wrong digest: %v", err)
	}
	full := errors.New("disk full")
	noise := make([]byte, 1<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	_, err := archive.Normalize(t.Context(), bytes.NewReader(pack(t, reg("a", string(noise)))), failing{full}, archive.Options{})
	if !errors.Is(err, full) {
		t.Errorf("sink: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := archive.Normalize(ctx, bytes.NewReader(packed), io.Discard, archive.Options{}); !errors.Is(err, broken) {
		t.Errorf("cancelled: %v", err)
	}
}

// asked implements a context that ends after the given number of calls of Err.
type asked struct {
	context.Context //nolint:containedctx // it is one

	left int
}

func (a *asked) Err() error {
	if a.left--; a.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestNormalizeEndsBetweenEntries checks that Normalize stops between two entries when its context
// ends. The entries compress so well that one read of the archive may return many of them. So
// Normalize must check the context before each entry, and not only before each read.
func TestNormalizeEndsBetweenEntries(t *testing.T) {
	var many []entry
	for i := range 1000 {
		many = append(many, reg("f"+itoa(i), ""))
	}
	ctx := &asked{t.Context(), 500}
	if _, err := archive.Normalize(ctx, bytes.NewReader(zip(t, pack(t, many...))), io.Discard, archive.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestNormalizeStreams checks that a bomb, which unpacks to 16 MiB, takes little memory.
func TestNormalizeStreams(t *testing.T) {
	pr, pw := io.Pipe()
	go func() {
		gz := gzip.NewWriter(pw)
		tw := tar.NewWriter(gz)
		const size = 16 << 20
		err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Size: size})
		if err == nil {
			_, err = io.CopyN(tw, zeros{}, size)
		}
		pw.CloseWithError(errors.Join(err, tw.Close(), gz.Close()))
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := archive.Normalize(t.Context(), pr, io.Discard, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("%d bytes allocated", got)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestCreate(t *testing.T) {
	root := t.TempDir()
	for name, body := range map[string]string{
		"b.yaml": "b", "a/x.yaml": "x", "a/photo.jpg": "jpg", ".git/config": "git", "a/run.sh": "#!",
	} {
		file := filepath.Join(root, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		mode := os.FileMode(0o640)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o750
		}
		must.Succeed(t, os.WriteFile(file, []byte(body), mode))
	}
	must.Succeed(t, os.Symlink("b.yaml", filepath.Join(root, "link")))
	var first, second bytes.Buffer
	sum, err := archive.Create(t.Context(), os.DirFS(root), &first, archive.Options{Ignore: archive.DefaultPatterns()})
	must.Succeed(t, err)
	want := []string{"a/ rwxr-xr-x", "a/run.sh rwxr-xr-x #!", "a/x.yaml rw-r--r-- x", "b.yaml rw-r--r-- b"}
	if got := unpack(t, first.Bytes()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if sum.Files != 3 || sum.Dirs != 1 || sum.SkippedLinks != 1 || sum.Ignored != 2 {
		t.Errorf("summary %+v", sum)
	}
	must.Succeed(t, os.Chtimes(filepath.Join(root, "b.yaml"), time.Unix(1, 0), time.Unix(2, 0)))
	if _, err := archive.Create(t.Context(), os.DirFS(root), &second, archive.Options{Ignore: archive.DefaultPatterns()}); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("other bytes for the same content (%v)", err)
	}
	must.Succeed(t, os.Symlink("/etc", filepath.Join(root, "out")))
	if _, err := archive.Create(t.Context(), os.DirFS(root), io.Discard, archive.Options{}); archive.ReasonOf(err) != archive.ReasonLink {
		t.Errorf("a link that leaves the folder: %v", err)
	}
}

func TestCreateFailures(t *testing.T) {
	big := fstest.MapFS{"a": {Data: make([]byte, 4096)}, "b": {Data: make([]byte, 4096)}}
	if _, err := archive.Create(t.Context(), big, io.Discard, archive.Options{Limits: archive.Limits{MaxBytes: 4096}}); archive.ReasonOf(err) != archive.ReasonTooLarge {
		t.Errorf("too large: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := archive.Create(ctx, big, io.Discard, archive.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := archive.Create(t.Context(), os.DirFS(filepath.Join(t.TempDir(), "none")), io.Discard, archive.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}
