// Command lanyard-token-server issues tokens for WorkloadIdentities, and SVIDs for Kubernetes
// objects. It also manages the signing keys.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/program"
	"github.com/lanyard-dev/lanyard/internal/tokenserver"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/contextobject"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
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
	clock := &sign.Clock{}
	config.Wrap(clock.Wrap)
	mgr, err := newManager(config, f)
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}

	issuerRing, spiffeRing, err := newRings(f, live, clientset, clock, log)
	if err != nil {
		return err
	}
	if issuerRing != nil {
		issuerRing.rotator.Former = tokenserver.CachedIdentities{Memory: mgr.GetClient(), Live: live}.FromOtherRings
	}
	rings := slices.DeleteFunc([]*ring{issuerRing, spiffeRing}, func(r *ring) bool { return r == nil })

	// The program makes tokens only while these preconditions hold:
	//   - No other program of Lanyard can reach the signing keys, unless the administrator
	//     accepts this.
	//   - For each ring, the API server uses neither the ring's issuer nor a key of the ring.
	//
	// If the second precondition is not certain at the start, the program ends.
	rights := tokenserver.NewPrecondition("rights", "it is not certain that no other program of Lanyard can reach the signing keys", tokenserver.Rights{
		Reviews: clientset.AuthorizationV1().SubjectAccessReviews(), Namespace: f.Namespace, Guarded: f.GuardedNamespaces, Accounts: f.OtherAccounts, Accepted: f.AcceptOtherAccounts, Log: log,
	}.Check)
	preconditions := []*tokenserver.Precondition{rights}
	for _, r := range rings {
		if err := r.distinct.Step(ctx); err != nil {
			return err
		}
		preconditions = append(preconditions, r.distinct)
	}
	serving, err := newServing(ctx, f, mgr, live, clientset, issuerRing, spiffeRing, log)
	if err != nil {
		return err
	}

	// The aggregated API server.
	service := &tokenserver.APIService{Client: live}
	certificate := &tokenserver.Certificate{
		Client: live, Secret: client.ObjectKey{Namespace: f.Namespace, Name: flags.Name + "-ca"}, Hosts: f.Hosts, Service: service,
	}
	if err := certificate.Step(ctx); err != nil {
		return err
	}
	counted := tokenserver.NewMetrics(log)
	audit, err := tokenserver.OpenAudit(f.AuditLogPath, out)
	if err != nil {
		return err
	}
	authorizer, err := tokenserver.NewAuthorizer(clientset)
	if err != nil {
		return err
	}
	serving.Address, serving.Certificate, serving.Kubernetes, serving.Authorizer = f.ListenAddress, certificate, clientset, authorizer
	serving.Preconditions, serving.Metrics, serving.Audit, serving.Log = preconditions, counted, audit, log
	server, err := tokenserver.New(ctx, serving)
	if err != nil {
		return err
	}

	add := func(run manager.RunnableFunc) error { return mgr.Add(run) }
	every := func(interval time.Duration, step func(context.Context) error) error {
		return add(func(ctx context.Context) error { tokenserver.Every(ctx, interval, step, log); return nil })
	}
	errs := []error{
		program.RegisterProcessMetrics(),
		metrics.Registry.Register(counted),
		add(func(ctx context.Context) error {
			return service.DeleteWithNamespace(ctx, mgr.GetCache(), f.Namespace, log)
		}),
		add(server.Run),
		every(tokenserver.CertificateInterval, certificate.Step),
	}
	for _, p := range preconditions {
		errs = append(errs, metrics.Registry.Register(p.Metric()), every(tokenserver.PreconditionInterval, p.Step))
	}
	// The check "rights" finds out whether other programs of Lanyard can reach the signing keys. A
	// replica becomes ready after its first check, even if the check fails. The replica then
	// refuses each request for a token, and the error says why.
	ready := map[string]healthz.Checker{"rights": rights.Checked}
	var names []client.ObjectKey
	for _, r := range rings {
		errs, names = append(errs, r.add(ctx, mgr, clientset)), append(names, r.key)
		ready["keys-"+r.key.Name] = func(*http.Request) error { return r.signer.Fresh() }
	}
	errs = append(errs, f.AddPorts(ctx, mgr, log, ready))
	if spiffeRing == nil {
		// The flags name no trust domain. The SPIFFE KeyRing of a former trust domain may still
		// have keys and authorities, which must be retired.
		retired, err := newRing(f, keyring.SPIFFERing, f.SPIFFEPolicy(), live, clientset, clock, log)
		if err != nil {
			return err
		}
		errs = append(errs, retired.retire(mgr, clientset))
	}
	errs = append(errs, metrics.Registry.Register(tokenserver.NewRingMetrics(live, names, f.RotationPeriod, log)))
	if issuerRing != nil {
		errs = append(errs, tokenserver.ForgetDeleted(ctx, mgr.GetCache(), counted))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager makes the program's manager. The function memory returns the options of the manager's
// cache.
func newManager(config *rest.Config, f flags.Flags) (manager.Manager, error) {
	options, err := program.ManagerOptions(memory(f), corev1.AddToScheme, authenticationv1.AddToScheme, kinds.All().AddToScheme)
	if err != nil {
		return nil, err
	}
	return manager.New(config, options)
}

// memory returns the options of the manager's cache. For each kind, the options say which objects
// the cache stores, and which parts of each object.
func memory(f flags.Flags) map[client.Object]kubecache.ByObject {
	return map[client.Object]kubecache.ByObject{
		&corev1.Namespace{}:            {Field: fields.OneTermEqualSelector("metadata.name", f.Namespace)},
		&identityv1.KeyRing{}:          {Namespaces: map[string]kubecache.Config{f.Namespace: {}}},
		&identityv1.WorkloadIdentity{}: {Transform: tokenserver.Remember},
	}
}

// newServing returns the part of the server's configuration that decides what tokens and SVIDs
// contain.
func newServing(
	ctx context.Context, f flags.Flags, mgr manager.Manager, live client.Client, clientset kubernetes.Interface, issuerRing, spiffeRing *ring, log *slog.Logger,
) (tokenserver.Config, error) {
	c := tokenserver.Config{SVIDKinds: kinds.All().Where(kinds.Kind.HasSVIDs)}
	audiences, err := program.APIAudiences(ctx, f.APIAudiences, live)
	if err != nil {
		return c, err
	}
	objects, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return c, err
	}
	if spiffeRing != nil {
		c.SVIDs = &tokenserver.SVIDs{
			TrustDomain: f.TrustDomain, Issuer: f.SPIFFEIssuer, Algorithm: f.SPIFFEAlgorithm, APIAudiences: audiences,
			Objects: objects, Signer: spiffeRing.signer,
		}
	}
	if issuerRing == nil {
		return c, nil
	}
	c.Issuer = &issuer.Issuer{URL: f.Issuer, Limits: f.Limits, APIAudiences: audiences}
	if err := c.Issuer.Check(); err != nil {
		return c, err
	}
	c.Clusters = f.Clusters
	c.Identities = tokenserver.CachedIdentities{Memory: mgr.GetClient(), Live: live}
	c.Signer = issuerRing.signer
	c.Contexts, err = newContexts(f, objects, clientset, log)
	return c, err
}

// newContexts returns the resolver that checks context objects. A context object is the object that
// a token is used for.
func newContexts(f flags.Flags, objects dynamic.Interface, clientset kubernetes.Interface, log *slog.Logger) (tokenserver.Contexts, error) {
	contexts, err := contextobject.Load(kinds.All(), f.ClaimsConfig)
	if err != nil {
		return nil, fmt.Errorf("--claims-config: %w", err)
	}
	return contextobject.Resolver{
		Kinds: contexts, Reviews: clientset.AuthorizationV1().SubjectAccessReviews(), Objects: objects, Clusters: f.Clusters, Log: log,
	}, nil
}

// replica returns a name that distinguishes this process from other replicas.
func replica() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return fmt.Sprintf("%s-%d", name, os.Getpid())
}
