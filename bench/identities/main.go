// Command identities measures the token server and the identity controller with ever more
// WorkloadIdentities, in a real control plane and under the chart's RBAC:
//
//	identities --identities 100,1000,10000
//
// The output is a table of docs/scale.md, in Markdown. The command is not a test: a busy machine
// must not fail a build.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/lanyard-dev/lanyard/bench/internal/series"
)

// settings are the settings of a run.
type settings struct {
	controlPlane, programs string
	sizes                  []int
}

func main() {
	var s settings
	flag.StringVar(&s.controlPlane, "controlplane", "../bin/controlplane", "the embedded control plane's program")
	flag.StringVar(&s.programs, "programs", "../bin", "folder of Lanyard's programs")
	sizes := flag.String("identities", "100,1000,10000", "numbers of WorkloadIdentities, one run each")
	flag.Parse()
	series.Main(context.Background(), "identities", func(ctx context.Context) error {
		if err := s.parse(*sizes); err != nil {
			return err
		}
		return series.Measure(s.sizes, "identities", func(n int) (result, error) { return measure(ctx, s, n, os.Stderr) }, table)
	})
}

func (s *settings) parse(sizes string) (err error) {
	s.sizes, err = series.Sizes("identities", sizes, 1)
	return err
}

// table prints a column for each size, because people compare sizes.
func table(t *series.Table[result]) {
	seconds := func(of func(result) time.Duration) func(result) string {
		return series.Seconds(10*time.Millisecond, of)
	}
	t.Head("WorkloadIdentities", series.Count(func(r result) int { return r.identities }))
	t.Row("token server: ready after", seconds(func(r result) time.Duration { return r.tokenServer.ready }))
	t.Row("token server: first token after", seconds(func(r result) time.Duration { return r.firstToken }))
	t.Row("token server: resident memory", series.MiB(func(r result) float64 { return r.tokenServer.Resident }))
	t.Row("token server: Go heap in use", series.MiB(func(r result) float64 { return r.tokenServer.Heap }))
	t.Row("identity controller: all new identities have their status after", seconds(func(r result) time.Duration { return r.allNew }))
	t.Row("identity controller, started again: ready after", seconds(func(r result) time.Duration { return r.controller.ready }))
	t.Row("identity controller, started again: all identities seen after", seconds(func(r result) time.Duration { return r.allSeen }))
	t.Row("identity controller, started again: resident memory", series.MiB(func(r result) float64 { return r.controller.Resident }))
	t.Row("identity controller, started again: Go heap in use", series.MiB(func(r result) float64 { return r.controller.Heap }))
}
