package expression_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/expression/expressiontest"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// object is an object of a cluster, as JSON.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	must.Succeed(t, json.Unmarshal([]byte(text), &o))
	return o
}

// TestEvaluate evaluates conditions of an object in a child.
func TestEvaluate(t *testing.T) {
	evaluator := expressiontest.New(t)
	o := object(t, `{"metadata":{"generation":2,"labels":{"a.b/c":"1.2.3"}},"spec":{"replicas":3,"share":0.5},
		"status":{"observedGeneration":2,"conditions":[{"type":"Synced","status":"True"},{"type":"Other","status":"False"}]}}`)
	var tests []expression.Test
	var want []expression.Result
	for text, result := range map[string]expression.Result{
		"true":  {True: 0},
		"false": {True: -1},
		"status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'True')":  {True: 0},
		"status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'False')": {True: -1},
		"has(status.missing)":                              {True: -1},
		"status.?missing.orValue('x') == 'x'":              {True: 0},
		"metadata.labels['a.b/c'].split('.')[0] == '1'":    {True: 0},
		"spec.replicas + 1 == 4 && spec.share < 1":         {True: 0},
		"sets.contains([1, 2], [2])":                       {True: 0},
		"base64.decode('eA==') == b'x'":                    {True: 0},
		"status.observedGeneration == metadata.generation": {True: 0},
		"'Synced' in status.conditions.map(c, c.type)":     {True: 0},
		"status.missing":                                   {True: -1, Failure: &expression.Failure{Message: "no such key: missing"}},
		"other":                                            {True: -1, Failure: &expression.Failure{Message: "no such attribute(s): other"}},
		"'text'":                                           {True: -1, Failure: &expression.Failure{Message: "its value is neither true nor false, but of type string"}},
		"status.":                                          {True: -1, Failure: &expression.Failure{Invalid: true, Message: "it is no valid CEL: line 1, column 8: Syntax error"}},
		"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a > 0)))))": {
			True: -1, Failure: &expression.Failure{Message: "operation cancelled: actual cost limit exceeded"},
		},
	} {
		tests = append(tests, expression.Test{Expressions: []string{text}, Variables: o})
		want = append(want, result)
	}
	tests = append(tests,
		expression.Test{Expressions: []string{"false", "true", "missing"}, Variables: o},
		expression.Test{Expressions: []string{"false", "missing", "true"}, Variables: o},
		expression.Test{Expressions: []string{"missing", "status."}},
		expression.Test{Expressions: []string{"missing"}},
	)
	want = append(want, expression.Result{True: 1}, expression.Result{True: -1, Failure: &expression.Failure{Index: 1, Message: "no such attribute(s): missing"}},
		expression.Result{True: -1, Failure: &expression.Failure{Index: 1, Invalid: true, Message: "it is no valid CEL"}}, expression.Result{True: -1})
	got, err := evaluator.Evaluate(t.Context(), expression.Request{Tenant: "a", Tests: tests})
	must.Succeed(t, err)
	for i := range want {
		if got[i].Failure != nil && want[i].Failure != nil && strings.HasPrefix(got[i].Failure.Message, want[i].Failure.Message) {
			got[i].Failure.Message = want[i].Failure.Message
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%q: %+v %+v, want %+v", tests[i].Expressions, got[i], got[i].Failure, want[i])
		}
	}
}

// TestSecret hides what CEL says of values of Secrets.
func TestSecret(t *testing.T) {
	got, err := expressiontest.New(t).Evaluate(t.Context(), expression.Request{Tenant: "a", Secret: true, Tests: []expression.Test{
		{Expressions: []string{"{}[data.password] == 1"}, Variables: object(t, `{"data":{"password":"hunter2"}}`)},
		{Expressions: []string{"data."}},
	}})
	must.Succeed(t, err)
	if m := got[0].Failure.Message; strings.Contains(m, "hunter2") || !strings.Contains(m, "not shown") {
		t.Errorf("the message is %q", m)
	}
	if m := got[1].Failure.Message; !strings.Contains(m, "Syntax error") {
		t.Errorf("the message is %q", m)
	}
}

// TestHostile ends what needs too much memory. Another tenant is served afterwards.
func TestHostile(t *testing.T) {
	evaluator := expressiontest.New(t)
	large := map[string]any{"a": strings.Repeat("a", 1<<20), "b": strings.Repeat("b", 1<<20)}
	deep := strings.Repeat("(", 3000) + "true" + strings.Repeat(")", 3000)
	for name, c := range map[string]struct {
		test expression.Test
		want sandbox.Reason // empty for a failure that the child reports itself
	}{
		"a text that grows":     {expression.Test{[]string{"a.replace('', b) == ''"}, large}, sandbox.ReasonMemory},
		"a list that grows":     {expression.Test{[]string{"[" + strings.Repeat("a,", 1500) + "a].join(a) == ''"}, large}, sandbox.ReasonMemory},
		"a deep expression":     {expression.Test{[]string{deep}, large}, ""},
		"a slow regex":          {expression.Test{[]string{"a.matches('(a*)*(a*)*(a*)*(a*)*c')"}, large}, ""},
		"expressions in a list": {expression.Test{[]string{strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + " == 1"}, large}, ""},
	} {
		got, err := evaluator.Evaluate(t.Context(), expression.Request{Tenant: "hostile", Tests: []expression.Test{c.test}})
		failure, _ := errors.AsType[*sandbox.Error](err)
		switch {
		case c.want != "" && (failure == nil || failure.Reason != c.want):
			t.Errorf("%s: %v, %+v", name, err, got)
		case c.want == "" && (err != nil || got[0].True != -1):
			t.Errorf("%s: %v, %+v", name, err, got)
		}
		got, err = evaluator.Evaluate(t.Context(), expression.Request{Tenant: "honest", Tests: []expression.Test{{[]string{"a == 1"}, map[string]any{"a": 1}}}})
		if err != nil || got[0].True != 0 {
			t.Errorf("after %s: %v, %+v", name, err, got)
		}
	}
}
