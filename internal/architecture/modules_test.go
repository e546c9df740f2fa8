package architecture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestModulesAgree checks that all modules of the repository use one version of what they share.
// With two versions, everything above the shared module is compiled twice, and what tests run is
// not what is shipped.
func TestModulesAgree(t *testing.T) {
	// Flux's library, which bench measures, needs newer ones of Google's client.
	newer := []string{
		"cloud.google.com/go/auth", "github.com/googleapis/enterprise-certificate-proxy", "github.com/googleapis/gax-go/v2",
		"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc", "google.golang.org/api",
	}
	type use struct{ version, module string }
	uses := map[string]use{}
	for _, module := range []string{".", "api", "auth", "cloudtest", "test/e2e", "test/flux", "dev/controlplane", "bench"} {
		text, err := os.ReadFile(filepath.Join("..", "..", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(strings.TrimPrefix(line, "require "))
			if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") || strings.Contains(line, "=>") {
				continue
			}
			path, version := fields[0], fields[1]
			first, known := uses[path]
			switch {
			case !known:
				uses[path] = use{version, module}
			case version != first.version && (module != "bench" || !slices.Contains(newer, path)):
				t.Errorf("%s/go.mod has %s %s, and %s/go.mod has %s: use the newer one in both", module, path, version, first.module, first.version)
			}
		}
	}
	if len(uses) < 100 {
		t.Errorf("only %d modules were found: the test looks in the wrong place", len(uses))
	}
}
