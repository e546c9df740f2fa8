package program

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/memory"
)

// ManagerOptions returns the options of a program's manager. The map kept says which kinds have
// their own cache settings. Of such a kind, the cache has only the objects and fields that the
// kind's entry selects. Of each other kind, the cache removes the metadata that tenants can make
// large; see [memory.Metadata]. The functions in kinds register the types in the manager's scheme.
// The manager opens no ports; see [Flags.AddPorts].
func ManagerOptions(kept map[client.Object]kubecache.ByObject, kinds ...func(*runtime.Scheme) error) (manager.Options, error) {
	builder := runtime.NewSchemeBuilder(kinds...)
	scheme := runtime.NewScheme()
	return manager.Options{
		Scheme:  scheme,
		Cache:   kubecache.Options{ByObject: kept, DefaultTransform: memory.Metadata},
		Metrics: metricsserver.Options{BindAddress: "0"}, // AddPorts serves the metrics
	}, builder.AddToScheme(scheme)
}

// SetLease sets the options of leader election: only one of several replicas reconciles.
func SetLease(options *manager.Options, elect bool, id, namespace string) {
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = elect, id, namespace
	options.LeaderElectionReleaseOnCancel = true // safe: no reconciliation runs after Start returns
	// The lease prevents two active replicas of a shard during a rollout. The lease's duration is
	// long, so that a slow API server does not end the lease. After a lost lease, the work on all
	// objects would restart.
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = new(35*time.Second), new(30*time.Second), new(5*time.Second)
}

// APIAudiences returns the audiences that the API server accepts. The argument named has the values
// of the flag --api-audiences. If named is empty, APIAudiences asks the API server.
func APIAudiences(ctx context.Context, named []string, c client.Client) ([]string, error) {
	if len(named) > 0 {
		return named, nil
	}
	audiences, err := kube.LearnAPIAudiences(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("learn which audiences the API server accepts: %w; or set --api-audiences", err)
	}
	return audiences, nil
}
