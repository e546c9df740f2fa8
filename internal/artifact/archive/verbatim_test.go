package archive_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
)

// record returns one record of an extended header.
func record(key, value string) string {
	text := " " + key + "=" + value + "\n"
	n := len(text)
	for len(itoa(n))+len(text) != n {
		n = len(itoa(n)) + len(text)
	}
	return itoa(n) + text
}

// extension returns a header that extends the next header. It has the given kind and content.
func extension(tb testing.TB, kind byte, content string) []byte {
	tb.Helper()
	in := retype(pack(tb, reg("ext", content)), kind)
	return in[:len(in)-1024] // without the two end-of-archive blocks
}

// entries returns an archive of the entries, without the two end-of-archive blocks.
func entries(tb testing.TB, list ...entry) []byte {
	tb.Helper()
	in := pack(tb, list...)
	return in[:len(in)-1024]
}

func join(parts ...[]byte) []byte {
	return append(slices.Concat(parts...), make([]byte, 1024)...)
}

// patch overwrites bytes of the first header.
func patch(in []byte, at int, with string) []byte {
	copy(in[at:], with)
	return checksum(in)
}

// checksumBehindNUL writes the first header's checksum after a NUL: only some programs can read it.
func checksumBehindNUL(in []byte) []byte {
	copy(in[148:], "\x00"+string(in[149:154])+"\x00 ")
	return in
}

func moded(e entry, mode int64) entry {
	e.Mode = mode
	return e
}

func withRecords(e entry, records map[string]string) entry {
	e.PAXRecords, e.Format = records, tar.FormatPAX
	return e
}

const gnuMagic, oldMagic = "ustar  \x00", "\x00\x00\x00\x00\x00\x00\x00\x00"

