package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/flags"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/memory/memorytest"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/program"
)

func nothing(string) string { return "" }

const base = "--artifact-base-url=http://artifacts.example.com"

func TestRunAnswersWithoutACluster(t *testing.T) {
	for arg, want := range map[string]string{"--help": "Example, for a program", "--version": "lanyard-controller "} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, nothing, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q, %v", arg, out.String(), err)
		}
	}
}

func TestRunNamesWhatIsWrong(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // a test in a Pod must not use the Pod's cluster
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	must.Succeed(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"flag":          {[]string{"--concurrent=0", base}, "--concurrent"},
		"no cluster":    {[]string{base}, "--kubeconfig"},
		"no kubeconfig": {[]string{base, "--kubeconfig=" + missing}, "find the API server"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), c.args, nothing, &out); err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: %v, printed %q", name, err, out.String())
		}
	}
}

// TestConnectionsAreGuarded checks that --deny-cidrs and --allowed-endpoint-hosts apply to every
// connection to a host that a tenant names, and to every proxy.
func TestConnectionsAreGuarded(t *testing.T) {
	const host = "192.0.2.1:5000" // address of a documentation network (RFC 5737): no host answers
	for name, c := range map[string]struct {
		flag   string
		target string
		want   string // kind of the refusal; empty for no refusal
	}{
		"private by default": {"--log-level=info", "10.96.0.1:443", "in --deny-cidrs"},
		"denied":             {"--deny-cidrs=192.0.2.0/24", host, "in --deny-cidrs"},
		"loopback":           {"--deny-cidrs=", "127.0.0.1:1", "loopback"},
		"listed":             {"--allowed-endpoint-hosts=127.0.0.1:1", "127.0.0.1:1", ""},
		"neither":            {"--deny-cidrs=", host, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, _, err := flags.Parse([]string{base, c.flag}, nothing, "", io.Discard)
			must.Succeed(t, err)
			pool, err := connections(f)
			must.Succeed(t, err)
			defer pool.Close()
			target := &url.URL{Scheme: "http", Host: c.target}
			for way, transport := range map[string]http.RoundTripper{"host": pool.Host(target), "proxy": pool.Proxy(target)} {
				// A dial that is not refused would wait for an answer, so this dial has a short
				// timeout.
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
				must.Succeed(t, err)
				response, err := transport.RoundTrip(request)
				if err == nil {
					_ = response.Body.Close()
				}
				kind := ""
				if refused, ok := errors.AsType[*endpoint.AddressError](err); ok {
					kind = refused.Kind
				}
				if err == nil || kind != c.want {
					t.Errorf("%s: refused as %q (%v), want %q", way, kind, err, c.want)
				}
			}
		})
	}
}

// TestMemoryIsOfWhatIsRead checks that the manager's cache stores no objects of other shards. It
// must also store no annotations, because tenants choose them.
func TestMemoryIsOfWhatIsRead(t *testing.T) {
	shard := labels.SelectorFromSet(labels.Set{"lanyard.dev/shard": "a"})
	kept := map[reflect.Type]kubecache.ByObject{}
	for o, by := range memory(flags.Flags{ShardSelector: shard}) {
		kept[reflect.TypeOf(o).Elem()] = by
	}
	found := 0
	for _, kind := range reconciled() {
		name, o := kind.Kind, kind.New()
		found++
		by := kept[reflect.TypeOf(o).Elem()]
		if by.Transform == nil || by.Label == nil || by.Label.String() != shard.String() {
			t.Errorf("of %s all is kept, or of all shards: %+v", name, by)
			continue
		}
		o.SetAnnotations(map[string]string{"note": "x"})
		if _, err := by.Transform(o); err != nil || len(o.GetAnnotations()) > 0 {
			t.Errorf("of %s is kept: %v, %v", name, o.GetAnnotations(), err)
		}
	}
	if found < 3 {
		t.Errorf("only %d kinds", found)
	}
}

// TestMemory checks that a large object of a tenant takes little memory in the program's cache. The
// test includes ServiceAccounts and WorkloadIdentities. The options for these two kinds come from
// package auth/kube, and not from the function memory.
func TestMemory(t *testing.T) {
	f := flags.Flags{AWSIdentities: true}
	kept := memory(f)
	maps.Copy(kept, kube.ByObject(kube.DefaultAnnotations()))
	maps.Copy(kept, kube.WorkloadIdentitiesByObject(types.NamespacedName{Namespace: "lanyard-system", Name: "issuer"}))
	options, err := program.ManagerOptions(kept, kinds.All().AddToScheme)
	must.Succeed(t, err)
	memorytest.Run(t, options.Cache)
}

// TestTokenCacheSize checks that the cache stores no token if --token-cache-max-size is 0. In the
// cache's own options, 0 means the default size.
func TestTokenCacheSize(t *testing.T) {
	for flag, want := range map[string]int{"--log-level=info": 10_000, "--token-cache-max-size=0": cache.KeepNothing, "--token-cache-max-size=7": 7} {
		f, _, err := flags.Parse([]string{base, flag}, nothing, "", io.Discard)
		must.Succeed(t, err)
		if got := tokens(f, nil).MaxSize; got != want {
			t.Errorf("%s: MaxSize %d, want %d", flag, got, want)
		}
	}
}

func TestStoreSize(t *testing.T) {
	artifacts, err := store.Open(t.TempDir(), store.Options{})
	must.Succeed(t, err)
	defer artifacts.Close()
	size := storeSize(artifacts)
	if got := testutil.ToFloat64(size); got != 0 {
		t.Errorf("empty: %v", got)
	}
	owner := store.Object{Kind: "bucket", Namespace: "tenant-a", Name: "app", UID: "uid"}
	if _, err := artifacts.Put(t.Context(), owner, func(w io.Writer) error { _, err := w.Write([]byte("hello")); return err }); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(size); got != 5 {
		t.Errorf("with five bytes: %v", got)
	}
}
