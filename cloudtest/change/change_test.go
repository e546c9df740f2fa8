package change_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
)

// shelf stands for a cloud. It records its changes.
type shelf struct{ changes []string }

var errFull = errors.New("full")

func (s *shelf) note(format string, args ...any) error {
	s.changes = append(s.changes, fmt.Sprintf(format, args...))
	return nil
}

func (s *shelf) Label(label map[string]string) error  { return s.note("label %v", label) }
func (s *shelf) Put(row string, books []string) error { return s.note("put %q %q", row, books) }
func (s *shelf) PutIn(row, box string, n int) error   { return s.note("put %q %q %d", row, box, n) }
func (s *shelf) Remove(row, book string) error        { return s.note("remove %q %q", row, book) }
func (s *shelf) RemoveFrom(row, box, book string) error {
	return s.note("remove %q %q %q", row, box, book)
}
func (s *shelf) Empty()                      { _ = s.note("empty") }
func (s *shelf) Break(string, string) error  { return errFull }
func decode(r *http.Request, into any) error { return json.NewDecoder(r.Body).Decode(into) }

type admin struct {
	Label      func(context.Context, map[string]string) error
	Put        func(ctx context.Context, row string, books []string) error
	PutIn      func(ctx context.Context, row, box string, n int) error
	Remove     func(ctx context.Context, row, book string) error
	RemoveFrom func(ctx context.Context, row, box, book string) error
	Empty      func(context.Context) error
	Break      func(ctx context.Context, a, b string) error
}

func newAdmin(t *change.Table[*shelf]) admin {
	return admin{
		Label:      change.Set(t, "PUT /label", (*shelf).Label),
		Put:        change.Put(t, "PUT /rows/{row}", (*shelf).Put),
		PutIn:      change.PutIn(t, "PUT /rows/{row}/boxes/{box}", (*shelf).PutIn),
		Remove:     change.Delete(t, "DELETE /rows/{row}?book", (*shelf).Remove),
		RemoveFrom: change.DeleteIn(t, "DELETE /rows/{row}/boxes?box&book", (*shelf).RemoveFrom),
		Empty:      change.Clear(t, "DELETE /rows", (*shelf).Empty),
		Break:      change.Delete(t, "DELETE /break?a&b", (*shelf).Break),
	}
}

// TestTable checks that a cloud's methods get the values that the client's functions were given,
// whatever characters the values contain.
func TestTable(t *testing.T) {
	var cloud shelf
	var server change.Table[*shelf]
	newAdmin(&server)
	mux := http.NewServeMux()
	for pattern, apply := range server.Routes(&cloud, decode) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := apply(r); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	there := newAdmin(&change.Table[*shelf]{Send: func(ctx context.Context, method, path string, query url.Values, body any) error {
		var encoded bytes.Buffer
		if body != nil {
			if err := json.NewEncoder(&encoded).Encode(body); err != nil {
				return err
			}
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path+"?"+query.Encode(), &encoded))
		if w.Code != http.StatusOK {
			return fmt.Errorf("HTTP %d", w.Code)
		}
		return nil
	}})
	ctx := t.Context()
	for name, err := range map[string]error{
		"label":       there.Label(ctx, map[string]string{"a": "b"}),
		"put":         there.Put(ctx, "a/b {row}?c=%2F", []string{"x"}),
		"put in":      there.PutIn(ctx, "{box}", "é&f", 7),
		"remove":      there.Remove(ctx, "r", "a&b=c d"),
		"remove from": there.RemoveFrom(ctx, "r", "", "?"),
		"empty":       there.Empty(ctx),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []string{
		`label map[a:b]`, `put "a/b {row}?c=%2F" ["x"]`, `put "{box}" "é&f" 7`, `remove "r" "a&b=c d"`, `remove "r" "" "?"`, `empty`,
	}
	if diff := cmp.Diff(want, cloud.changes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := there.Break(ctx, "a", "b"); err == nil {
		t.Error("the cloud's error did not come back")
	}
}
