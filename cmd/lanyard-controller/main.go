// Command lanyard-controller fetches artifacts for Kubernetes objects. For each object, it uses a
// short-lived credential of the object's tenant.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	authmanager "github.com/lanyard-dev/lanyard/auth/kube/manager"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/server"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/broker"
	"github.com/lanyard-dev/lanyard/internal/clouds"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/bucket"
	"github.com/lanyard-dev/lanyard/internal/controller/externalartifact"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/imagerepository"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/ocirepository"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
	"github.com/lanyard-dev/lanyard/internal/controller/tenant"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/port"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// version is set by the linker (-X main.version, see Makefile).
var version string

func main() {
	os.Exit(program.Run(flags.Name, func(ctx context.Context, args []string, out io.Writer) error {
		return run(ctx, args, os.Getenv, out)
	}))
}

// run reads the flags, makes the parts of the program, and runs them until ctx ends.
func run(ctx context.Context, args []string, env func(string) string, out io.Writer) error {
	f, done, err := flags.Parse(args, env, version, out)
	if done || err != nil {
		return err
	}

	// Make the parts for identities: the client of the SPIFFE broker, the manager, and the clouds'
	// providers. The manager also reads ServiceAccounts and caches tokens.
	svids, err := newBroker(ctx, f)
	if err != nil {
		return err
	}
	log := f.Log(os.Stderr)
	mgr, err := newManager(ctx, f, svids, log)
	if err != nil {
		return err
	}
	served, err := providers.New(providers.Config{
		Env: env, AWSRegion: f.AWSRegion, AllowedEndpointHosts: f.AllowedEndpointHosts, DenyCIDRs: f.DenyCIDRs,
	})
	if err != nil {
		return err
	}
	defer served.Close()
	issuers, err := credentials(mgr, svids, served)
	if err != nil {
		return err
	}

	// Make the parts for artifacts: the connections to the artifacts' sources, the store, and the
	// server that serves artifacts.
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
	artifactPort, err := port.Open(ctx, server.Port(f.ArtifactListenAddress, server.New(artifacts), log))
	if err != nil {
		return err
	}

	reach := &access.Access{
		Live: mgr.GetAPIReader(), Provider: issuers, Accounts: mgr.Accounts, Cache: mgr.Tokens, Invalidate: mgr.Tokens.Invalidate,
		Observer: mgr.Tokens, Transports: hosts,
	}
	limits, subscribe := rules(f, served.Names(), mgr.GetAPIReader()), reach.Subscribe
	if f.AWSIdentities {
		issuer, err := served.ByName("aws")
		if err != nil {
			return err
		}
		further, err := addAWSIdentities(ctx, f, mgr, issuer, reach, &limits)
		if err != nil {
			return err
		}
		subscribe = func(changed func(object.Dependency)) {
			reach.Subscribe(changed)
			further(changed)
		}
	}
	objects := &object.Shared{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder(flags.Name), Forgetter: mgr.Tokens, Elected: mgr.Elected(),
		Dependencies: object.Dependencies{
			Created:   map[string]client.Object{string(auth.KindServiceAccount): &corev1.ServiceAccount{}},
			Subscribe: subscribe,
		},
	}
	kept := &source.Artifacts{Store: artifacts, BaseURL: f.ArtifactBaseURL, Elected: mgr.Elected()}
	tenants := &tenant.Shared{Shared: objects, Rules: limits, Renew: reach.Renew, Durations: tenant.NewDurations()}
	shared := &source.Shared{Shared: tenants, Artifacts: kept, External: &externalartifact.Publisher{Client: mgr.GetClient()}}
	err = errors.Join(
		ocirepository.New(shared, reach, f.ArtifactMaxDecompressedSize).SetupWithManager(ctx, mgr, f.Concurrent),
		imagerepository.New(tenants, reach).SetupWithManager(ctx, mgr, f.Concurrent),
		bucket.New(shared, reach, clouds.Buckets(served, f.AllowedEndpointHosts), f.ArtifactMaxDecompressedSize).SetupWithManager(ctx, mgr, f.Concurrent),
	)
	if err != nil {
		return err
	}
	err = errors.Join(
		metrics.Registry.Register(mgr.Tokens),
		metrics.Registry.Register(storeSize(artifacts)),
		metrics.Registry.Register(source.NewNamespaceSizes(artifacts)),
		metrics.Registry.Register(object.NewMetrics(ctx, objects)),
		metrics.Registry.Register(tenants.Durations),
		mgr.Add(artifactPort),
		mgr.Add(&source.Collector{Artifacts: kept, Log: mgr.GetLogger().WithName("collector")}),
		f.AddPorts(ctx, mgr, log, map[string]healthz.Checker{"artifacts": kept.Ready}),
		program.AddProfilePort(ctx, mgr, f.ProfileAddress, log),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newBroker makes the client of the SPIFFE broker. It is nil if the flags name no broker.
func newBroker(ctx context.Context, f flags.Flags) (*broker.Broker, error) {
	if f.SPIFFEBroker.Endpoint == "" {
		return nil, nil
	}
	return broker.New(ctx, f.SPIFFEBroker)
}

func newManager(ctx context.Context, f flags.Flags, svids *broker.Broker, logger *slog.Logger) (*authmanager.Manager, error) {
	config, err := f.Config(flags.Name + "/" + program.Version(version))
	if err != nil {
		return nil, err
	}
	options, err := program.ManagerOptions(memory(f), corev1.AddToScheme, kinds.All().AddToScheme)
	if err != nil {
		return nil, err
	}
	program.SetLease(&options, f.LeaderElect, f.LeaderElectID, f.LeaderElectNamespace)
	// Secrets that objects name are not cached: each is read when it is needed.
	options.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	all := authmanager.Options{Manager: options, KeyRing: keyRing(f), Objects: objects(f), Tokens: tokens(f, logger)}
	if svids == nil {
		return authmanager.New(ctx, config, all)
	}
	all.Broker = svids
	mgr, err := authmanager.New(ctx, config, all)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.Add(svids)
}

// reconciled returns the kinds that this program reconciles.
func reconciled() kinds.Table {
	return kinds.All().Where(func(k kinds.Kind) bool { return k.Program == kinds.Controller })
}

// objects returns an empty object of each kind that can have SVIDs. It returns nil if the flags
// name neither a token server nor a SPIFFE broker, because then nobody issues SVIDs.
func objects(f flags.Flags) map[auth.Kind]client.Object {
	if f.KeyRingNamespace == "" && f.SPIFFEBroker.Endpoint == "" {
		return nil
	}
	objects := map[auth.Kind]client.Object{}
	for _, kind := range reconciled().Where(kinds.Kind.HasSVIDs) {
		objects[auth.Kind(kind.Kind)] = kind.New()
	}
	return objects
}

// credentials returns the function that finds a provider by its name. The name is that of a cloud,
// or a value of spec.credential.type.
func credentials(mgr *authmanager.Manager, svids *broker.Broker, served *providers.Set) (func(string) (auth.Provider, error), error) {
	tokens, err := bearer.NewProvider(bearer.Config{Self: mgr.ServiceAccounts.Self(), Prover: mgr.ServiceAccounts})
	if err != nil {
		return nil, err
	}
	own := map[string]auth.Provider{string(spec.ServiceAccountToken): tokens, string(spec.WorkloadIdentityToken): tokens}
	var ring svid.Ring
	switch {
	case svids != nil:
		ring = svids
	case mgr.SPIFFE != nil:
		ring = mgr.SPIFFE
	}
	if ring != nil {
		for _, form := range []svid.Type{svid.JWT, svid.X509} {
			if own[string(form)], err = svid.NewProvider(form, ring); err != nil {
				return nil, err
			}
		}
	}
	return func(name string) (auth.Provider, error) {
		if provider := own[name]; provider != nil {
			return provider, nil
		}
		return served.ByName(name)
	}, nil
}

// keyRing returns the namespace and name of the issuer's KeyRing. Both are empty if no flag sets
// the namespace.
func keyRing(f flags.Flags) types.NamespacedName {
	if f.KeyRingNamespace == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: f.KeyRingNamespace, Name: identityv1.IssuerKeyRing}
}

// tokens returns the options of the token cache.
func tokens(f flags.Flags, logger *slog.Logger) cache.Options {
	size := f.TokenCacheMaxSize
	if size == 0 { // the flag's 0 means no cache; in the options, 0 means the default
		size = cache.KeepNothing
	}
	return cache.Options{
		MaxSize: size, MaxDuration: f.TokenCacheMaxDuration, RefreshFraction: f.TokenCacheRefreshFraction,
		ObjectMetrics: f.TokenCacheObjectMetrics, Logger: logger,
	}
}

// connections makes the transports to hosts that tenants name, through the administrator's proxy if
// the environment has one.
func connections(f flags.Flags) (*transport.Pool, error) {
	guard := endpoint.Guard{DenyCIDRs: f.DenyCIDRs, AllowHosts: f.AllowedEndpointHosts}
	return transport.NewPool(transport.Options{Dial: guard.DialContext(transport.Dialer()), CheckTarget: guard.CheckTarget})
}

// memory returns the options of the manager's cache. The cache stores only the shard's objects, and
// only the parts of them that the program reads. Package auth/kube/manager adds the options for
// ServiceAccounts.
func memory(f flags.Flags) map[client.Object]kubecache.ByObject {
	kept := map[client.Object]kubecache.ByObject{}
	if f.AWSIdentities {
		kept = awsidentity.ByObject(kinds.All(), f.IdentitySecretNamespace)
	}
	for _, kind := range reconciled() {
		kept[kind.New()] = kubecache.ByObject{Label: f.ShardSelector, Transform: object.Remember}
	}
	return kept
}

func rules(f flags.Flags, providers []string, live client.Reader) spec.Rules {
	return spec.Rules{
		Providers:             providers,
		DefaultServiceAccount: f.DefaultServiceAccount,
		RequireServiceAccount: f.RequireServiceAccount,
		ControllerOnly:        !f.FeatureGates.ObjectLevelWorkloadIdentity,
		TokenServer:           f.KeyRingNamespace != "",
		SPIFFEBroker:          f.SPIFFEBroker.Endpoint != "",
		IdentitiesAtHub:       f.IdentitiesAtHub,
		ControllerNamespaces:  f.ControllerIdentityNamespaces,
		CredentialHosts:       f.ControllerCredentialHosts,
		NamespaceLabels:       object.NamespaceLabels(live),
	}
}

// storeSize returns the size of the artifact store as a metric. The name is fixed and there are no
// labels, so tenants cannot add series to the metric.
func storeSize(artifacts *store.Store) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lanyard_artifact_store_bytes", Help: "Bytes of all artifacts in the artifact store.",
	}, func() float64 { return float64(artifacts.Size()) })
}
