package stage

import (
	"testing"
)

// TestJudge asserts that judge returns all errors that the judged function reports, and that Fatalf
// ends this function.
func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		look func(tb testing.TB)
		want string
	}{
		"nothing": {func(testing.TB) {}, ""},
		"errors":  {func(tb testing.TB) { tb.Helper(); tb.Error("first ", 1); tb.Errorf("second %d", 2) }, "first 1\nsecond 2"},
		"fatal":   {func(tb testing.TB) { tb.Helper(); tb.Fatalf("the %s", "end"); tb.Error("never") }, "the end"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := judge(t.Context(), tt.look); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
