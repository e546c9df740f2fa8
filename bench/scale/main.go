// Command scale measures one controller with ever more objects, in a real control plane and against
// the local cloud, under the chart's RBAC:
//
//	scale --objects 100,1000,10000
//
// Ten objects share a ServiceAccount, and each ServiceAccount has its own role. With --certificates,
// each object has a SPIFFE certificate of its own. The output is a table of docs/scale.md, in Markdown. The command is not a test: a busy machine must not fail a
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
	controlPlane, controller string
	// tokenServer and discovery are the programs of SPIFFE certificates.
	tokenServer, discovery string
	certificates           bool
	sizes                  []int
	// interval is spec.interval of all objects.
	interval time.Duration
	// tokenLife is --token-cache-max-duration: it makes refreshes come in minutes instead of an
	// hour.
	tokenLife time.Duration
	// refreshes is how often each token becomes due for a refresh in the window.
	refreshes int
	// window is how long the controller is watched at rest: as long as the refreshes take.
	window time.Duration
}

// due returns the age at which a token in use is refreshed: four fifths of its life.
func (s *settings) due() time.Duration { return s.tokenLife * 4 / 5 }

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.controller, "controller", "bin/lanyard-controller", "the controller's program")
	flag.StringVar(&s.tokenServer, "token-server", "bin/lanyard-token-server", "the token server's program")
	flag.StringVar(&s.discovery, "discovery", "bin/lanyard-discovery", "the program of the public documents")
	flag.BoolVar(&s.certificates, "certificates", false, "each object proves itself by a SPIFFE certificate, instead of its ServiceAccount at AWS")
	sizes := flag.String("objects", "100,1000,10000", "numbers of objects, one run each")
	flag.DurationVar(&s.interval, "interval", time.Minute, "interval of each object")
	flag.DurationVar(&s.tokenLife, "token-life", 5*time.Minute, "time after which a token is got anew at the latest")
	flag.IntVar(&s.refreshes, "refreshes", 2, "how often each token becomes due while the controller is watched at rest")
	flag.Parse()
	series.Main(context.Background(), "scale", func(ctx context.Context) error {
		if err := s.parse(*sizes); err != nil {
			return err
		}
		return series.Measure(s.sizes, "objects", func(n int) (result, error) { return measure(ctx, s, n, os.Stderr) }, table)
	})
}

func (s *settings) parse(sizes string) (err error) {
	if s.sizes, err = series.Sizes("objects", sizes, objectsPerAccount); err != nil {
		return err
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

// table prints a column for each size, because people compare sizes.
func table(t *series.Table[result]) {
	t.Head("objects", series.Count(func(r result) int { return r.objects }))
	words := t.Results[0].words
	t.Row("identities ("+words.identities+")", series.Count(func(r result) int { return r.identities }))
	t.Row("start: all objects pulled after", series.Seconds(time.Second/10, func(r result) time.Duration { return r.start }))
	t.Row("start: calls to the Kubernetes API per object", func(r result) string { return fmt.Sprintf("%.1f", float64(r.startAPI)/float64(r.objects)) })
	t.Row("at rest: resident memory", series.MiB(func(r result) float64 { return r.used.Resident }))
	t.Row("at rest: Go heap in use", series.MiB(func(r result) float64 { return r.used.Heap }))
	t.Row("at rest: CPU", func(r result) string {
		return fmt.Sprintf("%.1f %% of a core", 100*r.used.CPU.Seconds()/r.window.Seconds())
	})
	t.Row("at rest: reconciliations per second", func(r result) string { return fmt.Sprintf("%.1f", r.used.Reconciliations/r.window.Seconds()) })
	t.Row("at rest: CPU per reconciliation", func(r result) string {
		return (r.used.CPU / time.Duration(max(1, r.used.Reconciliations))).Round(10 * time.Microsecond).String()
	})
	t.Row("at rest: calls to the Kubernetes API per minute", func(r result) string { return fmt.Sprintf("%.1f", r.used.Calls/r.window.Minutes()) })
	t.Row(words.proofs, func(r result) string { return fmt.Sprintf("%.1f", r.apiForTokens/r.window.Minutes()) })
	if t.Results[0].source != nil {
		t.Row("at rest: the token server's resident memory", series.MiB(func(r result) float64 { return r.source.Resident }))
		t.Row("at rest: the token server's CPU", func(r result) string {
			return fmt.Sprintf("%.1f %% of a core", 100*r.source.CPU.Seconds()/r.window.Seconds())
		})
	}
	t.Row("at rest: "+words.exchanges, func(r result) string { return fmt.Sprintf("%.0f", r.exchanges) })
	t.Row("at rest: exchanges that were due", func(r result) string { return fmt.Sprintf("%.0f", r.needed) })
	t.Row("at rest: exchanges for each one due", func(r result) string { return fmt.Sprintf("%.3f", r.perNeeded()) })
}
