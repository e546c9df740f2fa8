// Command controller measures Lanyard's controllers in a real control plane, beside a local cloud.
// Its first argument is a scenario:
//
//	controller objects --sizes 100,1000,10000
//
// The scenarios are:
//
//   - objects: lanyard-controller with OCIRepositories. Ten objects share a ServiceAccount that has
//     its own role at AWS. With --certificates, each object has its own SPIFFE certificate.
//   - identities: the token server and the identity controller with WorkloadIdentities.
//   - bindings: the identity controller with WorkloadIdentityBindings.
//   - awsclusters: the identity controller with AWSClusters, which share some roles.
//   - flux: lanyard-controller beside Flux's source-controller.
//
// Each scenario prints a table of docs/scale.md in Markdown, and fails when its figures miss what
// the project promises. The command is not a test: a busy machine must not fail a build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/bench/internal/stage"
	"github.com/lanyard-dev/lanyard/bench/internal/table"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// scenario is a kind of measurement. Each implementation is a struct of the scenario's settings.
type scenario interface {
	// flags adds a flag for each setting, and returns the default of --sizes.
	flags(f *flag.FlagSet) (sizes string)
	// check fails if n objects cannot be measured with these settings.
	check(n int) error
	// cloud adds to the local cloud what n objects need.
	cloud(o *local.CloudOptions, n int)
	// measure measures the objects in w, the cluster of one run. If only a check of the figures
	// fails, measure returns the table with the error.
	measure(ctx context.Context, w *world) (table.Table, error)
}

func main() {
	log.SetLogger(logr.Discard()) // log lines of informers are not results
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// run measures a scenario at each size. The table has a column for each size. If a size fails, run
// still prints the table, because the earlier columns took long.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	scenarios := map[string]scenario{
		"objects": &objects{}, "identities": &identities{}, "bindings": &bindings{}, "awsclusters": &awsClusters{},
		"flux": &flux{},
	}
	names := strings.Join(slices.Sorted(maps.Keys(scenarios)), ", ")
	if len(args) == 0 || scenarios[args[0]] == nil {
		return errors.New("the first argument must be a scenario: " + names)
	}
	name, s := args[0], scenarios[args[0]]
	f := flag.NewFlagSet(name, flag.ExitOnError)
	programs := f.String("programs", "../bin", "folder of the control plane and of the programs that are measured")
	text := f.String("sizes", s.flags(f), "numbers of objects, one run each")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	sizes, err := parseSizes(*text, s.check)
	if err != nil {
		return err
	}
	var t table.Table
	for _, n := range sizes {
		_, _ = fmt.Fprintf(progress, "%s: %d\n", name, n)
		err := stage.Run(ctx, *programs, func(o *local.CloudOptions) { s.cloud(o, n) }, func(on *stage.World) error {
			measured, err := s.measure(ctx, &world{World: on, n: n, progress: progress})
			t.Join(measured)
			return err
		})
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %d: %w", name, n, err), t.Print(out))
		}
	}
	return t.Print(out)
}

// parseSizes parses numbers with commas between them, and checks each.
func parseSizes(text string, check func(int) error) ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--sizes: %q is not a positive number", word)
		}
		if err := check(n); err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
