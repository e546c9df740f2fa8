package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// row is one line of the table.
type row struct {
	of     string // the case that fills the row
	name   string
	format string  // of a figure
	factor float64 // from a figure to what is shown
	value  func(figures) float64
	target target
}

// target is what ours must reach, beside Flux's or alone.
type target struct {
	text  string
	flux  bool // the target needs Flux's figure
	isMet func(ours, flux float64) bool
}

// better says that ours must need at most a part of what Flux's needs.
func better(times float64) target {
	return target{fmt.Sprintf("≥ %g× better", times), true, func(ours, flux float64) bool { return ours*times <= flux }}
}

// atMost says what ours may need, whatever Flux's does.
func atMost(limit float64, text string) target {
	return target{"≤ " + text, false, func(ours, _ float64) bool { return ours <= limit }}
}

func rows() []row {
	const second, milli, mebi = 1, 1e3, 1.0 / (1 << 20)
	return []row{
		{caseEmpty, "all Ready from an empty store: time", "%.1f s", second, func(f figures) float64 { return f.startTime }, better(3)},
		{caseEmpty, "all Ready from an empty store: CPU", "%.1f s", second, func(f figures) float64 { return f.startCPU }, better(3)},
		{caseEmpty, "all Ready from an empty store: API calls per object", "%.1f", 1, func(f figures) float64 { return f.startCalls }, atMost(4.05, "4.0 (+0.05)")},
		{caseRest, "at rest: CPU per reconciliation", "%.2f ms", milli, func(f figures) float64 { return f.restCPU }, better(4)},
		{caseRest, "at rest: registry requests per reconciliation", "%.2f", 1, func(f figures) float64 { return f.restRequests }, atMost(1.05, "1.0 (+0.05)")},
		{caseInsecure, "at rest, insecure: new connections per reconciliation", "%.2f", 1, func(f figures) float64 { return f.insecureConnections }, atMost(0.05, "0.0 (+0.05)")},
		{caseRest, "at rest: memory", "%.0f MiB", mebi, func(f figures) float64 { return f.restMemory }, atMost(86<<20, "86 MiB")},
		{caseLarge, "21 MiB artifact with 2,000 files: time", "%.2f s", second, func(f figures) float64 { return f.largeTime }, better(2)},
		{caseLarge, "21 MiB artifact with 2,000 files: CPU", "%.2f s", second, func(f figures) float64 { return f.largeCPU }, better(2)},
		{caseReady, "ready after start", "%.2f s", second, func(f figures) float64 { return f.ready }, better(1)},
		{caseRest, "restart with the store kept: all reconciled", "%.1f s", second, func(f figures) float64 { return f.restart }, atMost(2.6, "2.6 s")},
		{caseHanging, "one tenant's STS hangs: another tenant's latency", "%.0f ms", milli, func(f figures) float64 { return f.hanging }, atMost(0.032, "32 ms")},
		{caseAWS, "100 accounts × 10 objects at AWS: CPU per reconciliation", "%.2f ms", milli, func(f figures) float64 { return f.awsCPU }, better(5)},
	}
}

var errMissed = errors.New("a target is missed")

// table prints what both needed, without the rows of cases that were not measured. It fails if a
// target is missed; without Flux's figures, those that need them are not judged.
func (s settings) table(w io.Writer, ours figures, flux *figures) error {
	var b strings.Builder
	b.WriteString("| case | Lanyard | Flux | ratio | must reach | met |\n|---|---:|---:|---:|---|---|\n")
	var err error
	for _, r := range rows() {
		if !s.measures(r.of) {
			continue
		}
		own, theirs, ratio, met := r.value(ours), "", "", ""
		var other float64
		if flux != nil {
			other = r.value(*flux)
			theirs = fmt.Sprintf(r.format, other*r.factor)
			if own > 0 {
				ratio = fmt.Sprintf("%.1f×", other/own)
			}
		}
		if flux != nil || !r.target.flux {
			met = "yes"
			if !r.target.isMet(own, other) {
				met, err = "**no**", errMissed
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.name, fmt.Sprintf(r.format, own*r.factor), theirs, ratio, r.target.text, met)
	}
	if _, writeErr := io.WriteString(w, b.String()); writeErr != nil {
		return writeErr
	}
	return err
}
