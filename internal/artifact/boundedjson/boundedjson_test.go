package boundedjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/artifact/boundedjson"
)

// document is a type to decode into. It counts the values that the decoder builds.
type document struct {
	X     int     `json:"x"`
	Items []*item `json:"items"`
}

type item struct {
	Names []string          `json:"names"`
	Tags  map[string]string `json:"tags"`
}

func (d *document) count() int {
	n := 1 + len(d.Items)
	for _, i := range d.Items {
		if i != nil {
			n += len(i.Names) + len(i.Tags)
		}
	}
	return n
}

func TestUnmarshal(t *testing.T) {
	const most = 20
	many := strings.Repeat(`{},`, most) + `{}`
	for text, want := range map[string]error{
		`{"x":1,"items":[{"names":["a"]},{"tags":{"a":"b"}}]}`: nil,
		`{"items":[` + strings.Repeat(`null,`, 14) + `null]}`:  nil, // 20 tokens
		`{"items":[` + strings.Repeat(`null,`, 15) + `null]}`:  boundedjson.ErrTooMany,
		`{"items":[` + many + `]}`:                             boundedjson.ErrTooMany,
		`{"skipped":[` + many + `]}`:                           boundedjson.ErrTooMany,
		// 1e999 does not fit into a float64.
		`{"skipped":1e999,"items":[` + many + `]}`: boundedjson.ErrTooMany,
		`{} {"items":[` + many + `]}`:              boundedjson.ErrTooMany,
	} {
		var d document
		if err := boundedjson.Unmarshal([]byte(text), most, &d); !errors.Is(err, want) {
			t.Errorf("%.40s: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{
		``, `{`, `{"items":[`, `{"x":tru,"items":[` + many + `]}`, `{"x" 1}`, `[1 2]`, `{} {}`, `{"x":"` + "\n" + `"}`, `"{"items":[` + many + `]}`,
	} {
		var d document
		if err := boundedjson.Unmarshal([]byte(text), most, &d); err == nil || d.count() > 1 {
			t.Errorf("%.40s: %v, %d values built", text, err, d.count())
		}
	}
}

// FuzzUnmarshal checks that no text builds more values than allowed. Unmarshal and encoding/json
// accept the same texts, except for the bound.
func FuzzUnmarshal(f *testing.F) {
	const most = 20
	many := `"items":[` + strings.Repeat(`{"names":["",""]},`, most) + `{}]}`
	for _, seed := range []string{
		`{` + many, `{"x":1e999,` + many, `{"x":"\u0022",` + many, `{"x":"\"",` + many, `"{` + many, `{} {` + many, `{"x":01,` + many,
		"\ufeff{" + many, `{"x":-,` + many, `{"x":nul,` + many, `{"items":[],"ITEMS":[{}],` + many, `[[[[[[[[[[[[[[[[[[[[[[[[`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d document
		err := boundedjson.Unmarshal([]byte(text), most, &d)
		if n := d.count(); n > most {
			t.Errorf("%d values built, %d allowed", n, most)
		}
		var whole document
		if wholly := json.Unmarshal([]byte(text), &whole); !errors.Is(err, boundedjson.ErrTooMany) && (err == nil) != (wholly == nil) {
			t.Errorf("%v, but encoding/json says %v", err, wholly)
		}
	})
}
