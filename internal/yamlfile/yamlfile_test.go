package yamlfile_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// Embedded is embedded in another struct. In JSON, its fields belong to that struct.
type Embedded struct {
	Mode string `json:"mode"`
}

type kind struct {
	Embedded `json:",inline"`

	Name string `json:"name"`
	Wait struct {
		For metav1.Duration `json:"for"` // metav1.Duration has a decoder of its own
	} `json:"wait"`
	List []struct {
		Size   int               `json:"size"`
		Labels map[string]string `json:"labels"`
	} `json:"list"`
}

// file has several documents; some are empty. The comments are part of the test: they change the
// numbers of the lines below them.
const file = `# comments only
---
name: first
list:
- size: 1
- size: 2
  labels:
    a.b/c: x
--- # the second
---

name: second
`

func read(t *testing.T, text string) []*yamlfile.Document {
	t.Helper()
	documents, err := yamlfile.Read("some.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

func TestLines(t *testing.T) {
	documents := read(t, file)
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	for _, test := range []struct {
		document int
		path     string
		want     string
	}{
		{0, "", "some.yaml:3: EOF"},
		{0, "name", "some.yaml:3: EOF"},
		{0, "list[0]", "some.yaml:5: EOF"},
		{0, "list[1].size", "some.yaml:6: EOF"},
		{0, `list[1].labels["a.b/c"]`, "some.yaml:8: EOF"},
		{0, "list[1].labels[a.b/c]", "some.yaml:8: EOF"},
		{0, "list[1].absent.deeper", "some.yaml:6: EOF"},
		{0, "list[7]", "some.yaml:4: EOF"},
		{0, "list[x]..[", "some.yaml:4: EOF"},
		{1, "name", "some.yaml:12: EOF"},
	} {
		err := documents[test.document].At(test.path, io.EOF)
		if err.Error() != test.want || !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v, want %s", test.path, err, test.want)
		}
	}
}

func TestDecode(t *testing.T) {
	var into kind
	if err := read(t, file)[0].Decode(&into); err != nil || into.Name != "first" || into.List[1].Labels["a.b/c"] != "x" {
		t.Errorf("%+v: %v", into, err)
	}
	for text, want := range map[string][]string{
		"name: a\nlist:\n- size: 1\n- sise: 2\n  lables: {}\n": {"some.yaml:4: ", `"list[1].sise"`, "some.yaml:5: ", `"list[1].lables"`},
		"list:\n  size: 1\n":         {"some.yaml:1: list: must not be a JSON object"},
		"name: a\nName: b\n":         {"some.yaml:2: ", `"Name"`},
		"- 1\n":                      {"some.yaml:1: "},
		"# c\n\nname: [a]\n":         {"some.yaml:3: name: must not be a JSON array; write a string"},
		"list: {}\n":                 {"some.yaml:1: list: must not be a JSON object; write a list"},
		"\"\\e\": 1\nwait: {for: 5}": {"some.yaml:2: wait.for: must not be a JSON number; write a string"},
		"name: a\nwait: {for: 5}":    {"some.yaml:2: wait.for: must not be a JSON number; write a string"},
		"name: a\nwait: {for: x}":    {`some.yaml:2: wait.for: time: invalid duration "x"`},
		"name: a\nmode: [a]\n":       {"some.yaml:2: mode: must not be a JSON array"},
		"x: &a {y: 1}\nname: z\n":    {"some.yaml:1: ", `"x"`},
	} {
		err := read(t, text)[0].Decode(&kind{})
		for _, word := range want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%q: %v, want %s", text, err, word)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n---\nb: 2\nb: 3\n":       "some.yaml:4: ",
		"a: 1\n---\nb: [1\nc: 3\n":      "some.yaml:",
		"a: 1\n---\n\n\tb: 2\n":         "some.yaml:4: ",
		"a: 1\n---\nb: 1\n c: 2\n":      "some.yaml:4: ",
		"a: 1\n---\n\n\n%bad\nb: 1\n":   "some.yaml:",
		"a: *nowhere\n":                 "some.yaml:1: ",
		"a: 1\n--- # c\n{x: 1, x: 2}\n": "some.yaml:3: ",
		"a: 1\n---\nb: 1\n--- {c: 1}\n": "some.yaml:4: another document",
		"a: 1\n...\nb: 1\n":             "some.yaml:2: did not find expected <document start>",
	} {
		_, err := yamlfile.Read("some.yaml", []byte(text))
		e, ok := errors.AsType[*yamlfile.Error](err)
		if !ok || !strings.HasPrefix(err.Error(), want) || e.Line < 1 || strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
