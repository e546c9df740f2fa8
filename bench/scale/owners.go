package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// owners are who the credentials of a run are for, and who makes them.
type owners interface {
	named
	installed
	usage
	// prove completes the spec of an object. The account is the object's ServiceAccount.
	prove(spec *v1alpha1.OCIRepositorySpec, account string)
}

// named is what the table says of the owners.
type named interface {
	// count returns how many there are.
	count() int
	// words returns what the table calls them.
	words() words
}

// installed is what the owners need in the world.
type installed interface {
	// prepare describes them to the cloud, before it starts.
	prepare(cfg *cloudtest.Config)
	// install publishes what the objects pull, makes the ServiceAccounts, installs the chart with
	// these values and its own, and starts what must be there before the controller.
	install(ctx context.Context, cluster *local.Cluster, values map[string]any) error
	close()
}

// words are what the table calls identities, and what makes their credentials.
type words struct{ identities, proofs, exchanges string }

// usage is what is counted while the controller is watched.
type usage interface {
	// source returns what was made until now.
	source(ctx context.Context, own *http.Client) (source, error)
	// proofs returns the calls for proofs that the API server has counted.
	proofs(s metrics.Samples) float64
}

// source is what makes the credentials: what it has granted, and what it needed for it.
type source struct {
	exchanges float64
	process   *metrics.Process // nil if a cloud makes them
}

// since returns what the program needed since an earlier look; nil if a cloud makes the
// credentials.
func (s source) since(before source) *metrics.Process {
	if s.process == nil {
		return nil
	}
	return new(s.process.Since(*before.process))
}

// owners returns who n objects are in this run.
func (s *settings) owners(n int) owners {
	if s.certificates {
		return &certified{settings: s, n: n}
	}
	return &roles{n: n / objectsPerAccount}
}

// roles are ServiceAccounts with a role at AWS each.
type roles struct {
	n       int
	cluster *local.Cluster
}

func (r *roles) count() int { return r.n }

func (*roles) words() words {
	return words{"ServiceAccounts, each with a role", "… of them for proofs (read an account, request its token)", "exchanges at AWS STS"}
}

func (r *roles) prepare(cfg *cloudtest.Config) {
	for i := range r.n {
		cfg.AWS.Accounts[0].Roles = append(cfg.AWS.Accounts[0].Roles, fleet.Role(i))
	}
}

func (r *roles) install(ctx context.Context, cluster *local.Cluster, values map[string]any) error {
	r.cluster = cluster
	artifacts, err := examples.Artifacts()
	if err != nil {
		return err
	}
	if _, err := cluster.Cloud().PushAll(ctx, artifacts, fleet.Tag); err != nil {
		return err
	}
	if err := cluster.InstallChart(ctx, values); err != nil {
		return err
	}
	return fleet.Accounts(ctx, cluster.Client(), r.n)
}

func (*roles) prove(spec *v1alpha1.OCIRepositorySpec, account string) {
	spec.URL, spec.Provider, spec.ServiceAccountName = fleet.URL(local.Region), v1alpha1.ProviderAWS, account
}

// source returns the exchanges that AWS STS has granted.
func (r *roles) source(context.Context, *http.Client) (source, error) {
	granted := 0.0
	for _, total := range r.cluster.Cloud().Journal().Totals() {
		if total.Service == "sts" && total.Operation == "AssumeRoleWithWebIdentity" && total.Code == "" {
			granted += float64(total.Count)
		}
	}
	return source{exchanges: granted}, nil
}

// proofs counts two calls for each exchange: it reads the account and requests its token.
func (*roles) proofs(s metrics.Samples) float64 {
	const requests, accounts = "apiserver_request_total", `resource="serviceaccounts"`
	return s.Sum(requests, accounts, `subresource=""`, `verb="GET"`) + s.Sum(requests, accounts, `subresource="token"`, `verb="POST"`)
}

func (*roles) close() {}

// What the world of certificates is called.
const (
	trustDomain, spiffeIssuer = "scale.example.com", "https://spiffe.scale.example.com"
	repository                = "app"
)

// certified are objects with a SPIFFE certificate each, and a registry on this machine that lets in
// whoever has one.
type certified struct {
	settings    *settings
	n           int
	registry    *httptest.Server
	closed      atomic.Bool // for whoever shows no certificate
	dir         string
	tokenServer *local.Program
}

func (c *certified) count() int { return c.n }

func (*certified) words() words {
	return words{"objects, each with a certificate", "at rest: reads of objects per minute, by both programs", "certificates made by the token server"}
}

func (*certified) prepare(*cloudtest.Config) {}

