package main

import (
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign/awskms"
	"github.com/lanyard-dev/lanyard/internal/tokenserver"
	"github.com/lanyard-dev/lanyard/internal/tokenserver/flags"
)

// ring is a KeyRing with its signer and its rotator. The signer runs in every replica, the rotator
// in one replica.
type ring struct {
	key     client.ObjectKey
	signer  *sign.Signer
	rotator *sign.Rotator
	// distinct checks that the API server uses neither the ring's issuer nor a key of the ring.
	// Otherwise the API server could mistake the ring's tokens for ServiceAccount tokens.
	distinct *tokenserver.Precondition
}

// newRings makes the ring of the issuer and the ring of the trust domain. The result issuer is nil
// if no flag sets the issuer. The result spiffe is nil if no flag sets the trust domain.
// [ring.retire] handles the ring of a former trust domain.
func newRings(f flags.Flags, live client.Client, clientset kubernetes.Interface, clock *sign.Clock, log *slog.Logger) (issuer, spiffe *ring, err error) {
	if f.Issuer != "" {
		if issuer, err = newRing(f, keyring.IssuerRing, f.Policy(), live, clientset, clock, log); err != nil {
			return nil, nil, err
		}
		if f.ProbeURL != "" {
			issuer.rotator.Probe = keyring.NewProbe(stranger(), f.ProbeURL, f.Issuer)
		}
	}
	if f.TrustDomain.IsZero() {
		return issuer, nil, nil
	}
	if spiffe, err = newRing(f, keyring.SPIFFERing, f.SPIFFEPolicy(), live, clientset, clock, log); err != nil {
		return nil, nil, err
	}
	if f.SPIFFEProbeURL != "" {
		spiffe.rotator.Probe = keyring.NewSPIFFEProbe(stranger(), f.SPIFFEProbeURL, f.SPIFFEIssuer)
	}
	spiffe.rotator.Import, err = newImport(f, live)
	return issuer, spiffe, err
}

// retire adds a task to a manager. The task retires the ring's keys and authorities, and ends when
// none are left.
func (r *ring) retire(mgr manager.Manager, clientset kubernetes.Interface) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		ctx, done := context.WithCancel(ctx)
		defer done()
		return sign.Lead(ctx, clientset.CoordinationV1(), r.key.Namespace, flags.Name+"-"+r.key.Name, replica(), func(ctx context.Context) {
			if r.rotator.Retire(ctx) {
				done()
			}
		})
	}))
}

// newImport returns the function that reads the trust domain's CA from a Secret. The function is
// nil if the ring makes its own CAs.
func newImport(f flags.Flags, live client.Client) (func(context.Context) (*sign.CA, error), error) {
	secret := client.ObjectKey{Namespace: f.Namespace, Name: f.SPIFFESecretName}
	switch {
	case f.SPIFFESecretName == "":
		return nil, nil
	case f.SPIFFEKMSKey == "":
		return sign.ImportFrom(live, secret, f.TrustDomain), nil
	}
	region, err := awskms.RegionOf(f.SPIFFEKMSKey)
	if err != nil {
		return nil, fmt.Errorf("--spiffe-kms-key: %w", err)
	}
	vault, err := awskms.New(awskms.Config{Issuer: f.TrustDomain.IDString(), Region: region, Transport: transport.Default()})
	if err != nil {
		return nil, err
	}
	return sign.ImportWithKey(live, secret, f.TrustDomain, "the key of --spiffe-kms-key", func(ctx context.Context) (crypto.Signer, error) {
		return vault.OpenKey(ctx, f.SPIFFEKMSKey)
	}), nil
}

func newRing(
	f flags.Flags, name string, policy keyring.Policy, live client.Client, clientset kubernetes.Interface, clock *sign.Clock, log *slog.Logger,
) (*ring, error) {
	vaults, err := keyVaults(f, cmp.Or(policy.Issuer, policy.TrustDomain.IDString()))
	if err != nil {
		return nil, err
	}
	log = log.With("ring", name)
	object := sign.Object{Client: live, Namespace: f.Namespace, Name: name}
	keys := sign.NewSecrets(object, vaults...)
	r := &ring{
		key:     client.ObjectKey{Namespace: f.Namespace, Name: name},
		signer:  sign.NewSigner(object, keys, clock.Skew, log),
		rotator: &sign.Rotator{Object: object, Store: keys, Policy: policy, Skew: clock.Skew, Log: log},
	}
	cluster := tokenserver.ClusterIssuer{Documents: clientset.Discovery().RESTClient(), Issuer: policy.Issuer, Ring: r.key, Client: live}
	r.distinct = tokenserver.NewPrecondition(name, "it is not certain that the API server refuses tokens of the KeyRing "+name, cluster.Check)
	return r, nil
}

// add adds the ring's signer and rotator to a manager. A change of the ring wakes both. So a
// revocation does not wait for their next periodic check.
func (r *ring) add(ctx context.Context, mgr manager.Manager, clientset kubernetes.Interface) error {
	toSigner, toRotator := make(chan struct{}, 1), make(chan struct{}, 1)
	if err := tokenserver.FollowRing(ctx, mgr.GetCache(), r.key, toSigner, toRotator); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { r.signer.Run(ctx, toSigner); return nil })); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return sign.Lead(ctx, clientset.CoordinationV1(), r.key.Namespace, flags.Name+"-"+r.key.Name, replica(), func(ctx context.Context) {
			r.rotator.Run(ctx, toRotator)
		})
	}))
}

// keyVaults returns the services that make and store private keys outside Secrets. By default,
// there are none. The name is the ring's issuer URL or trust domain. It becomes part of the
// description of each new key.
func keyVaults(f flags.Flags, name string) ([]sign.Vault, error) {
	if f.KeyStore != flags.KeysInAWSKMS {
		return nil, nil
	}
	vault, err := awskms.New(awskms.Config{Issuer: name, Region: cmp.Or(f.AWSRegion, os.Getenv("AWS_REGION")), Transport: transport.Default()})
	if err != nil {
		return nil, err
	}
	return []sign.Vault{vault}, nil
}

// stranger returns an HTTP client for a probe of the public documents. The client reads them like a
// verifier outside the cluster.
func stranger() *http.Client {
	direct := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true, // each read makes a new connection, like a first-time verifier
	}
	return &http.Client{Transport: direct, Timeout: 10 * time.Second}
}
