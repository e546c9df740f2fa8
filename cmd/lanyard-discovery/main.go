// Command lanyard-discovery serves the public documents of issuers.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	kubecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/discovery"
	"github.com/lanyard-dev/lanyard/internal/discovery/document"
	"github.com/lanyard-dev/lanyard/internal/discovery/flags"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// version is set by the linker (-X main.version, see Makefile).
var version string

func main() { os.Exit(program.Run(flags.Name, run)) }

// run reads the flags, makes the parts of the program, and runs them until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	f, done, err := flags.Parse(args, version, out)
	if done || err != nil {
		return err
	}
	log := f.Log(os.Stderr)
	mgr, err := newManager(f)
	if err != nil {
		return err
	}
	issuers, err := newIssuers(ctx, f, mgr, log)
	if err != nil {
		return err
	}
	handler, err := discovery.NewHandler(issuers...)
	if err != nil {
		return err
	}
	listener, certificate, err := listen(ctx, f)
	if err != nil {
		return err
	}
	if certificate != nil {
		if err := mgr.Add(certificate); err != nil {
			return err
		}
	}
	shutdown := 10 * time.Second
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	err = errors.Join(
		program.RegisterProcessMetrics(),
		metrics.Registry.Register(handler),
		mgr.Add(&manager.Server{Name: "documents", Server: server, Listener: listener, ShutdownTimeout: &shutdown}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("documents", func(*http.Request) error {
			if !slices.ContainsFunc(issuers, func(i *discovery.Issuer) bool { return i.Documents() != nil }) {
				return document.ErrNoKeys
			}
			return nil // an issuer without keys must not stop the other issuers
		}),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// listen opens the address on which documents are served. With TLS, it also returns a watcher of
// the certificate. The caller starts the watcher, which reads the certificate again when its file
// changes.
func listen(ctx context.Context, f flags.Flags) (net.Listener, *certwatcher.CertWatcher, error) {
	var certificate *certwatcher.CertWatcher
	var err error
	if f.CertFile != "" {
		if certificate, err = certwatcher.New(f.CertFile, f.KeyFile); err != nil {
			return nil, nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", f.ListenAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen-address: %w", err)
	}
	if certificate == nil {
		return listener, nil, nil
	}
	return tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: []string{"http/1.1"},
	}), certificate, nil
}

func newManager(f flags.Flags) (manager.Manager, error) {
	config, err := f.Config(flags.Name + "/" + program.Version(version))
	if err != nil {
		return nil, err
	}
	kept := map[client.Object]kubecache.ByObject{&identityv1.KeyRing{}: {Namespaces: map[string]kubecache.Config{f.Namespace: {}}}}
	options, err := f.ManagerOptions(kept, identityv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return manager.New(config, options)
}

// newIssuers makes the issuers whose documents the program serves. Lanyard's own issuers take their
// keys from KeyRings. A mirror takes its documents from the API server.
func newIssuers(ctx context.Context, f flags.Flags, mgr manager.Manager, log *slog.Logger) ([]*discovery.Issuer, error) {
	var issuers []*discovery.Issuer
	for _, own := range []struct{ url, ring string }{{f.Issuer, keyring.IssuerRing}, {f.SPIFFEIssuer, keyring.SPIFFERing}} {
		if own.url == "" {
			continue
		}
		issuer, err := discovery.NewIssuer(own.url)
		if err != nil {
			return nil, err
		}
		if err := discovery.FollowRing(ctx, mgr.GetCache(), client.ObjectKey{Namespace: f.Namespace, Name: own.ring}, issuer, log); err != nil {
			return nil, err
		}
		issuers = append(issuers, issuer)
	}
	if f.Mirror == "" {
		return issuers, nil
	}
	issuer, err := discovery.NewIssuer(f.Mirror)
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	mirror := &discovery.Mirror{API: clientset.Discovery().RESTClient(), Issuer: issuer, Log: log}
	return []*discovery.Issuer{issuer}, mgr.Add(manager.RunnableFunc(mirror.Run))
}
