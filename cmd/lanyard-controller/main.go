// Command lanyard-controller fetches artifacts for Kubernetes objects, each with its own tenant's short-lived credential.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/server"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/clouds"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/imagerepository"
	"github.com/lanyard-dev/lanyard/internal/controller/ocirepository"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lanyard-controller:", err)
		os.Exit(1)
	}
}

// run is the program: flags, then what they make, then all of it until ctx ends.
func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	f, help, err := flags.Parse(args, env)
	switch {
	case errors.Is(err, flags.ErrHelp):
		_, err = io.WriteString(out, help)
		return err
	case err != nil:
		return err
	case f.Version:
		_, err = fmt.Fprintln(out, "lanyard-controller", programVersion())
		return err
	}
	handler := logHandler(f, os.Stderr)
	log.SetLogger(logr.FromSlogHandler(handler))
	klog.SetSlogLogger(slog.New(handler)) // client-go logs there

	mgr, err := newManager(f)
	if err != nil {
		return err
	}

	// Identities: who asks, at which clouds, and what is remembered.
	tokens := cache.New(cache.Options{
		MaxSize: f.TokenCacheMaxSize, MaxDuration: f.TokenCacheMaxDuration, RefreshFraction: f.TokenCacheRefreshFraction,
		ObjectMetrics: f.TokenCacheObjectMetrics, Logger: slog.New(handler),
	})
	accounts, err := kube.FromManager(ctx, mgr, kube.Options{})
	if err != nil {
		return err
	}
	accounts.Subscribe(tokens.Invalidate)
	served, err := clouds.New(clouds.Config{
		AWSRegion: f.AWSRegion, AllowedEndpointHosts: f.AllowedEndpointHosts, DenyCIDRs: f.DenyCIDRs, Env: env,
	})
	if err != nil {
		return err
	}
	defer served.Close()
	providers := served.Providers()

	// Artifacts: where they come from, where they lie, and who hands them out.
	hosts, err := connections(f)
	if err != nil {
		return err
	}
	defer hosts.Close()
	artifacts, err := store.Open(f.StoragePath, store.Options{MaxBytes: f.ArtifactStoreMaxSize, MaxNamespaceBytes: f.ArtifactNamespaceMaxSize})
	if err != nil {
		return err
	}
	defer artifacts.Close() //nolint:errcheck // the program ends
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", f.ArtifactListenAddress)
	if err != nil {
		return fmt.Errorf("--artifact-listen-address: %w", err)
	}

	kept := &source.Artifacts{Store: artifacts, BaseURL: f.ArtifactBaseURL, Elected: mgr.Elected()}
	access := &source.Access{
		Live: mgr.GetAPIReader(), Providers: providers, Accounts: accounts, Cache: tokens, Observer: tokens, Transports: hosts,
	}
	shared := &source.Shared{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("lanyard-controller"), Rules: rules(f, slices.Sorted(maps.Keys(providers)), mgr.GetAPIReader()),
		Accounts: accounts, Metrics: tokens, Artifacts: kept,
		External: &externalartifact.Publisher{Client: mgr.GetClient()},
	}
	err = errors.Join(
		ocirepository.New(shared, access, f.ArtifactMaxDecompressedSize).SetupWithManager(ctx, mgr, f.Concurrent),
		imagerepository.New(shared, access).SetupWithManager(ctx, mgr, f.Concurrent),
		bucket.New(shared, access, served.Buckets(), f.ArtifactMaxDecompressedSize).SetupWithManager(ctx, mgr, f.Concurrent),
	)
	if err != nil {
		return err
	}
	shutdown := 10 * time.Second
	err = errors.Join(
		metrics.Registry.Register(tokens),
		metrics.Registry.Register(storeSize(artifacts)),
		metrics.Registry.Register(source.NewObjectMetrics(ctx, shared)),
		mgr.Add(everywhere(tokens.Run)),
		mgr.Add(&manager.Server{Name: "artifacts", Server: server.NewHTTPServer(server.New(artifacts)), Listener: listener, ShutdownTimeout: &shutdown}),
		mgr.Add(&source.Collector{Artifacts: kept, Log: mgr.GetLogger().WithName("collector")}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("artifacts", kept.Ready),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newManager(f flags.Flags) (manager.Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; set --kubeconfig outside a cluster", err)
	}
	config = rest.AddUserAgent(config, "lanyard-controller/"+programVersion())
	config.QPS = -1 // workers bound what is under way, and the API server's priority and fairness the rate
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return manager.New(config, manager.Options{
		Scheme: scheme,
		Cache:  memory(f.ShardSelector),
		// Nobody's Secrets are kept in memory: each is read when an object names it.
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                       metricsserver.Options{BindAddress: f.MetricsAddress},
		HealthProbeBindAddress:        f.HealthAddress,
		LeaderElection:                f.LeaderElect,
		LeaderElectionID:              f.LeaderElectID,
		LeaderElectionNamespace:       f.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true, // nothing runs after Start returns
		// The lease keeps rollouts apart. An API server that is slow for a while is no reason to begin anew with all objects.
		LeaseDuration: new(35 * time.Second),
		RenewDeadline: new(30 * time.Second),
		RetryPeriod:   new(5 * time.Second),
	})
}

// connections lead to what tenants name, through the administrator's proxy where the environment has one.
func connections(f flags.Flags) (*transport.Pool, error) {
	guard := endpoint.Guard{DenyCIDRs: f.DenyCIDRs, AllowHosts: f.AllowedEndpointHosts}
	return transport.NewPool(transport.Options{Dial: guard.DialContext(transport.Dialer())})
}

// memory is what the manager keeps of the cluster: of the shard's objects, and of everybody's accounts, what is read of them.
func memory(shard labels.Selector) kubecache.Options {
	objects := kube.ByObject(kube.DefaultAnnotations())
	for _, kind := range []client.Object{&v1alpha1.Bucket{}, &v1alpha1.ImageRepository{}, &v1alpha1.OCIRepository{}} {
		objects[kind] = kubecache.ByObject{Label: shard, Transform: source.Remember}
	}
	return kubecache.Options{ByObject: objects, DefaultTransform: kubecache.TransformStripManagedFields()}
}

func rules(f flags.Flags, providers []string, live client.Reader) spec.Rules {
	return spec.Rules{
		Providers:             providers,
		DefaultServiceAccount: f.DefaultServiceAccount,
		RequireServiceAccount: f.RequireServiceAccount,
		ControllerOnly:        !f.FeatureGates.ObjectLevelWorkloadIdentity,
		ControllerNamespaces:  f.ControllerIdentityNamespaces,
		NamespaceLabels: func(ctx context.Context, name string) (map[string]string, error) {
			namespace := &metav1.PartialObjectMetadata{}
			namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
			err := live.Get(ctx, client.ObjectKey{Name: name}, namespace)
			return namespace.Labels, source.Forbidden(err, "get", "namespaces", "")
		},
	}
}

func logHandler(f flags.Flags, w io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return slog.NewTextHandler(w, options)
	}
	return slog.NewJSONHandler(w, options)
}

// storeSize is the size of the artifact store as a metric. Nothing in it is of a tenant's choice.
func storeSize(artifacts *store.Store) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lanyard_artifact_store_bytes", Help: "Bytes of all artifacts in the artifact store.",
	}, func() float64 { return float64(artifacts.Size()) })
}

// everywhere is a runnable of every replica, whether or not it reconciles.
type everywhere func(ctx context.Context) error

func (run everywhere) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection says no.
func (everywhere) NeedLeaderElection() bool { return false }

// version is set by the linker (-X main.version, see Makefile).
var version string

// programVersion is the linker's, else that of the module or its commit, which the go command builds in.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
