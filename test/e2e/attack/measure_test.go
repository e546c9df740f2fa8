package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// memoryLimit returns the memory limit of a program's container, in bytes. The chart passes the
// limit to the program in the variable GOMEMLIMIT.
func memoryLimit(t *testing.T, p *local.Program) int64 {
	t.Helper()
	for variable := range strings.SplitSeq(process(t, p, "environ"), "\x00") {
		if limit, ok := strings.CutPrefix(variable, "GOMEMLIMIT="); ok {
			return number(t, limit)
		}
	}
	t.Fatalf("%s runs without the chart's memory limit", p.Workload)
	return 0
}

// takePeak returns a program's peak memory since the last call of takePeak, in bytes. The peak is
// VmHWM in /proc/PID/status. takePeak writes 5 to /proc/PID/clear_refs, which resets VmHWM.
func takePeak(t *testing.T, p *local.Program) int64 {
	t.Helper()
	status := process(t, p, "status")
	must(t, "reset the peak of "+p.Workload, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0))
	for line := range strings.Lines(status) {
		if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return number(t, strings.TrimSuffix(strings.TrimSpace(peak), " kB")) << 10
		}
	}
	t.Fatalf("the kernel does not say how much memory %s took", p.Workload)
	return 0
}

// processorTime returns the processor time that a program has used since its start. This time is
// utime plus stime in proc_pid_stat(5). On Linux, their unit is a hundredth of a second.
func processorTime(t *testing.T, p *local.Program) time.Duration {
	t.Helper()
	stat := process(t, p, "stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // fields[0] is field 3 of proc_pid_stat(5)
	return time.Duration(number(t, fields[11])+number(t, fields[12])) * 10 * time.Millisecond
}

// process returns the text of a file in /proc that describes a program's process.
func process(t *testing.T, p *local.Program, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), name))
	must(t, "look at "+p.Workload, errors.Join(err, p.Err()))
	return string(text)
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, "read a number", err)
	return n
}

// readLog returns the controller's log.
func readLog(t *testing.T) []byte {
	t.Helper()
	log, err := os.ReadFile(controller.Log)
	must(t, "read the controller's log", err)
	return log
}

// span is a time interval.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return s.to.Sub(s.from) }

// during returns the spans that overlap with s.
func during(s span, spans []span) []span {
	var found []span
	for _, other := range spans {
		if other.from.Before(s.to) && s.from.Before(other.to) {
			found = append(found, other)
		}
	}
	return found
}

// quantile returns a percentile of the spans' durations, such as the median for percent 50. At
// least this percentage of the spans is not longer than the result. Without spans, the result is
// zero.
func quantile(spans []span, percent int) time.Duration {
	if len(spans) == 0 {
		return 0
	}
	took := make([]time.Duration, 0, len(spans))
	for _, s := range spans {
		took = append(took, s.took())
	}
	slices.Sort(took)
	return took[(len(took)*percent+99)/100-1]
}

// judgeLatency returns an error if the honest tenant's rounds of one category took too long. The
// spans in measured are times that the API server needed for two writes, see [machine]. Load on the
// machine delays both, so slow measurements raise the limits, see [maxLatency]:
//   - Each round has a limit, which the longest measurement at the same time determines. For each
//     full 100 rounds, one round may exceed its limit. With fewer than 100 rounds, no round may.
//   - The median of the rounds has a limit, which the median of the measurements determines. A few
//     slow measurements do not excuse many slow rounds.
func judgeLatency(rounds, measured []span) error {
	if len(rounds) == 0 {
		return nil
	}
	all := rounds[0]
	var late []error
	for _, round := range rounds {
		alone := quantile(during(round, measured), 100)
		if limit := maxLatency(alone); round.took() >= limit {
			late = append(late, fmt.Errorf(
				"the honest tenant waited %s, while the API server alone took %s; want less than %s", round.took(), alone, limit))
		}
		if round.from.Before(all.from) {
			all.from = round.from
		}
		if round.to.After(all.to) {
			all.to = round.to
		}
	}
	var err error
	if len(late) > len(rounds)/100 {
		err = fmt.Errorf("%d of %d times too late: %w", len(late), len(rounds), errors.Join(late...))
	}
	half, halfAlone := quantile(rounds, 50), quantile(during(all, measured), 50)
	if limit := maxLatency(halfAlone); half >= limit {
		err = errors.Join(err, fmt.Errorf(
			"half of %d times, the honest tenant waited %s, while the API server alone took %s; want less than %s",
			len(rounds), half, halfAlone, limit))
	}
	return err
}

// maxLatency returns the maximum duration of a round of the honest tenant. The parameter alone is
// the time that the API server needed for two writes. A reconciliation has two writes as well.
// This time counts twice, because load also delays the other servers of a reconciliation, such as
// the registry. Without load, the API server needs 30 ms.
func maxLatency(alone time.Duration) time.Duration { return time.Second + 2*alone }

