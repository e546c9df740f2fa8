package main

import (
	"context"
	"crypto/tls"
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

	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// registry serves the same images with TLS and without, and counts requests and connections.
type registry struct {
	secure, plain *httptest.Server
	requests      atomic.Int64
	connections   atomic.Int64
}

// distribution returns CNCF Distribution, with its data in memory.
func distribution(ctx context.Context) http.Handler {
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.Secret = "for one measurement"
	config.Log.AccessLog.Disabled = true
	return handlers.NewApp(ctx, config)
}

// startRegistry serves a registry on loopback, with a policy for client certificates.
func startRegistry(handler http.Handler, auth tls.ClientAuthType) *registry {
	r := &registry{}
	serve := func() *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.requests.Add(1)
			handler.ServeHTTP(w, req)
		}))
		server.TLS = &tls.Config{ClientAuth: auth, MinVersion: tls.VersionTLS12}
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

// hosts returns the registry's address with TLS and its address without TLS. The settings of a
// controller must allow both.
func (r *registry) hosts() []string {
	return []string{r.secure.Listener.Addr().String(), r.plain.Listener.Addr().String()}
}

func (r *registry) url(server *httptest.Server, repository string) string {
	return "oci://" + server.Listener.Addr().String() + "/" + repository
}

// trust writes a file with the certificates that a program shall trust: those of the authorities,
// and the registry's own.
func (r *registry) trust(authorities []byte, path string) error {
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.secure.Certificate().Raw})
	return os.WriteFile(path, append(authorities, own...), 0o600)
}

// push pushes a folder with the tag [fleet.Tag].
func (r *registry) push(ctx context.Context, repository, folder string) error {
	to, err := oci.ParseURL(r.url(r.secure, repository))
	if err != nil {
		return err
	}
	options := oci.Options{Transport: r.secure.Client().Transport}
	_, err = oci.Push(ctx, to, fleet.Tag, oci.Artifact{Path: folder}, options)
	return err
}

// writeManifests writes files of 10 KiB that compress as manifests do.
func writeManifests(folder string, files int) error {
	const size = 21 << 20 / 2000
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same content in each run
	words := make([]string, 3000)
	for i := range words {
		words[i] = fmt.Sprintf("%x", random.Uint64N(1<<40))
	}
	for i := range files {
		var body strings.Builder
		for body.Len() < size {
			key, value := words[random.IntN(len(words))], words[random.IntN(len(words))]
			fmt.Fprintf(&body, "  %s: %s-%d\n", key, value, random.IntN(1<<20))
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