// TestCopyRefuses checks archives that Copy refuses and Normalize accepts. Normalize replaces their
// unsafe headers, but Copy would leave them for other programs to read.
func TestCopyRefuses(t *testing.T) {
	file := reg("x", "1")
	path := record("path", "good")
	capability := map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
	for name, test := range map[string]struct {
		in     []byte
		reason archive.Reason
	}{
		"a link":                          {pack(t, reg("a", ""), link("l", "a")), archive.ReasonLink},
		"a link to the root":              {pack(t, link("a/b/l", "../..")), archive.ReasonLink},
		"a link out through another link": {pack(t, link("a/b/l", "../.."), link("values.yaml", "a/b/l/../../../etc/passwd")), archive.ReasonLink},
		"a file with a link's target":     {patch(pack(t, file), 157, "/etc/passwd"), archive.ReasonLink},
		"a record with a link's target":   {join(extension(t, 'x', record("linkpath", "/etc/passwd")), entries(t, file)), archive.ReasonLink},
		"a long link's target":            {join(extension(t, 'K', "/etc/passwd\x00"), entries(t, file)), archive.ReasonLink},
		"an empty link's target":          {join(extension(t, 'K', "\x00"), entries(t, file)), archive.ReasonHeader},
		"setuid":                          {pack(t, moded(file, 0o4755)), archive.ReasonHeader},
		"setgid":                          {pack(t, moded(file, 0o2755)), archive.ReasonHeader},
		"sticky":                          {pack(t, moded(file, 0o1755)), archive.ReasonHeader},
		"setuid folder":                   {pack(t, moded(dir("x"), 0o4755)), archive.ReasonHeader},
		"a name under a path":             {join(extension(t, 'x', path), patch(entries(t, file), 0, "../../x")), archive.ReasonHeader},
		"a name under a long name":        {join(extension(t, 'L', "good\x00"), patch(entries(t, file), 0, "/etc/passwd")), archive.ReasonHeader},
		"a prefix under a path":           {join(extension(t, 'x', path), patch(entries(t, file), 345, "a/../..")), archive.ReasonHeader},
		"a name of an extended header":    {join(patch(extension(t, 'x', path), 0, "../../x"), entries(t, file)), archive.ReasonHeader},
		"an absolute name of such a one":  {join(patch(extension(t, 'x', path), 0, "/x"), entries(t, file)), archive.ReasonHeader},
		"a name of a global header":       {join(patch(extension(t, 'g', record("comment", "1")), 0, "a/../../x"), entries(t, file)), archive.ReasonHeader},
		"capability":                      {pack(t, withRecords(file, capability)), archive.ReasonHeader},
		"access list":                     {pack(t, withRecords(file, map[string]string{"SCHILY.acl.access": "user::rwx"})), archive.ReasonHeader},
		"character set":                   {pack(t, withRecords(file, map[string]string{"hdrcharset": "BINARY"})), archive.ReasonHeader},
		"global path":                     {join(extension(t, 'g', record("path", "../../x")), entries(t, file)), archive.ReasonHeader},
		"global link":                     {join(extension(t, 'g', record("linkpath", "/etc")), entries(t, file)), archive.ReasonHeader},
		"global mode of Solaris":          {join(extension(t, 'g', record("SUN.holesdata", "0")), entries(t, file)), archive.ReasonHeader},
		"a global header between":         {join(extension(t, 'x', path), extension(t, 'g', record("comment", "1")), entries(t, file)), archive.ReasonHeader},
		"two extended headers":            {join(extension(t, 'x', record("path", "../../x")), extension(t, 'x', path), entries(t, file)), archive.ReasonHeader},
		"two long names":                  {join(extension(t, 'L', "../../x\x00"), extension(t, 'L', "good\x00"), entries(t, file)), archive.ReasonHeader},
		"a long name and a path":          {join(extension(t, 'L', "good\x00"), extension(t, 'x', record("path", "../../x")), entries(t, file)), archive.ReasonHeader},
		"two paths":                       {join(extension(t, 'x', record("path", "../../x")+path), entries(t, file)), archive.ReasonHeader},
		"an empty path":                   {join(extension(t, 'x', record("path", "")), entries(t, file)), archive.ReasonHeader},
		"a smaller size in a record":      {join(extension(t, 'x', record("size", "0")), entries(t, file)), archive.ReasonHeader},
		"a larger size in a record":       {join(extension(t, 'x', record("size", "513")), entries(t, file), make([]byte, 512)), archive.ReasonHeader},
		"an empty size":                   {join(extension(t, 'x', record("size", "")), entries(t, file)), archive.ReasonHeader},
		"a folder's size in a record":     {join(extension(t, 'x', record("size", "1")), entries(t, dir("x/")), make([]byte, 512)), archive.ReasonHeader},
		"GNU header with a prefix":        {patch(patch(pack(t, file), 257, gnuMagic), 345, "00000000000\x0000000000000\x00/../x"), archive.ReasonHeader},
		"old header with a prefix":        {patch(patch(pack(t, file), 257, oldMagic), 345, "../../x"), archive.ReasonHeader},
		"star's header":                   {patch(patch(pack(t, file), 345, "a"), 508, "tar\x00"), archive.ReasonHeader},
		"size behind NUL":                 {patch(pack(t, reg("x", strings.Repeat("x", 512))), 124, "\x00000001000\x00"), archive.ReasonHeader},
		"mode behind NUL":                 {patch(pack(t, file), 100, "\x00000755\x00"), archive.ReasonHeader},
		"size in binary":                  {patch(pack(t, file), 124, "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), archive.ReasonHeader},
		"folder with content":             {retype(pack(t, reg("x", "1")), '5'), archive.ReasonHeader},
		"old folder with content":         {patch(retype(pack(t, reg("x", strings.Repeat("y", 512))), 0), 0, "x/"), archive.ReasonHeader},
		"folder with a size":              {patch(pack(t, dir("x/")), 124, "00000001000\x00"), archive.ReasonHeader},
		"a checksum behind NUL":           {checksumBehindNUL(pack(t, file)), archive.ReasonHeader},
		"an empty long name":              {join(extension(t, 'L', "\x00../../x\x00"), entries(t, file)), archive.ReasonHeader},
		"no long name":                    {join(extension(t, 'L', ""), entries(t, file)), archive.ReasonHeader},
		"a path of nothing":               {join(entries(t, file), extension(t, 'x', path)), archive.ReasonHeader},
		"a link's target of nothing":      {join(entries(t, file), extension(t, 'K', "/etc\x00")), archive.ReasonHeader},
		"a name outside of nothing":       {join(entries(t, file), patch(extension(t, 'x', path), 0, "../x")), archive.ReasonHeader},
		"a long name that goes on":        {join(extension(t, 'L', "good\x00\nx\x00"), entries(t, file)), archive.ReasonHeader},
		"a record within a record":        {join(extension(t, 'x', record("comment", "x\n"+record("path", "../../x"))), entries(t, file)), archive.ReasonHeader},
		"a prefix behind NUL":             {patch(pack(t, file), 346, "../.."), archive.ReasonHeader},
		"nothing but a prefix":            {patch(patch(retype(pack(t, dir("x")), 0), 0, "\x00\x00"), 345, "x"), archive.ReasonHeader},
		"endless records":                 {join(extension(t, 'x', record("comment", strings.Repeat("x", 65<<10))), entries(t, file)), archive.ReasonHeader},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range [][]byte{test.in, zip(t, test.in)} {
				_, err := archive.Copy(t.Context(), bytes.NewReader(in), io.Discard, archive.Limits{})
				if archive.ReasonOf(err) != test.reason {
					t.Errorf("%v, want %s", err, test.reason)
				}
			}
		})
	}
}

