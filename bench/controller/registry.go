package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // the registry's storage
	"github.com/sirupsen/logrus"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

const (
	smallRepository = "bench/small"
	largeRepository = "bench/large"
	tag             = "1.0.0"

	largeFiles     = 2000
	largeFileBytes = 21 << 20 / largeFiles
)

// registry is CNCF Distribution in memory, with TLS and without, and counts what it is asked.
type registry struct {
	secure, plain *httptest.Server
	requests      atomic.Int64
	connections   atomic.Int64
}

func startRegistry(ctx context.Context) *registry {
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one measurement"
	config.Log.AccessLog.Disabled = true
	app := handlers.NewApp(ctx, config)
	r := &registry{}
	serve := func() *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.requests.Add(1)
			app.ServeHTTP(w, req)
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				r.connections.Add(1)
			}
		}
		return server
	}
	r.secure, r.plain = serve(), serve()
	r.secure.StartTLS()
	r.plain.Start()
	return r
}

func (r *registry) close() {
	r.secure.Close()
	r.plain.Close()
}

// hosts are the addresses of both, which a controller must be allowed to reach.
func (r *registry) hosts() string {
	return r.secure.Listener.Addr().String() + "," + r.plain.Listener.Addr().String()
}

func (r *registry) url(server *httptest.Server, repository string) string {
	return "oci://" + server.Listener.Addr().String() + "/" + repository
}

// trust writes the authorities of another file and the registry's own.
func (r *registry) trust(others, path string) error {
	authorities, err := os.ReadFile(others) //nolint:gosec // the cloud's own file
	if err != nil {
		return err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.secure.Certificate().Raw})
	return os.WriteFile(path, append(authorities, own...), 0o600) //nolint:gosec // the path is our own
}

// publish pushes an artifact of three small files, and one of 2,000 files and 21 MiB.
func (r *registry) publish(ctx context.Context, dir string) error {
	for repository, files := range map[string]int{smallRepository: 3, largeRepository: largeFiles} {
		folder := filepath.Join(dir, repository)
		if err := writeManifests(folder, files); err != nil {
			return err
		}
		repo, err := oci.ParseURL(r.url(r.secure, repository))
		if err != nil {
			return err
		}
		if _, err := oci.Push(ctx, repo, tag, oci.Artifact{Path: folder}, oci.Options{Transport: r.secure.Client().Transport}); err != nil {
			return err
		}
	}
	return nil
}

// writeManifests writes files that compress as manifests do.
func writeManifests(folder string, files int) error {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same content in each run
	words := make([]string, 3000)
	for i := range words {
		words[i] = fmt.Sprintf("%x", random.Uint64N(1<<40))
	}
	for i := range files {
		var body strings.Builder
		for body.Len() < largeFileBytes {
			fmt.Fprintf(&body, "  %s: %s-%d\n", words[random.IntN(len(words))], words[random.IntN(len(words))], random.IntN(1<<20))
		}
		path := filepath.Join(folder, fmt.Sprintf("dir-%02d", i%50), fmt.Sprintf("file-%04d.yaml", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(body.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}
