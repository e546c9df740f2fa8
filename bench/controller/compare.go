package main

import (
	"errors"
	"fmt"

	"github.com/lanyard-dev/lanyard/bench/internal/table"
)

// figure identifies a number that is measured for each controller. Times are in seconds. Some
// figures are measured while nobody changes an object:
//   - restCPU, restRequests, connections and awsCPU are means per reconciliation.
//   - restMemory is the memory at the end of this period.
type figure int

const (
	startTime figure = iota // from a start with an empty store until all objects are ready
	startCPU
	startCalls
	restCPU
	restRequests
	restMemory
	connections // new connections to a registry without TLS
	largeTime
	largeCPU
	readyTime
	restartTime
	hangingTime
	awsCPU
)

// line is a row of the table.
type line struct {
	figure figure
	name   string
	format string  // format of the printed number
	factor float64 // the printed number is the figure times this factor
	target target
}

// target is a limit for Lanyard's figure. The limit is a fraction of Flux's figure, or a number.
type target struct {
	text  string
	flux  bool // the target needs Flux's figure
	isMet func(ours, flux float64) bool
}

// better returns a target: Flux's figure must be at least this many times Lanyard's figure.
func better(times float64) target {
	return target{fmt.Sprintf("≥ %g× better", times), true, func(ours, flux float64) bool { return ours*times <= flux }}
}

// atMost returns a target: Lanyard's figure must be at most this number.
func atMost(limit float64, text string) target {
	return target{"≤ " + text, false, func(ours, _ float64) bool { return ours <= limit }}
}

func lines() []line {
	const mebi = 1.0 / (1 << 20)
	return []line{
		{startTime, "all Ready from an empty store: time", "%.1f s", 1, better(3)},
		{startCPU, "all Ready from an empty store: CPU", "%.1f s", 1, better(3)},
		{startCalls, "all Ready from an empty store: API calls per object", "%.1f", 1, atMost(4.05, "4.0 (+0.05)")},
		{restCPU, "at rest: CPU per reconciliation", "%.2f ms", 1e3, better(4)},
		{restRequests, "at rest: registry requests per reconciliation", "%.2f", 1, atMost(1.05, "1.0 (+0.05)")},
		{connections, "at rest, insecure: new connections per reconciliation", "%.2f", 1, atMost(0.05, "0.0 (+0.05)")},
		{restMemory, "at rest: memory", "%.0f MiB", mebi, atMost(86<<20, "86 MiB")},
		{largeTime, "21 MiB artifact with 2,000 files: time", "%.2f s", 1, better(2)},
		{largeCPU, "21 MiB artifact with 2,000 files: CPU", "%.2f s", 1, better(2)},
		{readyTime, "ready after start", "%.2f s", 1, better(1)},
		{restartTime, "restart with the store kept: all reconciled", "%.1f s", 1, atMost(2.6, "2.6 s")},
		{hangingTime, "one tenant's STS hangs: another tenant's latency", "%.0f ms", 1e3, atMost(0.032, "32 ms")},
		{awsCPU, "100 accounts × 10 objects at AWS: CPU per reconciliation", "%.2f ms", 1e3, better(5)},
	}
}

// compare returns a table with the figures that were measured. It fails if a target is missed.
// Without Flux's controller, targets that need its figures are not checked.
func compare(courses []*course) (table.Table, error) {
	t := table.Table{
		{"case", "Lanyard", "Flux", "ratio", "must reach", "met"},
		{"---", "---:", "---:", "---:", "---", "---"},
	}
	var err error
	for _, l := range lines() {
		ours, measured := courses[0].figures[l.figure]
		if !measured {
			continue
		}
		var flux float64
		theirs, ratio, met := "", "", ""
		if len(courses) > 1 {
			flux = courses[1].figures[l.figure]
			theirs = fmt.Sprintf(l.format, flux*l.factor)
			if ours > 0 {
				ratio = fmt.Sprintf("%.1f×", flux/ours)
			}
		}
		if len(courses) > 1 || !l.target.flux {
			met = "yes"
			if !l.target.isMet(ours, flux) {
				met, err = "**no**", errors.New("a target is missed")
			}
		}
		t = append(t, []string{l.name, fmt.Sprintf(l.format, ours*l.factor), theirs, ratio, l.target.text, met})
	}
	return t, err
}
