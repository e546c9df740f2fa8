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
		`assertion.sub.split(':')[2]`:                                       "tenant-a",
		`has(assertion.none) ? 'a' : 'b'`:                                   "b",
		`assertion.sub.matches('^system:')`:                                 true,
		`assertion.aud == ['a', 'b']`:                                       true,
		`assertion.aud + ['c'] == ['a','b','c']`:                            true,
		`assertion == assertion`:                                            true,
		`assertion.aud == assertion.sub`:                                    false,
		`!assertion.yes`:                                                    false,
		`!!(google.subject == 's' && true)`:                                 true,
		`true || false && false`:                                            true,
		`(true || false) && false`:                                          false,
		`assertion.none == 1 || true`:                                       true, // the true side decides, although the other side is an error
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
	const digits = `[0,1,2,3,4,5,6,7,8,9]`
	for _, source := range []string{
		`assertion.none`, `assertion.sub.none`, `assertion.aud[2]`, `assertion.aud['x']`, `assertion.n.startsWith("x")`,
		`!assertion.sub`, `assertion.n + "x"`, `assertion.none || false`, `google.subject`,
		digits + `.all(a, ` + digits + `.all(b, ` + digits + `.all(c, ` + digits + `.all(d, ` + digits + `.all(e, a + b + c + d + e < 99)))))`, // costs too much
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
		``, `other.sub`, `attribute.x`, `assertion.sub.extract('{x}')`, `assertion[0]`, `true && 1`, `assertion.`, `(assertion`, `[1,]x`, `'open`, `//x`,
		strings.Repeat("(", 5000), `assertion` + strings.Repeat(".a", 5000), "1" + strings.Repeat("+1", 5000),
	} {
		if _, err := cel.Compile(source, "assertion"); err == nil {
			t.Errorf("%.60s is taken", source)
		}
	}
}

// FuzzCompile checks that each compiled expression evaluates to a value or to [cel.ErrEvaluation].
// A second evaluation must give the same result.
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
