package logtail_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/logtail"
)

// TestTail asserts that String returns whole lines, and at most Size bytes.
func TestTail(t *testing.T) {
	end := &logtail.Tail{}
	for n := range 1000 {
		fmt.Fprintf(end, "line %d\n", n)
	}
	got := end.String()
	first, _, _ := strings.Cut(got, "\n")
	if len(got) > logtail.Size || !strings.HasSuffix(got, "\nline 999") || !strings.HasPrefix(first, "line ") {
		t.Errorf("%d bytes from %q", len(got), first)
	}
	io.WriteString(end, strings.Repeat("x", 2*logtail.Size))
	if got := end.String(); got != strings.Repeat("x", logtail.Size) {
		t.Errorf("a line that is too long: %d bytes", len(got))
	}
}
