// Package program has the code that the main packages of Lanyard's daemons share. It has the flags
// for the API server, the log, and the addresses of metrics and health.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Flags are the settings that all daemons have.
type Flags struct {
	// MetricsAddress is the address on which metrics are served; "0" serves none.
	MetricsAddress string
	// HealthAddress is the address on which /healthz and /readyz are served.
	HealthAddress string
	// LogLevel is the least severe level that is logged.
	LogLevel slog.Level
	// LogFormat is json or text.
	LogFormat string
	// Kubeconfig is the file that says how to reach the API server; empty inside a cluster.
	Kubeconfig string

	level   string
	version bool
}

// Parse adds the shared flags to the set, and parses the command line arguments. If these ask for
// help or for the version, Parse writes the text to out. Then done is true: the program has nothing
// else to do. The help text begins with intro. Errors state the flag and its valid values.
func (f *Flags) Parse(set *pflag.FlagSet, args []string, intro, version string, out io.Writer) (done bool, err error) {
	set.SortFlags = false
	set.Usage = func() {} // the help is printed below
	set.StringVar(&f.MetricsAddress, "metrics-address", ":8080", "address on which Prometheus metrics are served; 0 serves none")
	set.StringVar(&f.HealthAddress, "health-address", ":8081", "address on which /healthz and /readyz are served")
	set.StringVar(&f.level, "log-level", "info", "least severe level that is logged: debug, info, warn or error")
	set.StringVar(&f.LogFormat, "log-format", "json", "format of the log: json or text")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; default the cluster that the program runs in")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	err = set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err = io.WriteString(out, intro+"\nFlags:\n"+set.FlagUsages())
		return true, err
	case err != nil:
		return false, fmt.Errorf("%w; --help lists the flags", err)
	case set.NArg() > 0:
		return false, fmt.Errorf("%q is not a flag; --help lists the flags", set.Arg(0))
	case f.version:
		_, err = fmt.Fprintln(out, set.Name(), Version(version))
		return true, err
	}
	if err := f.LogLevel.UnmarshalText([]byte(f.level)); err != nil || f.LogLevel < slog.LevelDebug {
		// Refuse levels below debug: with them, Kubernetes' libraries log request bodies, which
		// contain tokens.
		return false, fmt.Errorf("--log-level: %q is not debug, info, warn or error", f.level)
	}
	if f.LogFormat != "json" && f.LogFormat != "text" {
		return false, fmt.Errorf("--log-format: %q is neither json nor text", f.LogFormat)
	}
	return false, nil
}

// Log returns the program's logger. Log also makes the libraries of Kubernetes write to this log.
func (f *Flags) Log(w io.Writer) *slog.Logger {
	handler := f.logHandler(w)
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler)) // client-go logs with klog
	return slog.New(handler)
}

// Config returns the client's configuration for the API server. It adds a suffix to the HTTP user
// agent, which appears in the API server's logs.
func (f *Flags) Config(agent string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; set --kubeconfig outside a cluster", err)
	}
	config = rest.AddUserAgent(config, agent)
	config.QPS = -1 // no limit here: the number of workers and the API server limit the rate
	return config, nil
}

// Version returns the version that the linker has set. If this version is empty, Version returns
// the module's version or commit. The go command writes these into the program.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// RegisterProcessMetrics registers the metrics of the Go runtime and of the process.
// controller-runtime registers these metrics only in programs that have controllers.
func RegisterProcessMetrics() error {
	return errors.Join(
		metrics.Registry.Register(collectors.NewGoCollector()),
		metrics.Registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
}

// Run calls the main function of a program, and returns the process's exit code. The function's
// context ends when the process is interrupted.
func Run(name string, run func(ctx context.Context, args []string, out io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main of every daemon
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}
