// Package metrics reads the counters of the programs that are measured.
package metrics

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Samples are metrics in Prometheus' text format, a line each.
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

// Scrape reads a server's metrics.
func Scrape(ctx context.Context, c *http.Client, base string) (Samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: HTTP %d", res.StatusCode)
	}
	var lines Samples
	scanner := bufio.NewScanner(res.Body)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines, scanner.Err()
}
