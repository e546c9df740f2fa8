package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/must"
)

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func object(namespace, name string) Object {
	return Object{Kind: "OCIRepository", Namespace: namespace, Name: name, UID: "11111111-2222-3333-4444-555555555555"}
}

func put(t *testing.T, s *Store, o Object, content string) Stored {
	t.Helper()
	stored, err := s.Put(t.Context(), o, text(content))
	must.Succeed(t, err)
	return stored
}

func text(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// leftovers returns the names of the files in .tmp.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".tmp", "*"))
	must.Succeed(t, err)
	return names
}

func TestPutAndVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "Open")
	s := open(t, dir, Options{})
	o := object("tenant-a", "app")
	if err := s.Verify(t.Context(), o, digestOf("one")); !errors.Is(err, ErrNotFound) || s.Has(o, digestOf("one")) {
		t.Errorf("before: %v", err)
	}
	got := put(t, s, o, "one")
	want := "ocirepository/tenant-a/app/" + o.UID + "/" + strings.TrimPrefix(digestOf("one"), "sha256:") + ".tar.gz"
	if got.Path != want || got.Digest != digestOf("one") || got.Size != 3 || got.Time.IsZero() || got.Time.Location() != time.UTC {
		t.Errorf("stored %+v", got)
	}
	content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(got.Path)))
	if err != nil || string(content) != "one" {
		t.Errorf("on disk: %q, %v", content, err)
	}
	if err := s.Verify(t.Context(), o, got.Digest); err != nil || !s.Has(o, got.Digest) {
		t.Errorf("after: %v", err)
	}
	put(t, s, o, "one")
	if s.Size() != 3 {
		t.Errorf("the same content twice takes %d bytes", s.Size())
	}
	// The artifact must not exist for another name, namespace, kind or UID.
	for _, other := range []Object{
		object("tenant-a", "other"), object("tenant-b", "app"),
		{Kind: "Bucket", Namespace: o.Namespace, Name: o.Name, UID: o.UID},
		{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: "99999999-2222-3333-4444-555555555555"},
	} {
		if s.Has(other, got.Digest) || !errors.Is(s.Verify(t.Context(), other, got.Digest), ErrNotFound) {
			t.Errorf("%+v has it", other)
		}
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(got.Path)), []byte("two"), 0o600))
	if err := s.Verify(t.Context(), o, got.Digest); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	put(t, s, o, "one")
	if err := s.Verify(t.Context(), o, got.Digest); err != nil {
		t.Errorf("mended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx, o, got.Digest); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must.Succeed(t, s.Remove(o))
	if s.Has(o, got.Digest) || s.Size() != 0 {
		t.Error("removed and still there")
	}
	if _, err := os.Stat(filepath.Join(dir, "ocirepository")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folders stay: %v", err)
	}
	if err := s.Remove(o); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestNamesAreChecked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store"), Options{})
	good := object("tenant-a", "app")
	for name, o := range map[string]Object{
		"zero":                 {},
		"kind with slash":      {Kind: "a/b", Namespace: "n", Name: "n", UID: "u"},
		"kind of the store":    {Kind: ".tmp", Namespace: "n", Name: "n", UID: "u"},
		"namespace up":         {Kind: "k", Namespace: "..", Name: "n", UID: "u"},
		"namespace with dot":   {Kind: "k", Namespace: "a.b", Name: "n", UID: "u"},
		"namespace upper":      {Kind: "k", Namespace: "A", Name: "n", UID: "u"},
		"namespace long":       {Kind: "k", Namespace: strings.Repeat("a", 64), Name: "n", UID: "u"},
		"name up":              {Kind: "k", Namespace: "n", Name: "..", UID: "u"},
		"name traversing":      {Kind: "k", Namespace: "n", Name: "../../other/app", UID: "u"},
		"name empty":           {Kind: "k", Namespace: "n", UID: "u"},
		"name long":            {Kind: "k", Namespace: "n", Name: strings.Repeat("a", 254), UID: "u"},
		"name with NUL":        {Kind: "k", Namespace: "n", Name: "a\x00", UID: "u"},
		"name with line":       {Kind: "k", Namespace: "n", Name: "a\n", UID: "u"},
		"UID up":               {Kind: "k", Namespace: "n", Name: "n", UID: ".."},
		"UID missing":          {Kind: "k", Namespace: "n", Name: "n"},
		"UID with a separator": {Kind: "k", Namespace: "n", Name: "n", UID: "a/b"},
	} {
		if _, err := s.Put(t.Context(), o, text("x")); !errors.Is(err, ErrInvalid) {
			t.Errorf("Put, %s: %v", name, err)
		}
		if err := s.Remove(o); !errors.Is(err, ErrInvalid) {
			t.Errorf("Remove, %s: %v", name, err)
		}
		if _, err := s.URLPath(o, digestOf("x")); !errors.Is(err, ErrInvalid) || s.Has(o, digestOf("x")) {
			t.Errorf("URLPath, %s: %v", name, err)
		}
	}
	for _, digest := range []string{"", "sha256:", "sha256:../../x", strings.Repeat("a", 64), strings.ToUpper(digestOf("x")), digestOf("x") + "0"} {
		if _, err := s.URLPath(good, digest); !errors.Is(err, ErrInvalid) {
			t.Errorf("digest %q: %v", digest, err)
		}
		if err := s.Verify(t.Context(), good, digest); !errors.Is(err, ErrInvalid) || s.Has(good, digest) {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside the store: %v, %v", entries, err)
	}
}

func TestFailedPutChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	o := object("tenant-a", "app")
	old := put(t, s, o, "the current artifact")
	broken := errors.New("the download broke")
	if _, err := s.Put(t.Context(), o, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of")
		return broken
	}); !errors.Is(err, broken) {
		t.Errorf("broken: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := s.Put(ctx, o, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of")
		cancel(broken)
		_, _ = io.WriteString(w, "the rest") // the write function ignores errors, but Put must fail
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("cancelled: %v", err)
	}
	for at := range 3 {
		s.create = func(name string) (file, error) {
			if at == 0 {
				return nil, syscall.ENOSPC
			}
			return fullDisk(t, s, name, at == 1)
		}
		if _, err := s.Put(t.Context(), o, func(w io.Writer) error {
			_, _ = w.Write(make([]byte, 1<<20)) // the write function ignores errors
			return nil
		}); !errors.Is(err, ErrVolume) || errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), tempDir) {
			t.Errorf("full disk %d: %v", at, err)
		}
	}
	if err := s.Verify(t.Context(), o, old.Digest); err != nil {
		t.Errorf("the old artifact: %v", err)
	}
	if s.Size() != old.Size || len(leftovers(t, dir)) != 0 {
		t.Errorf("%d bytes counted, temporary files %v", s.Size(), leftovers(t, dir))
	}
}

