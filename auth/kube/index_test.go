package kube

import (
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

const roleARN = "eks.amazonaws.com/role-arn"

func object(uid string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "puller", UID: types.UID(uid), Annotations: annotations},
	}
}

// TestIndex sends an informer's events to the index. After each event it checks the content of the
// index, and whether the index called its subscribers. The index must change before it calls a
// subscriber.
func TestIndex(t *testing.T) {
	role := func(arn string) map[string]string { return map[string]string{roleARN: arn} }
	known := object("uid-1", role("a"))
	labelled := object("uid-1", map[string]string{roleARN: "a", "note": "x"})
	labelled.Labels = map[string]string{"app": "x"}
	going := object("uid-1", role("a"))
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, test := range map[string]struct {
		first *metav1.PartialObjectMetadata // the account before the event, or nil
		then  func(*index)
		told  bool
		want  string // UID and role after the event; empty if there is no account
	}{
		"there at the start":      {nil, func(x *index) { x.OnAdd(known, true) }, false, "uid-1 a"},
		"created":                 {nil, func(x *index) { x.OnAdd(known, false) }, true, "uid-1 a"},
		"resync":                  {known, func(x *index) { x.OnUpdate(known, known) }, false, "uid-1 a"},
		"relist":                  {known, func(x *index) { x.OnAdd(known, false) }, false, "uid-1 a"},
		"relist finds a change":   {known, func(x *index) { x.OnAdd(object("uid-1", role("b")), true) }, true, "uid-1 b"},
		"label and note":          {known, func(x *index) { x.OnUpdate(known, labelled) }, false, "uid-1 a"},
		"annotation":              {known, func(x *index) { x.OnUpdate(known, object("uid-1", role("b"))) }, true, "uid-1 b"},
		"annotation removed":      {known, func(x *index) { x.OnUpdate(known, object("uid-1", nil)) }, true, "uid-1 "},
		"recreated alike":         {known, func(x *index) { x.OnUpdate(known, object("uid-2", role("a"))) }, true, "uid-2 a"},
		"deleted":                 {known, func(x *index) { x.OnDelete(known) }, true, ""},
		"deleted before known":    {nil, func(x *index) { x.OnDelete(known) }, true, ""},
		"deletion missed":         {known, func(x *index) { x.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "tenant-a/puller", Obj: known}) }, true, ""},
		"deletion missed, no obj": {known, func(x *index) { x.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "tenant-a/puller"}) }, true, ""},
		"waits for finalizers":    {known, func(x *index) { x.OnUpdate(known, going) }, true, ""},
		"not metadata":            {known, func(x *index) { x.OnUpdate(nil, &corev1.ServiceAccount{}); x.OnDelete("x") }, false, "uid-1 a"},
		"no such name": {known, func(x *index) {
			impossible := known.DeepCopy()
			impossible.Name = "Not a name"
			x.OnAdd(impossible, false)
			x.OnDelete(impossible)
			x.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/b/c"})
		}, false, "uid-1 a"},
	} {
		t.Run(name, func(t *testing.T) {
			subject, err := auth.ServiceAccount("tenant-a", "puller")
			must.Succeed(t, err)
			a := &Accounts{index: newIndex(DefaultAnnotations().source())}
			state := func() string {
				account, err := a.Lookup(t.Context(), subject)
				if err != nil {
					return ""
				}
				return account.UID + " " + account.Attributes[roleARN]
			}
			if test.first != nil {
				a.index.OnAdd(test.first, true)
			}
			told := 0
			for i := range 2 {
				a.Subscribe(func(changed auth.Subject) {
					if told%2 != i {
						t.Errorf("subscriber %d is told out of turn", i)
					}
					told++
					if changed != subject || state() != test.want {
						t.Errorf("told of %s while memory holds %q", changed, state())
					}
				})
			}
			test.then(a.index)
			if want := map[bool]int{true: 2}[test.told]; told != want {
				t.Errorf("%d of 2 were told, want %d", told, want)
			}
			if state() != test.want {
				t.Errorf("memory holds %q, want %q", state(), test.want)
			}
		})
	}
}

func fill(tb testing.TB, n int) (*Accounts, []auth.Subject) {
	tb.Helper()
	a := &Accounts{index: newIndex(DefaultAnnotations().source())}
	subjects := make([]auth.Subject, n)
	for i := range n {
		o := object(fmt.Sprintf("0c5f1d6e-4a0b-4a53-9a3a-%012d", i), map[string]string{roleARN: fmt.Sprintf("arn:aws:iam::123456789123:role/tenant-%d", i)})
		o.Namespace = fmt.Sprintf("tenant-%d", i/10)
		o.Name = fmt.Sprintf("puller-%d", i)
		a.index.OnAdd(o, true)
		subject, err := auth.ServiceAccount(o.Namespace, o.Name)
		must.Succeed(tb, err)
		subjects[i] = subject
	}
	return a, subjects
}

func TestLookupDoesNotAllocate(t *testing.T) {
	a, subjects := fill(t, 1000)
	i := 0
	if allocations := testing.AllocsPerRun(1000, func() {
		if _, err := a.Lookup(t.Context(), subjects[i%len(subjects)]); err != nil {
			t.Error(err)
		}
		i++
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func BenchmarkLookup(b *testing.B) {
	a, subjects := fill(b, 10_000)
	ctx := b.Context()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := 0
		for pb.Next() {
			if _, err := a.Lookup(ctx, subjects[i%len(subjects)]); err != nil {
				b.Error(err)
			}
			i += 7
		}
	})
}

// BenchmarkMemory measures two parts of the memory for an account: the index, and the object that
// the informer stores after its transform.
func BenchmarkMemory(b *testing.B) {
	const accounts = 10_000
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		a := &Accounts{index: newIndex(DefaultAnnotations().source())}
		store := map[string]any{}
		before := heap()
		for i := range accounts {
			o := object(fmt.Sprintf("0c5f1d6e-4a0b-4a53-9a3a-%012d", i), map[string]string{roleARN: fmt.Sprintf("arn:aws:iam::123456789123:role/tenant-%d", i)})
			o.Namespace, o.Name = fmt.Sprintf("tenant-%d", i/10), fmt.Sprintf("puller-%d", i)
			kept, err := DefaultAnnotations().transform(o)
			must.Succeed(b, err)
			store[o.Namespace+"/"+o.Name] = kept
		}
		filled := heap()
		for _, o := range store {
			a.index.OnAdd(o, true)
		}
		indexed := heap()
		b.ReportMetric(float64(filled-before)/accounts, "informer-B/account")
		b.ReportMetric(float64(indexed-filled)/accounts, "index-B/account")
		goruntime.KeepAlive(store)
		goruntime.KeepAlive(a)
	}
}
