package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// TestExitStatus checks the exit status and the error line for each way in which a command can end.
func TestExitStatus(t *testing.T) {
	signal, verdict := errors.New("interrupt signal received"), errors.New("not as expected")
	for name, tt := range map[string]struct {
		interrupted bool
		err         error
		status      int
		says        string
	}{
		"done":                          {false, nil, 0, ""},
		"failed":                        {false, verdict, frame.Failed, "lanyard: not as expected\n"},
		"failed without a verdict":      {false, frame.Undecide(verdict), frame.Undecided, "lanyard: not as expected\n"},
		"interrupted":                   {true, fmt.Errorf("start: %w", signal), frame.Interrupted, "lanyard: interrupted\n"},
		"interrupted request":           {true, fmt.Errorf("get: %w", context.Canceled), frame.Interrupted, "lanyard: interrupted\n"},
		"stopped in order":              {true, nil, 0, ""},
		"stopped with a bad verdict":    {true, verdict, frame.Failed, "lanyard: not as expected\n"},
		"canceled, but not by the user": {false, context.Canceled, frame.Failed, "lanyard: context canceled\n"},
		"several, one by the interrupt": {true, errors.Join(verdict, signal), frame.Interrupted, "lanyard: interrupted\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			root := &cobra.Command{Use: frame.Name}
			root.AddCommand(&cobra.Command{Use: "run", RunE: func(*cobra.Command, []string) error {
				if tt.interrupted {
					stop(signal)
				}
				return tt.err
			}})
			var out, errs bytes.Buffer
			if status := frame.Run(ctx, root, []string{"run"}, &out, &errs); status != tt.status || errs.String() != tt.says {
				t.Errorf("status %d, says %q", status, errs.String())
			}
		})
	}
}
