package store

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestShare checks the share of a namespace in a store of 1024 bytes. The share depends on how much
// the other namespaces have.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		others, want int64
		why          string
	}{
		{0, 384, "half of three quarters"},
		{384, 192, "half of what one large namespace leaves of three quarters"},
		{576, 96, "two large namespaces"},
		{768, 1, "three quarters are taken: 1/256 of the last quarter"},
		{900, 0, "1/256 of what others leave is less than a byte"},
		{766, 1, "both parts are one byte"},
		{1024, 0, "the store is full"},
		{2000, 0, "the limit was lowered below what is stored"},
	} {
		if got := share(1024, c.others); got != c.want {
			t.Errorf("others have %d bytes: %d, want %d: %s", c.others, got, c.want, c.why)
		}
	}
}

// fill stores artifacts of the given size, each for a new object, until the store refuses an
// artifact. It returns the error and the number of stored artifacts.
func fill(t *testing.T, s *Store, namespace string, size int) (stored int, err error) {
	t.Helper()
	for ; err == nil; stored++ {
		_, err = s.Put(t.Context(), object(namespace, fmt.Sprintf("app-%d", stored)), text(strings.Repeat("x", size)))
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	return stored - 1, err
}

// TestGreedyNamespacesLeaveRoom lets hostile namespaces store as much as the store accepts. After
// that, another namespace must find room for an artifact and its replacement. The store's limit is
// the default of the chart.
func TestGreedyNamespacesLeaveRoom(t *testing.T) {
	const limit = 8 << 30
	for _, c := range []struct {
		hostile        int
		namespaceLimit int64
		artifact       int64 // size of an artifact that must fit together with its replacement
	}{
		{4, 2 << 30, 90 << 20}, // without shares, four namespaces at their own limit would fill the store
		{4, 0, 90 << 20},
		{20, 2 << 30, 3 << 20},
		{200, 2 << 30, 1 << 20},
		{500, 2 << 30, 500 << 10},
		{1000, 2 << 30, 80 << 10},
	} {
		t.Run(fmt.Sprintf("%d namespaces, limit %d", c.hostile, c.namespaceLimit), func(t *testing.T) {
			u := &usage{opts: Options{MaxBytes: limit, MaxNamespaceBytes: c.namespaceLimit}, namespaces: map[string]*namespaceUsage{}}
			for i := range c.hostile {
				name := 0
				for size := int64(1 << 30); size > 0; size /= 2 {
					for u.reserve(object(fmt.Sprintf("hostile-%d", i), fmt.Sprint(name)), "file", 0, size) == nil {
						name++
					}
				}
			}
			honest := object("honest", "app")
			must.Succeed(t, u.reserve(honest, "first", 0, c.artifact))
			must.Succeed(t, u.reserve(honest, "second", 0, c.artifact))
			if u.all > limit || u.charged > limit {
				t.Errorf("the store has %d bytes, and namespaces are charged for %d", u.all, u.charged)
			}
		})
	}
}

// TestNewSourceOfAnotherNamespace lets four namespaces store as much as the store accepts. After
// that, a new object of another namespace must find room for an artifact and its replacement.
func TestNewSourceOfAnotherNamespace(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 1 << 20, MaxNamespaceBytes: 256 << 10})
	for i := range 4 {
		fill(t, s, fmt.Sprintf("hostile-%d", i), 32<<10)
		fill(t, s, fmt.Sprintf("hostile-%d", i), 8<<10)
	}
	honest := object("honest", "app")
	first := put(t, s, honest, strings.Repeat("1", 12<<10))
	put(t, s, honest, strings.Repeat("2", 12<<10))
	must.Succeed(t, s.Verify(t.Context(), honest, first.Digest))
}

// If other namespaces store more, a namespace's share can shrink below what the namespace has
// stored. The namespace then keeps its artifacts. It may replace an artifact by another artifact of
// the same size. The namespace may not store more.
func TestShareThatShrinks(t *testing.T) {
	dir := t.TempDir()
	options := Options{MaxBytes: 1 << 20}
	s := open(t, dir, options)
	a := object("tenant-a", "app")
	content := func(digit string, size int) string { return strings.Repeat(digit, size) }
	first := put(t, s, a, content("1", 150<<10))
	for i := range 10 {
		fill(t, s, fmt.Sprintf("tenant-%d", i), 8<<10)
	}
	refused := s.Refused()
	if _, err := s.Put(t.Context(), object("tenant-a", "new"), text(content("x", 60<<10))); !errors.Is(err, ErrShareFull) {
		t.Errorf("a further artifact: %v", err)
	}
	if _, err := s.Put(t.Context(), a, text(content("x", 200<<10))); !errors.Is(err, ErrShareFull) {
		t.Errorf("a larger artifact: %v", err)
	}
	if got := s.Refused() - refused; got != 2 {
		t.Errorf("%d refusals counted, want 2", got)
	}
	second := put(t, s, a, content("2", 150<<10))
	if _, err := s.Put(t.Context(), a, text(content("3", 150<<10))); !errors.Is(err, ErrShareFull) {
		t.Errorf("a second replacement, before the first artifact is removed: %v", err)
	}
	collect := func(current Stored) {
		t.Helper()
		s.keep.records = 1
		_, err := s.Collect(t.Context(), func(o Object) ([]string, bool) {
			if o == a {
				return []string{current.Digest}, true
			}
			files, err := s.files(o)
			must.Succeed(t, err)
			return []string{files[0].Digest}, true
		})
		must.Succeed(t, err)
	}
	collect(second)
	if err := s.Verify(t.Context(), a, first.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("the replaced artifact: %v", err)
	}
	third := put(t, s, a, content("3", 150<<10))
	collect(third)
	// After a restart, each namespace is charged for the same number of bytes.
	before := s.Largest(20)
	s = open(t, dir, options)
	if after := s.Largest(20); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart %v, before %v", after, before)
	}
	put(t, s, a, content("4", 150<<10))
}

