// Package credstest has servers that give credentials to CI jobs: an agent of SPIFFE's Workload
// API, and GitHub's endpoint for the tokens of jobs. They refuse the requests that real servers
// refuse. Only tests link the package.
package credstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Agent is a server of the SPIFFE Workload API with one identity for every caller. Source: SPIFFE
// Workload API. The Go types of the protocol are go-spiffe's.
type Agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	// ID is the identity.
	ID spiffeid.ID
	// Issuer signs the JWT-SVIDs.
	Issuer *oidc.Issuer
	// Authority signs the X.509-SVIDs.
	Authority *x509.Certificate

	address string
	signer  *svid.Issuer

	mu      sync.Mutex // guards the fields below
	denied  bool
	hanging bool
	life    time.Duration // of JWT-SVIDs
	changed chan struct{} // closed when an X.509-SVID is replaced
	issued  int           // number of JWT-SVIDs
}

// NewAgent starts an agent, which stops when the test ends. Every caller gets the same SPIFFE ID.
// JWT-SVIDs come from an issuer with the given URL.
func NewAgent(tb testing.TB, id, issuer string) *Agent {
	tb.Helper()
	a := &Agent{ID: spiffeid.RequireFromString(id), life: 5 * time.Minute, changed: make(chan struct{})}
	var err error
	a.Issuer, err = oidc.NewIssuer(issuer, oidc.ES256)
	must.Succeed(tb, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(tb, err)
	a.Authority, err = svid.NewAuthority(a.ID.TrustDomain(), key, 24*time.Hour, time.Now())
	must.Succeed(tb, err)
	a.signer, err = svid.NewIssuer(a.ID.TrustDomain(), key, a.Authority, nil)
	must.Succeed(tb, err)
	folder, err := os.MkdirTemp("", "agent") //nolint:usetesting // the path of a socket has at most 107 bytes
	must.Succeed(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "api.sock")
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "unix", socket)
	must.Succeed(tb, err)
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, a)
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	a.address = "unix://" + socket
	return a
}

// Address returns the value of SPIFFE_ENDPOINT_SOCKET.
func (a *Agent) Address() string { return a.address }

// Deny withdraws the identity: callers get PermissionDenied.
func (a *Agent) Deny() { a.set(func() { a.denied = true }) }

// Hang makes the agent leave further calls without an answer.
func (a *Agent) Hang() { a.set(func() { a.hanging = true }) }

// SetLife sets how long further JWT-SVIDs live.
func (a *Agent) SetLife(life time.Duration) { a.set(func() { a.life = life }) }

// Rotate replaces the X.509-SVID, and sends the new one to all clients with an open stream.
func (a *Agent) Rotate() {
	a.set(func() {
		close(a.changed)
		a.changed = make(chan struct{})
	})
}

// Issued returns the number of JWT-SVIDs that the agent has issued.
func (a *Agent) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

func (a *Agent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// admit accepts or refuses a call as a real agent does. Source: SPIFFE Workload API §3, §6.1.
func (a *Agent) admit(ctx context.Context) (life time.Duration, changed <-chan struct{}, err error) {
	a.mu.Lock()
	denied, hanging := a.denied, a.hanging
	life, changed = a.life, a.changed
	a.mu.Unlock()
	header, _ := metadata.FromIncomingContext(ctx)
	switch {
	case len(header.Get("workload.spiffe.io")) != 1 || header.Get("workload.spiffe.io")[0] != "true":
		return 0, nil, status.Error(codes.InvalidArgument, "security header missing from request")
	case hanging:
		<-ctx.Done()
		return 0, nil, ctx.Err()
	case denied:
		return 0, nil, status.Error(codes.PermissionDenied, "no identity issued")
	}
	return life, changed, nil
}

// FetchJWTSVID implements workload.SpiffeWorkloadAPIServer.
func (a *Agent) FetchJWTSVID(ctx context.Context, request *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	life, _, err := a.admit(ctx)
	if err != nil {
		return nil, err
	}
	if len(request.GetAudience()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "audience must be specified")
	}
	now := time.Now()
	token, err := a.Issuer.Mint(oidc.Claims{"sub": a.ID.String(), "aud": request.GetAudience(), "iat": now.Unix(), "exp": now.Add(life).Unix()})
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	a.set(func() { a.issued++ })
	return &workload.JWTSVIDResponse{Svids: []*workload.JWTSVID{{SpiffeId: a.ID.String(), Svid: token}}}, nil
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (a *Agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	for {
		_, changed, err := a.admit(stream.Context())
		if err != nil {
			return err
		}
		answer, err := a.certificate()
		if err != nil {
			return status.Error(codes.Internal, err.Error())
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

func (a *Agent) certificate() (*workload.X509SVIDResponse, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate, err := a.signer.Certificate(a.ID, &key.PublicKey, time.Now())
	if err != nil {
		return nil, err
	}
	chain, err := svid.ParseChain(certificate.Chain())
	if err != nil {
		return nil, err
	}
	var der []byte
	for _, c := range chain {
		der = append(der, c.Raw...)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
		SpiffeId: a.ID.String(), X509Svid: der, X509SvidKey: private, Bundle: a.Authority.Raw,
	}}}, nil
}
