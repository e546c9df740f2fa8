package stage

import "testing"

func TestPatterns(t *testing.T) {
	patterns := NewPatterns("ab[0-9]+c", "x-(y|z)$")
	for text, want := range map[string]int{
		"": -1, "ab": -1, "abc": -1, "ab12c": 0, "ab12, ab3cab4c": 6, "ab ab ab1 ab5c": 10, "x-y ": -1, "x-": -1, "x-y x-z": 4, "a x-z ab1c": 6,
	} {
		if got := patterns.Find(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := patterns[0].Find("ab1c ab2c ab3", 1); got != 5 {
		t.Errorf("the second match is at %d, want 5", got)
	}
	if got := patterns[0].Find("ab1c ab2c ab3", 6); got != -1 {
		t.Errorf("a third match is at %d, want none", got)
	}
}
