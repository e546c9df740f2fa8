// Package brokertest has a fake SPIFFE broker. It speaks the published protocol and refuses the
// same calls as SPIRE's broker. Only tests link the package.
package brokertest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	brokerapi "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// The SPIFFE IDs of the test's broker and of its client, in the trust domain example.com.
const (
	ServerID = "spiffe://example.com/spire/agent/k8s_psat/test/node-1"
	ClientID = "spiffe://example.com/lanyard-controller"
)

// Server is a broker. It also serves the Workload API that the broker's client uses. It issues
// SVIDs of spiffe://example.com/<plural>/<namespace>/<name> for each object that Find finds. Set
// the fields before the first call; use Change later.
type Server struct {
	brokerapi.UnimplementedAPIServer

	// Find returns the UID of an object; false if the object does not exist. Default: every object
	// exists, with the UID that the client sends.
	Find func(ctx context.Context, object *brokerapi.KubernetesObjectReference) (uid string, found bool)
	// Code is a gRPC status code. If Code is not OK, the broker answers each call with this code.
	Code codes.Code
	// Hang leaves every call without an answer.
	Hang bool
	// Life is the lifetime of SVIDs. Default: one hour. A negative Life makes expired SVIDs.
	Life time.Duration
	// IDs returns the IDs of the SVIDs for an object. It is called with the object's own ID.
	// Default: only this ID.
	IDs func(own string) []string
	// Claims changes the claims of JWT-SVIDs.
	Claims func(oidc.Claims)
	// Certificate changes X.509-SVIDs after they were made.
	Certificate func(*brokerapi.X509SVID)
	// Own is the SPIFFE ID of the server. Default: ServerID.
	Own string

	// Issuer signs the JWT-SVIDs.
	Issuer *oidc.Issuer

	mu          sync.Mutex // guards the fields above, except Issuer, and those below
	authorities []authority
	calls       int
	changed     chan struct{} // closed when the authorities change
	unix, tcp   string
	workloadAPI string
}

// authority signs X.509-SVIDs.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// New starts a broker and the Workload API of its client. Both run until the test ends. The issuer
// of the broker's JWT-SVIDs has the given URL.
func New(tb testing.TB, issuer string) *Server {
	tb.Helper()
	s := &Server{Life: time.Hour, Own: ServerID, changed: make(chan struct{})}
	var err error
	if s.Issuer, err = oidc.NewIssuer(issuer, oidc.ES256); err != nil {
		tb.Fatal(err)
	}
	s.Rotate(tb)
	s.Rotate(tb)
	folder, err := os.MkdirTemp("", "broker") //nolint:usetesting // the path of a socket has at most 107 bytes
	must.Succeed(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(folder) })
	tls := tlsconfig.MTLSServerConfig(s, s, tlsconfig.AuthorizeID(spiffeid.RequireFromString(ClientID)))
	tls.SessionTicketsDisabled = true
	served := grpc.NewServer(grpc.Creds(credentials.NewTLS(tls)))
	brokerapi.RegisterAPIServer(served, s)
	agent := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(agent, &workloadAPI{server: s})
	tb.Cleanup(served.Stop)
	tb.Cleanup(agent.Stop)
	listen := func(to *grpc.Server, network, address string) string {
		listener, err := (&net.ListenConfig{}).Listen(tb.Context(), network, address)
		must.Succeed(tb, err)
		go func() { _ = to.Serve(listener) }()
		return listener.Addr().String()
	}
	s.unix = "unix://" + listen(served, "unix", filepath.Join(folder, "broker.sock"))
	s.tcp = "tcp://" + listen(served, "tcp", "127.0.0.1:0")
	s.workloadAPI = "unix://" + listen(agent, "unix", filepath.Join(folder, "agent.sock"))
	return s
}

// Endpoint is the broker's address as a Unix socket.
func (s *Server) Endpoint() string { return s.unix }

// TCP is the broker's address on TCP.
func (s *Server) TCP() string { return s.tcp }

// WorkloadAPI is the value of SPIFFE_ENDPOINT_SOCKET for the client.
func (s *Server) WorkloadAPI() string { return s.workloadAPI }

// Change changes fields while the server runs.
func (s *Server) Change(how func(*Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how(s)
}

// Calls returns the number of authenticated calls to the broker.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Authorities returns the certificates of all authorities, the newest last. The newest authority
// does not sign yet.
func (s *Server) Authorities() []*x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*x509.Certificate
	for _, a := range s.authorities {
		all = append(all, a.certificate)
	}
	return all
}

// Rotate lets the newest authority sign X.509-SVIDs, and adds a new authority to the bundle. Former
// authorities stay in the bundle.
func (s *Server) Rotate(tb testing.TB) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "broker's authority " + rand.Text()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		URIs: []*url.URL{{Scheme: "spiffe", Host: "example.com"}},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.Succeed(tb, err)
	certificate, err := x509.ParseCertificate(der)
	must.Succeed(tb, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorities = append(s.authorities, authority{certificate, key})
	close(s.changed)
	s.changed = make(chan struct{})
}

