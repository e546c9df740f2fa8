package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Copy copies an archive from in to out unchanged. It refuses everything that Normalize refuses. It
// also refuses what Normalize would leave out, such as links and unsafe parts of headers; see the
// package documentation. Otherwise it behaves like Normalize. In the summary, Ignored and
// SkippedLinks are 0, and Bytes is the number that Normalize would have written.
func Copy(ctx context.Context, in io.Reader, out io.Writer, limits Limits) (Summary, error) {
	n := newNormalizer(Options{Limits: limits})
	n.pack(io.Discard)
	n.verbatim = &verbatim{}
	return n.read(ctx, io.TeeReader(in, out), func() error { return nil })
}

const (
	blockSize = 512
	// maxRecords bounds the records before an entry, in bytes. They contain a path of at most
	// maxPath, and some numbers.
	maxRecords = 64 << 10
)

const (
	fixHeader   = "archive it with tar --format=ustar, or have it extracted (operation: extract), which writes headers anew"
	fixLinkKept = "remove the link, or have the archive extracted (operation: extract), which leaves it out"
)

// verbatim checks an archive that is copied unchanged. Checking with archive/tar is not enough.
// Other programs will read the same bytes, and may see a harmful archive where archive/tar sees a
// harmless one. So verbatim parses the headers itself, and refuses a header that can be understood
// in two ways.
type verbatim struct {
	block    [blockSize]byte
	have     int    // bytes in block
	skip     int64  // bytes until the next header
	kind     byte   // the type of the last header
	extended bool   // a header that extends the next entry was read
	records  []byte // content of an extended header, or a long name
	missing  int    // number of bytes that are still to be read into records
	sized    string // size of the next entry, as an extended header says; empty if none says it
	ended    bool   // a block of zeros was read; normalizer.drain checks the data after it
	odd      string // what is wrong with the headers; empty if nothing
}

// check refuses an entry with unsafe headers. It is called after archive/tar has read them.
func (v *verbatim) check(hdr *tar.Header) error {
	switch {
	case hdr.Typeflag == tar.TypeSymlink:
		return refuse(ReasonLink, hdr.Name, fixLinkKept, "a link is not kept")
	case hdr.Linkname != "":
		return refuse(ReasonLink, hdr.Name, fixLinkKept, "the entry has a link's target")
	case hdr.Mode&special(hdr.Typeflag) != 0:
		return refuse(ReasonHeader, hdr.Name, "take them away with chmod a-s,-t, or have the archive extracted (operation: extract)",
			"setuid, setgid and sticky bits are not kept")
	case hdr.Typeflag == tar.TypeDir && hdr.Size != 0:
		return refuse(ReasonHeader, hdr.Name, fixHeader, "a folder has content")
	case v.odd != "":
		return refuse(ReasonHeader, hdr.Name, fixHeader, "%s", v.odd)
	default:
		return nil
	}
}

// end refuses unsafe headers after the last entry of the archive. The method check is called only
// for entries, so it does not find these headers.
func (v *verbatim) end() error {
	switch {
	case v.odd != "":
		return refuse(ReasonHeader, "", fixHeader, "%s", v.odd)
	case v.extended:
		return refuse(ReasonHeader, "", fixHeader, "the last header extends no entry")
	default:
		return nil
	}
}

// special returns the permission bits that are refused. Folders may have setgid and sticky, which
// volumes and shared checkouts set. These bits give nobody more rights than the folder's owner has.
func special(typeflag byte) int64 {
	switch typeflag {
	case tar.TypeXGlobalHeader:
		return 0
	case tar.TypeDir:
		return 0o4000
	default:
		return 0o7000
	}
}

// Write parses the headers of the stream. It never returns an error. If it finds a fault, it stores
// the fault in v.odd. The methods check and end report the fault, unless archive/tar has already
// refused the header.
func (v *verbatim) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && !v.ended && v.odd == "" {
		if v.skip > 0 {
			k := int(min(v.skip, int64(len(p))))
			v.content(p[:k])
			p, v.skip = p[k:], v.skip-int64(k)
			continue
		}
		k := copy(v.block[v.have:], p)
		p, v.have = p[k:], v.have+k
		if v.have == blockSize {
			v.have = 0
			v.odd = v.header()
		}
	}
	return n, nil
}

// content collects the data that belongs to records, and checks complete records.
func (v *verbatim) content(p []byte) {
	if v.missing == 0 {
		return
	}
	p = p[:min(v.missing, len(p))]
	v.records, v.missing = append(v.records, p...), v.missing-len(p)
	if v.missing > 0 {
		return
	}
	if v.kind != tar.TypeGNULongName {
		v.sized, v.odd = readRecords(string(v.records), v.kind == tar.TypeXGlobalHeader)
	} else if name, rest, _ := bytes.Cut(v.records, []byte{0}); len(name) == 0 {
		v.odd = emptyName
	} else if !isZero(rest) {
		v.odd = "more follows the long name of an entry"
	}
	v.records = v.records[:0]
}

// emptyName is the error text for an empty long name. Some programs then use the name in the next
// header, so different programs would unpack different names.
const emptyName = "the long name of an entry is empty"

