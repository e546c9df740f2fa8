package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	brokerapi "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/broker/brokertest"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// brokerIssuer is the issuer of the broker's JWT-SVIDs.
	brokerIssuer = "https://spire.example.com"
	// brokeredHost is the host of a registry that trusts brokerIssuer. brokeredApp is a repository
	// in this registry.
	brokeredHost, brokeredApp = "brokered.registry.example.com", "brokered"
)

// issuedByBroker makes a SPIFFE broker issue the SVIDs of objects. It installs the chart for the
// broker. The controller then has only the rights that it needs with a broker. The registries of
// this test trust only the broker's keys.
func issuedByBroker(t *testing.T, w *spiffeWorld) {
	t.Helper()
	s := brokertest.New(t, brokerIssuer)
	s.Change(func(s *brokertest.Server) { s.Find = w.find })
	must(t, "publish the broker's keys", world.Cloud().Handle(s.Issuer.Host(), s.Issuer))
	t.Cleanup(func() { _ = world.Cloud().Handle(s.Issuer.Host(), nil) })
	w.broker = map[string]any{
		"endpoint": s.Endpoint(), "id": "spiffe://" + trustDomain + "/spire/agent/k8s_psat/test/", "workloadAPI": s.WorkloadAPI(), "csiDriver": "",
	}
	w.install(t, "")
	must(t, "stop the controller", w.controller.Stop(t.Context()))
	_, err := w.StartProgram(t.Context(), local.ProgramOptions{Workload: "lanyard-controller", Binary: daemon("lanyard-controller")})
	must(t, "start the controller", err)

	t.Run("JWT", func(t *testing.T) {
		registry := newFederatedRegistry(t, brokeredHost)
		manifest := registry.push(t, brokeredApp, "latest", "the brokered app")
		registry.protect(t, brokerIssuer, brokerIssuer+"/keys", map[string]string{brokeredApp: id(productionNamespace, brokeredApp)})
		own := v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeJWT, Audiences: []string{brokeredHost}}
		app := w.newObject(t, productionNamespace, brokeredApp, "oci://"+brokeredHost+"/"+brokeredApp, own)
		w.await(t, app, revision(manifest))
		if used := app.Status.Identity; used == nil || used.CloudIdentity != id(productionNamespace, brokeredApp) {
			t.Errorf("it was pulled as %+v", used)
		}
		w.await(t, w.newObject(t, stagingNamespace, brokeredApp, app.Spec.URL, own), failing("RegistryRefused", "401"))
		own.Audiences = []string{w.issuer()}
		w.await(t, w.newObject(t, stagingNamespace, "audience-of-the-broker", app.Spec.URL, own), failing("AudienceRefused", "API server"))
	})
	t.Run("certificate", func(t *testing.T) {
		w.startDistribution(t, w.brokered, s.Authorities())
		made, err := s.Issue(id(productionNamespace, certificateApp), time.Hour)
		must(t, "make a certificate", err)
		manifest := w.publishAt(t, w.brokered, tls.Certificate{Certificate: [][]byte{made.Certificates[0].Raw}, PrivateKey: made.PrivateKey})
		app := w.newObject(t, productionNamespace, "brokered-certificate", "oci://"+w.brokered+"/"+certificateApp,
			v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate})
		w.await(t, app, revision(manifest))
	})
	t.Run("rotation in a pull", func(t *testing.T) { rotatesInPull(t, w, s) })
	t.Run("refusals", func(t *testing.T) { brokerRefuses(t, w, s) })
}

// find returns the UID of an object, and whether the object exists. The broker uses find to check
// the objects in requests.
func (w *spiffeWorld) find(ctx context.Context, o *brokerapi.KubernetesObjectReference) (uid string, found bool) {
	var object client.Object = &v1alpha1.OCIRepository{}
	if o.GetType().GetPlural() == "imagerepositories" {
		object = &v1alpha1.ImageRepository{}
	}
	err := w.people.Get(ctx, client.ObjectKey{Namespace: o.GetKey().GetNamespace(), Name: o.GetKey().GetName()}, object)
	return string(object.GetUID()), err == nil
}

