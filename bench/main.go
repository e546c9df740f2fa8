// Command bench measures Lanyard's library beside Flux's, in one run, on the same real API server:
//
//	bench --controlplane ../bin/controlplane
//	bench --sizes
//
// Both sides read ServiceAccounts from informers and parse their annotations with their own AWS provider; only the call to
// the cloud is replaced, by the same pause on both sides. It prints one line a case: ours, Flux's, the ratio, and what we
// set out to reach. It is no test: a busy machine must not fail a build. Then it prints how large programs are that use either
// library; --sizes prints that alone. It runs in its module's folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	binary := flag.String("controlplane", "bin/controlplane", "the embedded control plane's binary")
	onlySizes := flag.Bool("sizes", false, "print only how large programs are that use either library")
	flag.Parse()
	log.SetLogger(logr.Discard()) // informers' remarks are no result
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *binary, *onlySizes, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// result is one line.
type result struct {
	name       string
	ours, flux string
	ratio      string // how much better ours is; empty where the question does not arise
	target     string
	met        bool
}

func run(ctx context.Context, binary string, onlySizes bool, out io.Writer) error {
	if !onlySizes {
		if err := measureCases(ctx, binary, out); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out)
	}
	return sizes(ctx, out)
}

func measureCases(ctx context.Context, binary string, out io.Writer) error {
	c, err := startCluster(ctx, binary)
	if err != nil {
		return err
	}
	defer c.stop()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CASE\tOURS\tFLUX\tRATIO\tTARGET\tMET")
	for _, measure := range []func(context.Context, *cluster) ([]result, error){
		warmGetToken, hitDuringForeignExchange, manyMisses, failingKey, smallCapacity, manyTokens, twoCores,
	} {
		results, err := measure(ctx, c)
		if err != nil {
			return err
		}
		for _, r := range results {
			met := "yes"
			if !r.met {
				met = "NO"
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.ours, r.flux, r.ratio, r.target, met)
		}
	}
	return table.Flush()
}
