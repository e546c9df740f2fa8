package cli

import (
	"errors"
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
