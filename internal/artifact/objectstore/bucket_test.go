package objectstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

func TestArchiveHasTheObjectsUnderTheirKeys(t *testing.T) {
	s := bucketOf("b/two.yaml=2", "a.yaml=1", "b/", "empty=", ".git/config=x", "logo.png=x")
	a := mustFetch(t, s, nil, objectstore.Options{Ignore: archive.DefaultPatterns()})
	want := []string{"a.yaml=1", "b/two.yaml=2", "empty="}
	if got := a.files(t); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if a.index.Len() != 3 || a.index.Ignored != 2 || a.summary != (objectstore.Summary{Fetched: 3}) {
		t.Errorf("%d objects, %d ignored, %+v", a.index.Len(), a.index.Ignored, a.summary)
	}
	if s.openings() != 3 {
		t.Errorf("%d objects were opened", s.openings())
	}
	prefixed := mustFetch(t, s, nil, objectstore.Options{Prefix: "b/"})
	if got := prefixed.files(t); !slices.Equal(got, []string{"b/two.yaml=2"}) {
		t.Errorf("with a prefix: %q", got)
	}
	// The archive must be accepted like any other artifact.
	if _, err := archive.Normalize(t.Context(), bytes.NewReader(a.bytes), io.Discard, archive.Options{}); err != nil {
		t.Error(err)
	}
}

func TestRevisionIsOfKeysAndVersions(t *testing.T) {
	one := mustFetch(t, bucketOf("a=1", "b=2"), nil, objectstore.Options{})
	if other := mustFetch(t, bucketOf("b=2", "a=1"), nil, objectstore.Options{}); other.revision != one.revision || !bytes.Equal(other.bytes, one.bytes) {
		t.Error("the listing's order counts")
	}
	const objects = "\"1\"\t1\ta\n\"2\"\t1\tb\n"
	if want := firstLine("") + objects; string(one.text) != want {
		t.Errorf("index %q, want %q", one.text, want)
	}
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("lanyard bucket index 1\t\"test\"\t\n"+objects))); sum != one.revision {
		t.Errorf("revision %s, want %s", one.revision, sum)
	}
	for name, pairs := range map[string][]string{
		"another version": {"a=1", "b=3"}, "another key": {"a=1", "c=2"}, "one less": {"a=1"}, "one more": {"a=1", "b=2", "c="},
	} {
		if other := mustFetch(t, bucketOf(pairs...), nil, objectstore.Options{}); other.revision == one.revision {
			t.Errorf("%s has the same revision", name)
		}
	}
	elsewhere, err := objectstore.List(t.Context(), bucketOf("a=1", "b=2"), "another bucket", objectstore.Options{})
	if err != nil || elsewhere.Revision() == one.revision {
		t.Errorf("another bucket has the same revision (%v)", err)
	}
}

func TestOnlyWhatChangedIsFetched(t *testing.T) {
	before := mustFetch(t, bucketOf("a=1", "b/c=2", "b/d=3", "e=4", "z=5"), nil, objectstore.Options{})
	for name, test := range map[string]struct {
		now     []string
		fetched []string
	}{
		"nothing":         {[]string{"a=1", "b/c=2", "b/d=3", "e=4", "z=5"}, nil},
		"first":           {[]string{"a=x", "b/c=2", "b/d=3", "e=4", "z=5"}, []string{"a"}},
		"last":            {[]string{"a=1", "b/c=2", "b/d=3", "e=4", "z=longer"}, []string{"z"}},
		"added":           {[]string{"0=0", "a=1", "b/c=2", "b/cc=6", "b/d=3", "e=4", "z=5", "zz=7"}, []string{"0", "b/cc", "zz"}},
		"removed":         {[]string{"b/c=2", "z=5"}, nil},
		"all removed":     {nil, nil},
		"all replaced":    {[]string{"a=6", "b/c=7", "b/d=8", "e=9", "z=0"}, []string{"a", "b/c", "b/d", "e", "z"}},
		"file for folder": {[]string{"a=1", "b=9", "e=4", "z=5"}, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := bucketOf(test.now...)
			got := mustFetch(t, s, before, objectstore.Options{})
			full := mustFetch(t, bucketOf(test.now...), nil, objectstore.Options{})
			if !bytes.Equal(got.bytes, full.bytes) {
				t.Errorf("differs from a full fetch: %q, %q", got.files(t), full.files(t))
			}
			var fetched []string
			for key := range s.opened {
				fetched = append(fetched, key)
			}
			slices.Sort(fetched)
			if !slices.Equal(fetched, test.fetched) {
				t.Errorf("fetched %q, want %q", fetched, test.fetched)
			}
			if got.summary != (objectstore.Summary{Fetched: len(test.fetched), Kept: len(test.now) - len(test.fetched)}) {
				t.Errorf("%+v", got.summary)
			}
		})
	}
}

