package objectstore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

const (
	// MaxObjects is the maximum number of objects in one artifact.
	MaxObjects = 100_000
	// maxListed bounds the listed objects, including those that patterns leave out: 1000 pages of
	// 1000 objects.
	maxListed = 1_000_000
	// maxIndex bounds the total length of an index's keys, names and versions, in bytes. It bounds
	// memory if keys are long.
	maxIndex = 16 << 20
	// maxKey is the length of the longest key that any cloud allows, in bytes. If a key is not a
	// valid name, patterns may still leave the object out. But if such a key is longer than maxKey,
	// it is refused at once. This bounds the cost of matching.
	maxKey = 1024
	// maxVersion bounds the length of a version, in bytes. Entity tags have about 40.
	maxVersion = 256
)

// Options of List.
type Options struct {
	// Reader is any text that identifies who reads the objects, and over which connection. Content
	// that another reader has fetched is never reused, because permission to list an object is not
	// permission to read it.
	Reader string
	// Prefix selects objects by the beginning of their keys.
	Prefix string
	// Ignore leaves objects out. An object that is left out may have any key.
	Ignore archive.Patterns
	// MaxBytes bounds the unpacked archive. Zero means archive.DefaultMaxBytes.
	MaxBytes int64
}

// entry is one object of the future archive.
type entry struct {
	name string // name of the file in the archive: the clean key
	Object
}

// Index lists the contents of an archive, sorted by name. It is immutable.
type Index struct {
	source   string
	reader   string
	entries  []entry
	revision string
	// Ignored is the number of objects that patterns left out.
	Ignored int
}

// List makes the index of a bucket's objects. The source identifies the bucket: versions from
// different sources are never compared. An error is an [*origin.Error], an error of the
// credentials, or an [*archive.Error]. For example, a key that cannot be a file's name causes an
// [*archive.Error].
func List(ctx context.Context, storage Storage, source string, opts Options) (*Index, error) {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, archive.DefaultMaxBytes)
	l := lister{opts: opts, matcher: opts.Ignore.Matcher(), index: &Index{source: source, reader: opts.Reader}}
	defer reserve.Rest(ctx)
	for object, err := range storage.List(ctx, opts.Prefix) {
		if err != nil {
			return nil, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err // check ctx for each object, because a page has many
		}
		if err := l.add(object); err != nil {
			return nil, err
		}
		if err := l.takeMemory(ctx); err != nil {
			return nil, err
		}
	}
	return l.finish()
}

type lister struct {
	opts    Options
	matcher *archive.Matcher
	index   *Index
	listed  int
	size    int   // bytes of the index's texts
	taken   int   // bytes that the program's pool has given for the index
	bytes   int64 // bytes of the unpacked archive
}

// takeMemory takes memory for the index from the program's pool. The pool gets the memory back
// after the whole fetch.
func (l *lister) takeMemory(ctx context.Context) error {
	// An entry costs twice as much while the list grows. A text costs up to 16 bytes more than its
	// length.
	const entryCost, step = 200, 64 << 10
	if l.size+entryCost*len(l.index.entries) <= l.taken {
		return nil
	}
	l.taken += step
	return reserve.Take(ctx, step)
}

func (l *lister) add(o Object) error {
	if l.listed++; l.listed > maxListed {
		return tooLarge("more than %d objects have the prefix", maxListed)
	}
	if !strings.HasPrefix(o.Key, l.opts.Prefix) {
		return unusable("it lists objects that do not have the prefix")
	}
	if o.Size < 0 {
		return unusable("it lists an object of a negative size")
	}
	if o.Version == "" || len(o.Version) > maxVersion || !utf8.ValidString(o.Version) ||
		strings.ContainsFunc(o.Version, unicode.IsControl) {
		return unusable("it lists objects without a usable entity tag")
	}
	folder := strings.HasSuffix(o.Key, "/")
	if folder && o.Size == 0 {
		return nil // left out: tools create empty objects to show folders
	}
	name, refused := nameOf(o.Key)
	if refused != nil {
		if len(o.Key) > maxKey {
			return refused
		}
		name = o.Key
	}
	excluded, err := l.matcher.Excludes(strings.TrimSuffix(name, "/"), folder)
	switch {
	case err != nil:
		return err
	case excluded:
		l.index.Ignored++
		return nil
	case refused != nil:
		return refused
	}
	if name == o.Key {
		name = o.Key // so that name and key share their memory
	} else {
		l.size += len(name)
	}
	l.index.entries = append(l.index.entries, entry{name, o})
	if len(l.index.entries) > MaxObjects {
		return tooLarge("the bucket has more than %d objects", MaxObjects)
	}
	if l.size += len(o.Key) + len(o.Version); l.size > maxIndex {
		return tooLarge("the keys and entity tags are longer than %d bytes together", maxIndex)
	}
	// A tar block: the size of a header. Contents are padded to whole blocks.
	const block = 512
	if l.bytes += block + (o.Size+block-1)/block*block; o.Size > l.opts.MaxBytes || l.bytes > l.opts.MaxBytes {
		// Package archive would return this error too, but only after objects were fetched.
		return &archive.Error{
			Reason: archive.ReasonTooLarge, Fix: fixFewer + ", or ask the administrator for a higher limit",
			Err: fmt.Errorf("the objects make an archive larger than %d bytes", l.opts.MaxBytes),
		}
	}
	return nil
}

