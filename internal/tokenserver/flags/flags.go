// Package flags parses the command line of lanyard-token-server.
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// Name is the name of the program.
const Name = "lanyard-token-server"

// Flags are the settings of one token server.
type Flags struct {
	program.Flags

	// Issuer is the issuer's URL, the value of the claim iss; empty if there is only a trust
	// domain.
	Issuer string
	// Clusters are the values of the claim lanyard.dev.cluster.id.
	Clusters issuer.Clusters
	// ClaimsConfig is the file that lists the kinds of context objects besides Lanyard's own; empty
	// for none.
	ClaimsConfig string
	// Limits bound the life of tokens.
	Limits issuer.Limits
	// APIAudiences are the audiences that the API server accepts; empty to learn them from the API
	// server.
	APIAudiences []string

	// TrustDomain is the SPIFFE trust domain of objects' SVIDs; zero for none.
	TrustDomain spiffeid.TrustDomain
	// SPIFFEIssuer is the issuer of JWT-SVIDs, which must differ from Issuer; empty for none.
	SPIFFEIssuer string
	// SPIFFESecretName is the name of a Secret in Namespace. The Secret has the CA of X.509-SVIDs.
	// The name is empty if the token server makes its own CA.
	SPIFFESecretName string
	// SPIFFEKMSKey is the ARN of the CA's private key in AWS KMS; empty if SPIFFESecretName has the
	// key.
	SPIFFEKMSKey string
	// SPIFFEAlgorithm is how JWT-SVIDs are signed.
	SPIFFEAlgorithm identityv1.Algorithm
	// SPIFFEProbeURL is where the token server reads SPIFFEIssuer's public documents, to see which
	// keys are published. If the URL is empty, an administrator must confirm each new key.
	SPIFFEProbeURL string

	// Namespace is the namespace of the KeyRings, their keys and the leader-election leases.
	Namespace string
	// ListenAddress is the address on which the API server reaches this program.
	ListenAddress string
	// Hosts are the names under which the API server reaches this program.
	Hosts []string
	// AuditLogPath is the file for audit events; "-" is the standard output, empty for none.
	AuditLogPath string

	// KeyStore is where new private keys are kept: KeysInSecrets or KeysInAWSKMS.
	KeyStore string
	// AWSRegion is the region of new keys in AWS KMS; empty for $AWS_REGION.
	AWSRegion string

	// Algorithms are the signing algorithms for which the KeyRing of Issuer has keys.
	Algorithms []identityv1.Algorithm
	// PublishDelay is how long a key is in the public document before it signs.
	PublishDelay time.Duration
	// RotationPeriod is how long a key signs.
	RotationPeriod time.Duration
	// RevokedKIDs are the IDs of keys and authorities that are revoked, even if the ring says
	// otherwise.
	RevokedKIDs []string
	// ProbeURL is where the token server reads the public documents, to see which keys are
	// published. If the URL is empty, an administrator must confirm each new key.
	ProbeURL string

	// OtherAccounts are the ServiceAccounts of Lanyard's other programs in Namespace.
	OtherAccounts []string
	// GuardedNamespaces are the namespaces, besides Namespace, in which OtherAccounts must not act
	// as a ServiceAccount.
	GuardedNamespaces []string
	// AcceptOtherAccounts makes the token server serve even if some of OtherAccounts can reach the
	// signing keys.
	AcceptOtherAccounts bool
}

// The values of KeyStore.
const (
	KeysInSecrets = "secrets"
	KeysInAWSKMS  = "aws-kms"
)

const intro = `lanyard-token-server makes tokens of WorkloadIdentities and SVIDs of objects, as an aggregated API server. It alone holds the
signing keys.

Usage:
  lanyard-token-server [flags]

Example, for a program that runs outside the cluster:
  lanyard-token-server --kubeconfig=token-server.kubeconfig --namespace=lanyard-system \
    --issuer=https://issuer.example.com --host=lanyard-token-server.lanyard-system.svc
`