// rotatesInPull makes the broker sign with another authority while a pull waits for its blob. This
// pull must succeed. Within a minute, pulls must present a certificate of the new authority.
func rotatesInPull(t *testing.T, w *spiffeWorld, s *brokertest.Server) {
	t.Helper()
	s.Change(func(s *brokertest.Server) { s.Life = 15 * time.Second })
	t.Cleanup(func() { s.Change(func(s *brokertest.Server) { s.Life = time.Hour }) })
	registry := newFederatedRegistry(t, "gated.registry.example.com")
	manifest := registry.push(t, certificateApp, "latest", "the gated app")
	reached, release := make(chan struct{}), make(chan struct{})
	var arrive sync.Once
	shown := w.serveGated(t, s, http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			arrive.Do(func() { close(reached) })
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		registry.storage.ServeHTTP(answer, r)
	}))
	app := w.newObject(t, productionNamespace, "rotated", "oci://"+w.gated+"/"+certificateApp,
		v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate})
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("no pull waits for its blob")
	}
	authorities := s.Authorities()
	former, next := authorities[len(authorities)-2], authorities[len(authorities)-1]
	must(t, "the pull began with a certificate of the former authority", shown().CheckSignatureFrom(former))
	s.Rotate(t)
	close(release)
	w.await(t, app, revision(manifest))
	within(t, time.Minute, "a pull with a certificate of the new authority", func(ctx context.Context) error {
		if err := reconcile(ctx, w.people, app); err != nil {
			t.Errorf("a pull failed: %v", err)
		}
		return shown().CheckSignatureFrom(next)
	})
}

// serveGated serves a handler to clients with a certificate of the broker. It trusts all
// authorities of the broker, including the one that does not sign yet. Each request has its own
// connection. The returned function returns the client certificate that was presented last.
func (w *spiffeWorld) serveGated(t *testing.T, s *brokertest.Server, handler http.Handler) (shown func() *x509.Certificate) {
	t.Helper()
	own, err := tls.X509KeyPair(w.company.issue(t))
	must(t, "read a certificate", err)
	clients := x509.NewCertPool()
	for _, a := range s.Authorities() {
		clients.AddCert(a)
	}
	var mu sync.Mutex
	var last *x509.Certificate
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		mu.Lock()
		last = r.TLS.PeerCertificates[0]
		mu.Unlock()
		handler.ServeHTTP(answer, r)
	}))
	must(t, "close a port", server.Listener.Close())
	server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", w.gated)
	must(t, "listen", err)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.SetKeepAlivesEnabled(false)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.StartTLS()
	t.Cleanup(server.Close)
	return func() *x509.Certificate {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// brokerRefuses makes the broker refuse, return another tenant's SVID, or not answer. The objects'
// conditions must report the failure.
func brokerRefuses(t *testing.T, w *spiffeWorld, s *brokertest.Server) {
	t.Helper()
	normal := func(s *brokertest.Server) { s.Code, s.Hang, s.IDs = codes.OK, false, nil }
	t.Cleanup(func() { s.Change(normal) })
	for name, tt := range map[string]struct {
		change        func(*brokertest.Server)
		reason, words string
	}{
		"denied": {func(s *brokertest.Server) { s.Code = codes.PermissionDenied }, "ProofDenied", "impersonate-via-spire"},
		"foreign": {func(s *brokertest.Server) {
			s.IDs = func(string) []string { return []string{id(stagingNamespace, "else")} }
		}, "ProofDenied", "register"},
		"unknown": {func(s *brokertest.Server) { s.Code = codes.NotFound }, "ProofDenied", "does not find"},
		"hanging": {func(s *brokertest.Server) { s.Hang = true }, "Unreachable", "does not answer"},
	} {
		s.Change(normal)
		s.Change(tt.change)
		o := w.newObject(t, productionNamespace, name, "oci://"+w.gated+"/"+certificateApp, v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate})
		w.await(t, o, failing(tt.reason, tt.words))
	}
}
