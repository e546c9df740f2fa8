package flux

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Modules of Flux whose documentation and test tables are read as text. They are too large for
// go.mod. The versions of two modules are fixed here, because later versions need a newer Go than
// this module.
const (
	sourceController    = "github.com/fluxcd/source-controller"
	imageReflector      = "github.com/fluxcd/image-reflector-controller@v1.2.4"
	kustomizeController = "github.com/fluxcd/kustomize-controller@v1.9.6"
)

// module downloads a module and returns its folder. If path has no version, module uses the version
// that go.mod has for path/api.
func module(t *testing.T, path string) string {
	t.Helper()
	if !strings.Contains(path, "@") {
		path += "@" + strings.TrimSpace(output(t, "list", "-m", "-f", "{{.Version}}", path+"/api"))
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, "mod", "download", "-json", path)), &downloaded); err != nil {
		t.Fatal(err)
	}
	return downloaded.Dir
}

// output returns the standard output of a go command.
func output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
