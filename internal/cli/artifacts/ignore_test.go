package artifacts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIgnoreFileHasAnEnd checks that a push refuses a file .sourceignore that has no end, or is too
// long to read.
func TestIgnoreFileHasAnEnd(t *testing.T) {
	endless := folder(t, map[string]string{"app.yaml": "1"})
	if err := os.Symlink("/dev/zero", filepath.Join(endless, ".sourceignore")); err != nil {
		t.Fatal(err)
	}
	long := folder(t, map[string]string{"app.yaml": "1", ".sourceignore": strings.Repeat("a", 1<<20+1)})
	for path, refusal := range map[string]string{endless: "is no file with patterns", long: "has at most 1048576"} {
		var c process
		if status := c.run(t.Context(), "push", "artifact", "oci://registry.example.com/app:1.0.0", "--path", path); status != 1 || !strings.Contains(c.err.String(), refusal) {
			t.Errorf("status %d: %q; want %q", status, c.err.String(), refusal)
		}
	}
}
