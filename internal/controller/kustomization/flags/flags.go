// Package flags parses the command line of lanyard-apply-controller.
package flags

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/internal/artifact/content"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// Name is the name of the program.
const Name = "lanyard-apply-controller"

// Flags are the settings of one apply controller.
type Flags struct {
	program.Flags

	// Namespace is the namespace of the lease.
	Namespace string
	// LeaderElect lets only one of several replicas reconcile.
	LeaderElect bool
	// LeaderElectID is the name of the lease.
	LeaderElectID string
	// Concurrent is the number of workers.
	Concurrent int

	// ArtifactHosts are the servers from which artifacts are downloaded.
	ArtifactHosts content.Hosts
	// ExternalArtifacts lets Kustomizations use Flux's ExternalArtifacts as sources.
	ExternalArtifacts bool
	// ArtifactMaxSize is the largest size of an artifact, in bytes.
	ArtifactMaxSize int64
	// DefaultServiceAccount is the name of the account for Kustomizations that name no account;
	// empty for no default.
	DefaultServiceAccount string
	// DefaultDecryptionServiceAccount is the name of the account that decrypts for Kustomizations
	// whose spec.decryption names no account; empty for no default.
	DefaultDecryptionServiceAccount string
	// KeyRingNamespace is the namespace of the KeyRing of Lanyard's token server. Empty: the cluster
	// has no token server, and objects with workloadIdentityName are refused.
	KeyRingNamespace string
	// IdentitiesAtHub says that the WorkloadIdentities are in another cluster, the hub. Objects with
	// workloadIdentityName are then refused.
	IdentitiesAtHub bool
	// AWSIdentities lets objects name AWS identities. The controller's own identity at AWS then needs
	// two grants: ControllerIdentityNamespaces, and that of the AWSClusterControllerIdentity.
	AWSIdentities bool
	// ControllerIdentityNamespaces are the namespaces in which the controller decrypts with its own
	// identity, for objects that name no identity.
	ControllerIdentityNamespaces grant.Namespaces
	// Guard decides which API servers and proxies a kubeconfig file of a tenant may name, and at which
	// addresses key services may be.
	Guard endpoint.Guard

	// BuildConcurrent is the number of builds at once.
	BuildConcurrent int
	// BuildMaxMemory is the memory that one build may use, in bytes.
	BuildMaxMemory int64
	// BuildTimeout is how long one build may take.
	BuildTimeout time.Duration
	// BuildMaxObjects is how many objects one artifact may have.
	BuildMaxObjects int
}

const intro = `lanyard-apply-controller builds manifests from artifacts, and applies them as the ServiceAccounts of tenants. It needs the right to
impersonate these ServiceAccounts. Builds run in confined child processes. Encrypted files are decrypted with the tenants' identities
at the clouds' key services, for which the program requests tokens of ServiceAccounts.

Usage:
  lanyard-apply-controller [flags]

Example, for a program that runs outside the cluster:
  lanyard-apply-controller --kubeconfig=apply-controller.kubeconfig --namespace=lanyard-system \
    --artifact-hosts=localhost:9090
`

// leastMemory is the memory that a build without input needs.
const leastMemory = 128 << 20

