package expression

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestDecode refuses answers that no honest child gives.
func TestDecode(t *testing.T) {
	tests := []Test{{Expressions: []string{"a", "b"}}}
	if got, err := decode([]byte(`[{"true":1}]`), tests); err != nil || got[0].True != 1 {
		t.Errorf("an honest answer: %v, %v", got, err)
	}
	for _, answer := range []string{
		"", "null", "[]", `[{"true":2}]`, `[{"true":-2}]`, `[{"true":0},{"true":0}]`, `[{"true":-1,"failure":{"index":2}}]`,
		`[{"true":0,"failure":{"index":0}}]`, `[{"true":-1,"failure":{"index":-1}}]`, strings.Repeat(" ", 5000) + `[{"true":1}]`,
	} {
		if got, err := decode([]byte(answer), tests); err == nil {
			t.Errorf("%.100q gives %+v", answer, got)
		}
	}
	long, err := decode(fmt.Appendf(nil, `[{"true":-1,"failure":{"index":0,"message":%q}}]`, strings.Repeat("x", 2000)+"\n"), tests)
	if err != nil || len(long[0].Failure.Message) > maxMessage {
		t.Errorf("a long message: %v, %v", long, err)
	}
}

// FuzzEvaluate gives a child's function arbitrary expressions and objects.
func FuzzEvaluate(f *testing.F) {
	for _, text := range []string{"status.conditions.all(e, e.status == 'True')", "has(a.b)", "a.?b.orValue(1) == 2", "'x'.replace('', 'y')", "timestamp('x')"} {
		f.Add(text, `{"a":{"b":1},"status":{"conditions":[{"status":"True"}]}}`)
	}
	var server Server
	f.Fuzz(func(t *testing.T, text, variables string) {
		if len(text) > 200 || len(variables) > 200 || !json.Valid([]byte(variables)) {
			return
		}
		content, err := json.Marshal([]wireTest{{Expressions: []string{text, "true"}, Variables: json.RawMessage(variables)}})
		must.Succeed(t, err)
		got, err := decode(server.Serve(t.Context(), content), []Test{{Expressions: []string{text, "true"}}})
		if err != nil || len(got) != 1 {
			t.Fatalf("%q gives %v, %v", text, got, err)
		}
	})
}
