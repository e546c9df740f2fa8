// Package flags parses the command line of lanyard-controller.
package flags

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/internal/broker"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// Name is the name of the program.
const Name = "lanyard-controller"

// Flags are the settings of one controller.
type Flags struct {
	program.Flags

	// StoragePath is the folder of the artifact store.
	StoragePath string
	// ArtifactListenAddress is the address on which artifacts are served.
	ArtifactListenAddress string
	// ArtifactBaseURL is the URL under which clients reach ArtifactListenAddress, without a slash
	// at its end.
	ArtifactBaseURL string
	// ArtifactStoreMaxSize is the largest size of the store in bytes; 0 means that only the disk
	// bounds it.
	ArtifactStoreMaxSize int64
	// ArtifactNamespaceMaxSize is the largest size of one namespace's artifacts in the store, in
	// bytes. With 0, only the namespace's share of ArtifactStoreMaxSize limits the artifacts.
	ArtifactNamespaceMaxSize int64
	// ArtifactMaxDecompressedSize is a limit in bytes for each artifact. Neither the transferred
	// size nor the unpacked size may exceed it.
	ArtifactMaxDecompressedSize int64

	// ProfileAddress is the loopback address on which profiles (pprof) are served; empty to serve
	// no profiles.
	ProfileAddress string

	// LeaderElect lets only one of several replicas reconcile.
	LeaderElect bool
	// LeaderElectNamespace is the namespace of the lease; empty for the controller's own namespace.
	LeaderElectNamespace string
	// LeaderElectID is the name of the lease. Each shard needs its own lease.
	LeaderElectID string
	// ShardSelector selects the objects that this controller reconciles.
	ShardSelector labels.Selector
	// Concurrent is the number of workers that reconcile the objects of each kind.
	Concurrent int

	// TokenCacheMaxSize is the largest number of cached tokens; 0 turns the cache off.
	TokenCacheMaxSize int
	// TokenCacheMaxDuration is the longest time for which a token is served from the cache.
	TokenCacheMaxDuration time.Duration
	// TokenCacheRefreshFraction is the part of a token's life after which the token is refreshed.
	TokenCacheRefreshFraction float64
	// TokenCacheObjectMetrics counts hits and misses for every object.
	TokenCacheObjectMetrics bool

	// DefaultServiceAccount is the name of the ServiceAccount for objects that need a
	// ServiceAccount's token but name no ServiceAccount. Each object uses the ServiceAccount with
	// this name in its own namespace. Empty: there is no default.
	DefaultServiceAccount string
	// RequireServiceAccount refuses objects that need a ServiceAccount's token but have no
	// ServiceAccount.
	RequireServiceAccount bool
	// KeyRingNamespace is the namespace of the KeyRings of Lanyard's token server. Empty: the
	// cluster has no token server. Objects with workloadIdentityName are then refused. Objects with
	// a SPIFFE credential are refused too, unless SPIFFEBroker has an endpoint.
	KeyRingNamespace string
	// SPIFFEBroker is the configuration of the broker that issues the SVIDs of objects. The token
	// server issues SVIDs only if this configuration has no Endpoint.
	SPIFFEBroker broker.Config
	// AWSIdentities lets objects name AWS identities. If AWSIdentities is true, the controller's
	// own identity at AWS needs two grants to be used in a namespace. One is in
	// ControllerIdentityNamespaces, the other in the AWSClusterControllerIdentity.
	AWSIdentities bool
	// IdentitySecretNamespace is the namespace of the static keys of AWS identities. Empty: no static
	// keys are read, and objects whose identity needs them are refused.
	IdentitySecretNamespace string
	// IdentitiesAtHub says that the WorkloadIdentities are in another cluster, the hub. Objects
	// with workloadIdentityName are then refused.
	IdentitiesAtHub bool
	// FeatureGates switch features on and off.
	FeatureGates Gates
	// ControllerIdentityNamespaces are the namespaces that may use the controller's own identity.
	ControllerIdentityNamespaces grant.Namespaces
	// ControllerCredentialHosts are the servers that may get a token of the controller's own
	// ServiceAccount as a credential.
	ControllerCredentialHosts endpoint.Allowed
	// AllowedEndpointHosts are the hosts that tenants may name besides the known hosts of the
	// clouds.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are networks whose addresses are refused for hosts that tenants name. The default
	// is the private address ranges. Hosts in AllowedEndpointHosts and the clouds' own hosts are
	// exempt.
	DenyCIDRs endpoint.CIDRs
	// AWSRegion is the default region of AWS STS. An STS endpoint with its own region overrides it.
	// So does a registry or bucket outside the partition of AWSRegion. AWSRegion is also the region
	// of Buckets that name neither region nor endpoint. Empty for no default.
	AWSRegion string
}

