// Command lanyard shows Lanyard at work on one machine, and tells for each object of a cluster as whom it was fetched.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/lanyard-dev/lanyard/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // then there is no default kubeconfig
	}
	status := cli.Run(ctx, os.Args[1:], cli.IO{
		Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Home: home,
		Program: os.Args[0], Terminal: isTerminal(os.Stderr), Build: build(),
	})
	stop()
	os.Exit(status)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// version is set by the linker (-X main.version, see Makefile).
var version string

func build() cli.Build {
	b := cli.Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	switch {
	case version != "":
		b.Version = version
	case info.Main.Version != "":
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}
