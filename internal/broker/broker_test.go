package broker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	brokerapi "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc/codes"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/broker"
	"github.com/lanyard-dev/lanyard/internal/broker/brokertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	uid      = "5d0c7a8e-1c5f-4b0e-9a43-2f1b7a0c9e21"
	audience = "registry.example.com"
	ownID    = "spiffe://example.com/ocirepositories/tenant-a/app"
	// agents is the prefix of the IDs of all agents of the test's cluster.
	agents = "spiffe://example.com/spire/agent/k8s_psat/test/"
)

// account returns the account of the OCIRepository tenant-a/app.
func account(t *testing.T) auth.Account {
	t.Helper()
	subject, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	return auth.Account{Subject: subject, UID: uid}
}

// client starts a Broker for the server, and waits until the Broker has its own SVID.
func client(t *testing.T, s *brokertest.Server, change ...func(*broker.Config)) *broker.Broker {
	t.Helper()
	config := broker.Config{Endpoint: s.Endpoint(), ID: agents, WorkloadAPI: s.WorkloadAPI()}
	for _, c := range change {
		c(&config)
	}
	b := start(t, config)
	for begin := time.Now(); ; {
		_, err := prove(t.Context(), t, b, svid.JWT)
		if err == nil || !strings.Contains(err.Error(), "no SVID of its own") {
			return b
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
		pause(t, 10*time.Millisecond)
	}
}

func start(t *testing.T, config broker.Config) *broker.Broker {
	t.Helper()
	b, err := broker.New(t.Context(), config)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("end: %v", err)
		}
	})
	return b
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func prove(ctx context.Context, t *testing.T, b *broker.Broker, form svid.Type) (auth.Proof, error) {
	t.Helper()
	request := auth.ProofRequest{Form: auth.FormCertificate, Lifetime: auth.CredentialLifetime}
	if form == svid.JWT {
		request.Form, request.Audiences = auth.FormJWT, []string{audience}
	}
	return b.Prove(ctx, account(t), request)
}

func TestSVIDs(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	s.Change(func(s *brokertest.Server) {
		s.IDs = func(own string) []string { return []string{"spiffe://example.com/somebody/else", own} }
	})
	for name, endpoint := range map[string]string{"unix": s.Endpoint(), "tcp": s.TCP()} {
		t.Run(name, func(t *testing.T) {
			b := client(t, s, func(c *broker.Config) { c.Endpoint = endpoint })
			proof, err := prove(t.Context(), t, b, svid.JWT)
			must.Succeed(t, err)
			jwt, err := auth.JWTOf(proof)
			if err != nil || jwt.GetDuration() < 50*time.Minute {
				t.Errorf("the JWT-SVID ends in %s: %v", jwt.GetDuration(), err)
			}
			if proof, err = prove(t.Context(), t, b, svid.X509); err != nil {
				t.Fatal(err)
			}
			certificate, err := auth.CertificateOf(proof)
			must.Succeed(t, err)
			leaf, err := x509.ParseCertificate(certificate.TLS().Certificate[0])
			if err != nil || leaf.URIs[0].String() != ownID || !leaf.NotAfter.Equal(certificate.ExpiresAt) {
				t.Errorf("the X.509-SVID is of %v until %s: %v", leaf.URIs, certificate.ExpiresAt, err)
			}
		})
	}
}

// TestRotation rotates the authority that signs X.509-SVIDs. The next SVID comes from the new
// authority, and the client's connection still works.
func TestRotation(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s)
	for n := range 2 {
		proof, err := prove(t.Context(), t, b, svid.X509)
		must.Succeed(t, err)
		leaf, err := x509.ParseCertificate(proof.(*auth.Certificate).TLS().Certificate[0])
		must.Succeed(t, err)
		if err := leaf.CheckSignatureFrom(s.Authorities()[n]); err != nil {
			t.Errorf("after %d rotations: %v", n, err)
		}
		s.Rotate(t)
	}
}

