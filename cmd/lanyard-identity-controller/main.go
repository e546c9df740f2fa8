// Command lanyard-identity-controller reconciles:
//   - the status of WorkloadIdentities
//   - the AWS identities that administrators lend to namespaces
//   - the AWSClusters that use these AWS identities
//   - the WorkloadIdentityBindings, whose credentials it writes into Secrets
package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/controller/awsidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity"
	"github.com/lanyard-dev/lanyard/internal/controller/workloadidentity/flags"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// version is set by the linker (-X main.version, see Makefile).
var version string

func main() { os.Exit(program.Run(flags.Name, run)) }

// run reads the flags, makes the parts of the program, and runs them until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	f, done, err := flags.Parse(args, version, out)
	if done || err != nil {
		return err
	}
	log := f.Log(os.Stderr)
	config, err := f.Config(flags.Name + "/" + program.Version(version))
	if err != nil {
		return err
	}
	mgr, err := newManager(config, f)
	if err != nil {
		return err
	}
	parts, err := newParts(ctx, f, mgr)
	for _, p := range parts {
		defer p.close()
	}
	if err != nil {
		return err
	}
	objects := &object.Shared{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder(flags.Name), Elected: mgr.Elected(),
		Dependencies: object.Dependencies{Subscribe: func(changed func(object.Dependency)) {
			for _, p := range parts {
				p.subscribe(changed)
			}
		}},
	}
	for _, p := range parts {
		if err := p.setup(ctx, objects, mgr); err != nil {
			return err
		}
	}
	err = errors.Join(
		metrics.Registry.Register(object.NewMetrics(ctx, objects)),
		f.AddPorts(ctx, mgr, log, map[string]healthz.Checker{"ping": healthz.Ping}),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newParts makes the parts that the flags request. The caller must close the returned parts, even
// if newParts also returns an error.
func newParts(ctx context.Context, f flags.Flags, mgr manager.Manager) ([]part, error) {
	var parts []part
	var owned *workloadIdentities
	var lent *awsIdentities
	var err error
	if f.Issuer != "" {
		if owned, err = newWorkloadIdentities(ctx, f, mgr); err != nil {
			return parts, err
		}
		parts = append(parts, owned)
	}
	if f.AWSIdentities {
		if lent, err = newAWSIdentities(ctx, f, mgr, os.Getenv); err != nil {
			return parts, err
		}
		parts = append(parts, lent)
	}
	if f.Bindings {
		made, err := newBindings(ctx, f, mgr, os.Getenv, owned, lent)
		if err != nil {
			return parts, err
		}
		parts = append(parts, made)
	}
	return parts, nil
}

// part reconciles one group of kinds.
type part interface {
	// subscribe registers a function that the part calls when a dependency of the part's objects
	// changes.
	subscribe(changed func(object.Dependency))
	// setup adds the reconcilers to the manager.
	setup(ctx context.Context, objects *object.Shared, mgr manager.Manager) error
	// close ends the part's connections to clouds.
	close()
}

func newManager(config *rest.Config, f flags.Flags) (manager.Manager, error) {
	options, err := program.ManagerOptions(memory(f),
		corev1.AddToScheme, authenticationv1.AddToScheme, kinds.All().AddToScheme)
	if err != nil {
		return nil, err
	}
	program.SetLease(&options, f.LeaderElect, f.LeaderElectID, f.Namespace)
	// The client reads Secrets from the API server, and not from the cache. The Secret of a binding
	// is read when the binding is reconciled. Secrets with static keys have their own informer.
	options.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	// At shutdown, running work ends within seconds. But a deadlock in the work queue
	// (kubernetes-sigs/controller-runtime#3538) can keep workers from ending. Meanwhile, the next
	// replica waits for the lease. So the manager waits for its workers only this long.
	options.GracefulShutdownTimeout = new(5 * time.Second)
	return manager.New(config, options)
}

// memory returns the options of the manager's cache: what it stores of each kind.
func memory(f flags.Flags) map[client.Object]kubecache.ByObject {
	kept := map[client.Object]kubecache.ByObject{}
	if f.Issuer != "" {
		kept[&identityv1.WorkloadIdentity{}] = kubecache.ByObject{Transform: object.Remember}
		kept[&identityv1.KeyRing{}] = kubecache.ByObject{
			Namespaces: map[string]kubecache.Config{f.Namespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", keyring.IssuerRing),
		}
	}
	// If f.AWSIdentities is set, UsersByObject below returns the options for bindings.
	if f.Bindings && !f.AWSIdentities {
		kept[&identityv1.WorkloadIdentityBinding{}] = kubecache.ByObject{Transform: object.Remember}
	}
	if f.AWSIdentities {
		maps.Copy(kept, awsidentity.ByObject(kinds.All(), f.SecretNamespace))
		maps.Copy(kept, awsidentity.UsersByObject(identityUsers(f)))
		maps.Copy(kept, kube.ByObject(kube.DefaultAnnotations()))
	}
	return kept
}

// identityUsers returns the kinds whose objects can name an AWS identity. WorkloadIdentityBindings
// are among them only if this program reconciles bindings.
func identityUsers(f flags.Flags) kinds.Table {
	return kinds.All().Where(func(k kinds.Kind) bool {
		return k.UsesAWSIdentities() && (f.Bindings || k.Kind != identityv1.WorkloadIdentityBindingKind)
	})
}

// workloadIdentities is the [part] of the program that reconciles the WorkloadIdentities.
type workloadIdentities struct {
	concurrent int
	issuer     *issuer.Issuer
	ring       *workloadidentity.Ring
}

func newWorkloadIdentities(ctx context.Context, f flags.Flags, mgr manager.Manager) (*workloadIdentities, error) {
	made, err := newIssuer(ctx, f, mgr)
	if err != nil {
		return nil, err
	}
	name := client.ObjectKey{Namespace: f.Namespace, Name: keyring.IssuerRing}
	ring, err := workloadidentity.NewRing(ctx, mgr.GetClient(), mgr.GetCache(), name, f.Issuer)
	if err != nil {
		return nil, err
	}
	return &workloadIdentities{concurrent: f.Concurrent, issuer: made, ring: ring}, nil
}

func (*workloadIdentities) close() {}

func (w *workloadIdentities) subscribe(changed func(object.Dependency)) { w.ring.Subscribe(changed) }

func (w *workloadIdentities) setup(ctx context.Context, objects *object.Shared, mgr manager.Manager) error {
	return workloadidentity.New(objects, w.issuer, w.ring).SetupWithManager(ctx, mgr, w.concurrent)
}

// newIssuer makes an issuer with the token server's settings.
func newIssuer(ctx context.Context, f flags.Flags, mgr manager.Manager) (*issuer.Issuer, error) {
	audiences, err := program.APIAudiences(ctx, f.APIAudiences, mgr.GetClient())
	if err != nil {
		return nil, err
	}
	made := &issuer.Issuer{URL: f.Issuer, Limits: f.Limits, APIAudiences: audiences}
	return made, made.Check()
}
