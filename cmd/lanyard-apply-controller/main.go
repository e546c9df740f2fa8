// Command lanyard-apply-controller applies Kustomizations: it builds the manifests of an artifact,
// and applies them as a ServiceAccount of the tenant.
//
// The program can act as every ServiceAccount of the tenants' namespaces. So it does not parse what
// tenants write: a child of the same program, which may do nothing else, builds the manifests. The
// child also reads encrypted files. This process decrypts only their data keys, at the clouds' key
// services, with tokens for the tenant's ServiceAccount.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
	authmanager "github.com/lanyard-dev/lanyard/auth/kube/manager"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization"
	"github.com/lanyard-dev/lanyard/internal/controller/kustomization/flags"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/impersonation"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/kubeconfig"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/program"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
)

// version is set by the linker (-X main.version, see Makefile).
var version string

func main() {
	if sandbox.IsChild(os.Args[1:]) {
		os.Exit(program.Run(flags.Name, func(ctx context.Context, args []string, _ io.Writer) error {
			var expressions expression.Server
			return sandbox.Serve(ctx, args, sandbox.Functions{kustomize.Function: kustomize.Server{Open: sopsfile.Open}.Serve, expression.Function: expressions.Serve})
		}))
	}
	os.Exit(program.Run(flags.Name, run))
}

// run reads the flags, makes the parts of the program, and runs them until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	f, done, err := flags.Parse(args, version, out)
	if done || err != nil {
		return err
	}
	if err := sandbox.Protect(); err != nil {
		return fmt.Errorf("protect the memory of this process: %w", err)
	}
	if err := limitMemory(f); err != nil {
		return err
	}
	log := f.Log(os.Stderr)
	config, err := f.Config(flags.Name + "/" + program.Version(version))
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, config, f, log)
	if err != nil {
		return err
	}
	decryption, err := newDecryption(ctx, f, mgr)
	if err != nil {
		return err
	}
	defer decryption.close()
	builds, err := newBuilds(ctx, f)
	if err != nil {
		return err
	}
	defer builds.Close()
	clients, err := impersonation.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}, kube.NewLive(mgr.GetAPIReader()))
	if err != nil {
		return err
	}
	sources, err := kustomization.NewSources(ctx, mgr.GetCache(), f.ExternalArtifacts)
	if err != nil {
		return err
	}
	records := kustomization.NewRecords()
	objects := &object.Shared{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder(flags.Name), Elected: mgr.Elected(), Forgetter: records,
		Dependencies: object.Dependencies{
			Created: map[string]client.Object{string(auth.KindServiceAccount): &corev1.ServiceAccount{}},
			Subscribe: func(changed func(object.Dependency)) {
				sources.Subscribe(changed)
				decryption.subscribe(changed)
			},
		},
	}
	reconciler := kustomization.New(objects, kustomization.Options{
		Clients: clients, Clusters: &kubeconfig.Clusters{Guard: f.Guard, Scheme: mgr.GetScheme(), UserAgent: flags.Name},
		Live: mgr.GetAPIReader(), Sources: sources, Records: records, Decryption: decryption.Decryption, DefaultServiceAccount: f.DefaultServiceAccount, Strict: true,
		Content: content.NewClient(&http.Transport{ResponseHeaderTimeout: time.Minute, MaxIdleConnsPerHost: f.Concurrent}, f.ArtifactHosts, f.ArtifactMaxSize),
		Builder: kustomize.NewBuilder(builds, buildLimits(f)), Expressions: expression.NewEvaluator(builds),
	})
	err = errors.Join(
		reconciler.SetupWithManager(ctx, mgr, f.Concurrent),
		metrics.Registry.Register(object.NewMetrics(ctx, objects)),
		metrics.Registry.Register(mgr.Tokens),
		f.AddPorts(ctx, mgr, log, map[string]healthz.Checker{"ping": healthz.Ping}),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// leastOwnMemory is the memory that this process needs besides its builds.
const leastOwnMemory = 96 << 20

// limitMemory leaves the memory of the builds out of Go's limit for this process. The chart sets the
// limit to that of the whole container (GOMEMLIMIT).
func limitMemory(f flags.Flags) error {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return nil
	}
	own := limit - int64(f.BuildConcurrent)*f.BuildMaxMemory
	if own < leastOwnMemory {
		return fmt.Errorf("the memory limit of %d MiB is too low for %d builds with %d MiB each: raise the limit, or lower --build-concurrent or --build-max-memory",
			limit>>20, f.BuildConcurrent, f.BuildMaxMemory>>20)
	}
	debug.SetMemoryLimit(own)
	return nil
}

func newManager(ctx context.Context, config *rest.Config, f flags.Flags, log *slog.Logger) (*authmanager.Manager, error) {
	options, err := program.ManagerOptions(memory(f), corev1.AddToScheme, kinds.All().AddToScheme)
	if err != nil {
		return nil, err
	}
	program.SetLease(&options, f.LeaderElect, f.LeaderElectID, f.Namespace)
	options.GracefulShutdownTimeout = new(5 * time.Second)
	all := authmanager.Options{Manager: options, Tokens: cache.Options{Logger: log}}
	if f.KeyRingNamespace != "" {
		all.KeyRing = types.NamespacedName{Namespace: f.KeyRingNamespace, Name: identityv1.IssuerKeyRing}
	}
	return authmanager.New(ctx, config, all)
}

// memory returns the options of the manager's cache: what it stores of each kind.
func memory(f flags.Flags) map[client.Object]kubecache.ByObject {
	kept := map[client.Object]kubecache.ByObject{&v1alpha1.Kustomization{}: {Transform: kustomization.Remember}}
	if f.AWSIdentities {
		maps.Copy(kept, awsidentity.ByObject(kinds.All(), ""))
	}
	maps.Copy(kept, kustomization.ByObject(f.ExternalArtifacts))
	return kept
}

// newBuilds returns the children that build. It fails if a child cannot be confined on this machine.
func newBuilds(ctx context.Context, f flags.Flags) (*sandbox.Pool, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the file of this program: %w", err)
	}
	request, answer := buildLimits(f).Messages(f.ArtifactMaxSize)
	pool := sandbox.New(self, sandbox.Limits{
		Children: f.BuildConcurrent, Memory: f.BuildMaxMemory, Time: f.BuildTimeout,
		Request: request, Answer: answer, Requests: maxBuilds, Idle: idle,
	})
	if err := pool.Check(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("start a build: %w", err)
	}
	return pool, nil
}

const (
	// maxBuilds is how many builds of one namespace use the same child.
	maxBuilds = 100
	// idle is how long a child waits for the next build of its namespace.
	idle = 10 * time.Second
)

// buildLimits returns the bounds of a build's input and output.
func buildLimits(f flags.Flags) kustomize.Limits {
	return kustomize.NewLimits(f.ArtifactMaxSize, f.BuildMaxObjects)
}