// fullDisk returns a file whose disk is full. If early is true, it is /dev/full, which refuses each
// write. If early is false, only the sync of the data fails, as on NFS and thin volumes.
func fullDisk(t *testing.T, s *Store, name string, early bool) (file, error) {
	t.Helper()
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	must.Succeed(t, err)
	if !early {
		return lateFull{f}, nil
	}
	must.Succeed(t, f.Close())
	return os.OpenFile("/dev/full", os.O_WRONLY, 0)
}

type lateFull struct{ *os.File }

func (lateFull) Sync() error { return &fs.PathError{Op: "sync", Err: syscall.ENOSPC} }

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{MaxBytes: 400, MaxNamespaceBytes: 60})
	a, b := object("tenant-a", "app"), object("tenant-b", "app")
	first := put(t, s, a, strings.Repeat("1", 30))
	put(t, s, a, strings.Repeat("2", 30))
	if _, err := s.Put(t.Context(), a, text("3")); !errors.Is(err, ErrFull) || !errors.Is(err, ErrNamespaceFull) || !strings.Contains(err.Error(), "tenant-a") {
		t.Errorf("above the namespace's bound: %v", err)
	}
	// A replacement needs room for both artifacts, because both are on the disk for a moment.
	if _, err := s.Put(t.Context(), a, text(strings.Repeat("2", 30))); !errors.Is(err, ErrFull) {
		t.Errorf("again at the bound: %v", err)
	}
	put(t, s, b, strings.Repeat("4", 40)) // the full namespace does not affect tenant-b
	if s.Size() != 100 {
		t.Errorf("%d bytes counted", s.Size())
	}
	for o, digest := range map[Object]string{a: first.Digest, b: digestOf(strings.Repeat("4", 40))} {
		if err := s.Verify(t.Context(), o, digest); err != nil {
			t.Errorf("%s: %v", o, err)
		}
	}
	// After a restart the count is the same, and freed room can be used.
	s = open(t, dir, Options{MaxBytes: 400, MaxNamespaceBytes: 60})
	if s.Size() != 100 {
		t.Errorf("%d bytes counted after a restart", s.Size())
	}
	must.Succeed(t, s.Remove(a))
	put(t, s, a, strings.Repeat("6", 50))
	// The administrator lowers the store's bound to 100 bytes. The artifacts use 90 bytes, so an
	// artifact of 11 bytes does not fit.
	s = open(t, dir, Options{MaxBytes: 100})
	if _, err := s.Put(t.Context(), b, text(strings.Repeat("5", 11))); !errors.Is(err, ErrFull) || errors.Is(err, ErrNamespaceFull) || !strings.Contains(err.Error(), "100") {
		t.Errorf("above the store's bound: %v", err)
	}
}