// TestJudgeLatency asserts which delays judgeLatency excuses, and which it reports.
func TestJudgeLatency(t *testing.T) {
	at := func(from, to int) span {
		return span{time.UnixMilli(int64(from)), time.UnixMilli(int64(to))}
	}
	usual := []span{at(0, 100), at(100, 200)}
	times := func(n int, s span) (all []span) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	for _, tt := range []struct {
		name             string
		rounds, measured []span
		want             string // text in the error; empty for no error
	}{
		{"nothing", nil, nil, ""},
		{"quick", []span{at(0, 999)}, nil, ""},
		{"slow", []span{at(0, 1000)}, nil, "waited 1s, while the API server alone took 0s; want less than 1s"},
		{"slow on a busy machine", append(usual, at(200, 2500)), []span{at(0, 30), at(300, 1000), at(1200, 1230)}, ""},
		{
			"slower than a busy machine", append(usual, at(200, 2700)),
			[]span{at(0, 30), at(300, 1000), at(1200, 1230)},
			"waited 2.5s, while the API server alone took 700ms; want less than 2.4s",
		},
		{
			"slow before the machine was busy", append(usual, at(200, 2500)),
			[]span{at(0, 30), at(400, 430), at(2500, 9000)},
			"waited 2.3s, while the API server alone took 30ms; want less than 1.06s",
		},
		{"one of a hundred is slow", append(times(99, at(0, 100)), at(0, 5000)), nil, ""},
		{"one of 99 is slow", append(times(98, at(0, 100)), at(0, 5000)), nil, "1 of 99 times too late: the honest tenant waited 5s"},
		{"two of 199 are slow", append(times(197, at(0, 100)), times(2, at(0, 5000))...), nil, "2 of 199 times too late"},
		{
			"half are slow",
			[]span{at(2000, 3100), at(3100, 4200), at(4200, 4300)},
			[]span{at(0, 1000), at(1000, 2000), at(2500, 2530), at(2800, 2830), at(3000, 4000)},
			"half of 3 times, the honest tenant waited 1.1s, while the API server alone took 30ms; want less than 1.06s",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := judgeLatency(tt.rounds, tt.measured)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("judgeLatency: %v; want %q", err, tt.want)
			}
		})
	}
}

// TestQuantile checks the results of quantile for few and for many spans.
func TestQuantile(t *testing.T) {
	for _, tt := range []struct{ number, percent, want int }{
		{0, 99, 0}, {1, 50, 1}, {1, 99, 1}, {2, 50, 1}, {3, 50, 2}, {99, 99, 99}, {100, 99, 99}, {101, 99, 100}, {200, 99, 198}, {200, 100, 200},
	} {
		var spans []span
		for n := tt.number; n > 0; n-- {
			spans = append(spans, span{time.UnixMilli(0), time.UnixMilli(int64(n))})
		}
		if got := quantile(spans, tt.percent); got != time.Duration(tt.want)*time.Millisecond {
			t.Errorf("quantile %d of %d spans: %s; want %d ms", tt.percent, tt.number, got, tt.want)
		}
	}
}

// machine measures how long the API server alone takes for two writes. A reconciliation has two
// writes as well: the tenant requests it, and the controller writes the status. A measurement
// writes an object twice, and waits for the watch event of each write. Without measurements, a busy
// API server would look like a slow controller.
type machine struct {
	mu      sync.Mutex // guards the fields below
	all     []span     // all finished measurements
	running time.Time  // when the current measurement began; in a pause: when the next measurement will begin
}

// startMachine keeps measuring how long writes to the API server take, until the test ends.
func startMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{running: time.Now()}
	probe := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "machine"},
		Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://registry.example.com/app",
			// suspended, so that the controller does nothing
			Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: time.Hour}, Suspend: true},
		},
	}
	create(t, probe)
	ctx, stop := context.WithCancel(t.Context())
	watching, err := objects.Watch(ctx, &v1alpha1.OCIRepositoryList{}, client.InNamespace(probe.Namespace))
	must(t, "watch an object", err)
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() {
		defer watching.Stop()
		for ctx.Err() == nil {
			if err := m.measure(ctx, probe, watching.ResultChan()); err != nil && ctx.Err() == nil {
				t.Errorf("measure the API server: %v", err)
				return
			}
		}
	})
	return m
}

// measure writes the object probe twice, and records how long the API server takes. A
// reconciliation has two writes as well. Afterwards, measure pauses for honestPause. On a busy
// machine, the pause may last longer than honestPause. The next measurement then includes the
// additional time.
func (m *machine) measure(ctx context.Context, probe *v1alpha1.OCIRepository, events <-chan watch.Event) error {
	for range 2 {
		value := time.Now().Format(time.RFC3339Nano)
		data := fmt.Appendf(nil, `{"metadata":{"annotations":{"at":%q}}}`, value)
		if err := objects.Patch(ctx, probe.DeepCopy(), client.RawPatch(types.MergePatchType, data)); err != nil {
			return err
		}
		for e := range events {
			if seen, ok := e.Object.(*v1alpha1.OCIRepository); ok && seen.Annotations["at"] == value {
				break
			}
		}
	}
	m.mu.Lock()
	m.all = append(m.all, span{m.running, time.Now()})
	m.running = time.Now().Add(honestPause)
	m.mu.Unlock()
	select {
	case <-time.After(honestPause):
	case <-ctx.Done():
	}
	return nil
}

// measured returns all measurements so far, and the current one.
func (m *machine) measured() []span {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.all)
	if now := time.Now(); m.running.Before(now) {
		all = append(all, span{m.running, now})
	}
	return all
}
