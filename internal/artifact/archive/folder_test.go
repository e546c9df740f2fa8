package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// extract extracts an archive into a new folder. It returns the folder's files as "name mode body",
// in lexical order. The test fails if the folder has an entry that is neither a folder nor a
// regular file. It also fails if there is anything beside the new folder.
func extract(t *testing.T, in []byte, opts archive.Options) ([]string, error) {
	t.Helper()
	outside := t.TempDir()
	root, err := os.OpenRoot(mkdir(t, filepath.Join(outside, "inside")))
	must.Succeed(t, err)
	defer root.Close()
	_, refusal := archive.Extract(t.Context(), bytes.NewReader(in), root, opts)
	if beside, err := os.ReadDir(outside); err != nil || len(beside) != 1 {
		t.Fatalf("beside the folder: %v, %v", beside, err)
	}
	var files []string
	contents := map[string]string{}
	err = filepath.WalkDir(root.Name(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			t.Errorf("%s is of type %s", path, info.Mode())
		}
		name, err := filepath.Rel(root.Name(), path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		contents[filepath.ToSlash(name)] = string(body)
		files = append(files, strings.TrimSpace(name+" "+info.Mode().String()[1:]+" "+string(body)))
		return err
	})
	must.Succeed(t, err)
	slices.Sort(files)
	sameInMemory(t, in, opts, contents, refusal)
	return files, refusal
}

// sameInMemory checks that Files returns what Extract has written, or refuses what Extract refused.
func sameInMemory(t *testing.T, in []byte, opts archive.Options, extracted map[string]string, refusal error) {
	t.Helper()
	contents, err := archive.Files(t.Context(), bytes.NewReader(in), opts)
	if fmt.Sprint(err) != fmt.Sprint(refusal) {
		t.Errorf("Files returned %v, and Extract %v", err, refusal)
	}
	if err != nil {
		return
	}
	got := map[string]string{}
	for name, content := range contents {
		got[name] = string(content)
	}
	if !maps.Equal(got, extracted) {
		t.Errorf("Files returned %q, and Extract wrote %q", got, extracted)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	must.Succeed(t, os.Mkdir(path, 0o755))
	return path
}

// TestExtractIntoWhatIsThere checks that an existing file is not overwritten, and that an existing
// link is not followed.
func TestExtractIntoWhatIsThere(t *testing.T) {
	for name, prepare := range map[string]func(root string) error{
		"file":           func(root string) error { return os.WriteFile(filepath.Join(root, "a"), []byte("before"), 0o600) },
		"link":           func(root string) error { return os.Symlink("elsewhere", filepath.Join(root, "a")) },
		"link to parent": func(root string) error { return os.Symlink("..", filepath.Join(root, "sub")) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := mkdir(t, filepath.Join(t.TempDir(), "root"))
			must.Succeed(t, prepare(folder))
			root, err := os.OpenRoot(folder)
			must.Succeed(t, err)
			defer root.Close()
			if _, err := archive.Extract(t.Context(), bytes.NewReader(pack(t, reg("a", "1"), reg("sub/b", "2"))), root, archive.Options{}); err == nil {
				t.Error("is overwritten")
			}
			if _, err := os.Stat(filepath.Join(folder, "..", "b")); err == nil {
				t.Error("a link was followed")
			}
		})
	}
}

// growing implements a folder whose files change while they are read.
type growing struct {
	fstest.MapFS

	change func(*fstest.MapFile)
}

func (g growing) Open(name string) (fs.File, error) {
	f, err := g.MapFS.Open(name)
	if err != nil || g.MapFS[name] == nil {
		return f, err
	}
	g.change(g.MapFS[name])
	return g.MapFS.Open(name) // the changed file
}