// firstLine returns the first line of an index with the source "test" and the given Options.Reader.
func firstLine(reader string) string {
	return fmt.Sprintf("lanyard bucket index 1\t\"test\"\t%x\n", sha256.Sum256([]byte(reader)))
}

// TestPreviousOfAnotherReaderIsNotUsed fetches one bucket for two readers. The revision is the
// same, but nothing is reused: permission to list a bucket's objects is not permission to read
// them.
func TestPreviousOfAnotherReaderIsNotUsed(t *testing.T) {
	before := mustFetch(t, bucketOf("a=1"), nil, objectstore.Options{Reader: "tenant-a"})
	same := mustFetch(t, bucketOf("a=1"), before, objectstore.Options{Reader: "tenant-a"})
	if same.summary.Kept != 1 || !same.index.Continues(bytes.NewReader(before.text)) {
		t.Errorf("the same reader: %+v", same.summary)
	}
	other := mustFetch(t, bucketOf("a=1"), before, objectstore.Options{Reader: "tenant-b"})
	if other.summary.Kept != 0 || other.revision != before.revision || other.index.Continues(bytes.NewReader(before.text)) {
		t.Errorf("another reader: %+v, revision %s", other.summary, other.revision)
	}
	for _, text := range []string{"", "\n", "lanyard bucket index 1\t\"test\"\n"} {
		if same.index.Continues(strings.NewReader(text)) {
			t.Errorf("continues %q", text)
		}
	}
	if strings.Contains(string(before.text), "tenant-a") {
		t.Errorf("the index names its reader: %q", before.text)
	}
}