func (c *certified) install(ctx context.Context, cluster *local.Cluster, values map[string]any) (err error) {
	if c.dir, err = os.MkdirTemp("", "lanyard-scale-registry-"); err != nil {
		return err
	}
	if err := c.serve(ctx); err != nil {
		return err
	}
	bundle := filepath.Join(c.dir, "ca.pem")
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.registry.Certificate().Raw})
	if err := os.WriteFile(bundle, append(cluster.Cloud().CAPEM(), own...), 0o600); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	var tenants []any
	for i := range c.n / objectsPerAccount {
		if namespace, _ := fleet.Names(i); !namespaces[namespace] {
			namespaces[namespace], tenants = true, append(tenants, namespace)
		}
	}
	values["spiffe"] = map[string]any{"trustDomain": trustDomain, "issuer": spiffeIssuer}
	values["issuer"] = map[string]any{"keys": map[string]any{"publishDelay": "1m"}}
	values["rbac"] = map[string]any{"tenantNamespaces": tenants}
	values["identity"] = map[string]any{"allowedEndpointHosts": []any{c.address()}}
	values["extraEnv"] = environment(cluster.Cloud().Env(), "SSL_CERT_FILE="+bundle)
	if err := fleet.Accounts(ctx, cluster.Client(), c.n/objectsPerAccount); err != nil { // the chart has RoleBindings in their namespaces
		return err
	}
	if err := cluster.InstallChart(ctx, values); err != nil {
		return err
	}
	err = cluster.StartPrograms(ctx, []local.ProgramOptions{
		{Workload: "lanyard-discovery", Binary: c.settings.discovery}, {Workload: "lanyard-token-server", Binary: c.settings.tokenServer},
	}, func(p *local.Program) {
		if p.Workload == "lanyard-token-server" {
			c.tokenServer = p
		}
	})
	if err != nil {
		return err
	}
	return awaitAuthority(ctx, cluster.Client())
}

// serve starts the registry and publishes the artifact.
func (c *certified) serve(ctx context.Context) error {
	storage := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	c.registry = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.closed.Load() && len(req.TLS.PeerCertificates) == 0 {
			http.Error(w, "show a certificate", http.StatusForbidden)
			return
		}
		storage.ServeHTTP(w, req)
	}))
	c.registry.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	c.registry.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.registry.StartTLS()
	file := filepath.Join(c.dir, "app.yaml")
	if err := os.WriteFile(file, []byte("app"), 0o600); err != nil {
		return err
	}
	at, err := oci.ParseURL("oci://" + c.address() + "/" + repository)
	if err != nil {
		return err
	}
	transport, ok := c.registry.Client().Transport.(*http.Transport)
	if !ok {
		return errors.New("the registry's client has no transport")
	}
	if _, err := oci.Push(ctx, at, fleet.Tag, oci.Artifact{Path: c.dir}, oci.Options{Transport: transport}); err != nil {
		return err
	}
	c.closed.Store(true)
	return nil
}

func (c *certified) address() string { return strings.TrimPrefix(c.registry.URL, "https://") }

// awaitAuthority waits until an authority of the trust domain signs.
func awaitAuthority(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("no authority signs"))
	defer cancel()
	for {
		ring := &identityv1.KeyRing{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: local.Namespace, Name: identityv1.SPIFFEKeyRing}, ring); client.IgnoreNotFound(err) != nil {
			return err
		}
		for _, a := range ring.Status.Authorities {
			if a.State == identityv1.KeyActive {
				return nil
			}
		}
		if err := fleet.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (c *certified) prove(spec *v1alpha1.OCIRepositorySpec, _ string) {
	spec.URL, spec.Credential = "oci://"+c.address()+"/"+repository, &v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate}
}

// source returns the certificates that the token server has made.
func (c *certified) source(ctx context.Context, own *http.Client) (source, error) {
	samples, err := metrics.Scrape(ctx, own, c.tokenServer.URL("metrics"))
	return source{exchanges: samples.Sum("lanyard_svids_minted_total"), process: new(samples.Process())}, err
}

// proofs counts the controller's and the token server's reads of objects. The API server does not
// count what it passes on to the token server.
func (*certified) proofs(s metrics.Samples) float64 {
	return s.Sum("apiserver_request_total", `resource="ocirepositories"`, `subresource=""`, `verb="GET"`)
}

func (c *certified) close() {
	if c.registry != nil {
		c.registry.Close()
	}
	_ = os.RemoveAll(c.dir)
}

// environment is the value extraEnv of the chart: NAME=VALUE, later ones in place of earlier ones.
func environment(variables []string, further ...string) []any {
	var env []any
	for _, variable := range append(variables, further...) {
		name, value, _ := strings.Cut(variable, "=")
		for i, other := range env {
			if known, ok := other.(map[string]any); ok && known["name"] == name {
				env = append(env[:i], env[i+1:]...)
				break
			}
		}
		env = append(env, map[string]any{"name": name, "value": value})
	}
	return env
}