// TestCopyKeepsBytes checks that archives of common tools are copied unchanged, and that the most
// careless reader unpacks them safely.
func TestCopyKeepsBytes(t *testing.T) {
	long := strings.Repeat("folder/", 30) + "file.yaml"
	formatted := func(format tar.Format, entries ...entry) []byte {
		for i := range entries {
			entries[i].Format = format
		}
		return pack(t, entries...)
	}
	old := patch(pack(t, reg("a", "1")), 257, oldMagic)
	clear(old[265:345]) // the old format has no owners' names and no devices
	for name, in := range map[string][]byte{
		"ustar": formatted(tar.FormatUSTAR, dir("d/"), reg("d/x", "1"), reg(strings.Repeat("folder/", 20)+"file", "2")),
		"GNU":   formatted(tar.FormatGNU, dir("d/"), reg("d/x", "1"), reg(long, "2")),
		"pax":   formatted(tar.FormatPAX, dir("d/"), reg("d/é", "1"), reg(long, "2")),
		"old":   checksum(old),
		"git":   join(extension(t, 'g', record("comment", strings.Repeat("0", 40))), entries(t, dir("d/"), reg("d/x", "1"))),
		"macOS": pack(t, withRecords(reg("a", "1"), map[string]string{"LIBARCHIVE.xattr.com.apple.provenance": "AQIA", "LIBARCHIVE.creationtime": "1.5"})),
		"node-tar": join(extension(t, 'x', record("path", "é")+record("size", "1")+record("SCHILY.dev", "65024")+record("SCHILY.ino", "7")+
			record("SCHILY.nlink", "1")+record("uname", "")), entries(t, reg("x", "1"), reg("y", "22"))),
		"node-tar's times":              patch(pack(t, reg("x", "1")), 476, "14700000000 14700000000 "),
		"GNU's name of a global header": join(patch(extension(t, 'g', record("comment", "1")), 0, "/tmp/GlobalHead.7.1"), entries(t, reg("x", "1"))),
		"a name cut off":                join(extension(t, 'x', record("path", "a/..b")), patch(entries(t, reg("x", "1")), 0, "a/..")),
		"shared folders":                pack(t, moded(dir("x/"), 0o2775), moded(dir("y/"), 0o1777), reg("x/y", "1")),
		"numbers spaced":                patch(pack(t, reg("a", "1")), 100, "000644 \x00000000 \x00000000 \x0000000000001 "),
	} {
		for _, in := range [][]byte{in, zip(t, in)} {
			var out bytes.Buffer
			if _, err := archive.Copy(t.Context(), bytes.NewReader(in), &out, archive.Limits{}); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !bytes.Equal(out.Bytes(), in) {
				t.Errorf("%s: the bytes changed", name)
			}
			harmless(t, out.Bytes(), 1<<20)
		}
	}
}

