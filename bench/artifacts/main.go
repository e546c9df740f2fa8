// Command artifacts compares `lanyard push|pull|list artifact` with the libraries of Flux
// (fluxcd/pkg/oci) and of ORAS (oras-go), in one run:
//
//	artifacts --lanyard ../bin/lanyard
//
// The registry is CNCF Distribution on loopback, with its data on disk. Each library pulls what it
// pushed. Each measurement is a separate process, so that its peak memory is that of one tool. Each
// process is this program and calls one library, so that all processes have the same start-up.
//
// The results are the least time and the least memory of all runs (--runs). Separate lines show the
// start-up time and the size of the programs lanyard, flux and oras. The command is not a test: a
// busy machine must not fail a build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	var s settings
	flag.StringVar(&s.lanyard, "lanyard", "../bin/lanyard", "the program lanyard")
	flag.StringVar(&s.flux, "flux", "", "the program flux, to have its size and start-up beside; empty for none")
	flag.StringVar(&s.oras, "oras", "", "the program oras, likewise")
	flag.StringVar(&s.only, "only", "", "measure only cases with this in their name, such as small")
	flag.Int64Var(&s.bytes, "bytes", 1<<30, "size of the large artifacts")
	flag.IntVar(&s.runs, "runs", 2, "how often each measurement is made")
	flag.IntVar(&s.tags, "tags", 50_000, "number of tags that are listed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "artifacts:", err)
		os.Exit(1)
	}
}

// settings are the flags of a run.
type settings struct {
	lanyard, flux, oras string // paths of the programs
	only                string
	bytes               int64
	runs, tags          int
}

// run measures all cases. With the arguments TOOL VERB REFERENCE FOLDER, run only makes one call of
// a tool's library, which the parent process measures.
func run(ctx context.Context, s settings, args []string, out io.Writer) error {
	if len(args) == 0 {
		return measure(ctx, s, out)
	}
	if len(args) != 4 {
		return errors.New("name tool, verb, reference and folder")
	}
	return call(ctx, args[0], args[1], args[2], args[3])
}
