package main

import (
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization/flags"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory/memorytest"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// TestMemory checks that a large object of a tenant takes little memory in the program's cache.
func TestMemory(t *testing.T) {
	options, err := program.ManagerOptions(memory(flags.Flags{ExternalArtifacts: true, AWSIdentities: true}), kinds.All().AddToScheme)
	must.Succeed(t, err)
	memorytest.Run(t, options.Cache)
}

// TestInventoryIsNotRemembered checks that a Kustomization with a large inventory is no stub in the
// program's cache.
func TestInventoryIsNotRemembered(t *testing.T) {
	o := &v1alpha1.Kustomization{Status: v1alpha1.KustomizationStatus{Inventory: &v1alpha1.Inventory{}}}
	o.Spec.Path = "./app"
	for range 10_000 {
		o.Status.Inventory.Entries = append(o.Status.Inventory.Entries, v1alpha1.InventoryEntry{ID: strings.Repeat("x", 80), Version: "v1"})
	}
	kept, err := kustomization.Remember(o)
	must.Succeed(t, err)
	if got := kept.(*v1alpha1.Kustomization); got.Status.Inventory != nil || got.Spec.Path != "./app" {
		t.Errorf("the cache has %+v", got)
	}
}

// TestLimitMemory checks that Go's limit leaves room for the builds.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	f := flags.Flags{BuildConcurrent: 2, BuildMaxMemory: 256 << 20}
	for _, c := range []struct {
		limit, want int64
		fails       bool
	}{
		{math.MaxInt64, math.MaxInt64, false}, {1 << 30, 512 << 20, false}, {600 << 20, 600 << 20, true},
	} {
		debug.SetMemoryLimit(c.limit)
		err := limitMemory(f)
		if got := debug.SetMemoryLimit(-1); got != c.want || (err != nil) != c.fails {
			t.Errorf("with a limit of %d: %d, %v; want %d", c.limit, got, err, c.want)
		}
	}
}
