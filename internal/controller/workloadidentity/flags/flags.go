// Package flags parses the command line of lanyard-identity-controller.
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/hub"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// Name is the name of the program.
const Name = "lanyard-identity-controller"

// Flags are the settings of one identity controller.
type Flags struct {
	program.Flags

	// Issuer is the URL of the issuer, the same as in the token server's flags. Empty: there is no
	// issuer, and no WorkloadIdentity is reconciled.
	Issuer string
	// Limits bound the life of tokens. They are the same as in the token server's flags.
	Limits issuer.Limits
	// APIAudiences are the audiences that the API server accepts; empty to learn them from the API
	// server.
	APIAudiences []string

	// HubKubeconfig is the kubeconfig file for the hub: the cluster that has this cluster's
	// WorkloadIdentities. Empty: there is no hub.
	HubKubeconfig string
	// HubNamespaces maps namespaces of this cluster to the namespaces at the hub that have the
	// WorkloadIdentities.
	HubNamespaces hub.Namespaces
	// HubKeyRingNamespace is the namespace of the KeyRing at the hub.
	HubKeyRingNamespace string

	// Namespace is the namespace of the KeyRing and of the lease.
	Namespace string
	// LeaderElect lets only one of several replicas reconcile.
	LeaderElect bool
	// LeaderElectID is the name of the lease.
	LeaderElectID string
	// Concurrent is the number of workers that reconcile the objects of each kind.
	Concurrent int

	// Bindings lets the controller write the credentials of WorkloadIdentityBindings into Secrets,
	// and renew them.
	Bindings bool
	// RenewalFraction is the part of a credential's life after which the credential of a binding is
	// renewed.
	RenewalFraction float64

	// AWSIdentities lets the controller reconcile AWS identities and AWSClusters.
	AWSIdentities bool
	// AWSRegion is the region of AWS STS. If it is empty, the environment variable AWS_REGION is
	// used.
	AWSRegion string
	// SecretNamespace is the only namespace from which the static keys of AWS identities are read.
	// Empty: no static keys are read.
	SecretNamespace string
	// TokenCacheMaxDuration is the longest time for which a cached credential is used.
	TokenCacheMaxDuration time.Duration
	// AutoControllerIdentityCreator creates a missing AWSClusterControllerIdentity if an AWSCluster
	// needs it. The created identity admits every namespace.
	AutoControllerIdentityCreator bool

	gates map[string]string
}

// autoCreator is the name of the only feature gate.
const autoCreator = "AutoControllerIdentityCreator"

const intro = `lanyard-identity-controller keeps identities. With --issuer it writes the status of WorkloadIdentities: their subject, and
whether tokens can be requested. With --bindings it keeps the credentials in the Secrets of WorkloadIdentityBindings; with --hub-kubeconfig their
WorkloadIdentities are in another cluster. With --aws-identities it keeps the AWS identities that administrators lend to namespaces, and AWSClusters.

Usage:
  lanyard-identity-controller [flags]

Example, for a program that runs outside the cluster:
  lanyard-identity-controller --kubeconfig=identity-controller.kubeconfig --namespace=lanyard-system \
    --issuer=https://issuer.example.com
`

// Parse parses a command line, as [program.Flags.Parse] does.
func Parse(args []string, version string, out io.Writer) (f Flags, done bool, err error) {
	set := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	set.StringVar(&f.Issuer, "issuer", "", "URL of the issuer, as lanyard-token-server has it; empty without issuer")
	set.DurationVar(&f.Limits.Min, "token-min-duration", 10*time.Minute, "shortest life of a token, as lanyard-token-server has it")
	set.DurationVar(&f.Limits.Default, "token-default-duration", time.Hour, "life of a token whose WorkloadIdentity has no spec.duration, as lanyard-token-server has it")
	set.DurationVar(&f.Limits.Max, "token-max-duration", 48*time.Hour, "longest life of any token, as lanyard-token-server has it")
	set.StringSliceVar(&f.APIAudiences, "api-audiences", nil, "audiences that the API server accepts for itself, which no token gets; default learned from the API server")

	set.StringVar(&f.HubKubeconfig, "hub-kubeconfig", "", "kubeconfig file for the hub, the cluster that has the WorkloadIdentities; default none: they are in this cluster")
	set.Var(&f.HubNamespaces, "hub-namespace-map", "namespace at the hub for a namespace of this cluster, such as team-a=eu-1-team-a,team-b=eu-1-team-b; may be repeated. Other namespaces have no identities, and there are no patterns")
	set.StringVar(&f.HubKeyRingNamespace, "hub-keyring-namespace", "", "namespace of the KeyRing at the hub; default --namespace")

	set.StringVar(&f.Namespace, "namespace", "", "namespace of the KeyRing and of the lease (required)")
	set.BoolVar(&f.LeaderElect, "leader-elect", false, "let only one of several replicas reconcile")
	set.StringVar(&f.LeaderElectID, "leader-elect-id", Name, "name of the lease")
	set.IntVar(&f.Concurrent, "concurrent", 4, "number of workers of each kind; an object that takes longer than half a second frees its worker")
	set.BoolVar(&f.Bindings, "bindings", false, "keep the credentials in the Secrets of WorkloadIdentityBindings; needs --issuer or --hub-kubeconfig")
	set.Float64Var(&f.RenewalFraction, "renewal-fraction", 0.5, "part of its life after which the credential of a binding is renewed, from 0.1 to 0.9")
	set.BoolVar(&f.AWSIdentities, "aws-identities", false, "keep AWS identities and AWSClusters")
	set.StringVar(&f.AWSRegion, "aws-region", "", "region of AWS STS; default AWS_REGION")
	set.StringVar(&f.SecretNamespace, "identity-secret-namespace", "", "the only namespace whose Secrets static AWS identities read; empty reads none")
	set.DurationVar(&f.TokenCacheMaxDuration, "token-cache-max-duration", time.Hour, "longest time for which a credential is used")
	set.StringToStringVar(&f.gates, "feature-gates", nil, autoCreator+"=true makes an AWSClusterControllerIdentity for every namespace if an AWSCluster needs it")
	if done, err = f.Parse(set, args, intro, version, out); done || err != nil {
		return f, done, err
	}
	f.HubKeyRingNamespace = cmp.Or(f.HubKeyRingNamespace, f.Namespace)
	return f, false, f.check()
}

