package program_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/port"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// servers is a [program.Adder] that starts each added server. The map addresses has the address of
// each server, by the server's name.
type servers struct {
	t         *testing.T
	addresses map[string]string
}

// Add implements [program.Adder].
func (s *servers) Add(r manager.Runnable) error {
	server := r.(*manager.Server)
	s.addresses[server.Name] = server.Listener.Addr().String()
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()
	s.t.Cleanup(func() {
		stop()
		must.Succeed(s.t, <-done)
	})
	return nil
}

// TestPorts checks the ports of metrics, health and profiles. Each port must answer at its paths,
// and must close the oldest of too many idle connections.
func TestPorts(t *testing.T) {
	added := &servers{t: t, addresses: map[string]string{}}
	log := slog.New(slog.DiscardHandler)
	f := program.Flags{MetricsAddress: "127.0.0.1:0", HealthAddress: "127.0.0.1:0"}
	must.Succeed(t, f.AddPorts(t.Context(), added, log, map[string]healthz.Checker{
		"keys": healthz.Ping, "documents": func(*http.Request) error { return errors.New("no keys") },
	}))
	must.Succeed(t, program.AddProfilePort(t.Context(), added, "127.0.0.1:0", log))
	for _, name := range []string{"metrics", "health", "profiles"} {
		var dialer net.Dialer
		first, err := dialer.DialContext(t.Context(), "tcp", added.addresses[name])
		must.Succeed(t, err)
		defer first.Close()
		for range port.MaxConnections {
			other, err := dialer.DialContext(t.Context(), "tcp", added.addresses[name])
			must.Succeed(t, err)
			defer other.Close()
		}
		before := time.Now()
		must.Succeed(t, first.SetReadDeadline(before.Add(port.HeaderTimeout-time.Second)))
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: the oldest of too many connections is not closed: %v", name, err)
		}
	}
	for _, c := range []struct {
		port, path string
		code       int
		has        string
	}{
		{"metrics", "/metrics", http.StatusOK, ""},
		{"metrics", "/", http.StatusNotFound, ""},
		{"health", "/healthz", http.StatusOK, "ok"},
		{"health", "/readyz", http.StatusInternalServerError, "documents failed"},
		{"health", "/readyz/keys", http.StatusOK, "ok"},
		{"health", "/readyz/documents", http.StatusInternalServerError, ""},
		{"health", "/metrics", http.StatusNotFound, ""},
		{"profiles", "/debug/pprof/", http.StatusOK, "goroutine"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+added.addresses[c.port]+c.path, nil)
		must.Succeed(t, err)
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		must.Succeed(t, err)
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		if response.StatusCode != c.code || !strings.Contains(string(body), c.has) {
			t.Errorf("%s%s: %s, %q; want %d with %q", c.port, c.path, response.Status, body, c.code, c.has)
		}
	}
}

// TestPortsThatAreOff checks that the addresses "0" and "" open no port.
func TestPortsThatAreOff(t *testing.T) {
	added := &servers{t: t, addresses: map[string]string{}}
	log := slog.New(slog.DiscardHandler)
	for _, address := range []string{"0", ""} {
		f := program.Flags{MetricsAddress: address, HealthAddress: address}
		must.Succeed(t, f.AddPorts(t.Context(), added, log, nil))
	}
	must.Succeed(t, program.AddProfilePort(t.Context(), added, "", log))
	if len(added.addresses) > 0 {
		t.Error(added.addresses)
	}
}
