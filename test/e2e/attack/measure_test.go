package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
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
)

// memoryLimit is that of the controller's container in the chart, in bytes: the chart tells the
// program's garbage collector.
func memoryLimit(t *testing.T) int64 {
	t.Helper()
	for variable := range strings.SplitSeq(process(t, "environ"), "\x00") {
		if limit, ok := strings.CutPrefix(variable, "GOMEMLIMIT="); ok {
			return number(t, limit)
		}
	}
	t.Fatal("the controller runs without the chart's memory limit")
	return 0
}

// peakMemory is the most memory that the controller ever had, in bytes. Source: proc_pid_status(5),
// VmHWM.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	for line := range strings.Lines(process(t, "status")) {
		if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return number(t, strings.TrimSuffix(strings.TrimSpace(peak), " kB")) << 10
		}
	}
	t.Fatal("the kernel does not say how much memory the controller took")
	return 0
}

// processorTime is how long the controller has computed. Source: proc_pid_stat(5), utime and stime,
// which Linux counts in hundredths of a second.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	stat := process(t, "stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // from the third field on
	return time.Duration(number(t, fields[11])+number(t, fields[12])) * 10 * time.Millisecond
}

// process reads what the kernel says of the controller.
func process(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", controller.PID(), name))
	must(t, "look at the controller", errors.Join(err, controller.Err()))
	return string(text)
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, "read a number", err)
	return n
}

// readLog is the controller's log.
func readLog(t *testing.T) []byte {
	t.Helper()
	log, err := os.ReadFile(controller.Log)
	must(t, "read the controller's log", err)
	return log
}

// machine measures how long the API server alone takes for what a reconciliation needs of it: the
// request and the status, each a write of an object of the same kind and the watch's event of it.
// Without it, a busy API server would look like a slow controller.
type machine struct {
	mu    sync.Mutex // guards worst
	worst time.Duration
}

// startMachine measures until the test ends.
func startMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{}
	probe := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "machine"},
		Spec: v1alpha1.OCIRepositorySpec{
			URL: "oci://registry.example.com/app", Interval: metav1.Duration{Duration: time.Hour}, Suspend: true, // the controller does nothing
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

// measure writes as often as a reconciliation, and then pauses as long as the honest tenant does.
func (m *machine) measure(ctx context.Context, probe *v1alpha1.OCIRepository, events <-chan watch.Event) error {
	began := time.Now()
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
	m.worst = max(m.worst, time.Since(began))
	m.mu.Unlock()
	select {
	case <-time.After(honestPause):
	case <-ctx.Done():
	}
	return nil
}

// take returns the longest time since the last call.
func (m *machine) take() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	worst := m.worst
	m.worst = 0
	return worst
}