const intro = `lanyard-controller fetches artifacts for Kubernetes objects, each with its own tenant's short-lived credential.

Usage:
  lanyard-controller [flags]

Example, for a program that runs outside the cluster:
  lanyard-controller --kubeconfig=controller.kubeconfig --storage-path=./artifacts \
    --artifact-base-url=http://localhost:9090 --leader-elect-namespace=lanyard-system \
    --aws-region=eu-west-1
`

// Parse parses a command line, as [program.Flags.Parse] does. Some of the defaults come from
// environment variables, which the function env looks up.
func Parse(args []string, env func(string) string, version string, out io.Writer) (f Flags, done bool, err error) {
	var (
		storeSize     = program.Size(8 << 30)
		namespaceSize = program.Size(2 << 30)
		artifactSize  = program.Size(1 << 30)
		selector      string
	)
	set := pflag.NewFlagSet(Name, pflag.ContinueOnError)

	set.StringVar(&f.StoragePath, "storage-path", "/data", "folder of the artifact store")
	set.StringVar(&f.ArtifactListenAddress, "artifact-listen-address", ":9090", "address on which artifacts are served")
	set.StringVar(&f.ArtifactBaseURL, "artifact-base-url", "", "URL under which clients reach --artifact-listen-address, such as http://lanyard-controller.lanyard-system.svc.cluster.local. (required)")
	set.Var(&storeSize, "artifact-store-max-size", "largest size of all artifacts together; 0 means that only the disk bounds it")
	set.Var(&namespaceSize, "artifact-namespace-max-size", "largest size of one namespace's artifacts, so that no tenant fills the store; 0 means that only its share of --artifact-store-max-size bounds it")
	set.Var(&artifactSize, "artifact-max-decompressed-size", "largest size of one artifact, both transferred and unpacked")

	set.StringVar(&f.ProfileAddress, "pprof-address", "", "loopback address on which profiles (pprof) are served, such as 127.0.0.1:6060; kubectl port-forward reaches it; default none")

	set.BoolVar(&f.LeaderElect, "leader-elect", false, "let only one of several replicas reconcile")
	set.StringVar(&f.LeaderElectNamespace, "leader-elect-namespace", "", "namespace of the lease; default the controller's own")
	set.StringVar(&f.LeaderElectID, "leader-elect-id", Name, "name of the lease, one for each shard")
	set.StringVar(&selector, "shard-selector", "", "label selector of the objects to reconcile, such as lanyard.dev/shard=a; default all")
	set.IntVar(&f.Concurrent, "concurrent", 10, "number of workers of each kind; one namespace gets at most half of the workers that others leave free; an object that takes longer than half a second frees its worker")

	set.IntVar(&f.TokenCacheMaxSize, "token-cache-max-size", 10_000, "number of tokens that are kept; 0 keeps none, so that every use makes an exchange")
	set.DurationVar(&f.TokenCacheMaxDuration, "token-cache-max-duration", time.Hour, "longest time for which a token is served from the cache")
	set.Float64Var(&f.TokenCacheRefreshFraction, "token-cache-refresh-fraction", 0.8, "fraction of a token's life after which the next use refreshes it")
	set.BoolVar(&f.TokenCacheObjectMetrics, "token-cache-object-metrics", false, "count cache hits and misses for every object, with as many series as objects")

	set.StringVar(&f.DefaultServiceAccount, "default-service-account", "", "ServiceAccount, in the object's own namespace, for objects with a cloud's provider or credential.type ServiceAccountToken that name none; default none")
	set.BoolVar(&f.RequireServiceAccount, "require-service-account-for-provider-auth", false, "refuse objects with a cloud's provider or credential.type ServiceAccountToken that have no ServiceAccount, even in --controller-identity-namespaces")
	set.StringVar(&f.KeyRingNamespace, "keyring-namespace", "", "namespace of the KeyRings of Lanyard's token server, which is its own; default none: objects with workloadIdentityName are refused, and objects with a SPIFFE credential too, unless --spiffe-broker-endpoint is set")
	set.StringVar(&f.SPIFFEBroker.Endpoint, "spiffe-broker-endpoint", env("SPIFFE_BROKER_SOCKET"), "SPIFFE broker that issues the SVIDs of objects in place of Lanyard's token server, even if there is one: unix:///path/of/a.sock, tcp://ip:port or dns:///host:port. The controller authenticates itself with its own SVID from the SPIFFE Workload API at $SPIFFE_ENDPOINT_SOCKET; default $SPIFFE_BROKER_SOCKET")
	set.StringVar(&f.SPIFFEBroker.ID, "spiffe-broker-id", "", "SPIFFE ID of the broker, such as spiffe://example.com/broker; with a slash at its end, all IDs below it, such as spiffe://example.com/spire/agent/k8s_psat/prod/. Its trust domain is that of the objects; required with --spiffe-broker-endpoint")
	f.SPIFFEBroker.WorkloadAPI = env("SPIFFE_ENDPOINT_SOCKET")
	set.BoolVar(&f.AWSIdentities, "aws-identities", false, "let objects name AWS identities (spec.identityRef); the controller's own identity at AWS is then lent only where the AWSClusterControllerIdentity default admits the namespace too")
	set.StringVar(&f.IdentitySecretNamespace, "identity-secret-namespace", "", "namespace of the static keys of AWS identities; default none: objects whose identity needs static keys are refused")
	set.BoolVar(&f.IdentitiesAtHub, "identities-at-hub", false, "the WorkloadIdentities are in another cluster, the hub: objects with workloadIdentityName are refused, and WorkloadIdentityBindings get the hub's credentials")
	f.FeatureGates = defaultGates()
	set.Var(&f.FeatureGates, "feature-gates", "features to switch on or off, as name=true,name=false")
	set.Var(&f.ControllerIdentityNamespaces, "controller-identity-namespaces", `namespaces whose objects may use the controller's own identity: a,b or a grant such as {"list":["a"]}; default none`)
	set.Var(&f.ControllerCredentialHosts, "controller-credential-hosts", "hosts that may get a token of the controller's own ServiceAccount as a credential, for objects in --controller-identity-namespaces; exact names, no wildcards; default none")
	set.Var(&f.AllowedEndpointHosts, "allowed-endpoint-hosts", "hosts outside the clouds' tables that tenants may name, whatever their addresses; exact names, no wildcards")
	set.Var(&f.DenyCIDRs, "deny-cidrs", "networks in which a host named by a tenant must not be; hosts in --allowed-endpoint-hosts and the clouds' own hosts are exempt. The value replaces the default. Loopback, link-local and metadata services are always refused, also with --deny-cidrs=")
	set.StringVar(&f.AWSRegion, "aws-region", env("AWS_REGION"), "default region of AWS STS; an endpoint's own region, or another partition of the registry or bucket, overrides it. Also the region of Buckets that name neither region nor endpoint; default $AWS_REGION")

	if done, err = f.Parse(set, args, intro, version, out); done || err != nil {
		return f, done, err
	}
	f.ArtifactStoreMaxSize, f.ArtifactNamespaceMaxSize, f.ArtifactMaxDecompressedSize = int64(storeSize), int64(namespaceSize), int64(artifactSize)
	return f, false, f.check(selector)
}

