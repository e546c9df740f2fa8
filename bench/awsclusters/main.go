// Command awsclusters measures the identity controller with many AWSClusters over some roles, in a
// real control plane, against the local cloud, and under the chart's RBAC:
//
//	awsclusters --clusters 200,10000 --identities 200
//
// It counts the calls of AWS STS in the local cloud's journal, and fails if a credential was got
// anew before the last one was due. The output is a table of docs/scale.md, in Markdown. The
// command is not a test: a busy machine must not fail a build.
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
	controlPlane, controller string
	sizes                    []int // numbers of AWSClusters
	identities               int
	// tokenLife is --token-cache-max-duration: it makes refreshes come in minutes instead of an
	// hour.
	tokenLife time.Duration
	// rest is how long the controller is watched at rest.
	rest time.Duration
}

// The age at which a credential in use is refreshed: four fifths of its life, less or more by a
// twentieth.
func (s *settings) due() time.Duration         { return s.tokenLife * 80 / 100 }
func (s *settings) earliestDue() time.Duration { return s.tokenLife * 75 / 100 }

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "../bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.controller, "controller", "../bin/lanyard-identity-controller", "the identity controller's program")
	sizes := flag.String("clusters", "200,10000", "numbers of AWSClusters, one run each")
	flag.IntVar(&s.identities, "identities", 200, "number of roles that the AWSClusters share")
	flag.DurationVar(&s.tokenLife, "token-life", 10*time.Minute, "time after which a credential is got anew at the latest")
	flag.DurationVar(&s.rest, "rest", 2*time.Minute, "how long the controller is watched at rest")
	flag.Parse()
	series.Main(context.Background(), "awsclusters", func(ctx context.Context) error {
		if err := s.parse(*sizes); err != nil {
			return err
		}
		return series.Measure(s.sizes, "AWSClusters", func(n int) (result, error) { return measure(ctx, s, n, os.Stderr) }, table)
	})
}

func (s *settings) parse(sizes string) (err error) {
	if s.identities < 1 {
		return errors.New("--identities must be at least 1")
	}
	if s.sizes, err = series.Sizes("clusters", sizes, s.identities); err != nil {
		return err
	}
	if pokeEvery > s.tokenLife-s.due() {
		return fmt.Errorf("--token-life is less than %s: credentials would end unused, and refreshes could not be counted", 5*pokeEvery)
	}
	return nil
}

// table prints a column for each size, because people compare sizes.
func table(t *series.Table[result]) {
	t.Head("AWSClusters", series.Count(func(r result) int { return r.clusters }))
	t.Row("identities (AWSClusterRoleIdentities, each with a role)", series.Count(func(r result) int { return r.identities }))
	t.Row("start: all clusters ready after", series.Seconds(time.Second/10, func(r result) time.Duration { return r.start }))
	t.Row("start: exchanges at AWS STS (AssumeRole)", series.Count(func(r result) int { return r.startExchanges }))
	t.Row("start: calls to the Kubernetes API per cluster", func(r result) string { return fmt.Sprintf("%.1f", r.untilReady.Calls/float64(r.clusters)) })
	t.Row("start: CPU", series.Seconds(time.Second/10, func(r result) time.Duration { return r.untilReady.CPU }))
	t.Row("at rest: resident memory", series.MiB(func(r result) float64 { return r.atRest.Resident }))
	t.Row("at rest: Go heap in use", series.MiB(func(r result) float64 { return r.atRest.Heap }))
	t.Row("at rest: CPU", func(r result) string {
		return fmt.Sprintf("%.2f %% of a core", 100*r.atRest.CPU.Seconds()/r.rest.Seconds())
	})
	t.Row("at rest: reconciliations per minute", func(r result) string { return fmt.Sprintf("%.1f", r.atRest.Reconciliations/r.rest.Minutes()) })
	t.Row("at rest: calls to the Kubernetes API per minute", func(r result) string { return fmt.Sprintf("%.1f", r.atRest.Calls/r.rest.Minutes()) })
	t.Row("one more life of each credential: exchanges at AWS STS", series.Count(func(r result) int { return r.lifeExchanges }))
	t.Row("all calls of AWS STS until then", series.Count(func(r result) int { return r.allCalls }))
	t.Row("exchanges before a credential was due", series.Count(func(r result) int { return r.early }))
}
