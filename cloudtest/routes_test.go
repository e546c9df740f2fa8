package cloudtest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
)

// TestDocumentedRoutes: the package comment lists exactly the routes of the admin API.
func TestDocumentedRoutes(t *testing.T) {
	c, err := New(Config{})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	var served, documented []string
	for pattern := range c.adminRoutes() {
		served = append(served, pattern)
	}
	text, err := os.ReadFile("doc.go")
	must.Succeed(t, err)
	route := regexp.MustCompile(`(GET|PUT|POST|DELETE) +(/[^\s,?]+)`)
	for line := range strings.Lines(string(text)) {
		found := route.FindAllStringSubmatch(line, -1)
		for _, f := range found {
			documented = append(documented, f[1]+" "+f[2])
		}
		// A line "PUT /path …; DELETE …" has the path once, for both methods.
		if len(found) == 1 && strings.Contains(line, "; DELETE") {
			documented = append(documented, "DELETE "+found[0][2])
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served and documented:\n%s\n\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}