// TestPreviousOfAnotherSourceIsNotUsed fetches another bucket whose versions are the same. The
// content of the first bucket must not be reused.
func TestPreviousOfAnotherSourceIsNotUsed(t *testing.T) {
	before := mustFetch(t, bucketOf("a=1"), nil, objectstore.Options{})
	s := bucketOf("a=1")
	index, err := objectstore.List(t.Context(), s, "another bucket", objectstore.Options{})
	must.Succeed(t, err)
	done, err := objectstore.Write(t.Context(), s, index,
		&objectstore.Previous{Index: bytes.NewReader(before.text), Archive: bytes.NewReader(before.bytes)}, io.Discard, 0)
	if err != nil || done.Kept != 0 || done.Fetched != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestDamagedPreviousIsSaid(t *testing.T) {
	now := []string{"a=1", "b=2", "c=3"}
	good := mustFetch(t, bucketOf(now...), nil, objectstore.Options{})
	other := mustFetch(t, bucketOf("a=1", "c=3"), nil, objectstore.Options{})
	longer := mustFetch(t, bucketOf("a=1", "b=22", "c=3"), nil, objectstore.Options{})
	badSum := bytes.Clone(good.bytes)
	badSum[len(badSum)-8]++ // a byte of the CRC, which is checked only at the end
	for name, previous := range map[string]*artifact{
		"archive of other objects": {text: good.text, bytes: other.bytes},
		"archive of other sizes":   {text: good.text, bytes: longer.bytes},
		"archive cut off":          {text: good.text, bytes: good.bytes[:len(good.bytes)/2]},
		"archive with a bad sum":   {text: good.text, bytes: badSum},
		"archive empty":            {text: good.text, bytes: nil},
		"no archive":               {text: good.text, bytes: []byte("hello, this is no archive at all")},
		"index not sorted":         {text: []byte(firstLine("") + "\"9\"\t1\tb\n\"9\"\t1\ta\n"), bytes: good.bytes},
		"index with a bad line":    {text: []byte(firstLine("") + "hello\n"), bytes: good.bytes},
		"index with a bad key":     {text: []byte(firstLine("") + "\"1\"\t1\t../a\n"), bytes: good.bytes},
	} {
		if _, err := fetch(t, bucketOf(now...), previous, objectstore.Options{}); !errors.Is(err, objectstore.ErrPrevious) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An index that cannot be read at all counts as no index.
	for name, text := range map[string]string{"empty": "", "of another format": "something\n", "of one long line": strings.Repeat("x", 1<<20)} {
		a, err := fetch(t, bucketOf(now...), &artifact{text: []byte(text), bytes: good.bytes}, objectstore.Options{})
		if err != nil || a.summary.Fetched != 3 {
			t.Errorf("index %s: %v", name, err)
		}
	}
}

func TestHostileKeysAreRefusedBeforeAnythingIsFetched(t *testing.T) {
	for name, test := range map[string]struct {
		pairs  []string
		reason archive.Reason // empty if the keys are accepted
	}{
		"parent":                   {[]string{"../x=1"}, archive.ReasonPath},
		"parent inside":            {[]string{"a/../../x=1"}, archive.ReasonPath},
		"absolute":                 {[]string{"/etc/passwd=1"}, archive.ReasonPath},
		"NUL":                      {[]string{"a\x00b=1"}, archive.ReasonPath},
		"newline":                  {[]string{"a\nb=1"}, archive.ReasonPath},
		"tab":                      {[]string{"a\tb=1"}, archive.ReasonPath},
		"backslash":                {[]string{`a\b=1`}, archive.ReasonPath},
		"no UTF-8":                 {[]string{"a\xff=1"}, archive.ReasonPath},
		"empty key":                {[]string{"=1"}, archive.ReasonPath},
		"1025 bytes":               {[]string{strings.Repeat("a/b/", 256) + "c=1"}, archive.ReasonPath},
		"long element":             {[]string{strings.Repeat("a", 256) + "=1"}, archive.ReasonPath},
		"too deep":                 {[]string{strings.Repeat("a/", 64) + "b=1"}, archive.ReasonPath},
		"folder with content":      {[]string{"a/=1"}, archive.ReasonPath},
		"dot with content":         {[]string{".=1"}, archive.ReasonPath},
		"same after cleaning":      {[]string{"a/b=1", "a//b=2"}, archive.ReasonDuplicate},
		"same by a dot":            {[]string{"a/b=1", "a/./b=2"}, archive.ReasonDuplicate},
		"listed twice":             {[]string{"a=1", "a=1"}, archive.ReasonDuplicate},
		"file and folder":          {[]string{"a=1", "a-b=2", "a/b=3"}, archive.ReasonDuplicate},
		"file and folder far away": {[]string{"a=1", "a/b/c/d=3"}, archive.ReasonDuplicate},
		"ignored, and too long":    {[]string{strings.Repeat("a/b/", 256) + "c.md=1"}, archive.ReasonPath},

		"ignored: outside":       {[]string{"../x.md=1"}, ""},
		"ignored: absolute":      {[]string{"/etc/x.md=1"}, ""},
		"ignored: backslash":     {[]string{`a\b.md=1`}, ""},
		"ignored: folder":        {[]string{"x.md/=1"}, ""},
		"ignored: unclean":       {[]string{"a//x.md=1"}, ""},
		"1024 bytes":             {[]string{strings.Repeat("abcdefghi/", 60) + strings.Repeat("a", 224) + "/" + strings.Repeat("b", 199) + "=1"}, ""},
		"unclean, alone":         {[]string{"a//b=1", "./c=2"}, ""},
		"names by case":          {[]string{"README=1", "readme=2"}, ""},
		"marker beside its file": {[]string{"a/=", "a=1"}, ""},
		"of other scripts":       {[]string{"ключ=1", "鍵=2"}, ""},
		"spaces and quotes":      {[]string{`a "b" 'c'=1`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := bucketOf(test.pairs...)
			a, err := fetch(t, s, nil, objectstore.Options{Ignore: patterns(t, "*.md")})
			if got := archive.ReasonOf(err); got != test.reason || (err == nil) != (test.reason == "") {
				t.Fatalf("%v, want reason %q", err, test.reason)
			}
			if err == nil {
				a.files(t)
				return
			}
			if s.openings() != 0 {
				t.Errorf("%d objects were fetched", s.openings())
			}
			if !strings.Contains(err.Error(), "rename the object") || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestListingsThatCannotBeUsedAreRefused(t *testing.T) {
	ok := objectstore.Object{Key: "a", Version: "1", Size: 1}
	for name, test := range map[string]struct {
		objects []objectstore.Object
		opts    objectstore.Options
		code    origin.Code // code of the error; empty for an error with archive.ReasonTooLarge
		text    string
	}{
		"no version":         {[]objectstore.Object{{Key: "a", Size: 1}}, objectstore.Options{}, origin.CodeProtocol, "entity tag"},
		"long version":       {[]objectstore.Object{{Key: "a", Version: strings.Repeat("v", 257)}}, objectstore.Options{}, origin.CodeProtocol, "entity tag"},
		"version of 2 lines": {[]objectstore.Object{{Key: "a", Version: "1\n2"}}, objectstore.Options{}, origin.CodeProtocol, "entity tag"},
		"negative size":      {[]objectstore.Object{{Key: "a", Version: "1", Size: -1}}, objectstore.Options{}, origin.CodeProtocol, "negative size"},
		"too large":          {[]objectstore.Object{{Key: "a", Version: "1", Size: 2000}}, objectstore.Options{MaxBytes: 2000}, "", "2000 bytes"},
		"huge":               {[]objectstore.Object{{Key: "a", Version: "1", Size: 1<<63 - 1}}, objectstore.Options{}, "", "bytes"},
		"too large together": {
			[]objectstore.Object{{Key: "a", Version: "1", Size: 600}, {Key: "b", Version: "1", Size: 600}},
			objectstore.Options{MaxBytes: 2500},
			"", "2500 bytes",
		},
		"too many": {slices.Repeat([]objectstore.Object{ok}, objectstore.MaxObjects+1), objectstore.Options{}, origin.CodeTooLarge, "100000 objects"},
	} {
		s := &fake{objects: test.objects}
		_, err := fetch(t, s, nil, test.opts)
		if origin.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text) || s.openings() != 0 {
			t.Errorf("%s: %v", name, err)
		}
		if (archive.ReasonOf(err) == archive.ReasonTooLarge) != (test.code == "") {
			t.Errorf("%s: reason %q", name, archive.ReasonOf(err))
		}
	}
	foreign := &unprefixed{fake: bucketOf("a=1")}
	if _, err := objectstore.List(t.Context(), foreign, "", objectstore.Options{Prefix: "b/"}); origin.CodeOf(err) != origin.CodeProtocol {
		t.Errorf("a listing without the prefix: %v", err)
	}
	broken := &fake{objects: []objectstore.Object{ok}, listErr: errors.New("broken")}
	if _, err := objectstore.List(t.Context(), broken, "", objectstore.Options{}); !errors.Is(err, broken.listErr) {
		t.Errorf("a listing that breaks off: %v", err)
	}
}

// unprefixed lists all objects and ignores the prefix.
type unprefixed struct{ *fake }

func (u *unprefixed) List(ctx context.Context, _ string) iter.Seq2[objectstore.Object, error] {
	return u.fake.List(ctx, "")
}

func TestListingThatNeverEndsIsRefused(t *testing.T) {
	_, err := objectstore.List(t.Context(), &endless{}, "", objectstore.Options{Ignore: patterns(t, "*.md")})
	if origin.CodeOf(err) != origin.CodeTooLarge || !strings.Contains(err.Error(), "1000000") {
		t.Error(err)
	}
}

// TestListingEndsWithItsContext checks that List stops when its context ends, even in the middle of
// a page.
func TestListingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := objectstore.List(ctx, &endless{}, "", objectstore.Options{Ignore: patterns(t, "*.md")}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPatternsThatTakeTooLong checks that patterns are refused if matching takes too long. The
// error mentions spec.ignore.
func TestPatternsThatTakeTooLong(t *testing.T) {
	ignore := patterns(t, strings.Repeat("**/*a?a/*a?a/*a?a/*a?a/c\n", 490))
	s := &fake{}
	for i := range 5000 {
		s.objects = append(s.objects, objectstore.Object{Key: fmt.Sprintf("%d/", i) + strings.Repeat("aaaaaaaaaaa/", 60) + "b", Version: "1"})
	}
	_, err := objectstore.List(t.Context(), s, "", objectstore.Options{Ignore: ignore})
	if archive.ReasonOf(err) != archive.ReasonPattern || !strings.Contains(err.Error(), "spec.ignore") {
		t.Error(err)
	}
}

// endless lists ignored objects without end.
type endless struct{ fake }

func (*endless) List(context.Context, string) iter.Seq2[objectstore.Object, error] {
	return func(yield func(objectstore.Object, error) bool) {
		for yield(objectstore.Object{Key: "a.md", Version: "1"}, nil) {
		}
	}
}

func TestLongKeysAreBoundedTogether(t *testing.T) {
	s := &fake{}
	for i := range 60_000 {
		s.objects = append(s.objects, objectstore.Object{Key: fmt.Sprintf("%06d/%s", i, strings.Repeat("k/", 30)+strings.Repeat("x", 200)+strings.Repeat("/y", 1)+strings.Repeat("z", 250)), Version: strings.Repeat("v", 256)})
	}
	if _, err := objectstore.List(t.Context(), s, "", objectstore.Options{}); origin.CodeOf(err) != origin.CodeTooLarge || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}

// TestAHundredThousandObjectsStaySmall checks the memory of a listing and its index, and of an
// update of a few objects. With the race detector the test has fewer objects: it takes seconds
// instead of a minute.
func TestAHundredThousandObjectsStaySmall(t *testing.T) {
	n := objectstore.MaxObjects
	if raceDetector {
		n /= 20
	}
	s := &fake{}
	for i := range n {
		s.objects = append(s.objects, objectstore.Object{
			Key:     fmt.Sprintf("clusters/production/tenant-%03d/apps/application-%05d.yaml", i%500, i),
			Version: fmt.Sprintf(`"%032x"`, i), Size: 300,
		})
	}
	base := heap()
	index, err := objectstore.List(t.Context(), s, "test", objectstore.Options{})
	must.Succeed(t, err)
	// The index shares the strings of the fake. With a real service, the index has its own strings,
	// so their lengths are added.
	own := int64(n * (58 + 34))
	if grown := heap() - base + own; grown > 40<<20 {
		t.Errorf("the index of %d objects takes %d MiB", n, grown>>20)
	}
	var text bytes.Buffer
	must.Succeed(t, index.Encode(&text))
	archived := t.TempDir() + "/archive"
	peak := watchHeap(t)
	out := create(t, archived)
	if _, err := objectstore.Write(t.Context(), s, index, nil, out, 0); err != nil {
		t.Fatal(err)
	}
	if grown := peak() - base; grown > 96<<20 {
		t.Errorf("writing them takes %d MiB", grown>>20)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		s.objects[i].Version = `"new"`
	}
	s.opened = nil
	if index, err = objectstore.List(t.Context(), s, "test", objectstore.Options{}); err != nil {
		t.Fatal(err)
	}
	done, err := objectstore.Write(t.Context(), s, index, &objectstore.Previous{Index: &text, Archive: open(t, archived)}, io.Discard, 0)
	if err != nil || done != (objectstore.Summary{Fetched: 3, Kept: n - 3}) {
		t.Errorf("%+v, %v", done, err)
	}
	if s.openings() != 3 {
		t.Errorf("%d objects were fetched", s.openings())
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// watchHeap makes the garbage collector run more often, and samples the size of the heap. Call peak
// to stop the sampling and to get the largest sample.
func watchHeap(t *testing.T) (peak func() int64) {
	t.Helper()
	percent := debug.SetGCPercent(50)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var seen int64
		for {
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			seen = max(seen, int64(stats.HeapAlloc))
			select {
			case <-stop:
				most <- seen
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// TestLargeObjectsAreStreamed checks that memory does not grow with the size of objects: at most
// one piece of each of eight objects is in memory.
func TestLargeObjectsAreStreamed(t *testing.T) {
	s := &fake{}
	for i := range 12 {
		s.objects = append(s.objects, objectstore.Object{Key: fmt.Sprintf("%02d.bin", i), Version: "1", Size: 8<<20 + int64(i)})
	}
	base := heap()
	peak := watchHeap(t)
	a, err := objectstore.List(t.Context(), s, "", objectstore.Options{})
	must.Succeed(t, err)
	done, err := objectstore.Write(t.Context(), s, a, nil, io.Discard, 0)
	if err != nil || done.Fetched != 12 {
		t.Fatalf("%+v, %v", done, err)
	}
	if grown := peak() - base; grown > 32<<20 {
		t.Errorf("96 MiB of objects took %d MiB of memory", grown>>20)
	}
	if most := s.most; most < 2 || most > objectstore.Concurrency {
		t.Errorf("%d objects were fetched at the same time", most)
	}
	if open := s.open.Load(); open != 0 {
		t.Errorf("%d bodies are still open", open)
	}
}

func TestObjectsThatAreNotAsListed(t *testing.T) {
	large := strings.Repeat("x", 3<<20)
	for name, test := range map[string]struct {
		body     func(key string, n int) (io.ReadCloser, error)
		content  string
		code     origin.Code // empty for success
		openings int
	}{
		"longer":        {reads("12345"), "1234", origin.CodeChanged, 1},
		"shorter":       {reads("123"), "1234", origin.CodeUnreachable, 3},
		"empty":         {reads(""), "1234", origin.CodeUnreachable, 3},
		"large, longer": {reads(large + "x"), large, origin.CodeChanged, 1},
		// The object is not read again, because half of its content is already written.
		"large, shorter": {reads(large[1:]), large, origin.CodeUnreachable, 1},
		"breaks once": {func(_ string, n int) (io.ReadCloser, error) {
			if n == 1 {
				return io.NopCloser(io.MultiReader(strings.NewReader("12"), iotest.ErrReader(errors.New("connection reset")))), nil
			}
			return io.NopCloser(strings.NewReader("1234")), nil
		}, "1234", "", 2},
		"the connection ends": {fails(&origin.Error{Code: origin.CodeUnreachable, Err: io.EOF}), "1234", origin.CodeUnreachable, 1},

		"gone":   {fails(&origin.Error{Code: origin.CodeChanged, Err: errors.New("gone")}), "1234", origin.CodeChanged, 1},
		"denied": {fails(&origin.Error{Code: origin.CodeDenied, Err: errors.New("denied")}), "1234", origin.CodeDenied, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake{objects: []objectstore.Object{{Key: "key", Version: "1", Size: int64(len(test.content))}}, body: test.body}
			_, err := fetch(t, s, nil, objectstore.Options{})
			if origin.CodeOf(err) != test.code || (err == nil) != (test.code == "") {
				t.Errorf("%v, want %q", err, test.code)
			}
			if err != nil && !strings.Contains(err.Error(), `"key"`) {
				t.Errorf("%v does not name the object", err)
			}
			if s.openings() != test.openings || s.open.Load() != 0 {
				t.Errorf("%d openings, %d open", s.openings(), s.open.Load())
			}
		})
	}
}

func reads(content string) func(string, int) (io.ReadCloser, error) {
	return func(string, int) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
}

func fails(err error) func(string, int) (io.ReadCloser, error) {
	return func(string, int) (io.ReadCloser, error) { return nil, err }
}

// TestFailureClosesEverything checks that one failure ends all fetches, bodies and goroutines.
func TestFailureClosesEverything(t *testing.T) {
	pairs := make([]string, 200)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("%03d=x", i)
	}
	s := bucketOf(pairs...)
	refused := &origin.Error{Code: origin.CodeDenied, Err: errors.New("denied")}
	s.body = func(key string, _ int) (io.ReadCloser, error) {
		if key == "050" {
			return nil, refused
		}
		return io.NopCloser(strings.NewReader("x")), nil
	}
	before := runtime.NumGoroutine()
	if _, err := fetch(t, s, nil, objectstore.Options{}); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if s.open.Load() != 0 {
		t.Errorf("%d bodies are still open", s.open.Load())
	}
	settled(t, before)

	// Writing to out fails.
	full := errors.New("disk full")
	s = bucketOf(pairs...)
	index, err := objectstore.List(t.Context(), s, "", objectstore.Options{})
	must.Succeed(t, err)
	if _, err := objectstore.Write(t.Context(), s, index, nil, failing{full}, 0); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	settled(t, before)

	// The context ends while the service does not answer.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := objectstore.Write(ctx, &silent{s}, index, nil, io.Discard, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	settled(t, before)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// silent is a bucket whose Open blocks until the context ends, and then fails.
type silent struct{ *fake }

func (*silent) Open(ctx context.Context, _ objectstore.Object) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func settled(t *testing.T, want int) {
	t.Helper()
	for range 100 {
		if runtime.NumGoroutine() <= want {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), want)
}

func TestArchiveOfManyFoldersIsRefused(t *testing.T) {
	var pairs []string
	for i := range 2*objectstore.MaxObjects/64 + 1 {
		pairs = append(pairs, fmt.Sprintf("%d/%sx=1", i, strings.Repeat("d/", 62))) // 63 folders and a file
	}
	_, err := fetch(t, bucketOf(pairs...), nil, objectstore.Options{})
	if archive.ReasonOf(err) != archive.ReasonTooMany {
		t.Error(err)
	}
}

// FuzzKeys checks that a bucket's keys are refused before any fetch, or become file names in an
// archive. Package archive must accept the archive. The archive must be the same if half of its
// objects come from a previous archive.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b/c", "b/d", "e/")
	f.Add("../a", "/b", "c//d", "c/d")
	f.Add("a", "a/b", "a-b", "A")
	f.Add("\x00", "\xff", strings.Repeat("k/", 300), ".")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		keys := []string{a, b, c, d}
		s := &fake{content: map[string]string{}}
		for i, key := range keys {
			content := strings.Repeat("x", i)
			s.objects = append(s.objects, objectstore.Object{Key: key, Version: fmt.Sprint(i), Size: int64(len(content))})
			s.content[key] = content
		}
		all, err := fetch(t, s, nil, objectstore.Options{})
		if err != nil {
			if archive.ReasonOf(err) == "" || s.openings() != 0 {
				t.Fatalf("%q: %v after %d openings", keys, err, s.openings())
			}
			return
		}
		for _, file := range all.files(t) {
			name := file[:strings.LastIndexByte(file, '=')] // the last "=" ends the name
			if name != path.Clean(name) || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "/") {
				t.Errorf("%q has the file %q", keys, name)
			}
		}
		if _, err := archive.Normalize(t.Context(), bytes.NewReader(all.bytes), io.Discard, archive.Options{}); err != nil {
			t.Errorf("%q: %v", keys, err)
		}
		half := &fake{objects: s.objects[:2], content: s.content}
		before := mustFetch(t, half, nil, objectstore.Options{})
		again := mustFetch(t, s, before, objectstore.Options{})
		if !bytes.Equal(again.bytes, all.bytes) {
			t.Errorf("%q: an update differs from a full fetch", keys)
		}
	})
}

// panicking is a body that panics after some bytes.
type panicking struct{ after int64 }

func (p *panicking) Read(b []byte) (int, error) {
	if p.after <= 0 {
		panic("s3cret")
	}
	n := min(int64(len(b)), p.after)
	p.after -= n
	return int(n), nil
}

// TestPanickingClient asserts that a panic of a cloud's client ends only one fetch. The program
// goes on.
func TestPanickingClient(t *testing.T) {
	for name, after := range map[string]int64{"in the first piece": 0, "later": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			s := &fake{
				objects: []objectstore.Object{{Key: "a", Version: "1", Size: 4 << 20}},
				body:    func(string, int) (io.ReadCloser, error) { return io.NopCloser(&panicking{after}), nil },
			}
			index, err := objectstore.List(t.Context(), s, "source", objectstore.Options{})
			must.Succeed(t, err)
			_, err = objectstore.Write(t.Context(), s, index, nil, io.Discard, 0)
			if err == nil || !strings.Contains(err.Error(), "panicked") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v", err)
			}
		})
	}
}

// stalling is a body that sends half of the content and then fails with
// [context.DeadlineExceeded].
type stalling struct{ sent bool }

func (s *stalling) Read(p []byte) (int, error) {
	if !s.sent {
		s.sent = true
		return copy(p, "half"), nil
	}
	return 0, context.DeadlineExceeded
}

// TestContentThatStalls checks that the error wraps [context.DeadlineExceeded], so that callers can
// recognize their own deadline.
func TestContentThatStalls(t *testing.T) {
	s := bucketOf("a=half and more")
	s.body = func(string, int) (io.ReadCloser, error) { return io.NopCloser(&stalling{}), nil }
	index, err := objectstore.List(t.Context(), s, "s3", objectstore.Options{})
	must.Succeed(t, err)
	_, err = objectstore.Write(t.Context(), s, index, nil, io.Discard, 0)
	if !errors.Is(err, context.DeadlineExceeded) || origin.CodeOf(err) != origin.CodeUnreachable {
		t.Errorf("%v, want the end of the caller's time", err)
	}
}