// TestReplaceWithNote replaces an artifact and the artifact's note (see [Store.Annotate]) by files
// of the same size, although the namespace has used up its share. A larger note must be refused.
func TestReplaceWithNote(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 800}) // the share of a single namespace is 300
	o := object("tenant-a", "app")
	one, two := strings.Repeat("1", 100), strings.Repeat("2", 100)
	put(t, s, o, one)
	annotate(t, s, o, digestOf(one), strings.Repeat("n", 50))
	put(t, s, o, two)
	annotate(t, s, o, digestOf(two), strings.Repeat("m", 50))
	if got := s.Largest(1)[0]; got.Bytes != 300 || s.Size() != 300 {
		t.Errorf("charged %d of %d bytes", got.Bytes, s.Size())
	}
	if err := s.Annotate(t.Context(), o, digestOf(two), text(strings.Repeat("m", 51))); !errors.Is(err, ErrShareFull) {
		t.Errorf("a larger note: %v", err)
	}
}

// An empty artifact needs no room, even if the namespace has no other files.
func TestEmptyWrite(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 800, MaxNamespaceBytes: 400})
	put(t, s, object("tenant-a", "app"), "")
	if got := s.Largest(1); s.Size() != 0 || len(got) != 0 {
		t.Errorf("%d bytes, largest %v", s.Size(), got)
	}
}

// If a namespace's share is full, the error has the sizes of this namespace. The error names no
// other namespace, because a tenant may read the error.
func TestShareErrorNamesNobodyElse(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxBytes: 1 << 20})
	fill(t, s, "greedy", 64<<10)
	fill(t, s, "greedy-too", 8<<10)
	put(t, s, object("tenant-a", "app"), "12345")
	_, err := s.Put(t.Context(), object("tenant-a", "new"), func(w io.Writer) error {
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrShareFull) || !errors.Is(err, ErrFull) || errors.Is(err, ErrNamespaceFull) {
		t.Fatal(err)
	}
	if text := err.Error(); !strings.Contains(text, "namespace tenant-a has 5 bytes") || !strings.Contains(text, "of 1048576 bytes") ||
		!strings.Contains(text, "other namespaces fill the store") || strings.Contains(text, "greedy") {
		t.Error(text)
	}
	if got := s.Largest(2); got[0].Namespace != "greedy" || got[1].Namespace != "greedy-too" {
		t.Errorf("largest %v", got)
	}
	_, err = fill(t, open(t, t.TempDir(), Options{MaxBytes: 1 << 20}), "alone", 8<<10)
	if strings.Contains(err.Error(), "other namespaces") {
		t.Errorf("without other namespaces: %v", err)
	}
}

// After any writes, removals and renames, usage has the same numbers as a new count. The store
// never exceeds its bound.
func TestUsageIsExact(t *testing.T) {
	u := &usage{opts: Options{MaxBytes: 4096}, namespaces: map[string]*namespaceUsage{}}
	random := rand.New(rand.NewPCG(1, 2))
	type file struct {
		object Object
		name   string
	}
	files := map[file]int64{}
	for range 20_000 {
		f := file{object(fmt.Sprintf("tenant-%d", random.IntN(4)), fmt.Sprint(random.IntN(3))), fmt.Sprint(random.IntN(3))}
		n := random.Int64N(200)
		switch random.IntN(3) {
		case 0:
			if u.reserve(f.object, f.name, 0, n) == nil {
				files[f] += n
			}
		case 1:
			u.count(f.object, f.name, -n)
			files[f] = max(0, files[f]-n)
		case 2:
			to := file{f.object, f.name + "-final"}
			u.rename(f.object, f.name, to.name, files[f], files[to])
			files[to], files[f] = files[f], 0
		}
		want := map[string]*namespaceUsage{}
		var all int64
		largestOf := map[Object]int64{}
		for f, size := range files {
			if size == 0 {
				continue
			}
			if want[f.object.Namespace] == nil {
				want[f.object.Namespace] = &namespaceUsage{}
			}
			all += size
			want[f.object.Namespace].bytes += size
			largestOf[f.object] = max(largestOf[f.object], size)
		}
		for o, size := range largestOf {
			want[o.Namespace].lasting += size
			want[o.Namespace].largest = max(want[o.Namespace].largest, size)
		}
		var charged int64
		for name, w := range want {
			charged += w.charge()
			if got := u.namespaces[name]; got == nil || got.bytes != w.bytes || got.lasting != w.lasting || got.largest != w.largest {
				t.Fatalf("%s: %+v, want %+v", name, got, w)
			}
		}
		if u.all != all || u.charged != charged || len(u.namespaces) != len(want) || all > 4096 {
			t.Fatalf("%d bytes, charged %d, %d namespaces; want %d, %d, %d", u.all, u.charged, len(u.namespaces), all, charged, len(want))
		}
	}
}
