package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// unpacked describes one entry of an archive, as [careful] or [careless] reads it.
type unpacked struct {
	kind       byte
	name, link string
	mode       int64
	body       string
}

// plain returns an archive without its compression.
func plain(t *testing.T, packed []byte) []byte {
	t.Helper()
	if !bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) {
		return packed
	}
	gz, err := gzip.NewReader(bytes.NewReader(packed))
	must.Succeed(t, err)
	out, err := io.ReadAll(gz)
	must.Succeed(t, err)
	return out
}

// careful reads an archive with archive/tar.
func careful(t *testing.T, packed []byte) []unpacked {
	t.Helper()
	var out []unpacked
	tr := tar.NewReader(bytes.NewReader(plain(t, packed)))
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must.Succeed(t, err)
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		body, err := io.ReadAll(tr)
		must.Succeed(t, err)
		out = append(out, unpacked{hdr.Typeflag, path.Clean(hdr.Name), hdr.Linkname, hdr.Mode, string(body)})
	}
}

// careless reads an archive as other programs do. It combines what they do differently from
// archive/tar:
//   - In every format, the header's prefix comes before the name.
//   - Global records apply.
//   - If two headers extend an entry, the first one counts.
//   - A size in a record replaces the header's size.
//   - A number ends at its first NUL.
//   - A folder has no content.
//   - A header that has neither a name nor a type ends the archive.
func careless(t *testing.T, packed []byte) []unpacked {
	t.Helper()
	rest := plain(t, packed)
	take := func(n int64) []byte {
		n = min(max(n, 0), int64(len(rest)))
		head := rest[:n]
		rest = rest[min((n+511)/512*512, int64(len(rest))):]
		return head
	}
	text := func(b []byte) string { s, _, _ := strings.Cut(string(b), "\x00"); return s }
	number := func(b []byte) int64 {
		n, _ := strconv.ParseInt(strings.TrimSpace(text(b)), 8, 64)
		return n
	}
	var out []unpacked
	global, records := map[string]string{}, map[string]string{}
	for len(rest) >= 512 && rest[0]|rest[156] != 0 {
		h := take(512)
		kind, size := h[156], number(h[124:136])
		for _, own := range []string{text(h[:100]), text(h[345:500]) + "/" + text(h[:100])} {
			if strings.HasPrefix(path.Clean(strings.TrimPrefix(own, "/")), "../") {
				t.Fatalf("%q is a header's own name", own)
			}
		}
		switch kind {
		case tar.TypeXHeader, tar.TypeXGlobalHeader:
			fresh := recordsOf(string(take(size)))
			if kind == tar.TypeXGlobalHeader {
				maps.Copy(global, fresh)
			} else {
				maps.Copy(fresh, records)
				records = fresh
			}
			continue
		case tar.TypeGNULongName, tar.TypeGNULongLink:
			key := map[byte]string{tar.TypeGNULongName: "path", tar.TypeGNULongLink: "linkpath"}[kind]
			if value := text(take(size)); records[key] == "" {
				records[key] = value
			}
			continue
		}
		e := unpacked{kind: kind, name: text(h[:100]), link: text(h[157:257]), mode: number(h[100:108])}
		if prefix := text(h[345:500]); prefix != "" {
			e.name = prefix + "/" + e.name
		}
		for _, these := range []map[string]string{global, records} {
			for key, value := range these {
				switch key {
				case "path":
					e.name = value
				case "linkpath":
					e.link, e.kind = value, tar.TypeLink
				case "size":
					size, _ = strconv.ParseInt(value, 10, 64)
				case "SCHILY.xattr.security.capability", "LIBARCHIVE.xattr.security.capability":
					e.mode |= 0o4000 // a capability gives a file rights as setuid does
				}
			}
		}
		if e.kind == 0 {
			e.kind = tar.TypeReg
			if strings.HasSuffix(e.name, "/") {
				e.kind = tar.TypeDir
			}
		}
		if e.kind == tar.TypeReg {
			e.body = string(take(size))
		}
		e.name = path.Clean(e.name)
		out = append(out, e)
		records = map[string]string{}
	}
	return out
}

// recordsOf parses the records of an extended header. If a key occurs twice, the first record
// counts.
func recordsOf(text string) map[string]string {
	out := map[string]string{}
	for text != "" {
		digits, _, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(digits)
		if err != nil || n <= len(digits) || n > len(text) {
			return out
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(text[len(digits)+1:n], "\n"), "=")
		if _, known := out[key]; !known {
			out[key] = value
		}
		text = text[n:]
	}
	return out
}

// harmless fails the test if an archive could harm a program that unpacks it. The entries that
// [careless] finds must stay in the folder where they are unpacked. They must have no links and no
// special permissions. They must equal the entries that [careful] finds.
func harmless(t *testing.T, packed []byte, limit int64) {
	t.Helper()
	entries := careless(t, packed)
	if want := careful(t, packed); !slices.Equal(entries, want) {
		t.Fatalf("programs differ:\n%+v\n%+v", entries, want)
	}
	// The root is two levels below a folder that the extractor must not touch.
	outside := t.TempDir()
	root := filepath.Join(outside, "a", "root")
	must.Succeed(t, os.MkdirAll(root, 0o755))
	var total int64
	for _, e := range entries {
		if err := e.extract(root); err != nil {
			t.Fatalf("extract %q: %v", e.name, err)
		}
		total += int64(len(e.body))
	}
	if total > limit {
		t.Fatalf("%d bytes extracted", total)
	}
	for dir, want := range map[string]string{outside: "a", filepath.Join(outside, "a"): "root"} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != want {
			t.Fatalf("something was written outside: %v, %v", entries, err)
		}
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		refused := fs.ModeSymlink | fs.ModeSetuid
		if !d.IsDir() {
			refused |= fs.ModeSetgid | fs.ModeSticky
		}
		if err == nil && info.Mode()&refused != 0 {
			t.Fatalf("%s is %s", name, info.Mode())
		}
		return err
	})
	must.Succeed(t, err)
}

// extract unpacks an entry. It joins names as text and lets the system follow links.
func (e unpacked) extract(root string) error {
	name := root + "/" + e.name
	switch e.kind {
	case tar.TypeDir:
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
	case tar.TypeReg:
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(e.body), 0o644)); err != nil {
			return err
		}
	case tar.TypeSymlink:
		return os.Symlink(e.link, name)
	case tar.TypeLink:
		return os.Link(root+"/"+e.link, name)
	default:
		return errors.New("an entry of another type")
	}
	mode := fs.FileMode(0o700) | fs.FileMode(e.mode&0o777)
	for bit, means := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if e.mode&bit != 0 {
			mode |= means
		}
	}
	return os.Chmod(name, mode)
}
