package cel_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp/cel"
)

func variables(tb testing.TB) map[string]any {
	tb.Helper()
	out := map[string]any{}
	const text = `{"assertion":{"sub":"system:serviceaccount:tenant-a:sa","n":3,"yes":true,"aud":["a","b"],
		"kubernetes.io":{"namespace":"tenant-a","serviceaccount":{"name":"sa"}}},"google":{"subject":"s"},"attribute":{"ns":"tenant-a"}}`
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestEval(t *testing.T) {
	for source, want := range map[string]any{
		`assertion.sub`: "system:serviceaccount:tenant-a:sa",
		`assertion['kubernetes.io']['serviceaccount'].name`:        "sa",
		`"ns/" + assertion["kubernetes.io"]["namespace"] + '/sa/'`: "ns/tenant-a/sa/",
		`assertion.aud[1]`: "b",
		`assertion.sub.startsWith('system:serviceaccount:')`:                true,
		`assertion.sub.endsWith("x") || assertion.sub.contains("tenant-a")`: true,
		`attribute.ns in ['tenant-a', "tenant-b"]`:                          true,
		`'c' in assertion.aud`:                                              false,
		`"sub" in assertion`:                                                true,
		`assertion.n == 3`:                                                  true,
		`assertion.n == "3"`:                                                false,
		`assertion.n + 1 != 4`:                                              false,
		`assertion.aud == ['a', 'b']`:                                       true,
		`assertion.aud + ['c'] == ['a','b','c']`:                            true,
		`assertion == assertion`:                                            true,
		`assertion.aud == assertion.sub`:                                    false,
		`!assertion.yes`:                                                    false,
		`!!(google.subject == 's' && true)`:                                 true,
		`true || false && false`:                                            true,
		`(true || false) && false`:                                          false,
		`assertion.none == 1 || true`:                                       true, // one side decides
		`true || assertion.none == 1`:                                       true,
		`assertion.none == 1 && false`:                                      false,
		`[]`:                                                                []any{},
	} {
		expr, err := cel.Compile(source, "assertion", "google", "attribute")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := expr.Eval(variables(t))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", source, err, diff)
		}
	}
}

func TestEvalRefusals(t *testing.T) {
	for _, source := range []string{
		`assertion.none`, `assertion.sub.none`, `assertion.aud[2]`, `assertion.aud['x']`, `assertion[0]`, `assertion.n.startsWith("x")`,
		`assertion.sub.startsWith(1)`, `!assertion.sub`, `assertion.n + "x"`, `"x" in "xy"`, `assertion.none || false`, `true && 1`, `1 || 2`, `google.subject`,
	} {
		expr, err := cel.Compile(source, "assertion", "google")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		vars := variables(t)
		delete(vars, "google")
		if got, err := expr.Eval(vars); !errors.Is(err, cel.ErrEvaluation) {
			t.Errorf("%s: %v %v", source, got, err)
		}
	}
	if _, err := (cel.Expr{}).Eval(nil); !errors.Is(err, cel.ErrEvaluation) {
		t.Errorf("the zero expression: %v", err)
	}
}

func TestCompileRefusals(t *testing.T) {
	for _, source := range []string{
		``, `other.sub`, `attribute.x`, `assertion.sub.matches('.*')`, `assertion.sub.extract('{x}')`, `has(assertion.sub)`, `size(assertion)`, `a ? b : c`,
		`assertion.sub < 'x'`, `assertion.n - 1`, `assertion.sub.startsWith()`, `assertion.sub.startsWith('a', 'b')`, `assertion.`, `assertion[`, `assertion['x'`,
		`(assertion`, `assertion)`, `[1,]x`, `'open`, `'esc\'aped'`, `"""triple"""`, `r'raw'`, `b"bytes"`, `1.5`, `0x10`, `1u`, `99999999999999999999`,
		`assertion sub`, `&& true`, `true &`, `=`, `{'a': 1}`, `null`, `assertion.'x'`, "'line\nbreak'", `//x`, strings.Repeat("(", 5000), strings.Repeat("!", 5000) + "true",
		`assertion` + strings.Repeat(".a", 5000), "1" + strings.Repeat("+1", 5000),
	} {
		if _, err := cel.Compile(source, "assertion"); err == nil {
			t.Errorf("%.60s is taken", source)
		}
	}
}

// FuzzCompile: whatever is compiled is evaluated to a value or to this package's error, always the same.
func FuzzCompile(f *testing.F) {
	f.Add(`assertion['kubernetes.io']['namespace'] in ['a', "b"] && !assertion.sub.startsWith("x")`)
	f.Add(`assertion.aud[0] + "x" == 'ax' || (true)`)
	f.Fuzz(func(t *testing.T, source string) {
		expr, err := cel.Compile(source, "assertion", "attribute")
		if err != nil {
			return
		}
		vars := variables(t)
		first, err := expr.Eval(vars)
		if err != nil && (first != nil || !errors.Is(err, cel.ErrEvaluation)) {
			t.Errorf("%q: %v %v", source, first, err)
		}
		if second, _ := expr.Eval(vars); !cmp.Equal(first, second) {
			t.Errorf("%q: %v, then %v", source, first, second)
		}
		if diff := cmp.Diff(variables(t), vars); diff != "" {
			t.Errorf("%q changes its variables: %s", source, diff)
		}
	})
}