// nameOf returns the name that an object gets in the archive. It refuses the names of folders.
func nameOf(key string) (string, error) {
	name, err := archive.CleanName(key)
	if err == nil && (strings.HasSuffix(key, "/") || name == ".") {
		err = &archive.Error{Reason: archive.ReasonPath, Entry: key, Err: errors.New("an object with content has a folder's name")}
	}
	return name, rename(err)
}

// finish sorts the entries, refuses conflicting names, and computes the revision.
func (l *lister) finish() (*Index, error) {
	x := l.index
	slices.SortFunc(x.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i, e := range x.entries {
		if i > 0 && x.entries[i-1].name == e.name {
			return nil, duplicate(e, "it and %s are the same file", x.entries[i-1].Key)
		}
		for at := strings.LastIndexByte(e.name, '/'); at > 0; at = strings.LastIndexByte(e.name[:at], '/') {
			if x.has(e.name[:at]) {
				return nil, duplicate(e, "its folder %s is an object too", e.name[:at])
			}
		}
	}
	h := sha256.New()
	if err := x.encode(h, header(x.source, "")); err != nil {
		return nil, err
	}
	x.revision = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return x, nil
}

// duplicate returns the error for an entry whose name conflicts with another object's name.
func duplicate(e entry, format, other string) error {
	return rename(&archive.Error{Reason: archive.ReasonDuplicate, Entry: e.Key, Err: fmt.Errorf(format, archive.Quote(other))})
}

func (x *Index) has(name string) bool {
	_, found := slices.BinarySearchFunc(x.entries, name, func(e entry, name string) int { return strings.Compare(e.name, name) })
	return found
}

// Revision returns the digest of the source and of all objects with their versions, as
// sha256:<hex>. Equal revisions mean equal archives.
func (x *Index) Revision() string { return x.revision }

// Continues reports whether an earlier index, as Encode wrote it, has the same source and the same
// Options.Reader as this index.
func (x *Index) Continues(previous io.Reader) bool { return newDecoder(previous, x.header()) != nil }

// Len returns the number of objects.
func (x *Index) Len() int { return len(x.entries) }

// Encode writes the index as text. The first line has the source and a digest of Options.Reader.
// Each further line is an object: version, size and key, separated by tabs. These fields have no
// control characters.
func (x *Index) Encode(w io.Writer) error { return x.encode(w, x.header()) }

func (x *Index) encode(w io.Writer, first string) error {
	buffered := bufio.NewWriter(w)
	line := []byte(first)
	for _, e := range x.entries {
		_, _ = buffered.Write(line) // Flush returns the error of Write
		line = append(line[:0], e.Version...)
		line = append(line, '\t')
		line = strconv.AppendInt(line, e.Size, 10)
		line = append(line, '\t')
		line = append(line, e.Key...)
		line = append(line, '\n')
	}
	_, _ = buffered.Write(line)
	return buffered.Flush()
}

func header(source, reader string) string {
	return "lanyard bucket index 1\t" + strconv.Quote(source) + "\t" + reader + "\n"
}

// header returns the first line. The line has only a digest of Options.Reader, because Reader
// contains names that the index must not reveal.
func (x *Index) header() string {
	reader := sha256.Sum256([]byte(x.reader))
	return header(x.source, hex.EncodeToString(reader[:]))
}

// decoder reads the output of Encode line by line, so that the previous index need not fit into
// memory.
type decoder struct {
	lines *bufio.Scanner
}

// maxLine bounds a line of an index: a version, a number and the longest name that package archive
// allows.
const maxLine = 2 << 10

// newDecoder returns a decoder of an index that begins with the given line. It returns nil if the
// index begins with another line, because such an index cannot be used.
func newDecoder(r io.Reader, first string) *decoder {
	lines := bufio.NewScanner(r)
	// The first line may be longer than maxLine, because it contains the source. The source is a
	// bucket's name and a prefix, quoted.
	lines.Buffer(make([]byte, 4<<10), 16<<10)
	if !lines.Scan() || lines.Text()+"\n" != first {
		return nil
	}
	return &decoder{lines}
}

// next returns the next entry, or io.EOF at the end.
func (d *decoder) next() (entry, error) {
	if !d.lines.Scan() {
		if err := d.lines.Err(); err != nil {
			return entry{}, err
		}
		return entry{}, io.EOF
	}
	version, rest, ok := strings.Cut(d.lines.Text(), "\t")
	size, key, also := strings.Cut(rest, "\t")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || !also || err != nil || len(key) > maxLine {
		return entry{}, errors.New("the index has a malformed line")
	}
	name, err := archive.CleanName(key)
	if err != nil {
		return entry{}, err
	}
	return entry{name, Object{Key: key, Version: version, Size: n}}, nil
}

const fixFewer = "select fewer objects with spec.prefix, or leave some out with spec.ignore"

func tooLarge(format string, limit any) error {
	return &origin.Error{
		Code: origin.CodeTooLarge, Field: "spec.prefix", Fix: fixFewer,
		Err: fmt.Errorf(format, limit),
	}
}

func unusable(what string) error {
	return &origin.Error{
		Server: Server("", origin.Caller{}), Code: origin.CodeProtocol, Field: "spec.endpoint", Err: errors.New(what),
	}
}

// rename returns err. If err is an *archive.Error, rename sets its Fix, which tells the user to
// rename the object or to leave it out.
func rename(err error) error {
	if refused, ok := errors.AsType[*archive.Error](err); ok {
		refused.Fix = "rename the object, or leave it out with spec.prefix or spec.ignore"
	}
	return err
}
