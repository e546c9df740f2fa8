package attack

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// attack is an attack by one hostile tenant. The function try runs the attack, and fails the test
// if the controller does what the tenant wants.
type attack struct {
	name string
	long bool // skipped by go test -short
	try  func(tn *tenant)
}

// attacks lists the attacks in the order in which they run.
func attacks() []attack {
	return []attack{
		{"identities of another", false, borrowIdentities},
		{"hosts that look alike", false, nameLookalikes},
		{"a role that flips", false, flipRole},
		{"proofs shown elsewhere", false, replayProofs},
		{"tokens without a grant", false, mintWithoutGrant},
		{"contexts of another", false, spoofContexts},
		{"a spoke as another spoke", false, actAsSpoke},
		{"tokens of the other issuer", false, crossIssuers},
		{"forged request headers", false, forgeHeaders},
		{"a stolen controller", false, stealController},
		{"audiences of token services", false, nameAudiences},
		{"the controller's own token", false, borrowController},
		{"SVIDs of another", false, stealSVIDs},
		{"a stolen controller's SVIDs", false, stealControllerSVIDs},
		{"statuses of one's own", false, forgeStatus},
		{"URLs of artifacts", false, guessArtifacts},
		{"redirects and realms", false, redirect},
		{"private addresses", false, namePrivateAddresses},
		{"redirects without TLS", false, downgrade},
		{"proxies of one's own", false, nameProxies},
		{"finalizers of one's own", false, stay},
		{"names used again", false, remake},
		{"fetches without end", false, outlive},
		{"a registry that drips", false, drip},
		{"slow blobs in many namespaces", false, dripBlobs},
		{"slow buckets in many namespaces", true, dripContents},
		{"slow tags in many namespaces", true, dripTags},
		{"keys that burn", false, burn},
		{"large buckets in many namespaces", true, holdMemory},
		{"listings that grow", false, growListings},
		{"manifests that grow", false, growManifests},
		{"archives that grow", true, bomb},
		{"crowded listings", true, crowd},
		{"new content each second", false, rewrite},
		{"failures in new words", false, reword},
		{"connections of strangers", false, openPorts},
		{"large labels and finalizers", false, growMetadata},
		{"large objects without the policy", true, storeGiants},
		{"token requests without pause", false, floodTokens},
		{"bindings without pause", true, floodBindings},
		{"slow proxies in exchanges", true, slowProxies},
		{"objects without number", true, flood},
		{"manifests for others", false, applyElsewhere},
		{"slow builds in many namespaces", false, buildSlowly},
		{"encrypted files for other keys", false, stealKeys},
		{"key services that are slow", false, hangKeys},
		{"clusters that hang", false, hangCluster},
		{"clusters with large answers", false, growAnswers},
	}
}

// maxRuns is the maximum number of runs of an attack. An attack runs again if the honest tenant
// waited too long. The cause may be another program on the machine. A delay that the attack causes
// happens in every run.
const maxRuns = 3

// TestAttack runs the attacks one after the other, while the honest tenant works.
func TestAttack(t *testing.T) {
	s := &suite{
		honest: startHonest(t), hostile: watchStatuses(t), apiserver: startMachine(t), judged: begin,
		table: newTable("Waits are the median and the 99th percentile in ms. Memory is the peak and the limit in MiB."),
	}
	fmt.Fprint(s.table, "ATTACK\tRUNS\tTRIED\tGRANTS")
	for w := range activities {
		fmt.Fprint(s.table, "\t", strings.ToUpper(w.String()))
	}
	fmt.Fprint(s.table, "\tAPI SERVER")
	for _, p := range programs {
		fmt.Fprint(s.table, "\t", strings.ToUpper(strings.TrimPrefix(p.Workload, "lanyard-")))
		s.limits = append(s.limits, memoryLimit(t, p))
	}
	fmt.Fprintln(s.table, "\tTIME")
	var total score
	for i, a := range attacks() {
		if a.long && testing.Short() {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			var got score
			for n := 1; ; n++ {
				began := time.Now()
				var tn *tenant
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					tn = newTenant(t, fmt.Sprintf("hostile-%d-%d", i, n))
					a.try(tn)
				})
				if tn == nil {
					break // the run failed before the attack began
				}
				// The run has deleted the attack's objects by now. So judge also finds out whether
				// their deletion delayed the honest tenant.
				one, late := s.judge(t, tn, began)
				got.add(one)
				if late == nil {
					break
				}
				if t.Failed() || n == maxRuns {
					t.Errorf("at run %d of the attack: %v", n, late)
					break
				}
				t.Logf("the attack is run again: %v", late)
			}
			s.row(a.name, got)
			total.add(got)
		})
	}
	s.row("all", total)
	must(t, "print the table", s.table.Flush())
}

