// Command lanyard shows which identity each object of a cluster uses to fetch. It runs the program
// lanyard-local for the commands "lanyard up" and "lanyard cloud". It is also its own confined child,
// which builds manifests for "lanyard diff kustomization".
package main

import (
	"cmp"
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/lanyard-dev/lanyard/internal/cli"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

func main() {
	if sandbox.IsChild(os.Args[1:]) {
		signal.Ignore(os.Interrupt) // Ctrl-C also reaches the parent, which ends this process
		if err := sandbox.Serve(context.Background(), os.Args[1:], sandbox.Functions{kustomize.Function: kustomize.Server{}.Serve}); err != nil {
			os.Exit(frame.Failed)
		}
		return
	}
	log.SetOutput(io.Discard) // with GODEBUG=http2debug, net/http logs headers with credentials
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)  // a second interrupt ends the process at once
	home, _ := os.UserHomeDir()   // empty after an error: then there is no default kubeconfig
	cache, _ := os.UserCacheDir() // empty after an error: then interrupted uploads are not remembered
	file, err := os.Executable()
	if err != nil {
		file = "" // without this path, lanyard-local is looked for in PATH only
	}
	status := cli.Run(ctx, os.Args[1:], cli.IO{
		IO:       frame.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Home: home, Mount: mount, Kinds: kinds.All()},
		Terminal: frame.IsTerminal(os.Stderr, os.Getenv("TERM")), Cache: cache, Build: build(), Program: os.Args[0], File: file,
		Exec: func(path string, argv []string) error { return syscall.Exec(path, argv, os.Environ()) }, //nolint:gosec // our own program
	})
	stop()
	os.Exit(status)
}

// mount is the folder where Kubernetes mounts a Pod's ServiceAccount. Source: Kubernetes,
// "Accessing the Kubernetes API from a Pod".
const mount = "/var/run/secrets/kubernetes.io/serviceaccount"

// version is set by the linker (-X main.version, see Makefile).
var version string

func build() cli.Build {
	b := cli.Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(version, info.Main.Version, b.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}
