// Package flags is the command line of lanyard-controller.
package flags

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
)

// Flags are the settings of one controller.
type Flags struct {
	// StoragePath is the folder of the artifact store.
	StoragePath string
	// ArtifactListenAddress is where artifacts are served.
	ArtifactListenAddress string
	// ArtifactBaseURL is under which URL clients reach ArtifactListenAddress, without a slash at its end.
	ArtifactBaseURL string
	// ArtifactStoreMaxSize bounds the store in bytes; 0 means that only the disk does.
	ArtifactStoreMaxSize int64
	// ArtifactNamespaceMaxSize bounds what one namespace has in the store, in bytes; 0 means that only the store's bound does.
	ArtifactNamespaceMaxSize int64
	// ArtifactMaxDecompressedSize bounds one artifact in bytes.
	ArtifactMaxDecompressedSize int64

	// MetricsAddress is where metrics are served; "0" serves none.
	MetricsAddress string
	// HealthAddress is where /healthz and /readyz are served.
	HealthAddress string

	// LeaderElect has only one of several replicas reconcile.
	LeaderElect bool
	// LeaderElectNamespace is where the lease is; empty for the controller's own namespace.
	LeaderElectNamespace string
	// LeaderElectID is the name of the lease, one for each shard.
	LeaderElectID string
	// ShardSelector selects the objects that this controller reconciles.
	ShardSelector labels.Selector
	// Concurrent is how many objects of each kind are reconciled at once.
	Concurrent int

	// TokenCacheMaxSize is how many tokens are kept; 0 keeps none.
	TokenCacheMaxSize int
	// TokenCacheMaxDuration bounds how long a token is served.
	TokenCacheMaxDuration time.Duration
	// TokenCacheRefreshFraction is the part of a token's life after which it is refreshed.
	TokenCacheRefreshFraction float64
	// TokenCacheObjectMetrics counts hits and misses for every object.
	TokenCacheObjectMetrics bool

	// DefaultServiceAccount is the account of objects with a cloud's provider that name none, in the object's namespace; empty for
	// none.
	DefaultServiceAccount string
	// RequireServiceAccount refuses objects with a cloud's provider that have no account.
	RequireServiceAccount bool
	// FeatureGates switch features.
	FeatureGates Gates
	// ControllerIdentityNamespaces may use the controller's own identity.
	ControllerIdentityNamespaces grant.Namespaces
	// AllowedEndpointHosts are hosts outside the clouds' tables that tenants may name.
	AllowedEndpointHosts endpoint.Allowed
	// DenyCIDRs are addresses that hosts named by tenants must not have, unless they are listed or the clouds' own; the private ranges
	// by default.
	DenyCIDRs endpoint.CIDRs
	// AWSRegion is the region of AWS STS, unless an object's endpoint or the partition of its registry or bucket decides, and of Buckets
	// that name neither region nor endpoint; empty for none.
	AWSRegion string

	// LogLevel is the least severe level that is logged.
	LogLevel slog.Level
	// LogFormat is json or text.
	LogFormat string
	// Kubeconfig is the file that says how to reach the API server; empty inside a cluster.
	Kubeconfig string
	// Version asks for the version alone.
	Version bool
}

// ErrHelp is a command line that asks for help; its text is the help.
var ErrHelp = errors.New("help")

const intro = `lanyard-controller fetches artifacts for Kubernetes objects, each with its own tenant's short-lived credential.

Usage:
  lanyard-controller [flags]

Example, for a program that runs outside the cluster:
  lanyard-controller --kubeconfig=controller.kubeconfig --storage-path=./artifacts \
    --artifact-base-url=http://localhost:9090 --leader-elect-namespace=lanyard-system \
    --aws-region=eu-west-1

Flags:
`

