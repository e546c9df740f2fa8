//go:build !concurrent

// These tests start no goroutine. The race detector would only slow them down, so dev/unit-tests
// runs them without it.

package flags_test

import (
	"io"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/controller/kustomization/flags"
	"github.com/lanyard-dev/lanyard/internal/golden"
)

func required(more ...string) []string {
	return append([]string{"--namespace=lanyard-system", "--artifact-hosts=lanyard-controller.lanyard-system.svc.cluster.local"}, more...)
}

func TestHelpIsGolden(t *testing.T) {
	var out strings.Builder
	if _, done, err := flags.Parse([]string{"--help"}, "", &out); !done || err != nil {
		t.Fatal(done, err)
	}
	golden.Compare(t, "testdata/help.txt", []byte(out.String()))
}

func TestDefaults(t *testing.T) {
	f, done, err := flags.Parse(required(), "", io.Discard)
	if done || err != nil {
		t.Fatal(done, err)
	}
	if f.BuildConcurrent != 2 || f.BuildMaxMemory != 256<<20 || f.ArtifactMaxSize != 32<<20 || f.DefaultServiceAccount != "" || f.LeaderElectID != flags.Name {
		t.Errorf("%+v", f)
	}
}

// TestRefusedFlags checks that each error names the flag.
func TestRefusedFlags(t *testing.T) {
	for _, wrong := range []string{
		"--namespace=", "--artifact-hosts=http://host/path", "--leader-elect-id=", "--concurrent=0", "--default-service-account=A_B", "--artifact-max-size=0",
		"--build-concurrent=0", "--build-max-memory=1Mi", "--build-timeout=0s", "--build-max-objects=0", "--build-max-memory=lots",
	} {
		name, _, _ := strings.Cut(wrong, "=")
		if _, _, err := flags.Parse(required(wrong), "", io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, _, err := flags.Parse([]string{"--namespace=lanyard-system"}, "", io.Discard); err == nil || !strings.Contains(err.Error(), "--artifact-hosts is required") {
		t.Errorf("no hosts: %v", err)
	}
}
