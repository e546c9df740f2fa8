package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Create packs a folder as tar.gz into out, in lexical order. Use a file system from os.Root.FS,
// which follows no link out of the folder. Create has the same rules, refusals and uniform headers
// as Normalize. So equal folders give equal bytes. Unlike Normalize, Create never reads or counts
// the files that opts.Ignore leaves out. Create also refuses a file that changes while Create reads
// it. It refuses two names that differ only in Unicode's normalization. Some systems treat such
// names as one name.
func Create(ctx context.Context, fsys fs.FS, out io.Writer, opts Options) (Summary, error) {
	return create(fsys, out, opts, func(w *walker) error { return w.walk(ctx, opts.Ignore) })
}

// CreateFile packs one file of a folder. The result is the same as Create's for a folder with only
// this file.
func CreateFile(ctx context.Context, fsys fs.FS, name string, out io.Writer, opts Options) (Summary, error) {
	return create(fsys, out, opts, func(w *walker) error {
		info, err := fs.Stat(fsys, name)
		if err != nil {
			return err
		}
		return w.add(ctx, name, fs.FileInfoToDirEntry(info))
	})
}

// create packs the entries that the function walk adds.
func create(fsys fs.FS, out io.Writer, opts Options, walk func(*walker) error) (Summary, error) {
	zip := newZip(out)
	defer zip.release()
	compressed := newBehind(zip)
	defer compressed.stop()
	n := newNormalizer(Options{Limits: opts.Limits})
	n.pack(opts.tee(compressed))
	return n.finish(walk(&walker{fsys: fsys, normalizer: n, read: true}), func() error {
		if err := compressed.Close(); err != nil {
			return err
		}
		return zip.Close()
	})
}

// Entry is a folder or file in the archive of a folder.
type Entry struct {
	// Name is the path below the folder, with slashes.
	Name string
	// Dir says that the entry is a folder.
	Dir bool
	// Executable says that the file's owner may execute it.
	Executable bool
}

// List returns the entries that Create would pack, in lexical order. It does not read the files.
func List(ctx context.Context, fsys fs.FS, opts Options) ([]Entry, error) {
	n := newNormalizer(Options{Limits: opts.Limits})
	list := &lister{}
	n.out = list
	w := walker{fsys: fsys, normalizer: n}
	_, err := n.finish(w.walk(ctx, opts.Ignore), func() error { return nil })
	return list.entries, err
}

// lister is a sink that records entries without their content.
type lister struct{ entries []Entry }

func (l *lister) WriteHeader(hdr *tar.Header) error {
	name, isDir := strings.CutSuffix(hdr.Name, "/")
	l.entries = append(l.entries, Entry{Name: name, Dir: isDir, Executable: !isDir && hdr.Mode&0o100 != 0})
	return nil
}

func (l *lister) Write(p []byte) (int, error) { return len(p), nil }
func (l *lister) Close() error                { return nil }

// walker passes the entries of a folder to a normalizer.
type walker struct {
	fsys       fs.FS
	normalizer *normalizer
	read       bool // read the files' content, not only their names
	composed   map[string]string
}

func (w *walker) walk(ctx context.Context, ignore Patterns) error {
	matcher := ignore.Matcher()
	return fs.WalkDir(w.fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if name == "." {
			return nil
		}
		excluded, err := matcher.Excludes(name, d.IsDir())
		if err != nil {
			return err
		}
		if excluded {
			w.normalizer.sum.Ignored++
			if d.IsDir() && !ignore.negates() {
				return fs.SkipDir
			}
			return nil
		}
		if err := w.compose(name); err != nil {
			return err
		}
		return w.add(ctx, name, d)
	})
}

// compose refuses a name if an earlier name has the same composed form in Unicode (NFC, UAX #15).
func (w *walker) compose(name string) error {
	if !strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		return nil
	}
	composed := norm.NFC.String(name)
	if before, ok := w.composed[composed]; ok {
		return refuse(ReasonDuplicate, name, "rename one of them",
			"the name differs from %+q only in Unicode's normalization (NFC and NFD)", before)
	}
	if w.composed == nil {
		w.composed = make(map[string]string)
	}
	w.composed[composed] = name
	return nil
}

func (w *walker) add(ctx context.Context, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	if d.Type() == fs.ModeSymlink {
		if target, err = fs.ReadLink(w.fsys, name); err != nil {
			return err
		}
	}
	hdr, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return refuse(ReasonType, name, "remove it from the folder", "%w", err)
	}
	hdr.Name = name
	if !w.read || !d.Type().IsRegular() {
		return w.normalizer.entry(hdr, strings.NewReader(""))
	}
	content := &steady{ctx: ctx, name: name, size: hdr.Size, modified: info.ModTime(), left: hdr.Size}
	if content.file, err = w.fsys.Open(name); err != nil {
		return err
	}
	defer content.file.Close() //nolint:errcheck // opened for reading
	return w.normalizer.entry(hdr, content)
}

// steady reads a file, and fails if the file changes while it is read.
type steady struct {
	ctx      context.Context //nolint:containedctx // lives for one call of Create; io.Reader takes none
	file     fs.File
	name     string
	size     int64 // size and modified were read before the file was opened
	modified time.Time
	left     int64
}

func (s *steady) Read(p []byte) (int, error) {
	if cause := context.Cause(s.ctx); cause != nil {
		return 0, cause
	}
	if s.left == 0 {
		return 0, s.end()
	}
	n, err := s.file.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if errors.Is(err, io.EOF) && s.left > 0 {
		return n, s.changed()
	}
	return n, err
}

// end returns io.EOF if the file has not changed.
func (s *steady) end() error {
	after, err := s.file.Stat()
	if err != nil {
		return err
	}
	if after.Size() != s.size || !after.ModTime().Equal(s.modified) {
		return s.changed()
	}
	return io.EOF
}

func (s *steady) changed() error {
	return refuse(ReasonChanged, s.name, "try again when nobody writes to the folder", "the file changed while it was read")
}

// negates reports whether a pattern can include an excluded path again.
func (p Patterns) negates() bool {
	return slices.ContainsFunc(p.list, func(one pattern) bool { return one.negated })
}
