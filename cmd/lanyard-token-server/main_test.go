package main

import (
	"testing"

	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory/memorytest"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/program"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
)

// TestMemory checks that a large object of a tenant takes little memory in the program's cache.
func TestMemory(t *testing.T) {
	f := flags.Flags{}
	f.Namespace = "lanyard-system"
	options, err := program.ManagerOptions(memory(f), kinds.All().AddToScheme)
	must.Succeed(t, err)
	memorytest.Run(t, options.Cache)
}
