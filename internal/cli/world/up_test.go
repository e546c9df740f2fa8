package world

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// TestDemonstrated checks that a demonstration fails without objects, or with an unexpected result.
func TestDemonstrated(t *testing.T) {
	good, bad := report.Row{Result: report.Pulled}, report.Row{Result: report.Pending}
	for name, test := range map[string]struct {
		rows []report.Row
		want error
	}{
		"none": {nil, errNothing},
		"all":  {[]report.Row{good, good}, nil},
		"some": {[]report.Row{good, bad}, errNotAsExpected},
		"bad":  {[]report.Row{bad}, errNotAsExpected},
	} {
		if err := demonstrated(test.rows); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUpWithoutIssuer checks that, without the issuer, the built-in manifests that need the issuer
// are left out. No manifest of a user's own folder is left out.
func TestUpWithoutIssuer(t *testing.T) {
	const needing = "issuer.yaml"
	mine := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(mine, needing), nil, 0o600))
	for name, test := range map[string]struct {
		folder, issuer string
		without        bool
	}{
		"with the issuer": {issuer: local.TokenIssuer},
		"without":         {without: true},
		"an own folder":   {folder: mine},
	} {
		workloads, err := local.ChartWorkloads(local.WithIssuer(nil, map[string]any{"issuer": map[string]any{"url": test.issuer}}))
		must.Succeed(t, err)
		o := upOptions{examples: test.folder}
		files, without := o.files(workloads)
		if _, err := fs.Stat(files, needing); without != test.without || errors.Is(err, fs.ErrNotExist) != test.without {
			t.Errorf("%s: left out is %v, and %s has %v", name, without, needing, err)
		}
	}
}

// TestAdvice checks the last messages of up. For one object, up must not say "all 1 objects". The
// advice must have the address of the metrics, because its port is chosen anew each time.
func TestAdvice(t *testing.T) {
	var out bytes.Buffer
	for _, n := range []int{1, 2} {
		fmt.Fprintf(&out, "%s\n%s\n", fetched(n), allGood(n))
	}
	advise(IO{Err: &out, Program: "lanyard"}, upOptions{dir: ".mine", controlPlane: "bin/controlplane"}, "/abs/.mine/cluster/admin.kubeconfig", "http://127.0.0.1:4711")
	golden.Compare(t, "testdata/advice.golden", out.Bytes())
}
