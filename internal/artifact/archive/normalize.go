package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// Defaults of Limits.
const (
	// DefaultMaxBytes is 256 MiB.
	DefaultMaxBytes = 256 << 20
	// DefaultMaxFiles is 50000 entries.
	DefaultMaxFiles = 50_000
)

// Limits bound what an archive may cost. A zero field means its default.
type Limits struct {
	// MaxBytes bounds the unpacked tar stream in bytes, with headers and padding. It bounds both
	// the stream that is read and the stream that is written. It stops a decompression bomb.
	// Default DefaultMaxBytes.
	MaxBytes int64
	// MaxFiles bounds the number of entries. A parent folder that has no entry of its own counts
	// too. Default DefaultMaxFiles.
	MaxFiles int
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxFiles <= 0 {
		l.MaxFiles = DefaultMaxFiles
	}
	return l
}

// Options of Normalize. The zero value leaves nothing out and applies the default limits.
type Options struct {
	// Ignore leaves paths out. An unsafe entry is refused even if Ignore leaves the entry out.
	Ignore Patterns
	// Limits bound the archive.
	Limits Limits
	// Plain receives a copy of the written tar stream, without compression; it may be nil.
	Plain io.Writer
}

// tee returns a writer to out, and to Plain if it is set.
func (o Options) tee(out io.Writer) io.Writer {
	if o.Plain == nil {
		return out
	}
	return io.MultiWriter(out, o.Plain)
}

// Summary counts the content of an archive.
type Summary struct {
	// Files is the number of regular files written.
	Files int
	// Dirs is the number of directory entries written.
	Dirs int
	// Ignored is the number of entries left out by Options.Ignore.
	Ignored int
	// SkippedLinks is the number of symbolic links inside the archive that were left out.
	SkippedLinks int
	// Bytes is the length of the written tar stream before compression. For Extract it is the total
	// size of the files.
	Bytes int64
}

// Normalize reads a tar archive (plain or gzip) up to its end. It writes the archive's safe,
// uniform form as tar.gz to out; see the package documentation for the rules. After any error the
// output must not be used.
//
// A refusal is an *Error. An error of the input or of the output is returned unchanged. Errors of
// the input are, for example, a broken connection and a wrong digest at the end of a verified
// stream. If the archive is damaged, Normalize reads the rest of the input. If this read fails,
// Normalize returns the input's error instead of the refusal. When ctx ends, Normalize stops before
// the next block or entry.
func Normalize(ctx context.Context, in io.Reader, out io.Writer, opts Options) (Summary, error) {
	zip := newZip(out)
	defer zip.release()
	n := newNormalizer(opts)
	n.pack(opts.tee(zip))
	return n.read(ctx, in, zip.Close)
}