// Parse parses a command line, as [program.Flags.Parse] does.
func Parse(args []string, version string, out io.Writer) (f Flags, done bool, err error) {
	var hosts []string
	artifact, memory := program.Size(32<<20), program.Size(256<<20)
	set := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	set.StringVar(&f.Namespace, "namespace", "", "namespace of the lease (required)")
	set.BoolVar(&f.LeaderElect, "leader-elect", false, "let only one of several replicas reconcile")
	set.StringVar(&f.LeaderElectID, "leader-elect-id", Name, "name of the lease")
	set.IntVar(&f.Concurrent, "concurrent", 4, "number of workers; an object that takes longer than half a second frees its worker")
	set.StringSliceVar(&hosts, "artifact-hosts", nil, "servers from which artifacts are downloaded, each host or host:port (required)")
	set.Var(&artifact, "artifact-max-size", "largest size of one artifact")
	set.BoolVar(&f.ExternalArtifacts, "external-artifacts", false, "let objects use Flux's ExternalArtifacts as sources; the cluster must have the kind")
	set.StringVar(&f.DefaultServiceAccount, "default-service-account", "", "ServiceAccount of the own namespace for objects that name none; default none: they are refused")
	set.StringVar(&f.DefaultDecryptionServiceAccount, "default-decryption-service-account", "", "ServiceAccount of the own namespace that decrypts for objects whose spec.decryption names no identity; default none: --controller-identity-namespaces decides")
	set.StringVar(&f.KeyRingNamespace, "keyring-namespace", "", "namespace of the KeyRing of Lanyard's token server, which is its own; default none: objects with spec.decryption.workloadIdentityName are refused")
	set.BoolVar(&f.IdentitiesAtHub, "identities-at-hub", false, "the WorkloadIdentities are in another cluster, the hub: objects with spec.decryption.workloadIdentityName are refused")
	set.BoolVar(&f.AWSIdentities, "aws-identities", false, "let objects name AWS identities (spec.decryption.identityRef); the controller's own identity at AWS is then lent only where the AWSClusterControllerIdentity default admits the namespace too")
	set.Var(&f.ControllerIdentityNamespaces, "controller-identity-namespaces", `namespaces in which the controller decrypts with its own identity, for objects that name no identity, if there is no default account: a,b or a grant such as {"list":["a"]}; default none`)
	set.Var(&f.Guard.AllowHosts, "allowed-endpoint-hosts", "API servers and proxies of other clusters (spec.kubeConfig) that may have any address; exact names, no wildcards")
	set.Var(&f.Guard.DenyCIDRs, "deny-cidrs", "networks in which the API servers and proxies of other clusters must not be, unless --allowed-endpoint-hosts lists them. The value replaces the default. Loopback, link-local and metadata services are always refused, also with --deny-cidrs=")
	set.IntVar(&f.BuildConcurrent, "build-concurrent", 2, "number of builds at once; each uses up to --build-max-memory")
	set.Var(&memory, "build-max-memory", "memory that one build may use")
	set.DurationVar(&f.BuildTimeout, "build-timeout", 30*time.Second, "how long one build may take")
	set.IntVar(&f.BuildMaxObjects, "build-max-objects", 3000, "how many objects one artifact may have")
	if done, err = f.Parse(set, args, intro, version, out); done || err != nil {
		return f, done, err
	}
	f.ArtifactMaxSize, f.BuildMaxMemory = int64(artifact), int64(memory)
	if f.ArtifactHosts, err = content.ParseHosts(hosts); err != nil {
		return f, false, fmt.Errorf("--artifact-hosts: %w", err)
	}
	if len(hosts) == 0 {
		return f, false, errors.New("--artifact-hosts is required: name the artifact server of lanyard-controller")
	}
	return f, false, f.check()
}

// check refuses values with which the controller could not work.
func (f *Flags) check() error {
	switch {
	case len(validation.IsDNS1123Label(f.Namespace)) > 0:
		return fmt.Errorf("--namespace: %q is not the name of a namespace", f.Namespace)
	case f.LeaderElectID == "":
		return errors.New("--leader-elect-id is empty: name a lease")
	case f.Concurrent < 1:
		return fmt.Errorf("--concurrent must be at least 1, not %d", f.Concurrent)
	case f.DefaultServiceAccount != "" && len(validation.IsDNS1123Subdomain(f.DefaultServiceAccount)) > 0:
		return fmt.Errorf("--default-service-account: %q is not the name of a ServiceAccount", f.DefaultServiceAccount)
	case f.DefaultDecryptionServiceAccount != "" && len(validation.IsDNS1123Subdomain(f.DefaultDecryptionServiceAccount)) > 0:
		return fmt.Errorf("--default-decryption-service-account: %q is not the name of a ServiceAccount", f.DefaultDecryptionServiceAccount)
	case f.KeyRingNamespace != "" && len(validation.IsDNS1123Label(f.KeyRingNamespace)) > 0:
		return fmt.Errorf("--keyring-namespace: %q is not a name of a namespace", f.KeyRingNamespace)
	case f.ArtifactMaxSize < 1:
		return errors.New("--artifact-max-size must be more than 0")
	case f.BuildConcurrent < 1:
		return fmt.Errorf("--build-concurrent must be at least 1, not %d", f.BuildConcurrent)
	case f.BuildMaxMemory < leastMemory:
		return errors.New("--build-max-memory must be at least 128Mi")
	case f.BuildTimeout <= 0:
		return errors.New("--build-timeout must be more than 0")
	case f.BuildMaxObjects < 1:
		return fmt.Errorf("--build-max-objects must be at least 1, not %d", f.BuildMaxObjects)
	}
	return nil
}
