package grant_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// consumer is an object with an allowedNamespaces field, as in the API types.
type consumer struct {
	AllowedNamespaces *grant.Namespaces `json:"allowedNamespaces,omitempty"`
}

// read decodes a block. An empty block means that the field is absent.
func read(t *testing.T, block string) consumer {
	t.Helper()
	data := "{}"
	if block != "" {
		data = `{"allowedNamespaces":` + block + `}`
	}
	var c consumer
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return c
}

// row is a row of testdata/table.yaml. Tests of the API type and of the CRD schema read it too.
type row struct {
	Block   string
	Allowed bool
	Link    string
	Schema  string // used only by the tests of the CRD schema
}

func table(t *testing.T) []row {
	t.Helper()
	data, err := os.ReadFile("testdata/table.yaml")
	must.Succeed(t, err)
	var rows []row
	must.Succeed(t, yaml.UnmarshalStrict(data, &rows))
	if len(rows) < 30 {
		t.Fatalf("only %d rows", len(rows))
	}
	return rows
}

// TestTruthTable checks that decisions about namespace team-a with the label t=a agree with
// testdata/table.yaml.
func TestTruthTable(t *testing.T) {
	for _, tt := range table(t) {
		t.Run(tt.Block, func(t *testing.T) {
			c := read(t, tt.Block)
			want := grant.Decision{Allowed: tt.Allowed, Link: tt.Link}
			// The decision stays the same after any number of encodings.
			for round := range 3 {
				got := c.AllowedNamespaces.Decide("team-a", map[string]string{"t": "a"})
				if got != want {
					t.Fatalf("round %d: got %+v, want %+v", round, got, want)
				}
				if got := c.AllowedNamespaces.Decide("", map[string]string{"t": "a"}); got.Allowed {
					t.Errorf("round %d: no namespace was admitted", round)
				}
				data, err := json.Marshal(c)
				must.Succeed(t, err)
				c = consumer{}
				if err := json.Unmarshal(data, &c); err != nil {
					t.Fatalf("%s: %v", data, err)
				}
			}
		})
	}
}

