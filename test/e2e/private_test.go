package e2e

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TestPrivateNetworks acts as a hostile tenant. It creates objects with hosts in networks that are
// not public. A controller must not connect to an address in --deny-cidrs unless the administrator
// lists the host. By default, --deny-cidrs has the private ranges.
func TestPrivateNetworks(t *testing.T) {
	beside(t)
	inside, address, connections := startInside(t)
	denied := map[string]any{"denyCIDRs": []any{address + "/32"}}
	listed := map[string]any{"denyCIDRs": []any{address + "/32"}, "allowedEndpointHosts": []any{inside}}
	// Use no proxy, because a proxy would connect in place of the controller. The controller needs
	// no DNS, because the hosts below are IP addresses.
	environment := environment("NO_PROXY=*", "no_proxy=*")
	for _, tt := range []struct {
		name     string
		identity map[string]any
		host     string
		fetched  bool
	}{
		{"by-default", map[string]any{}, "10.96.0.1:443", false},
		{"denied", denied, inside, false},
		{"listed", listed, inside, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := takeShard(t)
			s.start(t, "private-"+tt.name, map[string]any{"extraEnv": environment, "identity": tt.identity})
			tn := s.newTenant(t, "private-"+tt.name)
			app, tags, files := tn.generic(tt.name, "oci://"+tt.host+"/app"), tn.image(tt.name), tn.bucket(tt.name, v1alpha1.ProviderGeneric, "good")
			app.Spec.Insecure, tags.Spec.Insecure, files.Spec.Insecure = true, true, true
			tags.Spec.Image, tags.Spec.Provider, tags.Spec.ServiceAccountName = tt.host+"/app", v1alpha1.ProviderGeneric, ""
			files.Spec.Endpoint, files.Spec.ServiceAccountName = tt.host, ""
			all := []client.Object{app, tags, files}
			before := connections.Load()
			for _, o := range all {
				create(t, o)
			}
			for _, o := range all {
				if tt.fetched {
					awaitReady(t, o)
					continue
				}
				awaitRefusal(t, o, "EndpointRefused", tt.host, "--deny-cidrs", "--allowed-endpoint-hosts")
			}
			if n := connections.Load() - before; (n > 0) != tt.fetched {
				t.Errorf("the host was connected to %d times", n)
			}
		})
	}
}

// startInside starts a registry and an object store with content at an address of this machine. It
// counts the connections to them.
func startInside(t *testing.T) (host, address string, connections *atomic.Int64) {
	t.Helper()
	address = ownAddress(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	must(t, "listen at "+address, err)
	mux := http.NewServeMux()
	mux.Handle("/v2/", registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	mux.Handle("/", &hostileStore{listings: map[string]int{}, reads: map[string]int{}, at: map[string][]time.Time{}})
	connections = &atomic.Int64{}
	server := &httptest.Server{Listener: l, Config: &http.Server{
		Handler: mux, ReadHeaderTimeout: patience,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
	}}
	server.Start()
	t.Cleanup(server.Close)
	host = l.Addr().String()
	reference, err := name.ParseReference(host+"/app:1.0.0", name.Insecure)
	must(t, "name a reference", err)
	must(t, "push", remote.Write(reference, image(t, layer(t, file("app.yaml", "app"))), remote.WithContext(t.Context()), remote.WithTransport(direct.Transport)))
	return host, address, connections
}

// ownAddress returns an address of this machine outside loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, "list this machine's addresses", err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address besides that of its loopback")
	return ""
}
