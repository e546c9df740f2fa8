package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/report"
)

// A demonstration of nothing is no success.
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

// TestAdvice holds what up says at its end: one object is not "all 1 objects", and the metrics' port, which is any free one, is told.
func TestAdvice(t *testing.T) {
	var out bytes.Buffer
	for _, n := range []int{1, 2} {
		fmt.Fprintf(&out, "%s\n%s\n", fetched(n), allGood(n))
	}
	advise(IO{Err: &out, Program: "lanyard"}, upOptions{dir: ".mine", controlPlane: "bin/controlplane"}, "/abs/.mine/cluster/admin.kubeconfig", "http://127.0.0.1:4711")
	golden(t, "advice.golden", out.Bytes())
}
