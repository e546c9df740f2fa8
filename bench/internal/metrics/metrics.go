// Package metrics reads the counters of the programs that are measured.
package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Samples are the lines of a page in Prometheus' text format, comments included.
type Samples []string

// Sum adds up the series of a metric that have all of these labels, each written name="value".
func (s Samples) Sum(metric string, labels ...string) float64 {
	total := 0.0
series:
	for _, line := range s {
		rest, found := strings.CutPrefix(line, metric)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, "{"+label) && !strings.Contains(rest, ","+label) {
				continue series
			}
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		if value, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err == nil {
			total += value
		}
	}
	return total
}

// Process has the memory of a process, and the totals of its work since its start.
type Process struct {
	Resident, Heap  float64 // bytes at the time of the reading
	CPU             time.Duration
	Reconciliations float64
	Calls           float64 // requests to the Kubernetes API
}

// Since returns what was used since an earlier reading. The memory is that of the later reading.
func (p Process) Since(before Process) Process {
	p.CPU, p.Reconciliations, p.Calls = p.CPU-before.CPU, p.Reconciliations-before.Reconciliations, p.Calls-before.Calls
	return p
}

// Process returns the figures of the process that the samples come from.
func (s Samples) Process() Process {
	return Process{
		Resident:        s.Sum("process_resident_memory_bytes"),
		Heap:            s.Sum("go_memstats_heap_inuse_bytes"),
		CPU:             time.Duration(s.Sum("process_cpu_seconds_total") * float64(time.Second)),
		Reconciliations: s.Sum("controller_runtime_reconcile_total"),
		Calls:           s.Sum("rest_client_requests_total"),
	}
}

// Read reads the page of metrics at a URL.
func Read(ctx context.Context, c *http.Client, url string) (Samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP %d", url, res.StatusCode)
	}
	page, err := io.ReadAll(res.Body)
	return Parse(page), err
}

// Parse reads the lines of a page of metrics.
func Parse(page []byte) Samples { return strings.Split(string(page), "\n") }
