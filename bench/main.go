// Command bench measures Lanyard beside other programs, in one run:
//
//   - Lanyard's library beside Flux's
//   - Lanyard's AWS identities beside those of Cluster API Provider AWS
//   - Lanyard's token server beside kube-apiserver's own tokens
//
// It is called in one of these ways:
//
//	bench --programs ../bin
//	bench --sizes
//	bench --tokens
//	bench --identities
//
// Both libraries read ServiceAccounts from informers of the same real API server. Each library
// parses the annotations with its own AWS provider. On both sides, the same pause replaces the call
// to the cloud. Tokens of Lanyard and of kube-apiserver are requested from the same API server, and
// signed with RS256.
//
// The output has one line for each case: ours, theirs, the ratio, and our target. After the cases
// come the sizes of programs that use either library. A flag can limit the output:
//
//   - --sizes: only the sizes
//   - --tokens: only the cases of the token server
//   - --identities: only the cases of AWS identities
//
// The command is not a test: a busy machine must not fail a build. It must run in its module's
// folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	var s settings
	flag.StringVar(&s.programs, "programs", "../bin", "folder of the control plane and of Lanyard's programs")
	flag.BoolVar(&s.onlySizes, "sizes", false, "print only how large programs are that use either library")
	flag.BoolVar(&s.onlyTokens, "tokens", false, "print only the cases of the token server")
	flag.BoolVar(&s.onlyIdentities, "identities", false, "print only the cases of AWS identities")
	flag.Parse()
	log.SetLogger(logr.Discard()) // discard the informers' log lines, which are not results
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the flags of a run.
type settings struct {
	programs              string
	onlySizes, onlyTokens bool
	onlyIdentities        bool
}

// result is one line of the output.
type result struct {
	name         string
	ours, theirs string
	ratio        string // ratio of ours and theirs; empty if the case has none
	target       string // empty if the case has no target
	met          bool
}

func run(ctx context.Context, s settings, out io.Writer) error {
	if !s.onlySizes {
		if err := measureCases(ctx, s, out); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out)
	}
	if s.onlyTokens || s.onlyIdentities {
		return nil
	}
	return sizes(ctx, out)
}

func measureCases(ctx context.Context, s settings, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CASE\tOURS\tTHEIRS\tRATIO\tTARGET\tMET")
	for _, part := range []struct {
		wanted  bool
		measure func(context.Context, settings) ([]result, error)
	}{
		{!s.onlyTokens && !s.onlyIdentities, compareLibraries},
		{!s.onlyTokens, lentIdentities},
		{!s.onlyIdentities, mint},
		{!s.onlyIdentities, mintSVIDs},
	} {
		if !part.wanted {
			continue
		}
		results, err := part.measure(ctx, s)
		if err != nil {
			return err
		}
		for _, r := range results {
			met := "yes"
			switch {
			case r.target == "":
				met = ""
			case !r.met:
				met = "NO"
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, r.ours, r.theirs, r.ratio, r.target, met)
		}
	}
	return table.Flush()
}

func compareLibraries(ctx context.Context, s settings) (all []result, err error) {
	c, err := startCluster(ctx, filepath.Join(s.programs, "controlplane"))
	if err != nil {
		return nil, err
	}
	defer c.stop()
	for _, measure := range []func(context.Context, *cluster) ([]result, error){
		warmGetToken, hitDuringForeignExchange, manyMisses, failingKey, smallCapacity, manyTokens, twoCores,
	} {
		results, err := measure(ctx, c)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}
