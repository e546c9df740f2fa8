package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/plain"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// watchInterval is the pause between two reads of a watched journal.
const watchInterval = 500 * time.Millisecond

func newCloudJournal(std IO) *cobra.Command {
	var dir string
	var filter journal.Filter
	var watch bool
	c := &cobra.Command{
		Use:   "journal",
		Short: "List the calls to the local cloud, with its verdicts",
		Long: `List the calls to the local cloud with its verdicts, oldest first.

For a refused call, WHY names the condition that failed. The caller does not get this reason. Calls to hosts that the
cloud does not know are listed too.`,
		Example: `  # Refused calls, with the reason
  lanyard cloud journal --verdict refused

  # The sessions of one ServiceAccount
  lanyard cloud journal --service sts --subject system:serviceaccount:tenant-a:tenant-a-ecr-sa

  # Follow new calls
  lanyard cloud journal --watch`,
	}
	output := frame.OutputFlag(c, frame.Table, frame.JSON, frame.YAML)
	dirFlag(c, &dir, "folder of the running lanyard up or lanyard cloud")
	flags := c.Flags()
	flags.StringVar((*string)(&filter.Verdict), "verdict", "", "only calls with this verdict: granted or refused")
	flags.StringVar(&filter.Service, "service", "", "only this service: "+strings.Join(cloudtest.Services(), ", "))
	flags.StringVar(&filter.Operation, "operation", "", "only this operation, such as AssumeRoleWithWebIdentity")
	flags.StringVar(&filter.Subject, "subject", "", "only calls with a token of this subject")
	flags.StringVar(&filter.Role, "role", "", "only calls that ask for this identity: a role's ARN, a client ID, a service account")
	frame.CompleteValues(c, "verdict", string(journal.Granted), string(journal.Refused))
	frame.CompleteValues(c, "service", cloudtest.Services()...)
	// The values come from the cloud's callers, and are not file names.
	frame.CompleteNothing(c, "operation", "subject", "role")
	flags.BoolVarP(&watch, "watch", "w", false, "follow new calls; only with the format table")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !slices.Contains([]journal.Verdict{journal.Any, journal.Granted, journal.Refused}, filter.Verdict) {
			return frame.UsageError(c, fmt.Errorf("--verdict: write %s or %s", journal.Granted, journal.Refused))
		}
		if filter.Service != "" && !slices.Contains(cloudtest.Services(), filter.Service) {
			return frame.UsageError(c, fmt.Errorf("--service: write one of %s", strings.Join(cloudtest.Services(), ", ")))
		}
		if watch && output.String() != frame.Table {
			return frame.UsageError(c, errors.New("--watch works only with the format table"))
		}
		state, err := local.ReadCloud(c.Context(), dir)
		if err != nil {
			return err
		}
		admin := &cloudtest.Admin{URL: state.ProxyURL}
		page, err := admin.Journal(c.Context(), filter)
		if err != nil {
			return err
		}
		if page.Dropped > 0 {
			_, _ = fmt.Fprintf(std.Err, "The oldest %d calls are no longer kept.\n", page.Dropped)
		}
		err = frame.Write(std.Out, output, page.Calls, func(w io.Writer) error { return writeCalls(w, page.Calls, true) })
		if err != nil || !watch {
			return err
		}
		return watchCalls(c.Context(), std.Out, admin, filter, page.Last)
	}
	return c
}

// watchCalls writes new calls until ctx ends; that end is no error.
func watchCalls(ctx context.Context, w io.Writer, admin *cloudtest.Admin, filter journal.Filter, after uint64) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		filter.After = after
		page, err := admin.Journal(ctx, filter)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the cloud has ended: %w", err)
		}
		after = page.Last
		if err := writeCalls(w, page.Calls, false); err != nil {
			return err
		}
	}
}

// maxCell is the largest width, in runes, of a column whose text comes from a caller. The formats
// json and yaml shorten nothing.
const maxCell = 80

// callFormat fixes the columns' widths in a table that grows, so that the columns of later lines
// are aligned with those of earlier lines.
const callFormat = "%s\t%-36s\t%-52s\t%-22s\t%s\n"

func writeCalls(w io.Writer, calls []journal.Call, titles bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if titles {
		_, _ = fmt.Fprintf(t, callFormat, "TIME        ", "CALL", "WHO", "VERDICT", "WHY") // Flush reports errors
	}
	for _, c := range calls {
		verdict := "granted"
		if !c.Granted() {
			verdict = strings.TrimSpace(fmt.Sprintf("%d %s", c.Status, c.Code))
		}
		_, _ = fmt.Fprintf(t, callFormat, c.Time.Format("15:04:05.000"), cell(callName(c)), cell(caller(c)),
			plain.Text(verdict), plain.Text(about(c)))
	}
	return t.Flush()
}

func cell(s string) string { return report.Shorten(plain.Text(s), maxCell) }

func callName(c journal.Call) string {
	service := c.Service
	if service == journal.ServiceHandler || service == journal.ServiceProxy {
		service = c.Host
	}
	operation := cmp.Or(c.Operation, "-")
	if strings.HasPrefix(operation, service+":") || strings.HasPrefix(operation, "ecr") {
		return operation
	}
	return service + ":" + operation
}

func caller(c journal.Call) string { return cmp.Or(report.Short(c.Principal), c.Subject, "-") }

func about(c journal.Call) string { return cmp.Or(c.Reason, report.Short(cmp.Or(c.Role, c.Resource))) }
