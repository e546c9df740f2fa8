// Command lanyard-local runs a cluster and a cloud on one machine. The program lanyard runs it for
// the commands "lanyard up" and "lanyard cloud".
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/cli/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	programs := ""
	if file, err := os.Executable(); err == nil {
		programs = filepath.Dir(file)
	}
	status := world.Run(ctx, os.Args[1:], world.IO{
		Out: os.Stdout, Err: os.Stderr, Terminal: frame.IsTerminal(os.Stderr, os.Getenv("TERM")), Programs: programs,
		Program: strings.TrimSuffix(os.Args[0], "-local"), // if the program lanyard runs this one, argv[0] is "lanyard"
	})
	stop()
	os.Exit(status)
}
