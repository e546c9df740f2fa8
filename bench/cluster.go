package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxcache "github.com/fluxcd/pkg/cache"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/controlplane"
)

const (
	issuer    = "https://oidc.bench.example"
	namespace = "default"
	account   = "bench"
	region    = "eu-west-1"
)

// cluster is a real API server with one annotated ServiceAccount, and informers on it.
type cluster struct {
	config   *rest.Config
	requests atomic.Int64 // requests to the API server; a watch counts once
	stop     func()
}

func startCluster(ctx context.Context, binary string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "lanyard-bench-")
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Binary: binary, Dir: dir, Issuer: issuer})
	if err != nil {
		return nil, err
	}
	c := &cluster{stop: func() {
		_ = plane.Stop(context.WithoutCancel(ctx))
		_ = os.RemoveAll(dir)
	}}
	if c.config, err = clientcmd.BuildConfigFromFlags("", plane.Kubeconfig()); err != nil {
		return nil, err
	}
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			c.requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	live, err := client.New(c.config, client.Options{})
	if err != nil {
		return nil, err
	}
	return c, live.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: account, Annotations: map[string]string{aws.RoleAnnotation: "arn:aws:iam::123456789123:role/bench"},
	}})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// informers makes a cache and passes it to a function that requests informers. Then it starts the
// cache, and waits until the cache has synced.
func (c *cluster) informers(ctx context.Context, options ctrlcache.Options, use func(ctrlcache.Cache) error) error {
	informers, err := ctrlcache.New(c.config, options)
	if err != nil {
		return err
	}
	if err := use(informers); err != nil {
		return err
	}
	go func() { _ = informers.Start(ctx) }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("informers did not sync: %w", context.Cause(ctx))
	}
	return nil
}

// ours returns a function that gets a cached token from Lanyard's library, as a controller does. It
// builds the options once, for all calls of the function.
func (c *cluster) ours(ctx context.Context) (func(int) error, error) {
	live, err := client.New(c.config, client.Options{})
	if err != nil {
		return nil, err
	}
	var accounts *kube.Accounts
	err = c.informers(ctx, ctrlcache.Options{ByObject: kube.ByObject(kube.DefaultAnnotations())},
		func(informers ctrlcache.Cache) (err error) {
			accounts, err = kube.NewAccounts(ctx,
				kube.Options{Informers: informers, APIReader: live, Client: live, APIAudiences: []string{issuer}})
			return err
		})
	if err != nil {
		return nil, err
	}
	provider, err := aws.NewProvider(aws.Config{Region: region})
	if err != nil {
		return nil, err
	}
	tokens := cache.New(cache.Options{MaxSize: 100})
	accounts.Subscribe(tokens.Invalidate)
	opts := []auth.Option{auth.WithServiceAccount(namespace, account, accounts), auth.WithCache(tokens, auth.InvolvedObject{})}
	return warmed(func(int) error {
		_, err := auth.GetToken(ctx, ourAWS{provider}, opts...)
		return err
	})
}

// flux returns a function that gets a cached token from Flux's library, as a controller does. It
// also builds the options once, for all calls of the function.
func (c *cluster) flux(ctx context.Context) (func(int) error, error) {
	var reader client.Reader
	err := c.informers(ctx, ctrlcache.Options{Scheme: scheme.Scheme}, func(informers ctrlcache.Cache) error {
		reader = informers
		_, err := informers.GetInformer(ctx, &corev1.ServiceAccount{})
		return err
	})
	if err != nil {
		return nil, err
	}
	cached, err := client.New(c.config, client.Options{Scheme: scheme.Scheme, Cache: &client.CacheOptions{Reader: reader}})
	if err != nil {
		return nil, err
	}
	tokens, err := fluxcache.NewTokenCache(100)
	if err != nil {
		return nil, err
	}
	opts := []fluxauth.Option{
		fluxauth.WithClient(cached), fluxauth.WithServiceAccountNamespace(namespace), fluxauth.WithServiceAccountName(account),
		fluxauth.WithSTSRegion(region), fluxauth.WithCache(*tokens, fluxcache.InvolvedObject{}),
	}
	fluxauth.EnableObjectLevelWorkloadIdentity()
	return warmed(func(int) error {
		_, err := fluxauth.GetAccessToken(ctx, fluxAWS{}, opts...)
		return err
	})
}

func warmed(call func(int) error) (func(int) error, error) {
	if err := call(0); err != nil {
		return nil, err
	}
	return call, nil
}
