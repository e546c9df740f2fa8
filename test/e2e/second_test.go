package e2e

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/local"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listAll lists without a selector.
var listAll = metav1.ListOptions{}

// inSecondShard is the label of objects that the first controller leaves alone.
func inSecondShard() map[string]string { return map[string]string{"lanyard.dev/shard": secondShard} }

// stopGrace bounds the end of a controller.
const stopGrace = 20 * time.Second

// startSecond starts a controller for the objects of the second shard, with values of the chart of
// its own. The name tells its artifact store and its log from others. It ends with the test.
func startSecond(t *testing.T, name string, values map[string]any) *local.Program {
	t.Helper()
	install(t, values)
	return startReplica(t, name)
}

// install changes what the chart was rendered with, until the test ends.
func install(t *testing.T, further map[string]any) {
	t.Helper()
	must(t, "install the chart", world.InstallChart(t.Context(), values(further)))
	t.Cleanup(func() {
		if err := world.InstallChart(context.WithoutCancel(t.Context()), values(nil)); err != nil {
			t.Errorf("install the chart as it was: %v", err)
		}
	})
}

// environment is the value env of the chart: the cloud's variables and further ones, NAME=VALUE,
// which replace the cloud's.
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

// startReplica starts another controller of the second shard.
func startReplica(t *testing.T, name string) *local.Program {
	t.Helper()
	c, err := world.StartProgram(t.Context(), local.ProgramOptions{
		Workload: secondStatefulSet, Binary: binary("lanyard-controller"), Name: name,
	})
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

// controllerLogs are the logs of all controllers of the run.
func controllerLogs(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(world.Path("*.log"))
	must(t, "find the logs", err)
	var logs []string
	for _, path := range all {
		if base := filepath.Base(path); base != "controlplane.log" && base != "registry.log" {
			logs = append(logs, path)
		}
	}
	return logs
}