// Parse parses a command line, as [program.Flags.Parse] does.
func Parse(args []string, version string, out io.Writer) (f Flags, done bool, err error) {
	set := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	var algorithms []string
	var trustDomain, spiffeAlgorithm string
	var manual bool
	set.StringVar(&f.Issuer, "issuer", "", "URL of the issuer, such as https://issuer.example.com, under which services read its public documents (required, unless there is only --spiffe-trust-domain)")
	set.StringVar(&f.Clusters.ID, "cluster-id", "", "name of this cluster in tokens, the claim lanyard.dev.cluster.id; default none")
	set.StringVar(&f.Clusters.SpokeUserPrefix, "spoke-user-prefix", "", "what the user names of spokes begin with, such as system:serviceaccount:lanyard-spokes:; the rest is the claim lanyard.dev.cluster.id of their tokens; default: there are no spokes")
	set.StringVar(&f.ClaimsConfig, "claims-config", "", "YAML file that says for which further kinds of objects tokens may be used, and what they say about them; read at start; default only Lanyard's own kinds")
	set.DurationVar(&f.Limits.Min, "token-min-duration", 10*time.Minute, "shortest life of a token; a shorter one is refused")
	set.DurationVar(&f.Limits.Default, "token-default-duration", time.Hour, "life of a token whose WorkloadIdentity has no spec.duration")
	set.DurationVar(&f.Limits.Max, "token-max-duration", 48*time.Hour, "longest life of any token")
	set.StringSliceVar(&f.APIAudiences, "api-audiences", nil,
		"audiences that the API server accepts for itself, which no token gets; default learned from the API server")

	set.StringVar(&trustDomain, "spiffe-trust-domain", "",
		"SPIFFE trust domain of the SVIDs of objects, such as example.com; each cluster needs its own; default none")
	set.StringVar(&f.SPIFFEIssuer, "spiffe-issuer", "", "URL of the issuer of JWT-SVIDs, under which services read its public documents and the SPIFFE bundle; another URL than --issuer; default none, so that only certificates are issued")
	set.StringVar(&f.SPIFFESecretName, "spiffe-secret-name", "", "Secret in --namespace, of the type kubernetes.io/tls, with the CA of X.509-SVIDs, such as cert-manager writes; it is only read; default an own CA")
	set.StringVar(&f.SPIFFEKMSKey, "spiffe-kms-key", "", "ARN of the key of AWS KMS that belongs to the CA in --spiffe-secret-name, whose tls.key is then ignored; default the key in the Secret")
	set.StringVar(&spiffeAlgorithm, "spiffe-jwt-algorithm", string(identityv1.RS256), "how JWT-SVIDs are signed: RS256, ES256 or ES384")
	set.StringVar(&f.SPIFFEProbeURL, "spiffe-probe-url", "",
		"base URL at which this program reads the public documents of --spiffe-issuer; default --spiffe-issuer")

	set.StringVar(&f.Namespace, "namespace", "", "namespace of the KeyRings, their keys and the leases (required)")
	set.StringVar(&f.ListenAddress, "listen-address", ":8443", "address on which the API server reaches this program")
	set.StringSliceVar(&f.Hosts, "host", nil,
		"name under which the API server reaches this program, such as lanyard-token-server.lanyard-system.svc; may be repeated (required)")
	set.StringVar(&f.AuditLogPath, "audit-log-path", "-", "file for an audit event of each token request, with the token's jti and never the token; - is the standard output, empty writes none")

	set.StringVar(&f.KeyStore, "key-store", KeysInSecrets,
		"where new private keys are: secrets (of --namespace) or aws-kms (AWS KMS, as the AWS identity of the environment)")
	set.StringVar(&f.AWSRegion, "aws-region", "", "region of new keys in AWS KMS; default $AWS_REGION")
	set.StringSliceVar(&algorithms, "key-algorithms", []string{string(identityv1.RS256), string(identityv1.ES256)},
		"algorithms that the issuer has keys for: RS256, ES256, ES384")
	set.DurationVar(&f.PublishDelay, "publish-delay", 24*time.Hour,
		"how long a key is published before it signs; longer than any service caches the public documents")
	set.DurationVar(&f.RotationPeriod, "rotation-period", 90*24*time.Hour, "how long a key signs before the next one replaces it")
	set.StringSliceVar(&f.RevokedKIDs, "revoked-kids", nil,
		"keys, authorities of X.509-SVIDs, and keys of such authorities, that are revoked even if a backup of the cluster brings them back")
	set.StringVar(&f.ProbeURL, "probe-url", "",
		"base URL at which this program reads the public documents, as services do; default --issuer")
	set.BoolVar(&manual, "confirm-manually", false,
		"do not read the public documents: people confirm with lanyard keys confirm that a key is published")

	set.StringSliceVar(&f.OtherAccounts, "other-accounts", []string{
		"lanyard-controller", "lanyard-identity-controller", "lanyard-apply-controller", "lanyard-discovery", "lanyard-discovery-mirror",
	}, "ServiceAccounts of Lanyard's other programs in --namespace, which must not reach the signing keys")
	set.StringSliceVar(&f.GuardedNamespaces, "guarded-namespaces", []string{"kube-system"},
		"namespaces in which the other accounts must not act as a ServiceAccount either")
	set.BoolVar(&f.AcceptOtherAccounts, "accept-controller-reads-all-secrets", false,
		"serve even if another program of Lanyard can reach the signing keys")
	if done, err = f.Parse(set, args, intro, version, out); done || err != nil {
		return f, done, err
	}
	for _, a := range algorithms {
		f.Algorithms = append(f.Algorithms, identityv1.Algorithm(a))
	}
	f.SPIFFEAlgorithm = identityv1.Algorithm(spiffeAlgorithm)
	if trustDomain != "" {
		if f.TrustDomain, err = svid.ParseTrustDomain(trustDomain); err != nil {
			return f, false, fmt.Errorf("--spiffe-trust-domain: %w", err)
		}
	}
	if manual && (f.ProbeURL != "" || f.SPIFFEProbeURL != "") {
		return f, false, errors.New("--confirm-manually excludes --probe-url and --spiffe-probe-url")
	}
	if !manual {
		f.ProbeURL, f.SPIFFEProbeURL = cmp.Or(f.ProbeURL, f.Issuer), cmp.Or(f.SPIFFEProbeURL, f.SPIFFEIssuer)
	}
	return f, false, f.check()
}