// TestRefusedSVIDs lets the broker answer with SVIDs that the client must refuse.
func TestRefusedSVIDs(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	otherKey, err := x509.MarshalPKCS8PrivateKey(other)
	must.Succeed(t, err)
	foreign := brokertest.New(t, "https://spire.example.com")
	foreignClient := client(t, foreign)
	stolen, err := prove(t.Context(), t, foreignClient, svid.X509)
	must.Succeed(t, err)
	pair := stolen.(*auth.Certificate).TLS()
	pairKey, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must.Succeed(t, err)
	ids := func(ids ...string) func(*brokertest.Server) {
		return func(s *brokertest.Server) { s.IDs = func(string) []string { return ids } }
	}
	claim := func(name string, value any) func(*brokertest.Server) {
		return func(s *brokertest.Server) { s.Claims = func(c oidc.Claims) { c[name] = value } }
	}
	certificate := func(change func(*brokerapi.X509SVID)) func(*brokertest.Server) {
		return func(s *brokertest.Server) { s.Certificate = change }
	}
	both := []svid.Type{svid.JWT, svid.X509}
	for name, tt := range map[string]struct {
		forms  []svid.Type
		change func(*brokertest.Server)
		code   auth.Code
		words  string
	}{
		"none":                    {both, ids(), auth.CodeProofDenied, "no SVID for the object"},
		"another ID":              {both, ids("spiffe://example.com/ocirepositories/tenant-b/app"), auth.CodeProofDenied, "tenant-b"},
		"another trust domain":    {both, ids("spiffe://example.org/ocirepositories/tenant-a/app"), auth.CodeProofDenied, "example.org"},
		"expired":                 {both, func(s *brokertest.Server) { s.Life = -2 * time.Second }, auth.CodeProofInvalid, "expired"},
		"another subject":         {both[:1], claim("sub", "spiffe://example.com/ocirepositories/tenant-b/app"), auth.CodeProofInvalid, "tenant-b"},
		"another audience":        {both[:1], claim("aud", []string{"elsewhere.example.com"}), auth.CodeProofInvalid, "audience"},
		"a further audience":      {both[:1], claim("aud", []string{audience, "elsewhere.example.com"}), auth.CodeProofInvalid, "other audiences"},
		"without an end":          {both[:1], claim("exp", nil), auth.CodeProofInvalid, "exp"},
		"another key":             {both[1:], certificate(func(c *brokerapi.X509SVID) { c.X509SvidKey = otherKey }), auth.CodeProofInvalid, "key"},
		"no key":                  {both[1:], certificate(func(c *brokerapi.X509SVID) { c.X509SvidKey = nil }), auth.CodeProofInvalid, "key"},
		"no certificate":          {both[1:], certificate(func(c *brokerapi.X509SVID) { c.X509Svid = nil }), auth.CodeProofInvalid, "certificate"},
		"another's certificate":   {both[1:], func(s *brokertest.Server) { s.IDs = swapped }, auth.CodeProofDenied, "tenant-b"},
		"of an unknown authority": {both[1:], certificate(func(c *brokerapi.X509SVID) { c.X509Svid, c.X509SvidKey = pair.Certificate[0], pairKey }), auth.CodeProofInvalid, "unknown authority"},
		"a certificate of other ID": {both[1:], func(s *brokertest.Server) {
			s.IDs, s.Certificate = swapped, func(c *brokerapi.X509SVID) { c.SpiffeId = ownID }
		}, auth.CodeProofInvalid, "tenant-b"},
	} {
		t.Run(name, func(t *testing.T) {
			s.Change(tt.change)
			t.Cleanup(func() {
				s.Change(func(s *brokertest.Server) { s.IDs, s.Claims, s.Certificate, s.Life = nil, nil, nil, time.Hour })
			})
			for _, form := range tt.forms {
				_, err := prove(t.Context(), t, b, form)
				if err == nil || auth.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.words) {
					t.Errorf("%s: %v, want %s with %q", form, err, tt.code, tt.words)
				}
			}
		})
	}
}

// swapped returns the SPIFFE ID of another tenant's object in place of the object's own ID.
func swapped(own string) []string { return []string{strings.Replace(own, "tenant-a", "tenant-b", 1)} }

