package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/plain"
)

// maxText is the largest size of a file whose lines are compared, in bytes.
const maxText = 1 << 20

// change is how a file or folder differs.
type change string

// The changes. A file is added if only the folder has it, and removed if only the artifact has it.
const (
	added   change = "added"
	removed change = "removed"
	changed change = "changed"
)

// difference is one file or folder that differs.
type difference struct {
	Path   string `json:"path"`
	Change change `json:"change"`
	// Diff is the unified diff if the files are texts; otherwise empty.
	Diff string `json:"diff,omitempty"`
	// OldMode and NewMode are set if only one of the files is executable: 100644 or 100755.
	OldMode string `json:"oldMode,omitempty"`
	NewMode string `json:"newMode,omitempty"`
}

func newDiff(std IO) *cobra.Command {
	var f contentFlags
	c := &cobra.Command{
		Use:   "artifact " + argument,
		Short: "Show how a folder or file differs from an artifact",
		Long: `Show how a folder or file differs from an artifact.

What --path names is read as a push reads it, with the same files left out. Texts are shown as a unified diff, from the
artifact (a) to --path (b). Owners and times do not count, and of the permissions only whether the owner may execute a file.

The exit status is 0 if nothing differs, 1 if something does, 2 if the command line is wrong, and 3 if the command failed.`,
		Example: `  # What would a push change?
  lanyard diff artifact oci://registry.example.com/team/app:1.0.0 --path=./deploy

  # For a script: push only what differs; a diff that failed has another status than 1
  lanyard diff artifact oci://registry.example.com/team/app:latest --path=./deploy || {
    test $? -eq 1 && lanyard push artifact oci://registry.example.com/team/app:latest --path=./deploy
  }`,
	}
	f.addTo(c)
	output := frame.OutputFlag(c, frame.Text, frame.JSON, frame.YAML)
	return prepare(c, std, func(ctx context.Context, j *job) error { return f.diff(ctx, j, output) })
}

func (f *contentFlags) diff(ctx context.Context, j *job, output *frame.Format) error {
	places := differences{w: j.std.Out, format: output.String()}
	artifact, err := f.find(ctx, j, &places)
	if err != nil {
		return frame.Undecide(f.sizes.explain(err))
	}
	if places.count > 0 {
		return fmt.Errorf("%s differs from %s in %d places", f.path, artifact, places.count)
	}
	return nil
}

// find compares the folder with the artifact. It writes each difference, and returns the artifact's
// URL, repository, tag and digest.
func (f *contentFlags) find(ctx context.Context, j *job, places *differences) (identified, error) {
	if err := f.check(j); err != nil {
		return identified{}, err
	}
	temporary, err := os.MkdirTemp("", "lanyard-diff-")
	if err != nil {
		return identified{}, err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // a temporary folder
	here, closeHere, err := f.open(ctx, filepath.Join(temporary, "here"))
	if err != nil {
		return identified{}, err
	}
	defer closeHere()
	client, closing, err := j.registry.connect(ctx, j.repository, oci.Options{MaxLayerBytes: int64(f.sizes.bytes)})
	if err != nil {
		return identified{}, err
	}
	defer closing()
	manifest, err := client.Get(ctx, j.reference)
	if err != nil {
		return identified{}, err
	}
	unpacked := filepath.Join(temporary, "artifact")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return identified{}, err
	}
	if _, err := j.unpack(ctx, client, manifest, unpacked, archive.Options{Limits: f.sizes.limits()}); err != nil {
		return identified{}, err
	}
	if err := compare(ctx, side{fsys: os.DirFS(unpacked)}, here, f.sizes.limits(), places.add); err != nil {
		return identified{}, err
	}
	return identify(j.repository, manifest.Resolved), places.end()
}