// check refuses values with which no token could be made.
func (f *Flags) check() error {
	if f.Issuer == "" && f.TrustDomain.IsZero() {
		return errors.New("--issuer or --spiffe-trust-domain is required: name the URL under which services read the public documents")
	}
	if err := f.checkIssuer(); err != nil {
		return err
	}
	if err := f.checkSPIFFE(); err != nil {
		return err
	}
	switch {
	case len(validation.IsDNS1123Label(f.Namespace)) > 0:
		return fmt.Errorf("--namespace: %q is not the name of a namespace", f.Namespace)
	case len(f.Hosts) == 0:
		return errors.New("--host is required: name the Service, as <service>.<namespace>.svc")
	case f.KeyStore != KeysInSecrets && f.KeyStore != KeysInAWSKMS:
		return fmt.Errorf("--key-store: %q is neither %s nor %s", f.KeyStore, KeysInSecrets, KeysInAWSKMS)
	case f.KeyStore == KeysInSecrets && f.AWSRegion != "":
		return fmt.Errorf("--aws-region is for --key-store=%s only", KeysInAWSKMS)
	case slices.Contains(f.APIAudiences, ""):
		return errors.New("--api-audiences has an empty audience")
	}
	for _, host := range f.Hosts {
		if len(validation.IsDNS1123Subdomain(host)) > 0 {
			return fmt.Errorf("--host: %q is not a DNS name", host)
		}
	}
	for _, account := range f.OtherAccounts {
		if len(validation.IsDNS1123Subdomain(account)) > 0 {
			return fmt.Errorf("--other-accounts: %q is not the name of a ServiceAccount", account)
		}
	}
	for _, namespace := range f.GuardedNamespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return fmt.Errorf("--guarded-namespaces: %q is not the name of a namespace", namespace)
		}
	}
	return nil
}

