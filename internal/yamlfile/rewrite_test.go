package yamlfile_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// TestRewrite changes the value of the field "name". Everything else must stay.
func TestRewrite(t *testing.T) {
	for text, want := range map[string]string{
		"# top\n\nname: a # why\nx:\n- 1\n":                        "# top\n\nname: b # why\nx:\n- 1\n",
		"x:\n    y:\n        - 1\nname: a\n":                       "x:\n    y:\n        - 1\nname: b\n",
		"x:\n  y:\n    - z: 1\n      w: yes\nname: 'a'\n# end":     "x:\n  y:\n    - z: 1\n      w: yes\nname: 'b'\n# end\n",
		"name: a\r\nx: |\r\n  1\r\n  2\r\n":                        "name: b\r\nx: |\r\n  1\r\n  2\r\n",
		"{name: a, x: [1, 0644, \"on\"]}\n":                        "{name: b, x: [1, 0644, \"on\"]}\n",
		"{\n\t\"name\": \"a\",\n\t\"x\": [\"<\\u00a0\", 1e3]\n}\n": "{\n\t\"name\": \"b\",\n\t\"x\": [\n\t\t\"<\\u00a0\",\n\t\t1e3\n\t]\n}\n",
		`{"name":"a","x":null}`:                                    `{"name":"b","x":null}` + "\n",
	} {
		d := read(t, text)[0]
		got, err := d.Rewrite(func() {
			_, name := yamlfile.Child(d.Root(), "name")
			name.Value = "b"
		})
		if err != nil || string(got) != want {
			t.Errorf("%q: %v\n%q, want\n%q", text, err, got, want)
		}
		var into map[string]any
		if err := d.Decode(&into); err != nil || into["name"] != "b" || into["x"] == nil && !strings.Contains(text, "null") {
			t.Errorf("%q is decoded as %v, %v", text, into, err)
		}
	}
	for text, want := range map[string]string{
		"a: 1\nname: &x a\nb: *x\n":          "some.yaml:3: an alias (*x) cannot be rewritten",
		"name: a\nx:\n  - &x {y: 1}\n  - *x": "some.yaml:4: an alias (*x) cannot be rewritten",
	} {
		if got, err := read(t, text)[0].Rewrite(func() { t.Error("is changed") }); err == nil || !strings.HasPrefix(err.Error(), want) || got != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestMember checks that errors about a member count lines from the beginning of the file.
func TestMember(t *testing.T) {
	d := read(t, file)[0]
	_, list := yamlfile.Child(d.Root(), "list")
	var into struct {
		Size string `json:"size"`
	}
	err := d.Member(list.Content[1]).Decode(&into)
	if err == nil || err.Error() != "some.yaml:6: size: must not be a JSON number; write a string" {
		t.Errorf("%v", err)
	}
	begin, end := read(t, file)[1].Range()
	if file[begin:end] != "\nname: second\n" {
		t.Errorf("%q", file[begin:end])
	}
}