// octal matches a number that all programs understand alike. The number is octal digits, with
// spaces before, and with spaces or NULs after. octal also matches a field of NULs.
var octal = regexp.MustCompile(`^ *[0-7]+[ \x00]*$|^\x00*$`)

// header parses the header in v.block. It returns a description of the header's fault, or "" if the
// header has no fault.
func (v *verbatim) header() string {
	if v.block == [blockSize]byte{} {
		v.ended = true
		return ""
	}
	// The offsets are those of IEEE Std 1003.1, pax, "ustar Interchange Format". Only this format
	// has a field for a prefix of the name.
	mode, sizeField, sum, kind := v.block[100:108], v.block[124:136], v.block[148:156], v.block[156]
	name, unused := beforeNUL(v.block[:100]), v.block[345:]
	if bytes.Equal(v.block[257:265], []byte("ustar\x0000")) {
		prefix := beforeNUL(v.block[345:500])
		if prefix != "" {
			name = prefix + "/" + name
		}
		// Some programs write times after a short prefix, into the bytes 476 to 499. So these bytes
		// do not count as unused.
		unused = slices.Concat(v.block[min(345+len(prefix), 476):476], v.block[500:])
	}
	switch {
	case !isZero(unused):
		return "the header has more than its format, which programs understand in different ways"
	case !octal.Match(mode) || !octal.Match(sizeField) || !octal.Match(sum):
		return "the header has a number that programs understand in different ways"
	case v.block[0]|kind == 0:
		return "the header has neither a name nor a type, where some programs end"
	case leaves(name, kind):
		return "the header's own name, which some programs use, leaves the archive"
	}
	size, err := strconv.ParseInt(strings.Trim(string(sizeField), " \x00"), 8, 64)
	if err != nil && !isZero(sizeField) {
		return "the header has a number that programs understand in different ways"
	}
	v.skip = (size + blockSize - 1) / blockSize * blockSize
	switch v.kind = kind; {
	case kind == tar.TypeGNULongLink:
		return "the entry has a link's target"
	case kind != tar.TypeXHeader && kind != tar.TypeXGlobalHeader && kind != tar.TypeGNULongName:
		sized := v.sized
		v.extended, v.sized = false, ""
		if sized != "" && sized != strconv.FormatInt(size, 10) {
			return "the entry has two sizes"
		}
		return ""
	case v.extended:
		return "two headers extend the same entry"
	case size > maxRecords:
		return "the records of an entry are too long"
	case size == 0 && kind == tar.TypeGNULongName:
		return emptyName
	}
	v.extended, v.missing = kind != tar.TypeXGlobalHeader, int(size)
	return ""
}

// leaves reports whether the name in a header leads out of the folder where the archive is
// unpacked. Records or a long name may replace this name, but some programs support neither. Such
// programs use the name in the header. They also unpack the records or the long name as a file.
//
// Two kinds of names are accepted all the same:
//   - A name may end in "..", because this may be the beginning of a longer name.
//   - A global header's name may be absolute, because a global header is not a file. GNU tar names
//     it after the folder for temporary files.
func leaves(name string, kind byte) bool {
	return strings.HasPrefix(name, "/") && kind != tar.TypeXGlobalHeader || strings.HasPrefix(name, "../") || strings.Contains(name, "/../")
}

func beforeNUL(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return string(before)
}

func isZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// recordWithin matches a line in a record's value that some programs take for another record,
// because they read records line by line.
var recordWithin = regexp.MustCompile(`\n\s*[0-9]`)

// readRecords reads the records of an extended header (IEEE Std 1003.1, pax, "pax Extended
// Header"). The result size is the entry's size, or empty if no record gives it. The result odd
// says what is wrong with the records, or is empty.
func readRecords(text string, global bool) (size, odd string) {
	var known []string
	for text != "" {
		digits, _, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(digits)
		if err != nil || strconv.Itoa(n) != digits || n <= len(digits)+1 || n > len(text) || text[n-1] != '\n' {
			return "", "a record is malformed"
		}
		key, value, _ := strings.Cut(text[len(digits)+1:n-1], "=")
		switch {
		case value == "" && (key == "path" || key == "size"):
			return "", "a record has no value"
		case slices.Contains(known, key):
			return "", "a record occurs twice"
		case global && key != "comment":
			return "", "global records are not kept"
		case recordWithin.MatchString(value):
			return "", "a record may hold another one"
		case !isKept(key):
			return "", "the record " + Quote(key) + " is not kept"
		case key == "size":
			size = value
		}
		known = append(known, key)
		text = text[n:]
	}
	return size, ""
}

// isKept reports whether a record with the given key is harmless, so that Copy may keep it. Names,
// owners, times, device and inode are harmless, and so are macOS's extended attributes. A size is
// harmless because it must equal the header's. A character set, a link's target, access lists and
// capabilities are not harmless.
func isKept(key string) bool {
	switch key {
	case "path", "size", "uid", "gid", "uname", "gname", "mtime", "atime", "ctime", "comment", "LIBARCHIVE.creationtime",
		"SCHILY.dev", "SCHILY.ino", "SCHILY.nlink":
		return true
	}
	// tar of macOS writes these.
	return strings.HasPrefix(key, "LIBARCHIVE.xattr.com.apple.") || strings.HasPrefix(key, "SCHILY.xattr.com.apple.")
}