// FuzzCopy changes bytes of one header of an archive. If Copy accepts the archive, the copy must
// pass [harmless].
func FuzzCopy(f *testing.F) {
	f.Add("0d/x\n5d", uint8(0), uint16(345), []byte("../../x"))
	f.Add("xpath=good\n0x", uint8(1), uint16(257), []byte(gnuMagic))
	f.Add("xpath=../../x\nxpath=good\n0x", uint8(0), uint16(100), []byte("0004755\x00"))
	f.Add("gpath=../../x\n0x", uint8(2), uint16(124), []byte("\x0000000001000\x00"))
	f.Add("L../x\n0x\n0y", uint8(2), uint16(156), []byte("5"))
	f.Add("K/etc\n0x", uint8(0), uint16(508), []byte("tar\x00"))
	f.Add("2l\n0l/x", uint8(0), uint16(157), []byte("../.."))
	f.Add("0x/\n0y", uint8(0), uint16(156), []byte("\x00"))
	limits := archive.Limits{MaxBytes: 1 << 20, MaxFiles: 100}
	f.Fuzz(func(t *testing.T, script string, header uint8, at uint16, with []byte) {
		var in []byte
		for line := range strings.SplitSeq(script, "\n") {
			if line == "" {
				continue
			}
			kind, text := line[0], line[1:]
			content := ""
			switch kind {
			case 'x', 'g':
				for pair := range strings.SplitSeq(text, ",") {
					key, value, _ := strings.Cut(pair, "=")
					content += record(key, value)
				}
				text = "ext"
			case 'L', 'K':
				content, text = text+"\x00", "ext"
			case '0':
				content = strings.Repeat(fmt.Sprintf("%-512s", text), len(text)%3)
			}
			block := make([]byte, 512)
			copy(block, text[:min(len(text), 99)])
			copy(block[100:], "0000644\x000000000\x000000000\x00"+fmt.Sprintf("%011o\x00", len(content))+"00000000000\x00")
			block[156] = kind
			copy(block[257:], "ustar\x0000")
			in = append(in, block...)
			in = append(in, content...)
			in = append(in, make([]byte, (512-len(content)%512)%512)...)
		}
		in = append(in, make([]byte, 1024)...)
		if changed := int(header) * 512; changed+512 <= len(in)-1024 {
			copy(in[changed+int(at)%512:changed+512], with)
		}
		// Correct the checksum of every block that a reader may take for a header.
		for block := 0; block < len(in)-1024; block += 512 {
			if !bytes.Equal(in[block:block+512], make([]byte, 512)) && strings.HasPrefix(string(in[block+257:]), "ustar") || block == int(header)*512 {
				checksum(in[block : block+512])
			}
		}
		var out bytes.Buffer
		if _, err := archive.Copy(t.Context(), bytes.NewReader(in), &out, limits); err != nil {
			if archive.ReasonOf(err) == "" {
				t.Fatalf("an error that is no refusal: %v", err)
			}
			return
		}
		if !bytes.Equal(out.Bytes(), in) {
			t.Fatal("the bytes changed")
		}
		if _, err := archive.Normalize(t.Context(), bytes.NewReader(in), io.Discard, archive.Options{Limits: limits}); err != nil {
			t.Fatalf("Normalize refuses what Copy takes: %v", err)
		}
		harmless(t, out.Bytes(), limits.MaxBytes)
	})
}