// open opens the folder that --path names. If --path names a file, open packs the file as a push
// does, and unpacks the result into a new folder.
func (f *contentFlags) open(ctx context.Context, unpacked string) (side, func(), error) {
	ignore, err := f.patterns()
	if err != nil {
		return side{}, nil, err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return side{}, nil, fmt.Errorf("--path: %w", err)
	}
	path := f.path
	if !info.IsDir() {
		path, ignore = unpacked, archive.Patterns{}
		if err := f.unpackFile(ctx, unpacked); err != nil {
			return side{}, nil, err
		}
	}
	folder, err := os.OpenRoot(path)
	if err != nil {
		return side{}, nil, fmt.Errorf("--path: %w", err)
	}
	return side{fsys: folder.FS(), ignore: ignore}, func() { _ = folder.Close() }, nil // read only: the error of Close does not matter
}

// unpackFile packs a file as a push does, and unpacks the result into a new folder.
func (f *contentFlags) unpackFile(ctx context.Context, folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // each file is closed
	in, out := io.Pipe()
	var packing sync.WaitGroup
	packing.Go(func() {
		_, err := oci.Artifact{Path: f.path, Limits: f.sizes.limits()}.Pack(ctx, out)
		_ = out.CloseWithError(err) // always returns nil
	})
	_, err = archive.Extract(ctx, in, root, archive.Options{Limits: f.sizes.limits()})
	_ = in.Close() // always returns nil; ends the goroutine that packs
	packing.Wait()
	return err
}

// differences writes each difference when it is found: all differences together may not fit into
// memory.
type differences struct {
	w      io.Writer
	format string
	count  int
}

// add writes one more difference.
func (r *differences) add(d difference) error {
	r.count++
	var text bytes.Buffer
	switch r.format {
	case frame.JSON: // write an element of a list, which r.end closes
		if r.count == 1 {
			text.WriteString("[\n  ")
		} else {
			text.WriteString(",\n  ")
		}
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("  ", "  ")
		if err := encoder.Encode(d); err != nil {
			return err
		}
		text.Truncate(text.Len() - 1) // remove the newline that Encode appends
	case frame.YAML:
		if err := frame.WriteYAML(&text, []difference{d}); err != nil {
			return err
		}
	default:
		text.WriteString(d.text())
	}
	_, err := text.WriteTo(r.w)
	return err
}

// end closes the JSON list. If there were no differences, it writes an empty list in JSON and
// YAML, and nothing in text.
func (r *differences) end() error {
	text := ""
	switch {
	case r.format != frame.Text && r.count == 0:
		text = "[]\n"
	case r.format == frame.JSON:
		text = "\n]\n"
	}
	_, err := io.WriteString(r.w, text)
	return err
}

// text is the difference in a format similar to that of git diff.
func (d difference) text() string {
	var b strings.Builder
	path := plain.Text(d.Path)
	if d.OldMode != d.NewMode {
		fmt.Fprintf(&b, "mode change %s => %s %s\n", d.OldMode, d.NewMode, path)
	}
	switch {
	case d.Diff != "":
		b.WriteString(d.Diff)
	case d.Change == changed && d.OldMode == d.NewMode:
		fmt.Fprintf(&b, "files a/%s and b/%s differ\n", path, path)
	case d.Change != changed:
		fmt.Fprintf(&b, "%s %s\n", d.Change, path)
	}
	return b.String()
}

// side is one of two folders that are compared.
type side struct {
	fsys   fs.FS
	ignore archive.Patterns
}

