package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/discovery/flags"
	"github.com/lanyard-dev/lanyard/internal/memory/memorytest"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// TestMemory checks that a large object takes little memory in the program's cache.
func TestMemory(t *testing.T) {
	f := flags.Flags{Namespace: "lanyard-system"}
	options, err := program.ManagerOptions(memory(f))
	must.Succeed(t, err)
	memorytest.Run(t, options.Cache)
}

// TestCertificateIsReadAgain replaces the serving certificate, as cert-manager does. New
// connections get the new certificate, without a restart.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	f := flags.Flags{ListenAddress: "127.0.0.1:0", CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	log := slog.New(slog.DiscardHandler)
	if _, _, err := listen(t.Context(), f, http.NotFoundHandler(), log); err == nil {
		t.Error("listens without the certificate")
	}
	writeCertificate(t, f, "first")
	server, certificate, err := listen(t.Context(), f, http.NotFoundHandler(), log)
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{server.Start, certificate.Start} {
		running.Go(func() {
			if err := start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer running.Wait()
	defer stop()

	if got := servedName(t, server.Listener.Addr().String()); got != "first" {
		t.Fatalf("the certificate is of %q", got)
	}
	writeCertificate(t, f, "second")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got := servedName(t, server.Listener.Addr().String())
		if got == "second" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the certificate is still of %q", got)
		}
	}
}

// writeCertificate writes a new certificate with its key.
func writeCertificate(t *testing.T, f flags.Flags, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	for file, block := range map[string]*pem.Block{f.CertFile: {Type: "CERTIFICATE", Bytes: der}, f.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		must.Succeed(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
}

// servedName returns the name in the certificate of a new connection.
func servedName(t *testing.T, address string) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
	must.Succeed(t, err)
	resp, err := transport.RoundTrip(req)
	must.Succeed(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName
}