// TestUndecidableDenies checks that a grant which cannot be decided admits nobody, not even a
// namespace in its list.
func TestUndecidableDenies(t *testing.T) {
	selector := func(r grant.Requirement) *grant.Selector {
		return &grant.Selector{MatchExpressions: []grant.Requirement{r}}
	}
	for name, n := range map[string]grant.Namespaces{
		"contradiction":          {All: true, List: []string{"team-a"}},
		"contradicting selector": {All: true, Selector: &grant.Selector{}},
		"wildcard":               {List: []string{"team-a", "*"}},
		"empty name":             {List: []string{"team-a", ""}},
		"unknown operator":       {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t", Operator: "Gt", Values: []string{"0"}})},
		"no operator":            {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t"})},
		"In without values":      {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t", Operator: grant.In})},
		"NotIn without values":   {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t", Operator: grant.NotIn})},
		"Exists with values":     {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t", Operator: grant.Exists, Values: []string{"a"}})},
		"no such key":            {List: []string{"team-a"}, Selector: selector(grant.Requirement{Key: "t t", Operator: grant.DoesNotExist})},
		"no such value":          {List: []string{"team-a"}, Selector: &grant.Selector{MatchLabels: map[string]string{"t": "a a"}}},
	} {
		got := n.Decide("team-a", map[string]string{"t": "a"})
		if got.Allowed || !strings.HasPrefix(got.Link, "the grant cannot be decided: ") {
			t.Errorf("%s: got %+v", name, got)
		}
		if data, err := json.Marshal(n); err == nil {
			t.Errorf("%s: encoded as %s", name, data)
		}
	}
}

// TestUnknownLabelsDeny checks that unknown labels do not count as absent labels. Otherwise NotIn
// and DoesNotExist would admit a namespace whose labels nobody has read.
func TestUnknownLabelsDeny(t *testing.T) {
	n := read(t, `{"list":["team-a"],"selector":{"matchExpressions":[{"key":"t","operator":"DoesNotExist"}]}}`).AllowedNamespaces
	if got := n.Decide("team-b", nil); got.Allowed || !strings.Contains(got.Link, "labels are not known") {
		t.Errorf("got %+v", got)
	}
	if got := n.Decide("team-b", map[string]string{}); !got.Allowed {
		t.Errorf("a namespace without labels: got %+v", got)
	}
	if got := n.Decide("team-a", nil); !got.Allowed {
		t.Errorf("a listed namespace: got %+v", got)
	}
	for _, n := range []*grant.Namespaces{nil, {}} {
		if got := n.Decide("team-a", nil); got.Allowed || got.Link == "" {
			t.Errorf("the zero grant: got %+v", got)
		}
	}
}

func TestStrictDecoding(t *testing.T) {
	label64 := strings.Repeat("a", 64)
	for block, want := range map[string]error{
		`[]`:                                   grant.ErrSyntax,
		`"*"`:                                  grant.ErrSyntax,
		`true`:                                 grant.ErrSyntax,
		`{"lists":[]}`:                         grant.ErrSyntax,
		`{"List":["team-a"]}`:                  grant.ErrSyntax,
		`{"list":[],"LIST":["team-a"]}`:        grant.ErrSyntax,
		`{"list":["x"],"list":["team-a"]}`:     grant.ErrSyntax,
		`{"All":true}`:                         grant.ErrSyntax,
		`{"all":true}`:                         grant.ErrSyntax,
		`{"":null}`:                            grant.ErrSyntax,
		`{"list":"team-a"}`:                    grant.ErrSyntax,
		`{"list":[1]}`:                         grant.ErrSyntax,
		`{"list":{}}`:                          grant.ErrSyntax,
		`{"selector":[]}`:                      grant.ErrSyntax,
		`{"selector":"t=a"}`:                   grant.ErrSyntax,
		`{"selector":{"matchlabels":{}}}`:      grant.ErrSyntax,
		`{"selector":{"matchLabels":[]}}`:      grant.ErrSyntax,
		`{"selector":{"matchLabels":{"t":1}}}`: grant.ErrSyntax,
		`{"selector":{"matchLabels":{"t":null}}}`:                                             grant.ErrSyntax,
		`{"selector":{"matchLabels":{"t":"a","t":"b"}}}`:                                      grant.ErrSyntax,
		`{"selector":{"matchLabels":{"t":"a"},"x":1}}`:                                        grant.ErrSyntax,
		`{"selector":{"matchExpressions":{}}}`:                                                grant.ErrSyntax,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"In","values":[null]}]}}`:     grant.ErrSyntax,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"NotIn","values":[null]}]}}`:  grant.ErrSyntax,
		`{"selector":{"matchExpressions":[null]}}`:                                            grant.ErrSyntax,
		`{"selector":{"matchExpressions":[{"Key":"t"}]}}`:                                     grant.ErrSyntax,
		`{"selector":{"matchExpressions":[{"values":"a"}]}}`:                                  grant.ErrSyntax,
		`{"selector":{"matchExpressions":[{}]}}`:                                              grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"t"}]}}`:                                     grant.ErrOperator,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Gt","values":["1"]}]}}`:      grant.ErrOperator,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"in","values":["a"]}]}}`:      grant.ErrOperator,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"In"}]}}`:                     grant.ErrValues,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"In","values":[]}]}}`:         grant.ErrValues,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Exists","values":["a"]}]}}`:  grant.ErrValues,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"NotIn","values":["a b"]}]}}`: grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"a/b/c","operator":"Exists"}]}}`:             grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"/b","operator":"Exists"}]}}`:                grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"a/","operator":"Exists"}]}}`:                grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"A.b/c","operator":"Exists"}]}}`:             grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"a..b/c","operator":"Exists"}]}}`:            grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"-a","operator":"Exists"}]}}`:                grant.ErrLabel,
		`{"selector":{"matchExpressions":[{"key":"` + label64 + `","operator":"Exists"}]}}`:   grant.ErrLabel,
		`{"selector":{"matchLabels":{"` + strings.Repeat("a.", 126) + `aa/x":"a"}}}`:          grant.ErrLabel,
		`{"selector":{"matchLabels":{"t":"` + label64 + `"}}}`:                                grant.ErrLabel,
		`{"list":["*"]}`:               grant.ErrNamespace,
		`{"list":["team-*"]}`:          grant.ErrNamespace,
		`{"list":[""]}`:                grant.ErrNamespace,
		`{"list":[null]}`:              grant.ErrNamespace,
		`{"list":["Team-a"]}`:          grant.ErrNamespace,
		`{"list":["team-a "]}`:         grant.ErrNamespace,
		`{"list":["team.a"]}`:          grant.ErrNamespace,
		`{"list":["team-a","-"]}`:      grant.ErrNamespace,
		`{"list":["` + label64 + `"]}`: grant.ErrNamespace,
	} {
		t.Run(block, func(t *testing.T) {
			n := grant.Namespaces{All: true}
			err := n.UnmarshalJSON([]byte(block))
			if !errors.Is(err, want) {
				t.Errorf("got error %v, want %v", err, want)
			}
			if got := n.Decide("team-a", map[string]string{"t": "a"}); got.Allowed {
				t.Errorf("after an error the grant admits: %s", got.Link)
			}
		})
	}
	for _, data := range []string{"", "{", `{"list":`, `{"list":[]`, "{}{}", "{} x", `{"list":[],}`, `{1:2}`} {
		var n grant.Namespaces
		if err := n.UnmarshalJSON([]byte(data)); !errors.Is(err, grant.ErrSyntax) {
			t.Errorf("%s: got error %v", data, err)
		}
		if n.Decide("team-a", nil).Allowed {
			t.Errorf("%s admits", data)
		}
	}
}

// TestMarshalJSON checks that only a grant with All is encoded as {}. A list that lost its last
// namespace is encoded as an empty list, so it still admits nobody.
func TestMarshalJSON(t *testing.T) {
	shrinking := grant.Namespaces{List: []string{"team-a"}}
	shrinking.List = slices.Delete(shrinking.List, 0, 1)
	for _, tt := range []struct {
		grant grant.Namespaces
		want  string
	}{
		{grant.Namespaces{All: true}, `{}`},
		{grant.Namespaces{}, `{"list":[]}`},
		{shrinking, `{"list":[]}`},
		{grant.Namespaces{Selector: &grant.Selector{}}, `{"list":[],"selector":{}}`},
		{grant.Namespaces{Selector: &grant.Selector{MatchLabels: map[string]string{}}}, `{"list":[],"selector":{}}`},
		{
			grant.Namespaces{List: []string{"b", "a"}, Selector: &grant.Selector{
				MatchLabels:      map[string]string{"example.org/t": "a"},
				MatchExpressions: []grant.Requirement{{Key: "u", Operator: grant.Exists}, {Key: "v", Operator: grant.NotIn, Values: []string{"x"}}},
			}},
			`{"list":["b","a"],"selector":{"matchLabels":{"example.org/t":"a"},` +
				`"matchExpressions":[{"key":"u","operator":"Exists"},{"key":"v","operator":"NotIn","values":["x"]}]}}`,
		},
	} {
		for _, v := range []any{tt.grant, &tt.grant} {
			if got, err := json.Marshal(v); err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		}
	}
	var none *grant.Namespaces
	if got, err := json.Marshal(none); err != nil || string(got) != "null" {
		t.Errorf("got %s, %v for no grant", got, err)
	}
}

func TestParseFlag(t *testing.T) {
	for _, tt := range []struct {
		value    string
		admitted []string // which of the namespaces a, b and c are admitted; c has the label t=c
		text     string
	}{
		{"", nil, ""},
		{"  ", nil, ""},
		{"{}", []string{"a", "b", "c"}, "{}"},
		{"a", []string{"a"}, `{"list":["a"]}`},
		{"a,b", []string{"a", "b"}, `{"list":["a","b"]}`},
		{" a , b ", []string{"a", "b"}, `{"list":["a","b"]}`},
		{`{"list":["a"]}`, []string{"a"}, `{"list":["a"]}`},
		{`{"list":[]}`, nil, ""},
		{`{"selector":{}}`, nil, `{"list":[],"selector":{}}`},
		{`{"list":["b"],"selector":{"matchLabels":{"t":"c"}}}`, []string{"b", "c"}, `{"list":["b"],"selector":{"matchLabels":{"t":"c"}}}`},
	} {
		n, err := grant.ParseFlag(tt.value)
		if err != nil {
			t.Errorf("%q: got error %v", tt.value, err)
		}
		for _, again := range []string{tt.value, n.String()} {
			n, err := grant.ParseFlag(again)
			if err != nil {
				t.Errorf("%q: got error %v", again, err)
			}
			var admitted []string
			for _, ns := range []string{"a", "b", "c"} {
				if n.Decide(ns, map[string]string{"t": ns}).Allowed {
					admitted = append(admitted, ns)
				}
			}
			if !slices.Equal(admitted, tt.admitted) || n.String() != tt.text {
				t.Errorf("%q: admits %v as %q, want %v as %q", again, admitted, n.String(), tt.admitted, tt.text)
			}
		}
	}
	for value, want := range map[string]error{
		"*":                    grant.ErrNamespace,
		"a,*":                  grant.ErrNamespace,
		"a,":                   grant.ErrNamespace,
		",":                    grant.ErrNamespace,
		"a b":                  grant.ErrNamespace,
		`["a"]`:                grant.ErrNamespace,
		"{a}":                  grant.ErrSyntax,
		"{}x":                  grant.ErrSyntax,
		"{},a":                 grant.ErrSyntax,
		"null":                 grant.ErrSyntax,
		`{"namespaces":["a"]}`: grant.ErrSyntax,
	} {
		n, err := grant.ParseFlag(value)
		if !errors.Is(err, want) {
			t.Errorf("%q: got error %v, want %v", value, err, want)
		}
		if n.Decide("a", map[string]string{}).Allowed {
			t.Errorf("%q: refused, and admits", value)
		}
	}
}

func TestFlagValue(t *testing.T) {
	var n grant.Namespaces
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(&n, "controller-identity-namespaces", "")
	must.Succeed(t, fs.Parse([]string{"--controller-identity-namespaces=a", "--controller-identity-namespaces=b"}))
	if n.Decide("a", nil).Allowed || !n.Decide("b", nil).Allowed {
		t.Errorf("got %s, want the last value", n.String())
	}
	if err := fs.Parse([]string{"--controller-identity-namespaces=*"}); err == nil || n.String() != `{"list":["b"]}` {
		t.Errorf("got %v, %s after a refused value", err, n.String())
	}
	var none *grant.Namespaces
	if none.String() != "" {
		t.Errorf("got %q for nil", none.String())
	}
}

// worlds returns the namespaces of the fuzz test, each with its labels.
func worlds() map[string]map[string]string {
	return map[string]map[string]string{
		"team-a":  {"t": "a", "kubernetes.io/metadata.name": "team-a"},
		"team-b":  {"t": "b"},
		"x":       {},
		"unknown": nil,
		"":        {"t": "a"},
	}
}

// FuzzNamespacesRoundTrip encodes and decodes a grant three times in JSON, and then once as a flag.
// The grant must always admit the same namespaces. Only {} may set All. A grant that UnmarshalJSON
// refuses must admit nobody.
func FuzzNamespacesRoundTrip(f *testing.F) {
	for _, seed := range []string{
		"null", "{}", `{"list":null}`, `{"list":["team-a"]}`, `{"selector":{}}`, `{"list":["x"],"selector":{"matchLabels":{"t":"a"}}}`,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"NotIn","values":["b"]},{"key":"u","operator":"DoesNotExist"}]}}`,
		`{"selector":{"matchExpressions":[{"key":"t","operator":"Bogus"}]}}`, `{"LIST":["team-a"]}`, `{"list":["a"],"list":["b"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := grant.Namespaces{All: true}
		if err := n.UnmarshalJSON(data); err != nil {
			for ns, labels := range worlds() {
				if n.Decide(ns, labels).Allowed {
					t.Fatalf("%s: refused (%v), and admits %q", data, err, ns)
				}
			}
			return
		}
		if text := strings.Join(strings.Fields(string(data)), ""); n.All != (text == "{}") {
			t.Fatalf("%s: All is %v", data, n.All)
		}
		first := verdicts(&n)
		for round := range 3 {
			encoded, err := json.Marshal(n)
			if err != nil {
				t.Fatalf("%s, round %d: %v", data, round, err)
			}
			if n.All != (string(encoded) == "{}") {
				t.Fatalf("%s, round %d: All is %v, encoded as %s", data, round, n.All, encoded)
			}
			n = grant.Namespaces{All: !n.All}
			if err := json.Unmarshal(encoded, &n); err != nil {
				t.Fatalf("%s, round %d: %s: %v", data, round, encoded, err)
			}
			if got := verdicts(&n); got != first {
				t.Fatalf("%s, round %d: %s decides %s, at first %s", data, round, encoded, got, first)
			}
		}
		again, err := grant.ParseFlag(n.String())
		if err != nil || verdicts(&again) != first {
			t.Fatalf("%s: as the flag %q: %s, %v, at first %s", data, n.String(), verdicts(&again), err, first)
		}
	})
}

// verdicts lists the namespaces that the grant admits.
func verdicts(n *grant.Namespaces) string {
	var admitted []string
	for ns, labels := range worlds() {
		if n.Decide(ns, labels).Allowed {
			admitted = append(admitted, ns)
		}
	}
	slices.Sort(admitted)
	return strings.Join(admitted, ",")
}