// TestFailures lets the broker refuse with each status code of gRPC. The error must say what to do,
// and repeat no text of the broker. It must never tell the user to create the object: objects are
// read before the call, so they exist.
func TestFailures(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s)
	const notABroker = "is a SPIFFE broker"
	for code, want := range map[codes.Code]struct {
		code      auth.Code
		fix       string
		temporary bool
	}{
		codes.PermissionDenied:   {auth.CodeProofDenied, "register " + ownID, false},
		codes.NotFound:           {auth.CodeProofDenied, "let the SPIFFE broker read objects of this kind", false},
		codes.Unauthenticated:    {auth.CodeUnavailable, "trusts the SVID that lanyard-controller has", true},
		codes.Unavailable:        {auth.CodeUnavailable, "is healthy", true},
		codes.ResourceExhausted:  {auth.CodeThrottled, "raise the limits", true},
		codes.DeadlineExceeded:   {auth.CodeUnreachable, "is healthy", true},
		codes.Internal:           {auth.CodeUnavailable, "log of the SPIFFE broker", true},
		codes.Unknown:            {auth.CodeUnavailable, "log of the SPIFFE broker", true},
		codes.Aborted:            {auth.CodeUnavailable, "log of the SPIFFE broker", true},
		codes.DataLoss:           {auth.CodeUnavailable, "log of the SPIFFE broker", true},
		codes.InvalidArgument:    {auth.CodeRefused, notABroker, false},
		codes.Unimplemented:      {auth.CodeRefused, notABroker, false},
		codes.FailedPrecondition: {auth.CodeRefused, notABroker, false},
		codes.OutOfRange:         {auth.CodeRefused, notABroker, false},
		codes.AlreadyExists:      {auth.CodeRefused, notABroker, false},
		codes.Canceled:           {auth.CodeRefused, notABroker, false},
	} {
		s.Change(func(s *brokertest.Server) { s.Code = code })
		for _, form := range []svid.Type{svid.JWT, svid.X509} {
			_, err := prove(t.Context(), t, b, form)
			failed, typed := errors.AsType[*auth.Error](err)
			if !typed || failed.Stage != auth.StageTokenRequest || failed.Code != want.code || !strings.Contains(failed.Fix, want.fix) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: %v, want %s with %q", code, form, err, want.code, want.fix)
			}
			if auth.IsTemporary(err) != want.temporary {
				t.Errorf("%s, %s: temporary is %t", code, form, !want.temporary)
			}
		}
	}
}