// Parse reads a command line. env looks up the environment, which some defaults come from. The error is ErrHelp, whose help is
// the second result, or names the flag and what to write.
func Parse(args []string, env func(string) string) (f Flags, help string, err error) {
	var (
		storeSize     = size(8 << 30)
		namespaceSize = size(2 << 30)
		artifactSize  = size(1 << 30)
		selector      string
		level         string
	)
	set := pflag.NewFlagSet("lanyard-controller", pflag.ContinueOnError)
	set.SortFlags = false
	set.Usage = func() {} // the caller prints it

	set.StringVar(&f.StoragePath, "storage-path", "/data", "folder of the artifact store")
	set.StringVar(&f.ArtifactListenAddress, "artifact-listen-address", ":9090", "where artifacts are served")
	set.StringVar(&f.ArtifactBaseURL, "artifact-base-url", "", "URL under which clients reach --artifact-listen-address, such as http://lanyard-controller.lanyard-system.svc.cluster.local. (required)")
	set.Var(&storeSize, "artifact-store-max-size", "bound of all artifacts together; 0 leaves it to the disk")
	set.Var(&namespaceSize, "artifact-namespace-max-size", "bound of all artifacts of one namespace, so that no tenant fills the store; 0 leaves it to the store")
	set.Var(&artifactSize, "artifact-max-decompressed-size", "bound of one artifact, transferred and unpacked")

	set.StringVar(&f.MetricsAddress, "metrics-address", ":8080", "where Prometheus metrics are served; 0 serves none")
	set.StringVar(&f.HealthAddress, "health-address", ":8081", "where /healthz and /readyz are served")

	set.BoolVar(&f.LeaderElect, "leader-elect", false, "have only one of several replicas reconcile")
	set.StringVar(&f.LeaderElectNamespace, "leader-elect-namespace", "", "namespace of the lease; default the controller's own")
	set.StringVar(&f.LeaderElectID, "leader-elect-id", "lanyard-controller", "name of the lease, one for each shard")
	set.StringVar(&selector, "shard-selector", "", "label selector of the objects to reconcile, such as lanyard.dev/shard=a; default all")
	set.IntVar(&f.Concurrent, "concurrent", 10, "how many objects of each kind are reconciled at once; those of one namespace have at most half of what others leave")

	set.IntVar(&f.TokenCacheMaxSize, "token-cache-max-size", 10_000, "how many tokens are kept; 0 keeps none and exchanges for every use")
	set.DurationVar(&f.TokenCacheMaxDuration, "token-cache-max-duration", time.Hour, "how long a token is served at most")
	set.Float64Var(&f.TokenCacheRefreshFraction, "token-cache-refresh-fraction", 0.8, "part of a token's life after which use refreshes it")
	set.BoolVar(&f.TokenCacheObjectMetrics, "token-cache-object-metrics", false, "count hits and misses for every object: as many series as objects")

	set.StringVar(&f.DefaultServiceAccount, "default-service-account", "", "account, in the object's own namespace, of objects with a cloud's provider that name none; default none")
	set.BoolVar(&f.RequireServiceAccount, "require-service-account-for-provider-auth", false, "refuse objects with a cloud's provider that have no account, whomever --controller-identity-namespaces admits")
	f.FeatureGates = defaultGates()
	set.Var(&f.FeatureGates, "feature-gates", "features to switch, as name=true,name=false")
	set.Var(&f.ControllerIdentityNamespaces, "controller-identity-namespaces", `namespaces whose objects may use the controller's own identity: a,b or a grant such as {"list":["a"]}; default nobody`)
	set.Var(&f.AllowedEndpointHosts, "allowed-endpoint-hosts", "hosts outside the clouds' tables that tenants may name, whatever their addresses; exact, without wildcards")
	set.Var(&f.DenyCIDRs, "deny-cidrs", "networks that hosts named by tenants must not be in, unless they are listed above or a cloud's own; what is set takes the default's place, and --deny-cidrs= leaves only what is always refused: loopback, link-local and metadata services")
	set.StringVar(&f.AWSRegion, "aws-region", env("AWS_REGION"), "region of AWS STS, but for objects that name an endpoint of another and for registries and buckets of another partition; also of Buckets that name neither region nor endpoint; default $AWS_REGION")

	set.StringVar(&level, "log-level", "info", "least severe level that is logged: debug, info, warn or error")
	set.StringVar(&f.LogFormat, "log-format", "json", "json or text")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "file that says how to reach the API server; default the cluster that the program runs in")
	set.BoolVar(&f.Version, "version", false, "print the version and end")

	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return Flags{}, intro + set.FlagUsages(), ErrHelp
		}
		return Flags{}, "", fmt.Errorf("%w; see --help", err)
	}
	if set.NArg() > 0 {
		return Flags{}, "", fmt.Errorf("unexpected argument %q; see --help", set.Arg(0))
	}
	if f.Version {
		return f, "", nil
	}
	f.ArtifactStoreMaxSize, f.ArtifactNamespaceMaxSize, f.ArtifactMaxDecompressedSize = int64(storeSize), int64(namespaceSize), int64(artifactSize)
	if err := f.check(selector, level); err != nil {
		return Flags{}, "", err
	}
	return f, "", nil
}