func TestOpenSweepsAndIgnoresForeignFiles(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	o := object("tenant-a", "app")
	kept := put(t, s, o, "kept")
	for _, name := range []string{".tmp/half", "lost+found/x", "notes.txt", "ocirepository/tenant-a/app/" + o.UID + "/README", "ocirepository/file", "UPPER/a/b/c/d"} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Succeed(t, os.WriteFile(file, []byte("foreign"), 0o600))
	}
	must.Succeed(t, os.Chmod(filepath.Join(dir, "lost+found"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "lost+found"), 0o700) })
	must.Succeed(t, os.Symlink("/etc/passwd", filepath.Join(dir, filepath.FromSlash("ocirepository/tenant-a/app/"+o.UID+"/"+strings.Repeat("a", 64)+".tar.gz"))))
	s = open(t, dir, Options{})
	if len(leftovers(t, dir)) != 0 || s.Size() != kept.Size {
		t.Errorf("leftovers %v, %d bytes", leftovers(t, dir), s.Size())
	}
	if s.Has(o, "sha256:"+strings.Repeat("a", 64)) {
		t.Error("a symbolic link counts as an artifact")
	}
	if err := s.Verify(t.Context(), o, "sha256:"+strings.Repeat("a", 64)); err == nil {
		t.Error("a link out of the store was followed")
	}
	if err := s.Verify(t.Context(), o, kept.Digest); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	o := object("tenant-a", "app")
	path := func(s *Store) string {
		p, err := s.URLPath(o, digestOf("x"))
		must.Succeed(t, err)
		return p
	}
	own := path(open(t, dir, Options{}))
	if again := path(open(t, dir, Options{})); again != own {
		t.Error("the store's own key does not survive a restart")
	}
	info, err := os.Stat(filepath.Join(dir, ".key"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Errorf("key file: %v, %v", info, err)
	}
	if other := path(open(t, t.TempDir(), Options{})); other == own {
		t.Error("two stores share a key")
	}
	raw := bytes.Repeat([]byte{7}, 32)
	secret, err := newKey(raw)
	must.Succeed(t, err)
	for _, text := range []string{fmt.Sprint(secret), fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret), fmt.Sprintf("%+v %#v", []key{secret}, []key{secret})} {
		if strings.Contains(text, string(raw)) || strings.Contains(text, "7, 7") || strings.Contains(text, "7 7") || strings.Contains(text, "0x7") {
			t.Errorf("the key prints: %q", text)
		}
	}
	for name, content := range map[string][]byte{
		"empty": nil, "short": raw[:31], "long": append(raw, '\n'), "zeros": make([]byte, 32), "damaged": []byte("damaged"),
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, ".key"), content, 0o600))
		if _, err := Open(dir, Options{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withKey returns a folder for a store with a known key.
func withKey(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, ".key"), bytes.Repeat([]byte{1}, 32), 0o600))
	return dir
}

