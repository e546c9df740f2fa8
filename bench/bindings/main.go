// Command bindings measures the identity controller with ever more WorkloadIdentityBindings, in a
// real control plane and under the chart's RBAC:
//
//	bindings --bindings 100,1000,10000
//
// Each binding has an identity and a Secret of its own. Calls are counted from the API server's
// audit log. The output is a table of docs/scale.md, in Markdown. The command fails if the
// controller writes more than it should; it is not a test otherwise: a busy machine must not fail a
// build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lanyard-dev/lanyard/bench/internal/series"
)

// settings are the settings of a run.
type settings struct {
	controlPlane, programs string
	sizes                  []int
	// life is how long tokens live at rest. During the start and the restart, they live an hour.
	life time.Duration
	// renewals is how often each credential becomes due while the controller is watched at rest.
	renewals int
}

// window is how long the controller is watched at rest: credentials are renewed after half of their
// life.
func (s *settings) window() time.Duration { return time.Duration(s.renewals) * s.life / 2 }

// restLife is the life of the tokens at rest, unless told otherwise, and longestLife the longest
// that differs enough from their life before.
const (
	restLife    = 10 * time.Minute
	longestLife = 45 * time.Minute
)

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "../bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.programs, "programs", "../bin", "folder of Lanyard's programs")
	flag.DurationVar(&s.life, "token-life", restLife, "life of the tokens while the controller is watched at rest")
	flag.IntVar(&s.renewals, "renewals", 2, "how often each credential becomes due while the controller is watched at rest")
	sizes := flag.String("bindings", "100,1000,10000", "numbers of bindings, one run each")
	flag.Parse()
	series.Main(context.Background(), "bindings", func(ctx context.Context) error {
		if err := s.parse(*sizes); err != nil {
			return err
		}
		return series.Measure(s.sizes, "bindings", func(n int) (result, error) { return measure(ctx, s, n, os.Stderr) }, table)
	})
}

func (s *settings) parse(sizes string) (err error) {
	if s.sizes, err = series.Sizes("bindings", sizes, 1); err != nil {
		return err
	}
	if s.life < time.Minute || s.life > longestLife {
		return fmt.Errorf("--token-life is %s, and must be from 1m to %s", s.life, longestLife)
	}
	if s.renewals < 1 {
		return errors.New("--renewals is less than 1: nothing would be counted")
	}
	return nil
}

// table prints a column for each size, because people compare sizes.
func table(t *series.Table[result]) {
	seconds := func(of func(result) time.Duration) func(result) string { return series.Seconds(time.Second/10, of) }
	perRenewal := func(of func(calls) int) func(result) string {
		return func(r result) string { return fmt.Sprintf("%.3f", float64(of(r.atRest))/float64(r.atRest.renewals())) }
	}
	ofCore := func(of func(result) time.Duration) func(result) string {
		return func(r result) string { return fmt.Sprintf("%.1f %% of a core", 100*of(r).Seconds()/r.window.Seconds()) }
	}
	t.Head("bindings, each with an identity and a Secret", series.Count(func(r result) int { return r.bindings }))
	t.Row("start: all Secrets written after", seconds(func(r result) time.Duration { return r.start }))
	t.Row("restart: all Secrets read after", seconds(func(r result) time.Duration { return r.restart }))
	t.Row("restart: writes of Secrets and bindings", series.Count(func(r result) int { return r.atRestart.written() }))
	t.Row("all identities changed: all credentials renewed after", seconds(func(r result) time.Duration { return r.renewal }))
	t.Row("at rest: watched for", seconds(func(r result) time.Duration { return r.window }))
	t.Row("at rest: renewals", series.Count(func(r result) int { return r.atRest.renewals() }))
	t.Row("at rest: longest delay of a renewal", seconds(func(r result) time.Duration { return r.late }))
	t.Row("at rest: writes of the Secret per renewal", perRenewal(calls.secrets))
	t.Row("at rest: writes of the binding's status per renewal", perRenewal(calls.statuses))
	t.Row("at rest: all other writes of the controller, without its lease", series.Count(func(r result) int { return r.atRest.others() }))
	t.Row("at rest: calls to the Kubernetes API per renewal", perRenewal(calls.all))
	t.Row("at rest: identity controller, resident memory", series.MiB(func(r result) float64 { return r.controller.Resident }))
	t.Row("at rest: identity controller, Go heap in use", series.MiB(func(r result) float64 { return r.controller.Heap }))
	t.Row("at rest: identity controller, CPU", ofCore(func(r result) time.Duration { return r.controller.CPU }))
	t.Row("at rest: identity controller, CPU per renewal", func(r result) string {
		return (r.controller.CPU / time.Duration(max(1, r.atRest.renewals()))).Round(10 * time.Microsecond).String()
	})
	t.Row("at rest: token server, resident memory", series.MiB(func(r result) float64 { return r.tokenServer.Resident }))
	t.Row("at rest: token server, CPU", ofCore(func(r result) time.Duration { return r.tokenServer.CPU }))
}
