package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/bench/internal/audit"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
)

// table returns the figures of a program with n objects.
func (r results) table(name string, n int) table.Table {
	const mebi = 1 << 20
	t := table.Table{{fmt.Sprintf("%d objects, %d applied objects each", n, objectsPerArtifact), name}, {"---", "---:"}}
	applied := n * objectsPerArtifact
	t.Seconds("from nothing: all Ready after", r.took)
	t.Seconds("from nothing: CPU", r.fromNothing.kernel.CPU)
	t.Each("from nothing: CPU per applied object", r.fromNothing.kernel.CPU, applied)
	t.Row("from nothing: peak memory", "%.0f MiB", r.fromNothing.kernel.Peak/mebi)
	r.fromNothing.addTo(&t, "from nothing: ", "applied object", applied)
	t.Each("at rest: CPU per reconciliation", r.atRest.kernel.CPU, rounds*n)
	t.Row("at rest: reconciliations per request", "%.2f", r.atRest.reconciliations/float64(rounds*n))
	t.Row("at rest: fetches of the artifact per reconciliation", "%.2f", float64(r.atRest.fetches)/float64(rounds*n))
	r.atRest.addTo(&t, "at rest: ", "reconciliation", rounds*n)
	t.Row("at rest: memory right after the reconciliations", "%.0f MiB", r.atRest.kernel.Resident/mebi)
	t.Row("at rest: memory after "+rest.String()+" more", "%.0f MiB", r.rested.Resident/mebi)
	t.Row(fmt.Sprintf("a reconciliation that undoes changes of %d objects", objectsPerArtifact), "%s", r.undone.Round(time.Millisecond))
	r.others.addTo(&t)
	return t
}

// addTo adds rows to a table: the delays of other tenants' objects.
func (o others) addTo(t *table.Table) {
	for _, c := range []struct {
		name string
		delays
	}{{"alone", o.alone}, {"beside a tenant with slow builds", o.besideBuilds}, {"beside a tenant whose API server hangs", o.besideHanging}} {
		t.Row(c.name+": reconciliations that were timed", "%d", len(c.delays))
		t.Row(c.name+": median time of a reconciliation", "%s", c.quantile(0.5).Round(time.Millisecond))
		t.Row(c.name+": 99 % of the reconciliations took at most", "%s", c.quantile(0.99).Round(time.Millisecond))
	}
}

// addTo adds rows to a table: the number of API requests for one of n things, in all and by verb.
func (r reading) addTo(t *table.Table, when, thing string, n int) {
	each := func(name string, counts func(audit.Request) bool) {
		t.Row(when+name, "%.2f", float64(r.requests.Sum(counts))/float64(n))
	}
	each("API requests per "+thing, func(audit.Request) bool { return true })
	verbs := []string{"get", "create", "patch"}
	for _, verb := range verbs {
		each("of these "+verb, func(q audit.Request) bool { return q.Verb == verb && !q.DryRun })
	}
	each("of these dry runs, whatever the verb", func(q audit.Request) bool { return q.DryRun })
	each("of these others", func(q audit.Request) bool { return !slices.Contains(verbs, q.Verb) && !q.DryRun })
	each("API requests that failed per "+thing, func(q audit.Request) bool { return q.Failed })
}

// requests returns the numbers of all API requests of a program with n objects.
func (r results) requests(name string, n int) table.Table {
	t := table.Table{{name + ": API requests", "from nothing, in all", "at rest, per reconciliation"}, {"---", "---:", "---:"}}
	made := maps.Clone(r.fromNothing.requests)
	maps.Copy(made, r.atRest.requests)
	for _, q := range slices.SortedFunc(maps.Keys(made), compareRequests) {
		t = append(t, []string{
			describe(q), fmt.Sprint(r.fromNothing.requests[q]), fmt.Sprintf("%.2f", float64(r.atRest.requests[q])/float64(rounds*n)),
		})
	}
	return t
}

func compareRequests(a, b audit.Request) int {
	return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(describe(a), describe(b)))
}

// describe returns the description of a request in words.
func describe(q audit.Request) string {
	text := q.Verb + " " + cmp.Or(q.Resource, "of no resource, such as discovery")
	if q.DryRun {
		text += ", dry run"
	}
	if q.Failed {
		text += ", failed"
	}
	return text
}
