package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	infrav1 "github.com/lanyard-dev/lanyard/api/infrastructure/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// startTimeout bounds the time until all AWSClusters are ready.
	startTimeout = 30 * time.Minute
	// scrapeTimeout bounds one reading of metrics.
	scrapeTimeout = 30 * time.Second
)

// result is the result of one run.
type result struct {
	clusters, identities int

	start          time.Duration // until all AWSClusters were ready
	startExchanges int           // granted calls of AssumeRole until then
	untilReady     metrics.Process

	rest   time.Duration // the time in which the following was counted
	atRest metrics.Process

	lifeExchanges int // granted calls of AssumeRole while each credential was refreshed once
	allCalls      int // of AWS STS, in the whole run
	early         int // exchanges for a role whose last credential was not due yet
}

func measure(ctx context.Context, s settings, n int, progress io.Writer) (_ result, err error) {
	w, stop, err := newWorld(ctx, s, n)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	_, _ = fmt.Fprintln(progress, "  objects are created; the controller starts")
	return w.measure(ctx, progress)
}

func (w *world) measure(ctx context.Context, progress io.Writer) (result, error) {
	own := &http.Client{Transport: &http.Transport{}, Timeout: scrapeTimeout} // no proxy
	defer own.CloseIdleConnections()
	r := result{clusters: w.n, identities: w.settings.identities, rest: w.settings.rest}

	begin := time.Now()
	controller, err := w.StartProgram(ctx, local.ProgramOptions{Workload: "lanyard-identity-controller", Binary: w.settings.controller})
	if err != nil {
		return r, err
	}
	if err := w.awaitReady(ctx, own, controller); err != nil {
		return r, err
	}
	r.start, r.startExchanges = time.Since(begin), len(w.exchanges(0))
	ready := w.Cloud().Journal().Last()
	if r.untilReady, err = metrics.ScrapeProcess(ctx, own, controller.URL("metrics")); err != nil {
		return r, err
	}
	_, _ = fmt.Fprintf(progress, "  all are ready after %s and %d exchanges; watching\n", r.start.Round(time.Second), r.startExchanges)

	// What the start left to do: the identities' counts of their users.
	if err := fleet.Sleep(ctx, time.Minute); err != nil {
		return r, err
	}
	before, err := metrics.ScrapeProcess(ctx, own, controller.URL("metrics"))
	if err != nil {
		return r, err
	}
	if err := fleet.Sleep(ctx, r.rest); err != nil {
		return r, err
	}
	after, err := metrics.ScrapeProcess(ctx, own, controller.URL("metrics"))
	if err != nil {
		return r, err
	}
	r.atRest = after.Since(before)

	if err := w.watchRefreshes(ctx, ready, &r); err != nil {
		return r, err
	}
	return r, r.check(w.settings.earliestDue())
}

// awaitReady waits until all AWSClusters are ready. To list them is a load of its own, so they are
// listed only when the controller has looked at as many as there are.
func (w *world) awaitReady(ctx context.Context, own *http.Client, controller *local.Program) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not all AWSClusters were ready within %s", startTimeout))
	defer cancel()
	for {
		if err := w.Err(); err != nil {
			return err
		}
		samples, err := metrics.Scrape(ctx, own, controller.URL("metrics"))
		if err != nil {
			return err
		}
		looked := samples.Sum("controller_runtime_reconcile_total", `controller="awscluster"`)
		if looked >= float64(w.n) {
			ready, err := fleet.Ready(ctx, w.Client(), &infrav1.AWSClusterList{})
			if err != nil || ready == w.n {
				return err
			}
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%.0f of %d AWSClusters were looked at: %w", looked, w.n, err)
		}
	}
}

// watchRefreshes uses all credentials until each was refreshed after that place of the journal, and
// counts.
func (w *world) watchRefreshes(ctx context.Context, begin uint64, r *result) error {
	using, cancel := context.WithCancel(ctx)
	defer cancel()
	group, using := errgroup.WithContext(using)
	group.Go(func() error { return w.poke(using) })
	group.Go(func() error {
		defer cancel()
		return w.awaitRefreshes(using, begin)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if lost := w.Cloud().Journal().Dropped(); lost > 0 {
		return fmt.Errorf("the journal has forgotten %d calls", lost)
	}
	r.lifeExchanges = len(w.exchanges(begin))
	r.allCalls = len(w.Cloud().Journal().Calls(journal.Filter{Service: "sts"}))
	r.early = early(w.exchanges(0), w.settings.earliestDue())
	return nil
}

// awaitRefreshes waits until each role was assumed after that place of the journal.
func (w *world) awaitRefreshes(ctx context.Context, after uint64) error {
	longest := w.settings.tokenLife + 2*pokeEvery
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not all credentials were refreshed within %s", longest))
	defer cancel()
	for {
		refreshed := map[string]bool{}
		for _, call := range w.exchanges(after) {
			refreshed[call.Role] = true
		}
		if len(refreshed) == w.settings.identities {
			return nil
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d credentials are refreshed: %w", len(refreshed), w.settings.identities, err)
		}
	}
}

// exchanges are the granted calls of AssumeRole after a place of the journal, the oldest first.
func (w *world) exchanges(after uint64) []journal.Call {
	return w.Cloud().Journal().Calls(journal.Filter{Service: "sts", Operation: "AssumeRole", Verdict: journal.Granted, After: after})
}

// early counts the exchanges for a role that came sooner after the one before than a credential can
// be due.
func early(exchanges []journal.Call, due time.Duration) int {
	n, last := 0, map[string]time.Time{}
	for _, call := range exchanges {
		if before, known := last[call.Role]; known && call.Time.Sub(before) < due {
			n++
		}
		last[call.Role] = call.Time
	}
	return n
}

// check fails if there was an exchange too many. After a start that takes longer than a
// credential's life, the first refreshes are among those of the start.
func (r result) check(earliestDue time.Duration) error {
	switch {
	case r.early > 0:
		return fmt.Errorf("%d exchanges for %d identities, %d of them before a credential was due", r.startExchanges+r.lifeExchanges, r.identities, r.early)
	case r.start < earliestDue && r.startExchanges != r.identities:
		return fmt.Errorf("%d exchanges at the start for %d identities", r.startExchanges, r.identities)
	default:
		return nil
	}
}