// admit accepts or refuses a call as SPIRE does. It returns the IDs of the object's SVIDs. Sources:
// SPIFFE Broker Endpoint §3 and §6, SPIFFE Broker API §4.8.
func (s *Server) admit(ctx context.Context, reference *brokerapi.WorkloadReference) (ids []string, err error) {
	header, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(header.Get("broker.spiffe.io"), []string{"true"}) {
		return nil, status.Error(codes.InvalidArgument, "security header missing from request")
	}
	s.mu.Lock()
	s.calls++
	code, hang, find, idsOf := s.Code, s.Hang, s.Find, s.IDs
	s.mu.Unlock()
	switch {
	case hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case code != codes.OK:
		return nil, status.Error(code, "the test says so: eyJhbGciOiJub25lIn0.secret.")
	}
	object := &brokerapi.KubernetesObjectReference{}
	if err := reference.GetReference().UnmarshalTo(object); err != nil {
		return nil, status.Error(codes.InvalidArgument, "the reference is not that of a Kubernetes object")
	}
	key, kind := object.GetKey(), object.GetType()
	if key.GetNamespace() == "" || key.GetName() == "" || kind.GetPlural() == "" ||
		kind.GetGroup() != "toolkit.lanyard.dev" || object.GetUid() == "" {
		return nil, status.Errorf(codes.InvalidArgument, "the reference is not complete: %s", object)
	}
	if find != nil {
		if uid, found := find(ctx, object); !found || uid != object.GetUid() {
			return nil, status.Error(codes.NotFound, "no object of that name has that UID")
		}
	}
	own := "spiffe://example.com/" + kind.GetPlural() + "/" + key.GetNamespace() + "/" + key.GetName()
	if idsOf != nil {
		return idsOf(own), nil
	}
	return []string{own}, nil
}

// FetchJWTSVID implements brokerapi.APIServer.
func (s *Server) FetchJWTSVID(ctx context.Context, request *brokerapi.FetchJWTSVIDRequest) (*brokerapi.FetchJWTSVIDResponse, error) {
	ids, err := s.admit(ctx, request.GetReference())
	if err != nil {
		return nil, err
	}
	if len(request.GetAudience()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	s.mu.Lock()
	life, change := s.Life, s.Claims
	s.mu.Unlock()
	answer := &brokerapi.FetchJWTSVIDResponse{}
	for _, id := range ids {
		now := time.Now()
		claims := oidc.Claims{"sub": id, "aud": request.GetAudience(), "iat": now.Unix(), "exp": now.Add(life).Unix()}
		if change != nil {
			change(claims)
		}
		token, err := s.Issuer.Mint(claims)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		answer.Svids = append(answer.Svids, &brokerapi.JWTSVID{SpiffeId: id, Svid: token})
	}
	return answer, nil
}

// SubscribeToX509SVID implements brokerapi.APIServer.
func (s *Server) SubscribeToX509SVID(
	request *brokerapi.SubscribeToX509SVIDRequest, stream grpc.ServerStreamingServer[brokerapi.SubscribeToX509SVIDResponse],
) error {
	for {
		ids, err := s.admit(stream.Context(), request.GetReference())
		if err != nil {
			return err
		}
		s.mu.Lock()
		change, changed, life := s.Certificate, s.changed, s.Life
		s.mu.Unlock()
		answer := &brokerapi.SubscribeToX509SVIDResponse{}
		for _, id := range ids {
			made, err := s.Issue(id, life)
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			chain, key, err := made.MarshalRaw()
			if err != nil {
				return status.Error(codes.Internal, err.Error())
			}
			encoded := &brokerapi.X509SVID{SpiffeId: id, X509Svid: chain, X509SvidKey: key, Bundle: s.bundle()}
			if change != nil {
				change(encoded)
			}
			answer.Svids = append(answer.Svids, encoded)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Issue makes an X.509-SVID, signed by the current authority.
func (s *Server) Issue(id string, life time.Duration) (*x509svid.SVID, error) {
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	by := s.authorities[len(s.authorities)-2]
	s.mu.Unlock()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life),
		URIs: []*url.URL{parsed.URL()}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &x509svid.SVID{ID: parsed, Certificates: []*x509.Certificate{certificate}, PrivateKey: key}, nil
}

// bundle returns the certificates of all authorities in DER.
func (s *Server) bundle() (der []byte) {
	for _, a := range s.Authorities() {
		der = append(der, a.Raw...)
	}
	return der
}

// GetX509SVID implements x509svid.Source for the server's own TLS.
func (s *Server) GetX509SVID() (*x509svid.SVID, error) {
	s.mu.Lock()
	own := s.Own
	s.mu.Unlock()
	return s.Issue(own, time.Hour)
}

// GetX509BundleForTrustDomain implements x509bundle.Source for the server's own TLS.
func (s *Server) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	if domain.Name() != "example.com" {
		return nil, fmt.Errorf("no bundle of %s", domain)
	}
	return x509bundle.FromX509Authorities(domain, s.Authorities()), nil
}

// workloadAPI gives the broker's client its own SVID. Source: SPIFFE Workload API §5.
type workloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	server *Server
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (w *workloadAPI) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	for {
		w.server.mu.Lock()
		changed := w.server.changed
		w.server.mu.Unlock()
		made, err := w.server.Issue(ClientID, time.Hour)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		chain, key, err := made.MarshalRaw()
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		err = stream.Send(&workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
			SpiffeId: ClientID, X509Svid: chain, X509SvidKey: key, Bundle: w.server.bundle(),
		}}})
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return errors.New("the client has gone")
		}
	}
}