func TestCreateRefusesWhatChanges(t *testing.T) {
	for name, change := range map[string]func(*fstest.MapFile){
		"longer":    func(f *fstest.MapFile) { f.Data = append(f.Data, 'x') },
		"shorter":   func(f *fstest.MapFile) { f.Data = f.Data[:1] },
		"empty":     func(f *fstest.MapFile) { f.Data = nil },
		"rewritten": func(f *fstest.MapFile) { f.ModTime = f.ModTime.Add(time.Second) },
	} {
		folder := growing{fstest.MapFS{"a.yaml": {Data: []byte("content"), ModTime: time.Unix(1, 0)}}, change}
		_, err := archive.Create(t.Context(), folder, io.Discard, archive.Options{})
		if archive.ReasonOf(err) != archive.ReasonChanged || !strings.Contains(err.Error(), "a.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCreateRefusesKinds checks that Create refuses entries that are neither folder, file nor link.
// The error has the name of the entry, and the entry is never opened.
func TestCreateRefusesKinds(t *testing.T) {
	sockets := t.TempDir()
	t.Chdir(sockets) // a socket's path must be short
	listener, err := net.Listen("unix", "odd")
	must.Succeed(t, err)
	defer listener.Close()
	for name, folder := range map[string]fs.FS{
		"socket": os.DirFS(sockets),
		"device": fstest.MapFS{"odd": {Mode: fs.ModeDevice | fs.ModeCharDevice}},
		"disk":   fstest.MapFS{"odd": {Mode: fs.ModeDevice}},
		"pipe":   fstest.MapFS{"odd": {Mode: fs.ModeNamedPipe}},
		"other":  fstest.MapFS{"odd": {Mode: fs.ModeIrregular}},
	} {
		_, err := archive.Create(t.Context(), folder, io.Discard, archive.Options{})
		if archive.ReasonOf(err) != archive.ReasonType || !strings.Contains(err.Error(), "odd") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCreateUnicode checks that a composed or decomposed name is unchanged, and that a folder with
// both forms of one name is refused.
func TestCreateUnicode(t *testing.T) {
	const composed, decomposed = "caf\u00e9.yaml", "cafe\u0301.yaml"
	for _, name := range []string{composed, decomposed} {
		var out bytes.Buffer
		if _, err := archive.Create(t.Context(), fstest.MapFS{name: {Data: []byte("x")}}, &out, archive.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := unpack(t, out.Bytes()); len(got) != 1 || !strings.HasPrefix(got[0], name+" ") {
			t.Errorf("%+q", got)
		}
	}
	both := fstest.MapFS{composed: {}, decomposed: {}}
	if _, err := archive.Create(t.Context(), both, io.Discard, archive.Options{}); archive.ReasonOf(err) != archive.ReasonDuplicate || !strings.Contains(err.Error(), "NFC") {
		t.Errorf("both: %v", err)
	}
	both["ignored/"+composed] = &fstest.MapFile{}
	delete(both, decomposed)
	if _, err := archive.Create(t.Context(), both, io.Discard, archive.Options{}); err != nil {
		t.Errorf("in two folders: %v", err)
	}
}

func TestCreateManyFiles(t *testing.T) {
	const files = archive.DefaultMaxFiles + 1
	folder := fstest.MapFS{}
	for i := range files {
		folder[fmt.Sprintf("%d/%05d.yaml", i%10, i)] = &fstest.MapFile{}
	}
	limits := archive.Limits{MaxBytes: 1 << 30, MaxFiles: 200_000}
	sum, err := archive.Create(t.Context(), folder, io.Discard, archive.Options{Limits: limits})
	if err != nil || sum.Files != files || sum.Dirs != 10 {
		t.Errorf("%+v, %v", sum, err)
	}
	if _, err := archive.Create(t.Context(), folder, io.Discard, archive.Options{}); archive.ReasonOf(err) != archive.ReasonTooMany {
		t.Errorf("with the controller's limits: %v", err)
	}
}

func TestCreateFile(t *testing.T) {
	folder := fstest.MapFS{"app.yaml": {Data: []byte("x"), Mode: 0o600}, "other": {}}
	var out bytes.Buffer
	if _, err := archive.CreateFile(t.Context(), folder, "app.yaml", &out, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	if got := unpack(t, out.Bytes()); !slices.Equal(got, []string{"app.yaml rw-r--r-- x"}) {
		t.Errorf("%q", got)
	}
	if _, err := archive.CreateFile(t.Context(), folder, "none", io.Discard, archive.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestCreateIsNormal checks that Create gives the same bytes for a folder as Normalize for the
// folder's archive, although Create compresses in the background.
func TestCreateIsNormal(t *testing.T) {
	folder, entries := fstest.MapFS{}, []entry{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		var body strings.Builder
		for range random.IntN(2000) {
			fmt.Fprintf(&body, "key-%d: %x\n", random.IntN(100), random.Uint32())
		}
		name := fmt.Sprintf("%05d.yaml", i)
		folder[name] = &fstest.MapFile{Data: []byte(body.String())}
		entries = append(entries, reg(name, body.String()))
	}
	var created, normal bytes.Buffer
	sum, err := archive.Create(t.Context(), folder, &created, archive.Options{})
	if err != nil || sum.Bytes < 4<<20 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if _, err := archive.Normalize(t.Context(), bytes.NewReader(pack(t, entries...)), &normal, archive.Options{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(created.Bytes(), normal.Bytes()) {
		t.Error("a folder has other bytes than its archive")
	}
}

// full simulates a disk. The field left is the number of bytes that still fit.
type full struct{ left int }

var errFull = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestCreateOnFullDisk checks that the disk's error is returned unchanged, wherever the disk
// becomes full.
func TestCreateOnFullDisk(t *testing.T) {
	content := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	for _, left := range []int{0, 1 << 20, 3 << 20} {
		if _, err := archive.Create(t.Context(), fstest.MapFS{"large.bin": {Data: content}}, &full{left}, archive.Options{}); !errors.Is(err, errFull) {
			t.Errorf("%d bytes are left: %v", left, err)
		}
	}
}

func TestList(t *testing.T) {
	folder := fstest.MapFS{
		"a/run.sh": {Data: []byte("x"), Mode: 0o700}, "a-b": {Mode: 0o600}, "photo.jpg": {}, "empty": {Mode: fs.ModeDir}, ".git/config": {},
	}
	entries, err := archive.List(t.Context(), folder, archive.Options{Ignore: archive.DefaultPatterns()})
	want := []archive.Entry{{Name: "a", Dir: true}, {Name: "a/run.sh", Executable: true}, {Name: "a-b"}, {Name: "empty", Dir: true}}
	if err != nil || !slices.Equal(entries, want) {
		t.Errorf("%+v, %v; want %+v", entries, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := archive.List(ctx, folder, archive.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