// check refuses what would only show when an object needs it.
func (f *Flags) check(selector, level string) (err error) {
	if f.ArtifactBaseURL, err = baseURL(f.ArtifactBaseURL); err != nil {
		return err
	}
	if f.ShardSelector, err = labels.Parse(selector); err != nil {
		return fmt.Errorf("--shard-selector: %w", err)
	}
	if err := f.LogLevel.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level: %q is not debug, info, warn or error", level)
	}
	switch {
	case f.LogFormat != "json" && f.LogFormat != "text":
		return fmt.Errorf("--log-format: %q is neither json nor text", f.LogFormat)
	case f.StoragePath == "":
		return errors.New("--storage-path: name a folder")
	case f.ArtifactMaxDecompressedSize == 0:
		return errors.New("--artifact-max-decompressed-size: 0 would refuse every artifact")
	case f.Concurrent < 1:
		return fmt.Errorf("--concurrent: %d is less than 1", f.Concurrent)
	case f.TokenCacheMaxSize < 0:
		return fmt.Errorf("--token-cache-max-size: %d is negative; 0 keeps nothing", f.TokenCacheMaxSize)
	case f.TokenCacheMaxDuration <= 0:
		return fmt.Errorf("--token-cache-max-duration: %s is no time; to keep nothing set --token-cache-max-size=0", f.TokenCacheMaxDuration)
	case f.TokenCacheRefreshFraction <= 0 || f.TokenCacheRefreshFraction > 1:
		return fmt.Errorf("--token-cache-refresh-fraction: %v is not above 0 and at most 1", f.TokenCacheRefreshFraction)
	case f.DefaultServiceAccount != "" && len(validation.IsDNS1123Subdomain(f.DefaultServiceAccount)) > 0:
		return fmt.Errorf("--default-service-account: %q is no name of a ServiceAccount; the namespace is the object's", f.DefaultServiceAccount)
	case f.DefaultServiceAccount != "" && !f.FeatureGates.ObjectLevelWorkloadIdentity:
		return errors.New("--default-service-account: it needs --feature-gates=ObjectLevelWorkloadIdentity=true")
	case f.LeaderElectID == "":
		return errors.New("--leader-elect-id: name a lease")
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

// size is a number of bytes as a flag's value, in Kubernetes' notation.
type size int64

// Set reads a quantity such as 8Gi.
func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is no number of bytes such as 8Gi", text)
	}
	n, exact := q.AsInt64()
	if !exact || n < 0 {
		return fmt.Errorf("%q is no whole number of bytes, or negative", text)
	}
	*s = size(n)
	return nil
}

// String is the quantity in Kubernetes' notation.
func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

// Type is the value's name in the help.
func (s *size) Type() string { return "bytes" }
