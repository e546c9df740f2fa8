// Command apply measures programs that apply artifacts to a cluster. Each program runs in a real
// control plane of its own, with the same objects:
//
//	apply --n 200
//
// Many objects ask a program to apply one artifact each. Ten objects share a namespace and a
// ServiceAccount, which the program impersonates. No other program fetches the artifacts: the
// command writes the sources and their status, and serves the artifacts. There are four
// measurements:
//
//   - from nothing: the program starts, and applies all artifacts for the first time.
//   - at rest: each object is reconciled three times, although nothing has changed.
//   - changes of others: a label of each object of one application is changed by hand, and a
//     reconciliation undoes the changes.
//   - beside a slow tenant: single objects are reconciled while another tenant's builds take long, and
//     while this tenant's API server hangs.
//
// The command prints a table in Markdown. The command needs Linux, whose kernel counts CPU and
// memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/internal/local"
)

func main() {
	log.SetLogger(logr.Discard()) // log lines of informers are not results
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "apply:", err)
		os.Exit(1)
	}
}

// run measures each program. The table has a column for each program.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("apply", flag.ExitOnError)
	folder := f.String("programs", "../bin", "folder of the control plane and of the programs that are measured")
	n := f.Int("n", 200, "number of objects with an artifact")
	only := f.String("only", "", "name of the only program to measure, such as Lanyard; empty for all")
	requests := f.Bool("requests", false, "print a second table: the API requests by verb and resource")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *n < 1 {
		return errors.New("--n is not a positive number")
	}
	var figures, details table.Table
	for _, p := range programs() {
		if *only != "" && p.name != *only {
			continue
		}
		_, _ = fmt.Fprintf(progress, "%s: %d objects\n", p.name, *n)
		err := stage.Run(ctx, *folder, func(*local.CloudOptions) {}, func(on *stage.World) error {
			r, err := measure(ctx, &world{World: on, program: p, n: *n, progress: progress})
			if err != nil {
				return err
			}
			figures.Join(r.table(p.name, *n))
			details = append(details, r.requests(p.name, *n)...)
			return nil
		})
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), figures.Print(out))
		}
	}
	if err := figures.Print(out); err != nil || !*requests {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return details.Print(out)
}
