package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfig files may name these plugins
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

const usage = `Usage:
  controlplane serve --data-dir DIR --service-account-issuer URL [flags]
  controlplane kubectl [kubectl's arguments]

Run "controlplane serve --help" for its flags.
`

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		kubectl()
		return
	}
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch os.Args[1] {
	case "kubectl":
		// kubectl's root command, its plugins and its preferences each read os.Args by themselves.
		// An explicit argument list would reach only one of these three, so os.Args itself is
		// changed.
		os.Args = os.Args[1:]
		kubectl()
	case "serve":
		os.Exit(run(context.Background(), os.Args[2:]))
	case "help", "-h", "--help":
		say(os.Stdout, "%s", strings.TrimSpace(usage))
	default:
		fmt.Fprintf(os.Stderr, "Error: unknown command %q\n%s", os.Args[1], usage)
		os.Exit(2)
	}
}

// kubectl runs kubectl with the arguments in os.Args and does not return when
// it fails.
func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

// run is the serve command; it returns the process's exit status.
func run(ctx context.Context, args []string) int {
	o, err := parseFlags(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exit(err)
	}
	// The process that reads the output may end first. Then SIGPIPE must not end this process: an
	// orderly stop matters more than the output.
	signal.Ignore(syscall.SIGPIPE)

	signals := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if o.StopWithStdin {
		// Ctrl-C at a terminal also interrupts the owner, the process that holds the other end of
		// standard input. The owner may need the API while it stops its own parts, so this process
		// ignores the interrupt.
		signal.Ignore(os.Interrupt)
		signals = signals[:1]
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	defer stop()
	// A second signal ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	if o.StopWithStdin {
		ctx = untilEOF(ctx, os.Stdin)
	}
	return exit(serve(ctx, o, os.Stdout))
}

func exit(err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		return 1
	}
	return 0
}
