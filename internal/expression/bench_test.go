package expression_test

import (
	"encoding/json"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/expression/expressiontest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// BenchmarkEvaluate evaluates a condition of one object in a child that has served before.
func BenchmarkEvaluate(b *testing.B) {
	evaluator := expressiontest.New(b)
	var o map[string]any
	must.Succeed(b, json.Unmarshal([]byte(`{"status":{"conditions":[{"type":"Synced","status":"True"}]}}`), &o))
	request := expression.Request{Tenant: "a", Tests: []expression.Test{{Expressions: []string{"status.conditions.filter(e, e.type == 'Synced').all(e, e.status == 'True')"}, Variables: o}}}
	for b.Loop() {
		got, err := evaluator.Evaluate(b.Context(), request)
		must.Succeed(b, err)
		if got[0].True != 0 {
			b.Fatal(got)
		}
	}
}