// checkIssuer refuses values with which no token of a WorkloadIdentity could be made.
func (f *Flags) checkIssuer() error {
	if f.Issuer == "" {
		return nil
	}
	if err := issuer.CheckURL(f.Issuer); err != nil {
		return fmt.Errorf("--issuer %w", err)
	}
	if err := f.Limits.Check(); err != nil {
		return fmt.Errorf("--token-min-duration, --token-default-duration, --token-max-duration: %w", err)
	}
	if err := f.Clusters.Check(); err != nil {
		return fmt.Errorf("--spoke-user-prefix: %w", err)
	}
	if f.Clusters.SpokeUserPrefix == "system:serviceaccount:"+f.Namespace+":" {
		return errors.New("--spoke-user-prefix must not be the accounts of --namespace: Lanyard's own programs are there")
	}
	if err := f.Policy().Validate(); err != nil {
		return fmt.Errorf("--key-algorithms, --publish-delay, --rotation-period, --token-max-duration: %w", err)
	}
	if f.ProbeURL != "" && issuer.CheckURL(f.ProbeURL) != nil {
		return fmt.Errorf("--probe-url %w", issuer.CheckURL(f.ProbeURL))
	}
	return nil
}

// checkSPIFFE refuses values with which no SVID could be made.
func (f *Flags) checkSPIFFE() error {
	switch {
	case f.TrustDomain.IsZero() && (f.SPIFFEIssuer != "" || f.SPIFFESecretName != "" || f.SPIFFEKMSKey != "" || f.SPIFFEProbeURL != ""):
		return errors.New("--spiffe-issuer, --spiffe-secret-name, --spiffe-kms-key and --spiffe-probe-url need --spiffe-trust-domain")
	case f.TrustDomain.IsZero():
		return nil
	case f.SPIFFESecretName != "" && len(validation.IsDNS1123Subdomain(f.SPIFFESecretName)) > 0:
		return fmt.Errorf("--spiffe-secret-name: %q is not the name of a Secret", f.SPIFFESecretName)
	case f.SPIFFEKMSKey != "" && f.SPIFFESecretName == "":
		return errors.New("--spiffe-kms-key needs --spiffe-secret-name, the Secret with the CA's certificate")
	case f.SPIFFEIssuer != "" && f.SPIFFEIssuer == f.Issuer:
		return errors.New("--spiffe-issuer must be another URL than --issuer: a token of one must not be taken for a token of the other")
	case f.SPIFFEIssuer == "" && f.SPIFFEProbeURL != "":
		return errors.New("--spiffe-probe-url needs --spiffe-issuer, whose documents it reads")
	case f.SPIFFEIssuer != "" && issuer.CheckURL(f.SPIFFEIssuer) != nil:
		return fmt.Errorf("--spiffe-issuer %w", issuer.CheckURL(f.SPIFFEIssuer))
	case f.SPIFFEProbeURL != "" && issuer.CheckURL(f.SPIFFEProbeURL) != nil:
		return fmt.Errorf("--spiffe-probe-url %w", issuer.CheckURL(f.SPIFFEProbeURL))
	}
	if err := f.SPIFFEPolicy().Validate(); err != nil {
		return fmt.Errorf("--spiffe-jwt-algorithm, --publish-delay, --rotation-period: %w", err)
	}
	return nil
}

// SPIFFEPolicy returns the policy for the keys and authorities of the trust domain.
func (f *Flags) SPIFFEPolicy() keyring.Policy {
	policy := keyring.Policy{
		Issuer: f.SPIFFEIssuer, TrustDomain: f.TrustDomain, Import: f.SPIFFESecretName != "",
		PublishDelay: f.PublishDelay, RotationPeriod: f.RotationPeriod, MaxLife: svid.Lifetime, Revoked: f.RevokedKIDs,
	}
	if f.SPIFFEIssuer != "" {
		policy.Algorithms = []identityv1.Algorithm{f.SPIFFEAlgorithm}
	}
	return policy
}

// Policy returns the policy for the keys of Issuer.
func (f *Flags) Policy() keyring.Policy {
	return keyring.Policy{
		Issuer: f.Issuer, Algorithms: f.Algorithms, PublishDelay: f.PublishDelay, RotationPeriod: f.RotationPeriod,
		MaxLife: f.Limits.Max, Revoked: f.RevokedKIDs,
	}
}
