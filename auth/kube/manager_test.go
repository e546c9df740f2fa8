package kube_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/kube/manager"
)

// managerOptions returns options of a manager without network listeners. The scheme is empty: New
// must work even if the program's scheme lacks the kinds of Kubernetes.
func managerOptions() manager.Options {
	return manager.Options{Manager: ctrlmanager.Options{
		Scheme:  kuberuntime.NewScheme(),
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
			return mapper, nil
		},
	}}
}

// startManager makes a manager for the API server s and runs the manager until the test ends.
func startManager(t *testing.T, s *apiServer, options manager.Options) *manager.Manager {
	t.Helper()
	mgr, err := manager.New(t.Context(), s.config(), options)
	must.Succeed(t, err)
	runManager(t, mgr)
	return mgr
}

// runManager runs a manager until the test ends.
func runManager(t *testing.T, mgr *manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// keepToken fetches a token until the token cache stores it. One fetch may not be enough. The token
// may be dropped if an informer reports the subject or the KeyRing only after the fetch.
func keepToken(t *testing.T, mgr *manager.Manager, key auth.Key) {
	t.Helper()
	waitUntil(t, "the token is kept", func() bool {
		_, err := mgr.Tokens.Fetch(t.Context(), key, auth.FetchOptions{}, func(context.Context) (auth.Fetched, error) {
			return auth.Fetched{Key: key, Token: &auth.RegistryCredentials{ExpiresAt: time.Now().Add(time.Hour)}}, nil
		})
		must.Succeed(t, err)
		return mgr.Tokens.Len() == 1
	})
}

// TestManager checks that New sets up all parts. The token cache must store a token until its
// account changes. The manager's cache must store only those parts of an account that providers
// read.
func TestManager(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA, "note": "x"})
	mgr := startManager(t, s, managerOptions())
	eventually(t, mgr.Accounts, func(account auth.Account, err error) bool { return err == nil && account.Attributes[roleARN] == roleA })

	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	must.Succeed(t, mgr.GetCache().Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "tenant-a-ecr-sa"}, kept))
	if len(kept.Annotations) != 1 || len(kept.Labels) != 0 || len(kept.ManagedFields) != 0 {
		t.Errorf("the manager keeps %+v", kept.ObjectMeta)
	}

	key := auth.Key{Provider: "test", Subject: tenantA(t), UID: "uid-1", Identity: roleA}
	keepToken(t, mgr, key)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleB})
	eventually(t, mgr.Accounts, func(account auth.Account, _ error) bool { return account.Attributes[roleARN] == roleB })
	waitUntil(t, "the token is dropped", func() bool { return mgr.Tokens.Len() == 0 })
}

// TestManagerRunsTheCacheInEveryReplica checks that every replica removes expired tokens from its
// cache, not only the leader.
func TestManagerRunsTheCacheInEveryReplica(t *testing.T) {
	s := newAPIServer(t)
	options := managerOptions()
	options.Manager.LeaderElection, options.Manager.LeaderElectionID = true, "test"
	options.Manager.LeaderElectionResourceLockInterface = othersLock{}
	startManager(t, s, options)
	waitUntil(t, "the cache runs", func() bool {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		return strings.Contains(stacks.String(), "auth/cache.(*Cache).Run")
	})
}

// othersLock is a lease that another replica holds forever.
type othersLock struct{ resourcelock.Interface }

func (othersLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, errors.New("another replica holds the lease")
}

func (othersLock) Identity() string { return "test" }
func (othersLock) Describe() string { return "lease" }

// TestManagerOptions checks that the accounts and the token cache use their options, and that New
// does not change the caller's options.
func TestManagerOptions(t *testing.T) {
	s := newAPIServer(t)
	s.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{"example.com/identity": "a", roleARN: roleA})
	options := managerOptions()
	options.Accounts.APIAudiences = []string{apiAudience}
	options.Accounts.Annotations = []string{"example.com/identity"}
	options.Manager.Cache.ByObject = map[client.Object]kubecache.ByObject{}
	var log bytes.Buffer
	options.Tokens = cache.Options{MaxSize: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	mgr := startManager(t, s, options)
	eventually(t, mgr.Accounts, func(account auth.Account, _ error) bool {
		return account.Attributes["example.com/identity"] == "a" && account.Attributes[roleARN] == ""
	})
	if calls := s.calls(); len(calls) > 1 { // the only expected call lists the accounts
		t.Errorf("the audiences are known, but New calls %q", calls)
	}
	if len(options.Manager.Cache.ByObject) != 0 {
		t.Error("New changes the caller's map")
	}
	for _, name := range []string{"a", "b"} {
		key := auth.Key{Provider: "test", Subject: tenantA(t), UID: name}
		_, err := mgr.Tokens.Fetch(t.Context(), key, auth.FetchOptions{}, func(context.Context) (auth.Fetched, error) {
			return auth.Fetched{Key: key, Token: &auth.RegistryCredentials{ExpiresAt: time.Now().Add(time.Hour)}}, nil
		})
		must.Succeed(t, err)
	}
	if mgr.Tokens.Len() != 1 || !strings.Contains(log.String(), "maxSize=1") {
		t.Errorf("%d tokens are kept, and the log is %q", mgr.Tokens.Len(), log.String())
	}
}