// source remembers the error of its reader, to distinguish this error from the errors of decoders.
type source struct {
	ctx context.Context //nolint:containedctx // lives for one call of Normalize
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err == nil {
		s.err = context.Cause(s.ctx)
	}
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// meter is a reader and writer with a bound. The field left is the number of bytes that may still
// pass.
type meter struct {
	left int64
	r    io.Reader
	w    io.Writer
}

var errMeter = errors.New("limit reached")

func (m *meter) Read(p []byte) (int, error) {
	if m.left < 0 {
		return 0, errMeter
	}
	// Allow one byte over the limit, to distinguish a longer archive from one of exactly this
	// length.
	n, err := m.r.Read(p[:min(int64(len(p)), m.left+1)])
	m.left -= int64(n)
	if m.left < 0 {
		return n, errMeter
	}
	return n, err
}

func (m *meter) Write(p []byte) (int, error) {
	m.left -= int64(len(p))
	if m.left < 0 {
		return 0, errMeter
	}
	return m.w.Write(p)
}

// decompress recognizes the compression by the first bytes, and ignores the media type that the
// publisher wrote.
func decompress(in io.Reader) (io.Reader, error) {
	br := bufio.NewReader(in)
	head, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	const fix = "publish the archive as tar or tar.gz"
	switch {
	case len(head) == 0:
		return nil, refuse(ReasonCorrupt, "", fix, "the archive is empty")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		gz, err := gzip.NewReader(br)
		if err != nil {
			return nil, refuse(ReasonCorrupt, "", fix, "gzip: %w", err)
		}
		return gz, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, refuse(ReasonCompression, "", fix, "the archive is compressed with zstd")
	case bytes.HasPrefix(head, []byte("BZh")), bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X'}):
		return nil, refuse(ReasonCompression, "", fix, "the archive is compressed with bzip2 or xz")
	default:
		return br, nil
	}
}

// kind says what a name in the archive stands for.
type kind byte

const (
	kindDir     kind = iota + 1 // a directory entry
	kindImplied                 // a directory without an entry, but with content
	kindFile
	kindLink
)

type normalizer struct {
	limits   Limits
	matcher  *Matcher
	verbatim *verbatim // nil unless the archive is copied unchanged
	in       *meter
	written  *meter // bounds the written bytes
	out      sink
	seen     map[string]kind
	count    int // number of entries that n.seen does not count, such as global headers
	buf      []byte
	sum      Summary
}

// sink receives the accepted entries in their uniform form: each header, and then its content.
type sink interface {
	WriteHeader(hdr *tar.Header) error
	io.WriteCloser
}

// newNormalizer makes a normalizer that has no sink yet.
func newNormalizer(opts Options) *normalizer {
	limits := opts.Limits.withDefaults()
	return &normalizer{
		limits:  limits,
		matcher: opts.Ignore.Matcher(),
		written: &meter{left: limits.MaxBytes},
		seen:    make(map[string]kind),
		buf:     make([]byte, 32<<10),
	}
}

// pack makes the normalizer write the accepted entries to out, as a tar stream.
func (n *normalizer) pack(out io.Writer) {
	n.written.w = out
	n.out = tar.NewWriter(n.written)
}

// read reads the whole archive. If there is no error, read calls closeOut to close the output.
func (n *normalizer) read(ctx context.Context, in io.Reader, closeOut func() error) (Summary, error) {
	src := &source{ctx: ctx, r: in}
	err := n.archive(ctx, src)
	sum, err := n.finish(err, closeOut)
	if err == nil {
		return sum, nil
	}
	if ReasonOf(err) == ReasonCorrupt {
		// A truncated or forged archive often looks corrupt. Read the source to its end: the
		// source's error says more.
		_, _ = io.Copy(io.Discard, src)
	}
	if src.err != nil {
		return Summary{}, src.err
	}
	return Summary{}, err
}

// finish ends the output and returns the summary. If err is not nil, finish only returns the result
// of explain. The result is a refusal if a decoder or a limit caused the error, and otherwise the
// unchanged error.
func (n *normalizer) finish(err error, closeOut func() error) (Summary, error) {
	if err == nil {
		err = n.out.Close()
	}
	if err == nil {
		err = closeOut()
	}
	if err != nil {
		return Summary{}, n.explain(err)
	}
	n.sum.Bytes = n.limits.MaxBytes - n.written.left
	return n.sum, nil
}

// explain converts the errors of decoders to refusals.
func (n *normalizer) explain(err error) error {
	switch {
	case ReasonOf(err) != "":
		return err
	case errors.Is(err, errMeter):
		return refuse(ReasonTooLarge, "", "publish a smaller archive, or ask the administrator for a higher limit",
			"the archive is larger than %d bytes when unpacked", n.limits.MaxBytes)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return refuse(ReasonCorrupt, "", "publish a valid tar archive", "%w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(ReasonCorrupt, "", "publish the archive again", "the archive ends too early")
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), isFlateError(err):
		return refuse(ReasonCorrupt, "", "publish the archive again", "%w", err)
	default:
		return err
	}
}

func (n *normalizer) archive(ctx context.Context, in io.Reader) error {
	plain, err := decompress(in)
	if err != nil {
		return err
	}
	n.in = &meter{left: n.limits.MaxBytes, r: plain}
	var entries io.Reader = n.in
	if n.verbatim != nil {
		entries = io.TeeReader(entries, n.verbatim)
	}
	tr := tar.NewReader(entries)
	for {
		if cause := context.Cause(ctx); cause != nil {
			return cause // check ctx for each entry: one read may return many entries
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		// Ignore tar.ErrInsecurePath: CleanName checks names with better errors.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if err := n.entry(hdr, tr); err != nil {
			return err
		}
		if n.verbatim != nil {
			if err := n.verbatim.check(hdr); err != nil {
				return err
			}
		}
	}
	if n.verbatim != nil {
		if err := n.verbatim.end(); err != nil {
			return err
		}
	}
	return n.drain()
}

// drain reads the data after the end of the archive, and refuses it unless it is padding. Reading
// up to the end lets gzip verify its checksum.
func (n *normalizer) drain() error {
	for {
		k, err := n.in.Read(n.buf)
		for _, b := range n.buf[:k] {
			if b != 0 {
				return refuse(ReasonCorrupt, "", "publish nothing but the archive", "other data follows the archive's end")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (n *normalizer) entry(hdr *tar.Header, content io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		// A global header is dropped, but counted. git archive writes one, with the commit as a
		// comment.
		n.count++
		return n.checkCount()
	}
	name, err := CleanName(hdr.Name)
	if err != nil {
		return err
	}
	if isSparse(hdr) {
		return refuse(ReasonType, hdr.Name, "archive without --sparse", "sparse files are refused")
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		return n.dir(hdr.Name, name)
	case tar.TypeReg:
		return n.file(hdr, name, content)
	case tar.TypeSymlink:
		return n.symlink(hdr, name)
	case tar.TypeLink:
		return refuse(ReasonLink, hdr.Name, "archive with --hard-dereference", "hard links are refused")
	case tar.TypeChar, tar.TypeBlock:
		return refuse(ReasonType, hdr.Name, "remove it from the archive", "device files are refused")
	case tar.TypeFifo:
		return refuse(ReasonType, hdr.Name, "remove it from the archive", "fifos are refused")
	default:
		return refuse(ReasonType, hdr.Name, "remove it from the archive", "entries of type %q are refused", hdr.Typeflag)
	}
}

func isSparse(hdr *tar.Header) bool {
	if hdr.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// claim records a name with its kind, and each of the name's parents as a directory. It refuses a
// name that contradicts earlier entries.
func (n *normalizer) claim(raw, name string, k kind) error {
	const fix = "publish an archive in which every name occurs once"
	switch before := n.seen[name]; {
	case before == 0:
	case k == kindDir && (before == kindDir || before == kindImplied):
	case k == before:
		return refuse(ReasonDuplicate, raw, fix, "the name occurs twice")
	default:
		return refuse(ReasonDuplicate, raw, fix, "the name stands for two different things")
	}
	n.seen[name] = k
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		before, known := n.seen[dir]
		if before == kindFile || before == kindLink {
			return refuse(ReasonDuplicate, raw, fix, "its parent %s is no directory", Quote(dir))
		}
		if known {
			break // the parents of a recorded folder are recorded too
		}
		n.seen[dir] = kindImplied
	}
	return n.checkCount()
}

func (n *normalizer) checkCount() error {
	if len(n.seen)+n.count > n.limits.MaxFiles {
		return refuse(ReasonTooMany, "", "publish fewer files, or ask the administrator for a higher limit",
			"the archive has more than %d entries", n.limits.MaxFiles)
	}
	return nil
}

func (n *normalizer) dir(raw, name string) error {
	if name == "." {
		n.count++
		return n.checkCount()
	}
	repeated := n.seen[name] == kindDir
	if repeated {
		n.count++
	}
	if err := n.claim(raw, name, kindDir); err != nil {
		return err
	}
	if repeated {
		return nil
	}
	if excluded, err := n.excludes(name, true); excluded || err != nil {
		return err
	}
	n.sum.Dirs++
	return n.out.WriteHeader(header(name+"/", tar.TypeDir, 0o755, 0))
}

func (n *normalizer) file(hdr *tar.Header, name string, content io.Reader) error {
	if strings.HasSuffix(hdr.Name, "/") || name == "." {
		return refuse(ReasonPath, hdr.Name, "publish the archive with clean relative names", "a file has a folder's name")
	}
	if err := n.claim(hdr.Name, name, kindFile); err != nil {
		return err
	}
	if excluded, err := n.excludes(name, false); excluded || err != nil {
		return err // archive/tar skips the content of the file
	}
	mode := int64(0o644)
	if hdr.Mode&0o100 != 0 {
		mode = 0o755
	}
	if err := n.out.WriteHeader(header(name, tar.TypeReg, mode, hdr.Size)); err != nil {
		return err
	}
	// Hide the methods ReadFrom and WriteTo. If they exist, io.CopyBuffer calls them and does not
	// use n.buf. Without them, equal input gives equal writes.
	if _, err := io.CopyBuffer(struct{ io.Writer }{n.out}, struct{ io.Reader }{content}, n.buf); err != nil {
		return err
	}
	n.sum.Files++
	return nil
}

func (n *normalizer) symlink(hdr *tar.Header, name string) error {
	if !staysInside(name, hdr.Linkname) {
		return refuse(ReasonLink, hdr.Name, "remove the link from the archive",
			"the symbolic link to %s leaves the archive", Quote(hdr.Linkname))
	}
	if err := n.claim(hdr.Name, name, kindLink); err != nil {
		return err
	}
	if excluded, err := n.excludes(name, false); excluded || err != nil {
		return err
	}
	n.sum.SkippedLinks++
	return nil
}

// excludes reports whether the patterns leave the name out, and counts such names.
func (n *normalizer) excludes(name string, isDir bool) (bool, error) {
	excluded, err := n.matcher.Excludes(name, isDir)
	if excluded {
		n.sum.Ignored++
	}
	return excluded, err
}

// header returns an entry's uniform header: with owner 0, and with the epoch as its time.
func header(name string, typeflag byte, mode, size int64) *tar.Header {
	return &tar.Header{Typeflag: typeflag, Name: name, Mode: mode, Size: size, ModTime: time.Unix(0, 0)}
}

func isFlateError(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}
