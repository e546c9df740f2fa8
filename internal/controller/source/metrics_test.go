package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

func TestObjectsAreCounted(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewObjectMetrics(t.Context(), w.shared)); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics break the conventions: %+v, %v", problems, err)
	}
	w.reconcile(w.create("tenant-a", "well", nil))
	w.kind.fetch = func(*v1alpha1.OCIRepository, Call) error { return errOdd }
	for i := range 100 {
		w.reconcile(w.create("tenant-b", fmt.Sprint("odd-", i), nil))
	}
	w.reconcile(w.create("tenant-b", "nonsense", func(o *v1alpha1.OCIRepository) { o.Spec.URL = "" }))
	w.reconcile(w.create("tenant-b", "idle", func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true }))
	w.create("tenant-b", "new", nil)

	const name = "lanyard_objects"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), name); err != nil {
		t.Errorf("a replica that does not reconcile counts: %v", err)
	}
	close(w.elected)
	want := `
# HELP lanyard_objects Objects by kind, namespace, and status (True, False, Unknown) and reason of their condition Ready.
# TYPE lanyard_objects gauge
lanyard_objects{kind="OCIRepository",namespace="tenant-a",ready="True",reason="Succeeded"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="InvalidSpec"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="Odd"} 100
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="False",reason="Suspended"} 1
lanyard_objects{kind="OCIRepository",namespace="tenant-b",ready="Unknown",reason="Progressing"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	fetches := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "lanyard_fetch_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			fetches[fmt.Sprint(m.GetLabel())] = m.GetHistogram().GetSampleCount()
		}
	}
	if len(fetches) != 2 {
		t.Fatalf("fetches %v", fetches)
	}
	for labels, n := range fetches {
		well, odd := strings.Contains(labels, "success"), strings.Contains(labels, "Odd")
		if !strings.Contains(labels, "OCIRepository") || well && n != 1 || odd && n != 100 || well == odd {
			t.Errorf("%d fetches of %s", n, labels)
		}
	}
}
