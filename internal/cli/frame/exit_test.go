package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/internal/must"
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
		"failed":                        {false, verdict, Failed, "lanyard: not as expected\n"},
		"failed without a verdict":      {false, Undecide(verdict), Undecided, "lanyard: not as expected\n"},
		"interrupted":                   {true, fmt.Errorf("start: %w", signal), Interrupted, "lanyard: interrupted\n"},
		"interrupted request":           {true, fmt.Errorf("get: %w", context.Canceled), Interrupted, "lanyard: interrupted\n"},
		"stopped in order":              {true, nil, 0, ""},
		"stopped with a bad verdict":    {true, verdict, Failed, "lanyard: not as expected\n"},
		"canceled, but not by the user": {false, context.Canceled, Failed, "lanyard: context canceled\n"},
		"several, one by the interrupt": {true, errors.Join(verdict, signal), Interrupted, "lanyard: interrupted\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			root := &cobra.Command{Use: Name}
			root.AddCommand(&cobra.Command{Use: "run", RunE: func(*cobra.Command, []string) error {
				if tt.interrupted {
					stop(signal)
				}
				return tt.err
			}})
			var out, errs bytes.Buffer
			if status := Run(ctx, root, []string{"run"}, &out, &errs); status != tt.status || errs.String() != tt.says {
				t.Errorf("status %d, says %q", status, errs.String())
			}
		})
	}
}

// TestTerminal checks that progress is shown on terminals, and not on other devices.
func TestTerminal(t *testing.T) {
	for path, want := range map[string]bool{"/dev/null": false, "/dev/ptmx": true} {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		must.Succeed(t, err)
		if got := IsTerminal(file, "xterm"); got != want {
			t.Errorf("%s is a terminal: %v", path, got)
		}
		if IsTerminal(file, "dumb") {
			t.Errorf("%s can overwrite a line although TERM is dumb", path)
		}
		must.Succeed(t, file.Close())
	}
}
