package rig

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

// Golden compares answers of the local cloud with golden files, byte for byte, so that changed
// answers show up in review.
type Golden struct {
	// Dir is the folder of the golden files. It contains no other files.
	Dir string
	// Update writes the files instead of reading them.
	Update bool
	// Mask hides values that differ from run to run.
	Mask func(string) string

	seen []string
}

// Answer compares an answer's status, headers and body with the named file, and closes the body. It
// leaves out the headers Date and Content-Length, and the values of request IDs.
func (f *Golden) Answer(t *testing.T, name string, res *http.Response) {
	t.Helper()
	body := ReadAll(t, res)
	var dump strings.Builder
	fmt.Fprintf(&dump, "HTTP %d\n", res.StatusCode)
	for _, h := range slices.Sorted(maps.Keys(res.Header)) {
		switch h {
		case "Date", "Content-Length":
		case "X-Amz-Id-2", "X-Amz-Request-Id", "X-Amzn-Requestid", "X-Ms-Request-Id", "X-Ms-Correlation-Request-Id", "Request-Id":
			fmt.Fprintf(&dump, "%s: …\n", h)
		default:
			fmt.Fprintf(&dump, "%s: %s\n", h, strings.Join(res.Header[h], ", "))
		}
	}
	fmt.Fprintf(&dump, "\n%s\n", strings.TrimSuffix(body, "\n"))
	f.Text(t, name, dump.String())
}

// Text compares a text with the named file.
func (f *Golden) Text(t *testing.T, name, got string) {
	t.Helper()
	if slices.Contains(f.seen, name+".golden") {
		t.Errorf("%s names two answers", name)
	}
	f.seen = append(f.seen, name+".golden")
	if f.Mask != nil {
		got = f.Mask(got)
	}
	path := filepath.Join(f.Dir, name+".golden")
	if f.Update {
		must.Succeed(t, os.WriteFile(path, []byte(got), 0o644)) //nolint:gosec // a file of the repository
		return
	}
	want, err := os.ReadFile(path) //nolint:gosec // a file of the repository
	must.Succeed(t, err)
	if string(want) != got {
		t.Errorf("%s\n--- want\n%s--- got\n%s", path, want, got)
	}
}

// Complete fails the test if Dir has a golden file that belongs to no test.
func (f *Golden) Complete(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(f.Dir)
	must.Succeed(t, err)
	for _, e := range entries {
		if !slices.Contains(f.seen, e.Name()) {
			t.Errorf("golden file %s belongs to no test", filepath.Join(f.Dir, e.Name()))
		}
	}
}
