package cache

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// variants returns a key, and for each field a key that differs only in this field.
func variants(t *testing.T) []auth.Key {
	t.Helper()
	keys, _ := namedVariants(t)
	return keys
}

// namedVariants returns the keys of variants, each with a name. The name is that of the field in
// which the key differs from the first key. The first name is empty.
func namedVariants(t *testing.T) (keys []auth.Key, names []string) {
	t.Helper()
	subject := func(namespace, name string) auth.Subject {
		s, err := auth.ServiceAccount(namespace, name)
		must.Succeed(t, err)
		return s
	}
	list := func(values ...string) auth.List {
		l, err := auth.NewList(values...)
		must.Succeed(t, err)
		return l
	}
	var vary func(path []int, of reflect.Type)
	set := func(path []int, value any) {
		key := keys[0]
		reflect.ValueOf(&key).Elem().FieldByIndex(path).Set(reflect.ValueOf(value))
		keys = append(keys, key)
		names = append(names, reflect.TypeFor[auth.Key]().FieldByIndex(path).Name)
	}
	vary = func(path []int, of reflect.Type) {
		for i := range of.NumField() {
			field := append(slices.Clip(path), i)
			switch kind := of.Field(i).Type; {
			case kind == reflect.TypeFor[string]():
				set(field, "x")
			case kind == reflect.TypeFor[auth.List]():
				set(field, list("x"))
			case kind == reflect.TypeFor[auth.Issuance]():
				for _, terms := range issuances() {
					set(field, auth.NewIssuance(terms))
				}
			case kind == reflect.TypeFor[auth.Subject]():
				set(field, subject("a", "x"))
				set(field, subject("x", "sa"))
				other, err := auth.WorkloadIdentity("a", "sa")
				must.Succeed(t, err)
				set(field, other)
			case kind.Kind() == reflect.Struct && of.Field(i).Anonymous:
				vary(field, kind)
			default:
				t.Fatalf("no variant of field %s of type %s", of.Field(i).Name, kind)
			}
		}
	}
	keys = []auth.Key{{Provider: "p", Subject: subject("a", "sa"), UID: "u", Identity: "i"}}
	names = []string{""}
	vary(nil, reflect.TypeFor[auth.Key]())
	return keys, names
}

// issuances returns, for each field of IssuanceTerms, terms in which only this field is set.
func issuances() []auth.IssuanceTerms {
	var all []auth.IssuanceTerms
	for i := range reflect.TypeFor[auth.IssuanceTerms]().NumField() {
		var terms auth.IssuanceTerms
		switch field := reflect.ValueOf(&terms).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("x")
		default:
			field.Set(reflect.ValueOf(auth.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "u"}))
		}
		all = append(all, terms)
	}
	return all
}

// TestKeysAreSpread checks fields that have many values. Keys that differ in such a field must be
// spread over the buckets of the index. Otherwise all objects that use one identity would share a
// bucket, and each hit would search through all of them.
func TestKeysAreSpread(t *testing.T) {
	// hash leaves these fields out. A program has few providers, and the keys of one subject have
	// few identities.
	few := []string{"Provider", "Identity"}
	keys, names := namedVariants(t)
	index := newIndex(1)
	for i, name := range names[1:] {
		key := &keys[i+1]
		if key.Subject.Kind() != keys[0].Subject.Kind() || slices.Contains(few, name) {
			continue
		}
		if index.hash(key) == index.hash(&keys[0]) {
			t.Errorf("a key with another %s has the same hash", name)
		}
	}
}

type numbered struct{ number int }

func (numbered) GetDuration() time.Duration { return time.Hour }

// TestCollidingKeysKeepTheirTokens puts all keys into one bucket, as if they had the same hash.
// Each key must still get its own token.
func TestCollidingKeysKeepTheirTokens(t *testing.T) {
	keys := variants(t)
	c := New(Options{MaxSize: len(keys)})
	c.index = newIndex(1)
	expect := func(kept func(i int) bool) {
		t.Helper()
		for i, key := range keys {
			token, ok := c.Get(key, 0, auth.InvolvedObject{})
			if ok != kept(i) || ok && token != (numbered{i}) {
				t.Errorf("%s: %v, kept %t; want number %d, kept %t", key, token, ok, i, kept(i))
			}
		}
	}
	put := func(i int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.put(c.tenants.get("a"), c.index.load(&keys[i]), c.issued(keys[i], numbered{i}, c.now()))
	}
	for i := range keys {
		expect(func(j int) bool { return j < i })
		put(i)
	}
	put(3) // replaces the entry of keys[3]
	expect(func(int) bool { return true })

	// All subjects share one bucket. Invalidate must drop only the tokens of the given subject.
	gone := keys[0].Subject
	c.Invalidate(gone)
	expect(func(i int) bool { return keys[i].Subject != gone })
	for e := range c.index.all() {
		c.remove(e)
	}
	if c.tenants.size != 0 || c.index.byKey[0].Load() != nil || c.index.bySubject[0] != nil {
		t.Error("something is left")
	}
}

// TestEntryFillsItsSizeClass checks the size of an entry. With one byte more, Go's allocator would
// use 16 more bytes for each entry.
func TestEntryFillsItsSizeClass(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size != 176 {
		t.Errorf("an entry has %d bytes, want 176", size)
	}
}

func TestHitTakesNoLockAndDoesNotAllocate(t *testing.T) {
	c := New(Options{MaxSize: 10})
	key := variants(t)[0]
	c.store("a", key)
	c.mu.Lock()
	defer c.mu.Unlock()
	allocations := testing.AllocsPerRun(100, func() {
		if _, ok := c.Get(key, 0, auth.InvolvedObject{}); !ok {
			t.Error("miss")
		}
	})
	if allocations != 0 {
		t.Errorf("a hit allocates %v times", allocations)
	}
}

// TestChargeFollowsTheFlight checks an entry that two tenants use. The entry must count towards the
// tenant whose flight fetched the latest token.
func TestChargeFollowsTheFlight(t *testing.T) {
	c := New(Options{MaxSize: 10})
	key := variants(t)[0]
	for i, tenant := range []string{"a", "b", "b", "a"} {
		c.mu.Lock()
		c.put(c.tenants.get(tenant), c.index.load(&key), c.issued(key, numbered{i}, c.now()))
		charged := fmt.Sprint(len(c.tenants.byName), len(c.tenants.get(tenant).entries))
		c.mu.Unlock()
		if charged != "1 1" {
			t.Errorf("tenants and entries of %s: %s, want 1 1", tenant, charged)
		}
	}
}
