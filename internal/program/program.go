// Package program has what Lanyard's daemons share on their command line: where the API server is,
// where metrics and health are served, and how is logged.
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

// Parse parses a command line. It adds the shared flags to the set's own. The parameter intro is
// the beginning of the help. Done is true if the program has nothing else to do: it was asked for
// its help or version, which are in out. An error names the flag and its valid values.
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
		// Below debug, the libraries of Kubernetes log the bodies of requests, and tokens are in them.
		return false, fmt.Errorf("--log-level: %q is not debug, info, warn or error", f.level)
	}
	if f.LogFormat != "json" && f.LogFormat != "text" {
		return false, fmt.Errorf("--log-format: %q is neither json nor text", f.LogFormat)
	}
	return false, nil
}

// Log returns the program's log, which the libraries of Kubernetes write into too.
func (f *Flags) Log(w io.Writer) *slog.Logger {
	handler := f.logHandler(w)
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler)) // client-go logs there
	return slog.New(handler)
}

// Config returns the connection to the API server. The parameter agent names the program in the API
// server's logs.
func (f *Flags) Config(agent string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; set --kubeconfig outside a cluster", err)
	}
	config = rest.AddUserAgent(config, agent)
	config.QPS = -1 // the API server's priority and fairness bounds the rate, as workers do
	return config, nil
}

// Version returns what the linker has set, otherwise the version of the module or its commit, which
// the go command writes into the program.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// RegisterProcessMetrics adds the metrics of Go and of the process. controller-runtime adds them
// only to programs that have controllers.
func RegisterProcessMetrics() error {
	return errors.Join(
		metrics.Registry.Register(collectors.NewGoCollector()),
		metrics.Registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
}

// Run runs a program until it ends by itself, or until the process is interrupted. It returns the
// exit code.
func Run(name string, run func(ctx context.Context, args []string, out io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main of every daemon
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}
