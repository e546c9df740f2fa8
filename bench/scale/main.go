// Command scale measures one controller with ever more objects, in a real control plane and against the local cloud, under the chart's
// RBAC:
//
//	scale --objects 100,1000,10000
//
// Ten objects share a ServiceAccount, and each ServiceAccount has a role of its own. It prints a table in Markdown, which stands in
// docs/scale.md. It is no test: a busy machine must not fail a build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// settings are what the run is made of.
type settings struct {
	controlPlane, controller string
	sizes                    []int
	// interval is spec.interval of all objects.
	interval time.Duration
	// tokenLife is --token-cache-max-duration: it makes refreshes come in minutes instead of an hour.
	tokenLife time.Duration
	// refreshes is how often each token becomes due in the window.
	refreshes int
	// window is how long the controller is watched at rest: as long as the refreshes take.
	window time.Duration
}

// due is the age at which a token in use is got anew: four fifths of its life.
func (s *settings) due() time.Duration { return s.tokenLife * 4 / 5 }

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.controller, "controller", "bin/lanyard-controller", "the controller's program")
	sizes := flag.String("objects", "100,1000,10000", "numbers of objects, one run each")
	flag.DurationVar(&s.interval, "interval", time.Minute, "interval of each object")
	flag.DurationVar(&s.tokenLife, "token-life", 5*time.Minute, "time after which a token is got anew at the latest")
	flag.IntVar(&s.refreshes, "refreshes", 2, "how often each token becomes due while the controller is watched at rest")
	flag.Parse()
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := s.parse(*sizes)
	if err == nil {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func (s *settings) parse(sizes string) error {
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < objectsPerAccount {
			return fmt.Errorf("--objects: %q is no number from %d on", text, objectsPerAccount)
		}
		s.sizes = append(s.sizes, n)
	}
	if s.interval > s.tokenLife-s.due() {
		return errors.New("--interval is longer than a fifth of --token-life: tokens would end unused, and refreshes could not be counted")
	}
	if s.refreshes < 1 {
		return errors.New("--refreshes is less than 1: nothing would be counted")
	}
	s.window = time.Duration(s.refreshes) * s.due()
	return nil
}

func run(ctx context.Context, s settings, out, progress io.Writer) error {
	var results []result
	for _, n := range s.sizes {
		_, _ = fmt.Fprintf(progress, "%d objects\n", n)
		r, err := measure(ctx, s, n, progress)
		if err != nil {
			err = fmt.Errorf("%d objects: %w", n, err)
			if len(results) > 0 {
				err = errors.Join(err, table(out, results)) // what was measured took long: it is not lost
			}
			return err
		}
		results = append(results, r)
	}
	return table(out, results)
}

// table prints a column for each size, since people compare sizes.
func table(w io.Writer, results []result) error {
	var b strings.Builder
	row := func(name string, cell func(result) string) {
		b.WriteString("| " + name)
		for _, r := range results {
			b.WriteString(" | " + cell(r))
		}
		b.WriteString(" |\n")
	}
	row("objects", func(r result) string { return strconv.Itoa(r.objects) })
	row("---", func(result) string { return "---:" })
	row("identities (ServiceAccounts, each with a role)", func(r result) string { return strconv.Itoa(r.identities) })
	row("start: all objects pulled after", func(r result) string { return r.start.Round(time.Second / 10).String() })
	row("start: calls to the Kubernetes API per object", func(r result) string { return fmt.Sprintf("%.1f", float64(r.startAPI)/float64(r.objects)) })
	row("at rest: resident memory", func(r result) string { return fmt.Sprintf("%.0f MiB", r.resident/(1<<20)) })
	row("at rest: Go heap in use", func(r result) string { return fmt.Sprintf("%.0f MiB", r.heap/(1<<20)) })
	row("at rest: CPU", func(r result) string { return fmt.Sprintf("%.1f %% of a core", 100*r.cpu.Seconds()/r.window.Seconds()) })
	row("at rest: reconciliations per second", func(r result) string { return fmt.Sprintf("%.1f", r.reconciliations/r.window.Seconds()) })
	row("at rest: CPU per reconciliation", func(r result) string {
		return (r.cpu / time.Duration(max(1, r.reconciliations))).Round(10 * time.Microsecond).String()
	})
	row("at rest: calls to the Kubernetes API per minute", func(r result) string { return fmt.Sprintf("%.1f", r.api/r.window.Minutes()) })
	row("… of them for proofs (read an account, request its token)", func(r result) string { return fmt.Sprintf("%.1f", r.apiForTokens/r.window.Minutes()) })
	row("at rest: exchanges at AWS STS", func(r result) string { return fmt.Sprintf("%.0f", r.exchanges) })
	row("at rest: exchanges that were due", func(r result) string { return fmt.Sprintf("%.0f", r.needed) })
	row("at rest: exchanges for each one due", func(r result) string { return fmt.Sprintf("%.3f", r.perNeeded()) })
	_, err := io.WriteString(w, b.String())
	return err
}