// suite holds what is needed to judge the attacks.
type suite struct {
	limits    []int64 // memory limits of the programs in bytes
	honest    *honest
	hostile   *statuses
	apiserver *machine
	judged    uint64 // journal number of the last judged call to the local cloud
	table     *tabwriter.Writer
}

// newTable returns a table with a caption, which explains the units. Flush prints the table to
// standard output.
func newTable(caption string) *tabwriter.Writer {
	table := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, caption)
	return table
}

// score is the result of one or more runs of an attack.
type score struct {
	runs, tried, grants int
	rounds              rounds  // of the honest tenant's work
	alone               []span  // measurements of the API server
	peaks               []int64 // peak memory of each program in bytes
	took                time.Duration
}

func (s *score) add(other score) {
	s.runs, s.tried, s.grants, s.took = s.runs+other.runs, s.tried+other.tried, s.grants+other.grants, s.took+other.took
	s.alone = append(s.alone, other.alone...)
	for i, more := range other.rounds {
		s.rounds[i] = append(s.rounds[i], more...)
	}
	if len(s.peaks) == 0 { // nothing was judged before
		s.peaks = make([]int64, len(other.peaks))
	}
	for i, peak := range other.peaks {
		s.peaks[i] = max(s.peaks[i], peak)
	}
}

// judge fails the test if
//
//   - the hostile tenant got access, an artifact or a credential;
//   - an object of the honest tenant was not Ready; or
//   - a program took too much memory.
//
// It returns an error if the honest tenant waited too long. The last argument is the time when this
// run of the attack began.
func (s *suite) judge(t *testing.T, tn *tenant, began time.Time) (got score, late error) {
	t.Helper()
	after := s.judged
	s.judged = world.Cloud().Journal().Last()
	grants := slices.Concat(grantsOfClouds(after), s.hostile.take(s.honest.digests()), tn.leaks())
	for _, grant := range grants {
		t.Errorf("granted: %s", grant)
	}
	got = score{runs: 1, tried: tn.tries(), grants: len(grants)}
	var err error
	if got.rounds, err = s.honest.take(); err != nil {
		t.Error(err)
	}
	measured := s.apiserver.measured()
	for w := range activities {
		if err := judgeLatency(got.rounds[w], measured); err != nil {
			late = errors.Join(late, fmt.Errorf("%s: %w", w, err))
		}
	}
	run := span{began, time.Now()}
	got.took, got.alone = run.took(), during(run, measured)
	for i, p := range programs {
		peak := takePeak(t, p)
		if peak > s.limits[i] {
			t.Errorf("%s took %d MiB of memory; the chart's limit is %d MiB", p.Workload, peak>>20, s.limits[i]>>20)
		}
		got.peaks = append(got.peaks, peak)
	}
	return got, late
}

// cell returns the median and the 99th percentile of waits in ms, for a table.
func cell(waits []span) string {
	if len(waits) == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", quantile(waits, 50).Milliseconds(), quantile(waits, 99).Milliseconds())
}

// row adds an attack and its score to the table that TestAttack prints.
func (s *suite) row(name string, got score) {
	fmt.Fprintf(s.table, "%s\t%d\t%d\t%d", name, got.runs, got.tried, got.grants)
	for _, waits := range append(got.rounds[:], got.alone) {
		fmt.Fprint(s.table, "\t", cell(waits))
	}
	for i, peak := range got.peaks {
		fmt.Fprintf(s.table, "\t%d/%d", peak>>20, s.limits[i]>>20)
	}
	fmt.Fprintf(s.table, "\t%.1f s\n", got.took.Seconds())
}
