// Command lanyard-discovery serves the public documents of issuers.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"

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
	"github.com/lanyard-dev/lanyard/internal/port"
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
	documents, certificate, err := listen(ctx, f, handler, log)
	if err != nil {
		return err
	}
	if certificate != nil {
		if err := mgr.Add(certificate); err != nil {
			return err
		}
	}
	err = errors.Join(
		program.RegisterProcessMetrics(),
		metrics.Registry.Register(handler),
		mgr.Add(documents),
		f.AddPorts(ctx, mgr, log, map[string]healthz.Checker{"documents": func(*http.Request) error {
			if !slices.ContainsFunc(issuers, func(i *discovery.Issuer) bool { return i.Documents() != nil }) {
				return document.ErrNoKeys
			}
			return nil // an issuer without keys must not stop the other issuers
		}}),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// listen opens the port on which the program serves documents. If the flags name a certificate, the
// port uses TLS, and listen also returns a watcher. Otherwise, the watcher is nil. The caller must
// start the watcher. The watcher reads the certificate again when the certificate's file changes.
func listen(ctx context.Context, f flags.Flags, documents http.Handler, log *slog.Logger) (*manager.Server, *certwatcher.CertWatcher, error) {
	config := port.Config{Name: "documents", Flag: "--listen-address", Address: f.ListenAddress, Handler: documents, Log: log}
	if f.CertFile == "" {
		server, err := port.Open(ctx, config)
		return server, nil, err
	}
	certificate, err := certwatcher.New(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: []string{"http/1.1"}}
	server, err := port.Open(ctx, config)
	return server, certificate, err
}

func newManager(f flags.Flags) (manager.Manager, error) {
	config, err := f.Config(flags.Name + "/" + program.Version(version))
	if err != nil {
		return nil, err
	}
	options, err := program.ManagerOptions(memory(f), identityv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return manager.New(config, options)
}

// memory returns the options of the manager's cache. The cache stores only KeyRings of the
// program's namespace.
func memory(f flags.Flags) map[client.Object]kubecache.ByObject {
	return map[client.Object]kubecache.ByObject{&identityv1.KeyRing{}: {Namespaces: map[string]kubecache.Config{f.Namespace: {}}}}
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
