package memo_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/lanyard-dev/lanyard/auth/internal/memo"
)

func TestMemo(t *testing.T) {
	parsed := 0
	m := memo.New(func(s string) (int, error) {
		parsed++
		return strconv.Atoi(s)
	})
	for range 2 {
		if v, err := m.Parse("7"); err != nil || *v != 7 {
			t.Errorf("%v, %v", v, err)
		}
	}
	if parsed != 1 {
		t.Errorf("parsed %d times, want once", parsed)
	}
	for range 2 {
		if _, err := m.Parse("x"); !errors.Is(err, strconv.ErrSyntax) {
			t.Errorf("%v", err)
		}
	}
	if parsed != 3 {
		t.Error("a failure was remembered")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Parse("7") }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
	for i := range 3 * memo.Size {
		if _, err := m.Parse(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Len(); n == 0 || n > memo.Size {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestKeysAreCopies checks that a cached key which is part of a longer string does not keep the
// longer string in memory.
func TestKeysAreCopies(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	var kept string
	m := memo.New(func(s string) (string, error) {
		kept = s
		return s, nil
	})
	if _, err := m.Parse(long[:8]); err != nil || unsafe.StringData(kept) == unsafe.StringData(long) {
		t.Errorf("the whole text is kept, %v", err)
	}
}
