package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/local"
)

// listAll lists without a selector.
var listAll = metav1.ListOptions{}

// stopGrace is how long a program or a cluster may take to stop.
const stopGrace = 20 * time.Second

// maxShards is the maximum number of controllers besides the controller that all tests share. Each
// controller needs up to 0.3 GiB of memory.
const maxShards = 4

// shards returns the names of the chart's shards. Tests start the controllers of these shards.
func shards() []any {
	var names []any
	for i := range maxShards {
		names = append(names, fmt.Sprint("shard-", i))
	}
	return names
}

// freeShards has the shards that no test uses.
var freeShards = make(chan *shard, maxShards)

// shard is a shard of the chart: the objects with the shard's label, which have their own
// controller. The controller that all tests share ignores them. One test uses a shard at a time.
type shard struct{ name string }

// takeShard waits for a free shard. The test has the shard until it ends.
func takeShard(t *testing.T) *shard {
	t.Helper()
	s := <-freeShards
	t.Cleanup(func() { freeShards <- s })
	s.dropLease(t)
	return s
}

// labels are the labels of the shard's objects.
func (s *shard) labels() map[string]string {
	if s == nil {
		return nil
	}
	return map[string]string{"lanyard.dev/shard": s.name}
}

// statefulSet is the name of the shard's StatefulSet and of its lease.
func (s *shard) statefulSet() string { return "lanyard-controller-" + s.name }

// newTenant returns a tenant whose objects belong to the shard.
func (s *shard) newTenant(t *testing.T, name string) *tenant {
	t.Helper()
	tn := newTenant(t, name)
	tn.shard = s
	return tn
}

// start starts a controller of the shard, and stops it when the test ends. If further is nil, the
// controller uses the values with which the chart was installed last. Otherwise it uses the values
// that all tests use. Values in further override them. The controller's artifact store and log get
// the given name.
func (s *shard) start(t *testing.T, name string, further map[string]any) *local.Program {
	t.Helper()
	o := local.ProgramOptions{Workload: s.statefulSet(), Binary: binary("lanyard-controller"), Name: name}
	if further != nil {
		o.Values = values(further)
	}
	c, err := world.StartProgram(t.Context(), o)
	must(t, "start a controller", err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopGrace)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stop a controller: %v", err)
		}
	})
	return c
}

// dropLease deletes the shard's lease. A killed controller does not release its lease, and the next
// controller would wait until the lease expires.
func (s *shard) dropLease(t *testing.T) {
	t.Helper()
	err := apiserver.CoordinationV1().Leases(local.Namespace).Delete(t.Context(), s.statefulSet(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("remove the lease: %v", err)
	}
}

// install installs the chart with further values. When the test ends, the chart is installed
// without them. The values change the rights of all controllers, so only tests that run alone may
// call install.
func install(t *testing.T, further map[string]any) {
	t.Helper()
	must(t, "install the chart", world.InstallChart(t.Context(), values(further)))
	t.Cleanup(func() {
		if err := world.InstallChart(context.WithoutCancel(t.Context()), values(nil)); err != nil {
			t.Errorf("install the chart as it was: %v", err)
		}
	})
}

// environment returns a list of variables as a value of the chart. The list has the cloud's
// variables and the further variables, which have the form NAME=VALUE. A further variable overrides
// the cloud's variable of the same name.
func environment(further ...string) []any {
	variables := map[string]string{}
	for _, variable := range append(world.Cloud().Env(), further...) {
		name, value, _ := strings.Cut(variable, "=")
		variables[name] = value
	}
	var env []any
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		env = append(env, map[string]any{"name": name, "value": variables[name]})
	}
	return env
}

// controllerLogs returns the paths of the logs of all controllers in the run.
func controllerLogs(tb testing.TB) []string {
	tb.Helper()
	all, err := filepath.Glob(world.Path("*.log"))
	must(tb, "find the logs", err)
	var logs []string
	for _, path := range all {
		if base := filepath.Base(path); base != "controlplane.log" && base != "registry.log" {
			logs = append(logs, path)
		}
	}
	return logs
}
