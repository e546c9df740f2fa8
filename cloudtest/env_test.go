package cloudtest_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestEnvironment(t *testing.T) {
	files := rig.Golden{Dir: filepath.Join("testdata", "env"), Update: *update}
	files.Text(t, "env", strings.Join(cloudtest.Env("http://127.0.0.1:3128", "/run/ca.pem"), "\n")+"\n")
	files.Complete(t)
}
