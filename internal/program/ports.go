package program

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lanyard-dev/lanyard/internal/port"
)

const (
	// smallHeader is the maximum size of a request's header at each port of this file, in bytes.
	smallHeader = 4 << 10
	// maxScrapes is the maximum number of concurrent requests for metrics. Further requests get
	// the status 503.
	maxScrapes = 8
	// profileTimeout is the maximum time to answer a request for a profile.
	profileTimeout = 5 * time.Minute
)

// Adder adds the server of a port to a program. A [manager.Manager] is an Adder.
type Adder interface {
	Add(server manager.Runnable) error
}

// AddPorts adds the ports of metrics and health to a manager. The path /healthz reports success
// while the process runs. The path /readyz reports success while all checks in ready succeed.
func (f *Flags) AddPorts(ctx context.Context, to Adder, log *slog.Logger, ready map[string]healthz.Checker) error {
	err := addPort(ctx, to, port.Config{
		Name: "metrics", Flag: "--metrics-address", Address: f.MetricsAddress, Log: log,
		Handler: metricsHandler(), MaxHeaderBytes: smallHeader,
	})
	if err != nil {
		return err
	}
	return addPort(ctx, to, port.Config{
		Name: "health", Flag: "--health-address", Address: f.HealthAddress, Log: log,
		Handler: healthHandler(ready), MaxHeaderBytes: smallHeader,
	})
}

// AddProfilePort adds a port to a manager. At this port, clients can read the profiles of the Go
// runtime (pprof). If the address is empty, AddProfilePort adds no port.
func AddProfilePort(ctx context.Context, to Adder, address string, log *slog.Logger) error {
	return addPort(ctx, to, port.Config{
		Name: "profiles", Flag: "--pprof-address", Address: address, Log: log,
		Handler: profileHandler(), MaxHeaderBytes: smallHeader, WriteTimeout: profileTimeout,
	})
}

// addPort opens the port and adds its server to a manager. For the address "0" or an empty address,
// addPort does nothing: given an empty address, package net would choose a port itself.
func addPort(ctx context.Context, to Adder, c port.Config) error {
	if c.Address == "0" || c.Address == "" {
		return nil
	}
	server, err := port.Open(ctx, c)
	if err != nil {
		return err
	}
	return to.Add(server)
}

// metricsHandler returns a handler that answers with all metrics of the process.
func metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: maxScrapes,
	}))
	return mux
}

// healthHandler returns a handler for the kubelet's probes: /healthz always succeeds, and /readyz
// runs the checks in ready.
func healthHandler(ready map[string]healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz":  maps.Clone(ready),
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // a path such as /readyz/keys runs only the check named keys
	}
	return mux
}

// profileHandler returns a handler that answers with the profiles that [pprof.Index] lists.
func profileHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