// TestURLVector checks that the format of URLs never changes, because the URLs in statuses must
// stay valid across upgrades.
func TestURLVector(t *testing.T) {
	s := open(t, withKey(t), Options{})
	got, err := s.URLPath(object("tenant-a", "app"), digestOf(""))
	must.Succeed(t, err)
	const want = "/ocirepository/tenant-a/app/dfe7f005c24d62709533f6247ec5a0b2108b6cb576aafefad9244e9dac23d990/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.tar.gz"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestMACIsUnambiguous checks that two objects have different MACs even if joining their fields
// gives the same text.
func TestMACIsUnambiguous(t *testing.T) {
	secret, err := newKey(bytes.Repeat([]byte{1}, 32))
	must.Succeed(t, err)
	seen := make(map[string]Object)
	for _, o := range []Object{
		{"k", "ab", "c", "u"}, {"k", "a", "bc", "u"}, {"ka", "b", "c", "u"}, {"k", "a", "b", "cu"}, {"k", "a", "b-c", "u"}, {"k", "a-b", "c", "u"}, {"k", "a", "b", "c-u"},
	} {
		m := hex.EncodeToString(mac(secret, o, strings.Repeat("0", 64)))
		if before, ok := seen[m]; ok {
			t.Errorf("%+v and %+v share a MAC", before, o)
		}
		seen[m] = o
	}
}

func TestByURLPath(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	o := object("tenant-a", "app")
	stored := put(t, s, o, "content")
	urlPath, err := s.URLPath(o, stored.Digest)
	must.Succeed(t, err)
	f, digest, err := s.ByURLPath(urlPath)
	must.Succeed(t, err)
	content, err := io.ReadAll(f)
	_ = f.Close()
	if err != nil || string(content) != "content" || digest != stored.Digest {
		t.Errorf("%q %s %v", content, digest, err)
	}
	// The object is created again: the former object's URL is invalid although the bytes are the
	// same.
	reborn := o
	reborn.UID = "99999999-2222-3333-4444-555555555555"
	put(t, s, reborn, "content")
	must.Succeed(t, s.Remove(o))
	if _, _, err := s.ByURLPath(urlPath); !errors.Is(err, ErrNotFound) {
		t.Errorf("the URL of a deleted object: %v", err)
	}
	fresh, err := s.URLPath(reborn, stored.Digest)
	if err != nil || fresh == urlPath {
		t.Fatalf("%s, %v", fresh, err)
	}
	f, _, err = s.ByURLPath(fresh)
	must.Succeed(t, err)
	_ = f.Close()
}

func TestCollect(t *testing.T) {
	now := time.Now()
	type artifact struct {
		content string
		age     time.Duration // time since it was stored
	}
	for _, c := range []struct {
		name    string
		current string
		gone    bool
		have    []artifact
		records int // maximum number of artifacts to keep; default 2
		want    string
	}{
		{name: "current is never too old", current: "a", have: []artifact{{"a", 9999 * time.Hour}}, want: "a"},
		{name: "just replaced, although old", current: "b", have: []artifact{{"a", time.Hour}, {"b", time.Second}}, want: "a b"},
		{name: "replaced long ago", current: "b", have: []artifact{{"a", time.Hour}, {"b", 2 * time.Minute}}, want: "b"},
		{name: "two records", current: "d", have: []artifact{{"a", 4}, {"b", 3}, {"c", 2}, {"d", 1}}, want: "c d"},
		{name: "three records", current: "d", have: []artifact{{"a", 4}, {"b", 3}, {"c", 2}, {"d", 1}}, records: 3, want: "b c d"},
		{name: "stored, status not yet written", current: "a", have: []artifact{{"a", time.Hour}, {"b", time.Second}}, want: "a b"},
		{name: "stored, status never written", current: "a", have: []artifact{{"a", time.Hour}, {"b", 2 * time.Minute}}, want: "a"},
		{name: "no status yet", current: "", have: []artifact{{"a", time.Second}}, want: "a"},
		{name: "current is missing", current: "x", have: []artifact{{"a", 3}, {"b", 2}, {"c", 1}}, want: "b c"},
		{name: "rolled back", current: "a", have: []artifact{{"b", time.Hour}, {"a", time.Second}}, want: "a b"},
		{name: "stored, status not yet heard of", current: "a b", have: []artifact{{"a", time.Hour}, {"b", 2 * time.Minute}}, want: "a b"},
		{name: "two current ones are all", current: "b c", have: []artifact{{"a", 3}, {"b", 2}, {"c", 1}}, want: "b c"},
		{name: "object gone", gone: true, current: "a", have: []artifact{{"a", 2 * time.Minute}}, want: ""},
		{name: "object unknown to an old list", gone: true, have: []artifact{{"a", time.Second}}, want: "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			o := object("tenant-a", "app")
			for _, a := range c.have {
				stored := put(t, s, o, a.content)
				when := now.Add(-a.age)
				must.Succeed(t, os.Chtimes(filepath.Join(dir, filepath.FromSlash(stored.Path)), when, when))
			}
			s.keep.records = cmp.Or(c.records, s.keep.records)
			done, err := s.Collect(t.Context(), func(asked Object) ([]string, bool) {
				if asked.UID != o.UID || asked.Kind != "ocirepository" {
					t.Errorf("asked for %+v", asked)
				}
				var digests []string
				for current := range strings.FieldsSeq(c.current) {
					digests = append(digests, digestOf(current))
				}
				return digests, !c.gone
			})
			must.Succeed(t, err)
			var got []string
			for _, a := range c.have {
				if s.Has(o, digestOf(a.content)) {
					got = append(got, a.content)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("kept %q, want %q", got, c.want)
			}
			if done.Artifacts != len(c.have)-len(got) || done.Bytes != int64(done.Artifacts) || s.Size() != int64(len(got)) {
				t.Errorf("%+v, %d bytes left", done, s.Size())
			}
		})
	}
}

// TestConcurrency runs writers, readers, collectors and removers at the same time. No whole
// artifact is lost, and the count of bytes is right at the end.
func TestConcurrency(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{MaxBytes: 1 << 20})
	s.keep.records = 1000
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			o := object("tenant-a", fmt.Sprintf("app-%d", worker))
			for i := range 50 {
				content := fmt.Sprintf("%d-%d", worker, i)
				stored, err := s.Put(t.Context(), o, text(content))
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Verify(t.Context(), o, stored.Digest); err != nil {
					t.Errorf("%s just stored: %v", content, err)
				}
			}
		})
	}
	wg.Go(func() {
		o := object("tenant-b", "gone")
		for range 50 {
			if _, err := s.Put(t.Context(), o, text("x")); err != nil {
				t.Error(err)
			}
			if err := s.Remove(o); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 50 {
			if _, err := s.Collect(t.Context(), func(Object) ([]string, bool) { return nil, true }); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	counted := s.Size()
	if again := open(t, dir, Options{}); again.Size() != counted {
		t.Errorf("%d bytes counted, %d there", counted, again.Size())
	}
	if len(leftovers(t, dir)) != 0 {
		t.Error("temporary files stay")
	}
}
