package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/lanyard-dev/lanyard/dev/controlplane/pki"
)

// probe asks the API server whether it is ready. It uses the controllers' credentials, to keep its
// requests apart from the administrator's in the audit log. So every request of the administrator
// in the log was sent with admin.kubeconfig.
type probe struct {
	server string
	client *http.Client
}

func newProbe(server string, files pki.Files) (*probe, error) {
	ca, err := os.ReadFile(files.CACert)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the authority's file holds no certificate")
	}
	cert, err := tls.LoadX509KeyPair(files.ControllerCert, files.ControllerKey)
	if err != nil {
		return nil, err
	}
	return &probe{server: server, client: &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
			// The server must not wait for the probe's connection when it stops.
			DisableKeepAlives: true,
		},
	}}, nil
}

// healthy returns nil once kube-apiserver's /readyz is ok. Then RBAC's default
// roles exist too.
func (p *probe) healthy(ctx context.Context) error { return p.get(ctx, "/readyz") }

// populated returns nil once the controllers have made the ServiceAccount of
// the namespace default.
func (p *probe) populated(ctx context.Context) error {
	return p.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
}

func (p *probe) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server+path, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read, so an error loses nothing
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return nil
}