// compare calls a function for each difference, in lexical order.
func compare(ctx context.Context, before, after side, limits archive.Limits, found func(difference) error) error {
	old, err := before.list(ctx, limits)
	if err != nil {
		return err
	}
	now, err := after.list(ctx, limits)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var d difference
		switch order := first(old, now); {
		case order < 0:
			d, err = before.only(old[0], removed)
			old = old[1:]
		case order > 0:
			d, err = after.only(now[0], added)
			now = now[1:]
		default:
			d, err = both(before, after, old[0], now[0])
			old, now = old[1:], now[1:]
		}
		if err == nil && d.Change != "" {
			err = found(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first says which list has the next entry in lexical order. The result is negative for the old
// list, positive for the new one, and 0 if both have the entry.
func first(old, now []archive.Entry) int {
	switch {
	case len(old) == 0:
		return 1
	case len(now) == 0:
		return -1
	}
	if order := strings.Compare(old[0].Name, now[0].Name); order != 0 || old[0].Dir == now[0].Dir {
		return order
	}
	return -1 // one entry is a file, the other a folder: the removed entry comes first
}

// list returns the files and the empty folders. The names of the files imply all other folders.
func (s side) list(ctx context.Context, limits archive.Limits) ([]archive.Entry, error) {
	entries, err := archive.List(ctx, s.fsys, archive.Options{Ignore: s.ignore, Limits: limits})
	if err != nil {
		return nil, err
	}
	kept := entries[:0]
	for i, e := range entries {
		if !e.Dir || i+1 == len(entries) || !strings.HasPrefix(entries[i+1].Name, e.Name+"/") {
			kept = append(kept, e)
		}
	}
	slices.SortFunc(kept, func(a, b archive.Entry) int { return strings.Compare(a.Name, b.Name) })
	return kept, nil
}

// only returns the difference for an entry of s that the other side does not have.
func (s side) only(e archive.Entry, how change) (difference, error) {
	d := difference{Path: e.Name, Change: how}
	if e.Dir {
		d.Path += "/"
		return d, nil
	}
	content, isText, err := s.text(e.Name)
	if err != nil || !isText {
		return d, err
	}
	name := plain.Text(e.Name)
	if how == added {
		d.Diff = udiff.Unified("/dev/null", "b/"+name, "", content)
	} else {
		d.Diff = udiff.Unified("a/"+name, "/dev/null", content, "")
	}
	return d, nil
}

// both compares two entries of the same name, one of each side. If the entries are equal, Change is
// empty in the result.
func both(before, after side, old, now archive.Entry) (difference, error) {
	d := difference{Path: now.Name}
	if old.Dir {
		return d, nil
	}
	if old.Executable != now.Executable {
		d.Change, d.OldMode, d.NewMode = changed, mode(old), mode(now)
	}
	same, err := equal(before.fsys, after.fsys, now.Name)
	if same || err != nil {
		return d, err
	}
	d.Change = changed
	oldText, oldIsText, err := before.text(now.Name)
	if err != nil {
		return d, err
	}
	newText, newIsText, err := after.text(now.Name)
	if err != nil {
		return d, err
	}
	if oldIsText && newIsText {
		name := plain.Text(now.Name)
		d.Diff = udiff.Unified("a/"+name, "b/"+name, oldText, newText)
	}
	return d, nil
}

// mode is the mode of a file as Git writes it.
func mode(e archive.Entry) string {
	if e.Executable {
		return "100755"
	}
	return "100644"
}

// text returns the content of a file, and whether the content can be shown. Content can be shown if
// it is short, is UTF-8, and has no characters that move a terminal's cursor or hide text.
func (s side) text(name string) (string, bool, error) {
	f, err := s.fsys.Open(name)
	if err != nil {
		return "", false, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	content, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil || len(content) > maxText || !utf8.Valid(content) {
		return "", false, err
	}
	// Accept CRLF as the end of a line, but no bare CR: it makes a terminal overwrite the line.
	lines := bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	hidden := bytes.ContainsFunc(lines, func(r rune) bool {
		return !strings.ContainsRune("\n\t", r) && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp)
	})
	return string(content), !hidden, nil
}

// equal compares the content of a file in two folders.
func equal(a, b fs.FS, name string) (bool, error) {
	left, err := a.Open(name)
	if err != nil {
		return false, err
	}
	defer left.Close() //nolint:errcheck // opened for reading
	right, err := b.Open(name)
	if err != nil {
		return false, err
	}
	defer right.Close() //nolint:errcheck // opened for reading
	var l, r [32 << 10]byte
	for {
		n, leftEnd := io.ReadFull(left, l[:])
		m, rightEnd := io.ReadFull(right, r[:])
		if err := failure(leftEnd, rightEnd); err != nil {
			return false, err
		}
		if !bytes.Equal(l[:n], r[:m]) {
			return false, nil
		}
		if leftEnd != nil || rightEnd != nil { // n equals m, so both files have ended
			return true, nil
		}
	}
}

// failure returns the first error that is not the end of a file.
func failure(errs ...error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
	}
	return nil
}