// check refuses values that would otherwise fail only when an object needs them.
func (f *Flags) check(selector string) (err error) {
	if f.ArtifactBaseURL, err = baseURL(f.ArtifactBaseURL); err != nil {
		return err
	}
	if f.ShardSelector, err = labels.Parse(selector); err != nil {
		return fmt.Errorf("--shard-selector: %w", err)
	}
	if err := loopback(f.ProfileAddress); err != nil {
		return err
	}
	switch {
	case f.StoragePath == "":
		return errors.New("--storage-path is empty: name a folder")
	case f.ArtifactMaxDecompressedSize == 0:
		return errors.New("--artifact-max-decompressed-size: 0 would refuse every artifact")
	case f.Concurrent < 1:
		return fmt.Errorf("--concurrent: %d is less than 1", f.Concurrent)
	case f.TokenCacheMaxSize < 0:
		return fmt.Errorf("--token-cache-max-size: %d is negative; 0 keeps no token", f.TokenCacheMaxSize)
	case f.TokenCacheMaxDuration <= 0:
		return fmt.Errorf("--token-cache-max-duration: %s is not positive; to keep no token, set --token-cache-max-size=0", f.TokenCacheMaxDuration)
	case !(f.TokenCacheRefreshFraction > 0 && f.TokenCacheRefreshFraction <= 1): // refuses NaN too
		return fmt.Errorf("--token-cache-refresh-fraction: %v is not in the range above 0 up to 1", f.TokenCacheRefreshFraction)
	case f.DefaultServiceAccount != "" && len(validation.IsDNS1123Subdomain(f.DefaultServiceAccount)) > 0:
		return fmt.Errorf("--default-service-account: %q is not a name of a ServiceAccount; give no namespace, it is the object's own", f.DefaultServiceAccount)
	case f.DefaultServiceAccount != "" && !f.FeatureGates.ObjectLevelWorkloadIdentity:
		return errors.New("--default-service-account needs --feature-gates=ObjectLevelWorkloadIdentity=true")
	case f.KeyRingNamespace != "" && len(validation.IsDNS1123Label(f.KeyRingNamespace)) > 0:
		return fmt.Errorf("--keyring-namespace: %q is not a name of a namespace", f.KeyRingNamespace)
	case f.SPIFFEBroker.Endpoint == "" && f.SPIFFEBroker.ID != "":
		return errors.New("--spiffe-broker-id needs --spiffe-broker-endpoint")
	case f.IdentitySecretNamespace != "" && !f.AWSIdentities:
		return errors.New("--identity-secret-namespace needs --aws-identities")
	case f.IdentitySecretNamespace != "" && len(validation.IsDNS1123Label(f.IdentitySecretNamespace)) > 0:
		return fmt.Errorf("--identity-secret-namespace: %q is not a name of a namespace", f.IdentitySecretNamespace)
	case f.LeaderElectID == "":
		return errors.New("--leader-elect-id is empty: name a lease")
	}
	return nil
}

// loopback refuses an address that other hosts could reach. A profile shows what the controller
// works on, and making a profile costs the controller time.
func loopback(address string) error {
	if address == "" {
		return nil
	}
	listener, err := netip.ParseAddrPort(address)
	if err != nil || !listener.Addr().IsLoopback() {
		return fmt.Errorf("--pprof-address: %q is not a loopback address with a port, such as 127.0.0.1:6060", address)
	}
	return nil
}

func baseURL(raw string) (string, error) {
	const flag = "--artifact-base-url"
	if raw == "" {
		return "", errors.New(flag + " is required: name the URL under which clients reach --artifact-listen-address")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", flag, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return "", fmt.Errorf("%s: %q is not http://host or https://host", flag, u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("%s: leave out user, query and fragment", flag)
	}
	return strings.TrimRight(u.String(), "/"), nil
}