// maxIssuer is the schema's bound of status.issuer, in bytes.
const maxIssuer = 512

// check refuses flags that contradict each other, and values with which the controller could not
// work.
func (f *Flags) check() error {
	if err := f.setGates(); err != nil {
		return err
	}
	if err := f.checkHub(); err != nil {
		return err
	}
	switch {
	case f.Issuer == "" && !f.AWSIdentities && f.HubKubeconfig == "":
		return errors.New("--issuer, --hub-kubeconfig or --aws-identities is required: name the URL that lanyard-token-server has, or the cluster with the WorkloadIdentities, or keep AWS identities")
	case f.Bindings && f.Issuer == "" && f.HubKubeconfig == "":
		return errors.New("--bindings needs --issuer or --hub-kubeconfig: name the URL that lanyard-token-server has, or the cluster with the WorkloadIdentities")
	case !(f.RenewalFraction >= 0.1 && f.RenewalFraction <= 0.9):
		return errors.New("--renewal-fraction must be from 0.1 to 0.9")
	case f.SecretNamespace != "" && len(validation.IsDNS1123Label(f.SecretNamespace)) > 0:
		return fmt.Errorf("--identity-secret-namespace: %q is not the name of a namespace", f.SecretNamespace)
	case f.SecretNamespace != "" && f.SecretNamespace == f.Namespace:
		return errors.New("--identity-secret-namespace must not be --namespace: signing keys are there")
	case f.TokenCacheMaxDuration <= 0:
		return errors.New("--token-cache-max-duration must be more than 0")
	case len(validation.IsDNS1123Label(f.Namespace)) > 0:
		return fmt.Errorf("--namespace: %q is not the name of a namespace", f.Namespace)
	case f.LeaderElectID == "":
		return errors.New("--leader-elect-id is empty: name a lease")
	case f.Concurrent < 1:
		return fmt.Errorf("--concurrent must be at least 1, not %d", f.Concurrent)
	case slices.Contains(f.APIAudiences, ""):
		return errors.New("--api-audiences has an empty audience")
	}
	return f.checkIssuer()
}

// checkHub refuses flags for a hub that contradict each other, or with which no binding would get
// an identity.
func (f *Flags) checkHub() error {
	switch {
	case f.HubKubeconfig == "" && len(f.HubNamespaces) > 0:
		return errors.New("--hub-namespace-map needs --hub-kubeconfig")
	case f.HubKubeconfig == "":
		return nil
	case f.Issuer != "":
		return errors.New("--hub-kubeconfig and --issuer exclude each other: the WorkloadIdentities are at the hub, or in this cluster")
	case !f.Bindings:
		return errors.New("--hub-kubeconfig needs --bindings: nothing else has identities of a hub")
	case len(f.HubNamespaces) == 0:
		return errors.New("--hub-kubeconfig needs --hub-namespace-map: no namespace would have identities")
	case len(validation.IsDNS1123Label(f.HubKeyRingNamespace)) > 0:
		return fmt.Errorf("--hub-keyring-namespace: %q is not the name of a namespace", f.HubKeyRingNamespace)
	}
	return nil
}

// setGates reads the feature gates.
func (f *Flags) setGates() error {
	for name, value := range f.gates {
		on, err := strconv.ParseBool(value)
		switch {
		case name != autoCreator:
			return fmt.Errorf("--feature-gates: there is no gate %q; there is %s", name, autoCreator)
		case err != nil:
			return fmt.Errorf("--feature-gates: write %s=true or %s=false", name, name)
		}
		f.AutoControllerIdentityCreator = on
	}
	return nil
}

func (f *Flags) checkIssuer() error {
	if f.Issuer == "" {
		return nil
	}
	if err := issuer.CheckURL(f.Issuer); err != nil {
		return fmt.Errorf("--issuer: %w", err)
	}
	if len(f.Issuer) > maxIssuer {
		return fmt.Errorf("--issuer must have at most %d characters", maxIssuer)
	}
	return f.Limits.Check()
}