// TestManagerWithIssuer checks that Accounts has ServiceAccounts and WorkloadIdentities if the
// options name the issuer's KeyRing. A change of a subject of either kind drops its tokens.
func TestManagerWithIssuer(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", map[string]any{"iamRoleARN": roleA})
	s.putRing("key-1", "Active")
	accounts := newAPIServer(t)
	accounts.put("tenant-a", "tenant-a-ecr-sa", "uid-1", map[string]string{roleARN: roleA})
	s.others = accounts.Config.Handler
	options := managerOptions()
	options.Manager.MapperProvider = restMapper
	options.KeyRing = issuerRing
	mgr, err := manager.New(t.Context(), &rest.Config{Host: s.URL, QPS: -1}, options)
	must.Succeed(t, err)
	runManager(t, mgr)
	eventually(t, mgr.Accounts, func(_ auth.Account, err error) bool { return err == nil })
	waitUntil(t, "the identity is known", func() bool {
		account, err := mgr.Accounts.Lookup(t.Context(), puller(t))
		return err == nil && account.Attributes["iamRoleARN"] == roleA
	})
	identities := mgr.Accounts[auth.KindWorkloadIdentity].(*kube.WorkloadIdentities)
	// The token is dropped only if the manager first sees key-1 active and then revoked. So wait
	// until the KeyRing is in memory before it changes. Until then, Revoked returns false for every
	// key. After that, it returns true for a key that the KeyRing lacks.
	waitUntil(t, "the ring is known", func() bool { return identities.Revoked("key-of-another-ring") })
	key := auth.Key{Provider: "test", Subject: puller(t), UID: identityUID, Identity: roleA}
	keepToken(t, mgr, key)
	s.putRing("key-1", "Revoked")
	waitUntil(t, "the token is dropped", func() bool { return mgr.Tokens.Len() == 0 })
}

// TestManagerWithObjects checks that objects can be subjects if Options.Objects has their kind. The
// cache must drop the objects' SVIDs when an authority is revoked.
func TestManagerWithObjects(t *testing.T) {
	spiffe, issuer, accounts := newSPIFFEServer(t), newIssuerServer(t), newAPIServer(t)
	spiffe.put(objectUID)
	spiffe.putRing("Active", spiffe.authority)
	issuer.others = accounts.Config.Handler
	// One API server serves all kinds: the issuer's ring and the trust domain's ring are in one
	// list.
	both := http.NewServeMux()
	both.Handle("/", issuer.Config.Handler)
	both.Handle("/apis/toolkit.lanyard.dev/", spiffe.Config.Handler)
	both.Handle("GET /apis/identity.lanyard.dev/v1alpha1/namespaces/lanyard-system/keyrings", spiffe.rings)
	server := httptest.NewServer(both)
	t.Cleanup(server.Close)
	options := managerOptions()
	options.Manager.MapperProvider = func(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		mapper, err := restMapper(config, client)
		mapper.(*meta.DefaultRESTMapper).Add(toolkitGroup.WithKind("OCIRepository"), meta.RESTScopeNamespace)
		return mapper, err
	}
	options.KeyRing = issuerRing
	options.Objects = map[auth.Kind]client.Object{"OCIRepository": nil}
	mgr, err := manager.New(t.Context(), &rest.Config{Host: server.URL, QPS: -1}, options)
	must.Succeed(t, err)
	runManager(t, mgr)
	waitUntil(t, "the object is known", func() bool {
		account, err := mgr.Accounts.Lookup(t.Context(), app(t))
		return err == nil && account.UID == objectUID
	})
	signs(t, mgr.SPIFFE)
	if self := mgr.ServiceAccounts.Self(); self.String() != "system:serviceaccount:lanyard-system:lanyard-controller" {
		t.Errorf("the program is %s", self)
	}
	key := auth.Key{Provider: "svid", Subject: app(t), UID: objectUID}
	keepToken(t, mgr, key)
	spiffe.putRing("Active", in(spiffe.authority, "Revoked"))
	waitUntil(t, "the SVID is dropped", func() bool { return mgr.Tokens.Len() == 0 })
}

// TestManagerWithoutIssuer checks that a WorkloadIdentity cannot be a subject without
// Options.KeyRing, and that no object of the issuer's API is requested.
func TestManagerWithoutIssuer(t *testing.T) {
	mgr := startManager(t, newAPIServer(t), managerOptions())
	if _, err := mgr.Accounts.Lookup(t.Context(), puller(t)); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Error(err)
	}
}

func TestManagerRefuses(t *testing.T) {
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	for name, test := range map[string]struct {
		change func(*manager.Options)
		says   string
	}{
		"another entry": {func(o *manager.Options) {
			o.Manager.Cache.ByObject = map[client.Object]kubecache.ByObject{partial: {}}
		}, "has an entry for objects of kind ServiceAccount"},
		"another entry, of the Go type": {func(o *manager.Options) {
			o.Manager.Scheme = nil
			o.Manager.Cache.ByObject = map[client.Object]kubecache.ByObject{&corev1.ServiceAccount{}: {}}
		}, "has an entry for objects of kind ServiceAccount"},
		"another entry, of our kind": {func(o *manager.Options) {
			o.KeyRing = issuerRing
			ring := &metav1.PartialObjectMetadata{}
			ring.SetGroupVersionKind(identityGroup.WithKind("KeyRing"))
			o.Manager.Cache.ByObject = map[client.Object]kubecache.ByObject{ring: {}}
		}, "has an entry for objects of kind KeyRing"},
		"objects without the token server": {func(o *manager.Options) {
			o.Objects = map[auth.Kind]client.Object{"OCIRepository": nil}
		}, "Objects needs Options.KeyRing"},
		"a manager that cannot be made": {func(o *manager.Options) { o.Manager.LeaderElection = true }, "make the manager: "},
		"an empty audience":             {func(o *manager.Options) { o.Accounts.APIAudiences = []string{""} }, "APIAudiences has an empty audience"},
	} {
		t.Run(name, func(t *testing.T) {
			options := managerOptions()
			test.change(&options)
			if _, err := manager.New(t.Context(), newAPIServer(t).config(), options); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
		runtime.Gosched()
	}
}
