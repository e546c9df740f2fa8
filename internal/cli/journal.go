package cli

import (
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
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// watchInterval is the pause between two looks into a journal that is watched.
const watchInterval = 500 * time.Millisecond

func newCloudJournal(std IO) *cobra.Command {
	var dir, verdict string
	var filter journal.Filter
	var watch bool
	c := &cobra.Command{
		Use:   "journal",
		Short: "List the calls that the local cloud got, with its verdicts",
		Long: `List the calls that the local cloud got, oldest first, with its verdicts.

For a call that was refused, WHY names the condition that failed, which the caller is not told. A call to a host that the
cloud does not know is listed too.`,
		Example: `  # What was refused, and why
  lanyard cloud journal --verdict refused

  # How many sessions one ServiceAccount was given
  lanyard cloud journal --service sts --subject system:serviceaccount:tenant-a:tenant-a-ecr-sa

  # Go on with new calls as they come
  lanyard cloud journal --watch`,
	}
	output := outputFlag(c, formatTable, formatJSON, formatYAML)
	dirFlag(c, &dir, "folder of the lanyard up or lanyard cloud that runs")
	flags := c.Flags()
	flags.StringVar(&verdict, "verdict", "", "only calls that were granted, or refused")
	flags.StringVar(&filter.Service, "service", "", "only this service: "+strings.Join(cloudtest.Services(), ", "))
	flags.StringVar(&filter.Operation, "operation", "", "only this operation, such as AssumeRoleWithWebIdentity")
	flags.StringVar(&filter.Subject, "subject", "", "only calls with a token of this subject")
	flags.StringVar(&filter.Role, "role", "", "only calls that ask for this identity: a role's ARN, a client ID, a service account")
	flags.BoolVarP(&watch, "watch", "w", false, "go on with new calls; with the format table")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch filter.Verdict = journal.Verdict(verdict); filter.Verdict {
		case journal.Any, journal.Granted, journal.Refused:
		default:
			return &usageError{c.CommandPath(), fmt.Errorf("--verdict: write %s or %s", journal.Granted, journal.Refused)}
		}
		if filter.Service != "" && !slices.Contains(cloudtest.Services(), filter.Service) {
			return &usageError{c.CommandPath(), fmt.Errorf("--service: write one of %s", strings.Join(cloudtest.Services(), ", "))}
		}
		if watch && output.value != formatTable {
			return &usageError{c.CommandPath(), errors.New("--watch is for the format table")}
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
		switch output.value {
		case formatJSON:
			return writeJSON(std.Out, page.Calls)
		case formatYAML:
			return writeYAML(std.Out, page.Calls)
		}
		if err := writeCalls(std.Out, page.Calls, true); err != nil || !watch {
			return err
		}
		return watchCalls(c.Context(), std.Out, admin, filter, page.Last)
	}
	return c
}

// watchCalls writes new calls until ctx ends, which is how it is meant to end.
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

// maxCell bounds what a caller can make of a column that others stand behind, in runes; the formats json and yaml shorten nothing.
const maxCell = 80

// callFormat fixes the columns' widths in a table that grows, so that later lines stand under earlier ones.
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
		_, _ = fmt.Fprintf(t, callFormat, c.Time.Format("15:04:05.000"), cell(callName(c)), cell(caller(c)), report.Plain(verdict), report.Plain(about(c)))
	}
	return t.Flush()
}

func cell(s string) string { return report.Shorten(report.Plain(s), maxCell) }

func callName(c journal.Call) string {
	service := c.Service
	if service == journal.ServiceHandler || service == journal.ServiceProxy {
		service = c.Host
	}
	operation := c.Operation
	if operation == "" {
		operation = "-"
	}
	if strings.HasPrefix(operation, service+":") || strings.HasPrefix(operation, "ecr") {
		return operation
	}
	return service + ":" + operation
}

func caller(c journal.Call) string {
	switch {
	case c.Principal != "":
		return report.Short(c.Principal)
	case c.Subject != "":
		return c.Subject
	default:
		return "-"
	}
}

func about(c journal.Call) string {
	switch {
	case c.Reason != "":
		return c.Reason
	case c.Role != "":
		return report.Short(c.Role)
	default:
		return report.Short(c.Resource)
	}
}
