package program_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lanyard-dev/lanyard/internal/program"
)

func TestProcessMetrics(t *testing.T) {
	if err := program.RegisterProcessMetrics(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go_memstats_heap_inuse_bytes", "process_resident_memory_bytes"} {
		if n, err := testutil.GatherAndCount(metrics.Registry, name); err != nil || n != 1 {
			t.Errorf("%s is there %d times, %v", name, n, err)
		}
	}
}
