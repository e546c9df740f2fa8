package flux

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// Modules of Flux whose documentation and test tables are read as text. They are too large to
// require. The module proxy has no later image-reflector-controller for our version of Go.
const (
	sourceController = "github.com/fluxcd/source-controller"
	imageReflector   = "github.com/fluxcd/image-reflector-controller@v1.2.4"
)

// module returns the folder of a module. Without a version, the version is that of the module's
// types, which these tests require.
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

// output is what the go command prints.
func output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