// TestNobodyAnswers calls an endpoint that has no broker. The error must be temporary and name
// --spiffe-broker-endpoint.
func TestNobodyAnswers(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s, func(c *broker.Config) { c.Endpoint = "unix://" + filepath.Join(t.TempDir(), "none.sock") })
	for _, form := range []svid.Type{svid.JWT, svid.X509} {
		_, err := prove(t.Context(), t, b, form)
		if auth.CodeOf(err) != auth.CodeUnreachable || !auth.IsTemporary(err) || !strings.Contains(err.Error(), "runs at --spiffe-broker-endpoint") {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// TestHang has a broker that accepts calls and never answers. The call ends at the caller's
// deadline.
func TestHang(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s)
	s.Change(func(s *brokertest.Server) { s.Hang = true })
	for _, form := range []svid.Type{svid.JWT, svid.X509} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := prove(ctx, t, b, form)
		cancel()
		if auth.CodeOf(err) != auth.CodeUnreachable || !auth.IsTemporary(err) {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// TestImpostor gives the server at the broker's address another SPIFFE ID of the trust domain. The
// client must refuse this server.
func TestImpostor(t *testing.T) {
	for name, tt := range map[string]struct{ own, allowed string }{
		"of the prefix's siblings": {"spiffe://example.com/spire/agent/k8s_psat/testing/node-1", agents},
		"a workload":               {"spiffe://example.com/ocirepositories/tenant-a/app", agents},
		"below the ID itself":      {brokertest.ServerID + "/child", brokertest.ServerID},
	} {
		t.Run(name, func(t *testing.T) {
			s := brokertest.New(t, "https://spire.example.com")
			s.Change(func(s *brokertest.Server) { s.Own = tt.own })
			b := client(t, s, func(c *broker.Config) { c.ID = tt.allowed })
			_, err := prove(t.Context(), t, b, svid.JWT)
			if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "is not --spiffe-broker-id") || s.Calls() != 0 {
				t.Errorf("%d calls: %v", s.Calls(), err)
			}
		})
	}
}

// TestWithoutOwnSVID starts a client while no SPIFFE agent runs. The client must stay up, and Prove
// must fail without a call to the broker.
func TestWithoutOwnSVID(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := start(t, broker.Config{Endpoint: s.Endpoint(), ID: agents, WorkloadAPI: "unix://" + filepath.Join(t.TempDir(), "none.sock")})
	_, err := prove(t.Context(), t, b, svid.JWT)
	if auth.CodeOf(err) != auth.CodeUnavailable || !strings.Contains(err.Error(), "SPIFFE_ENDPOINT_SOCKET") || s.Calls() != 0 {
		t.Errorf("%v", err)
	}
}

// TestKey checks that the cache key of an SVID contains the broker's address and the trust domain.
// So the cache never reuses an SVID for another broker or trust domain.
func TestKey(t *testing.T) {
	s := brokertest.New(t, "https://spire.example.com")
	b := client(t, s)
	for _, form := range []svid.Type{svid.JWT, svid.X509} {
		provider, err := svid.NewProvider(form, b)
		must.Succeed(t, err)
		audiences := auth.List{}
		if form == svid.JWT {
			if audiences, err = auth.NewList(audience); err != nil {
				t.Fatal(err)
			}
		}
		target, err := provider.GetTarget(&auth.Options{Audiences: audiences})
		want := auth.Target{
			Audiences: audiences,
			Issuance:  auth.NewIssuance(auth.IssuanceTerms{CredentialType: string(form), TrustDomain: "example.com", Signer: s.Endpoint()}),
		}
		if err != nil || target != want {
			t.Errorf("%s: %+v, %v", form, target, err)
		}
		if id, err := provider.GetIdentity(account(t)); err != nil || id != ownID {
			t.Errorf("%s: identity %s, %v", form, id, err)
		}
	}
}

func TestConfig(t *testing.T) {
	good := broker.Config{Endpoint: "unix:///run/broker.sock", ID: agents, WorkloadAPI: "unix:///run/agent.sock"}
	for _, endpoint := range []string{good.Endpoint, "tcp://127.0.0.1:8443", "tcp://[::1]:8443", "dns:///spire-broker.spire.svc.cluster.local.:8443"} {
		config := good
		config.Endpoint = endpoint
		if _, err := broker.New(t.Context(), config); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	refused := func(flag string, change func(*broker.Config, string), values ...string) {
		for _, value := range values {
			config := good
			change(&config, value)
			if _, err := broker.New(t.Context(), config); err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("%q: %v", value, err)
			}
		}
	}
	refused("--spiffe-broker-endpoint", func(c *broker.Config, v string) { c.Endpoint = v },
		"", "/run/broker.sock", "unix:run/broker.sock", "unix://run/broker.sock", "unix:///", "unix:///run/", "unix:///run/broker.sock?x", "tcp://127.0.0.1",
		"tcp://broker:8443", "tcp://127.0.0.1:8443/x", "tcp://127.0.0.1:0", "dns:///broker", "dns:///broker:0", "dns:///broker:99999", "dns://8.8.8.8/broker:8443",
		"dns:///a b:1", "https://broker:8443", "tcp://user@127.0.0.1:8443", "unix:///run/broker.sock#x", "%")
	refused("--spiffe-broker-id", func(c *broker.Config, v string) { c.ID = v },
		"", "example.com/broker", "spiffe://example.com", "spiffe://example.com/", "spiffe://example.com/a//", "spiffe://example..com/broker", "https://example.com/broker", "spiffe://Example.com/broker")
	refused("SPIFFE_ENDPOINT_SOCKET", func(c *broker.Config, v string) { c.WorkloadAPI = v },
		"", "tcp://127.0.0.1:8081", "/run/agent.sock", "unix://run/agent.sock")
}
