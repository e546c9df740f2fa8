package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/status"

	"github.com/lanyard-dev/lanyard/auth"
)

// self holds this program's SVID and the trust bundles, which the Workload API keeps up to date. It
// also holds the SPIFFE IDs that the broker may have. It is safe for concurrent use.
type self struct {
	client  *workloadapi.Client
	broker  allowed
	current atomic.Pointer[workloadapi.X509Context] // nil until the first SVID
	failed  atomic.Pointer[error]                   // last error of the Workload API
	refused atomic.Pointer[spiffeid.ID]             // ID of the last server if it was refused
}

var (
	_ x509svid.Source                = (*self)(nil)
	_ x509bundle.Source              = (*self)(nil)
	_ workloadapi.X509ContextWatcher = (*self)(nil)
)

// newSelf returns a self that gets its SVID from the Workload API at the address. It sends no
// request. Unlike workloadapi.NewX509Source, it returns without waiting for the first SVID.
func newSelf(ctx context.Context, address string, broker allowed) (*self, error) {
	if err := checkWorkloadAPI(address); err != nil {
		return nil, err
	}
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(address))
	if err != nil {
		return nil, err
	}
	return &self{client: client, broker: broker}, nil
}

func (s *self) close() error { return s.client.Close() }

// watch updates the SVID until ctx ends, or until the Workload API refuses for good.
func (s *self) watch(ctx context.Context) {
	_ = s.client.WatchX509Context(ctx, s) // OnX509ContextWatchError stores the error
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (s *self) OnX509ContextUpdate(current *workloadapi.X509Context) {
	s.current.Store(current)
	s.failed.Store(nil)
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher. The last SVID stays in use
// until it expires.
func (s *self) OnX509ContextWatchError(err error) { s.failed.Store(&err) }

// ready returns an error while this program has no SVID of its own.
func (s *self) ready() error {
	if s.current.Load() != nil {
		return nil
	}
	why := "it has not answered yet"
	if failed := s.failed.Load(); failed != nil {
		why = "it answers " + status.Code(*failed).String()
	}
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeUnavailable,
		Fix: "have the administrator check that the SPIFFE agent runs, that its socket is mounted as SPIFFE_ENDPOINT_SOCKET says, and that lanyard-controller has a registration entry",
		Err: fmt.Errorf("lanyard-controller has no SVID of its own from the SPIFFE Workload API: %s", why),
	}
}

// GetX509SVID implements x509svid.Source.
func (s *self) GetX509SVID() (*x509svid.SVID, error) {
	if current := s.current.Load(); current != nil {
		return current.DefaultSVID(), nil
	}
	return nil, errors.New("the SPIFFE Workload API has given no SVID")
}

// GetX509BundleForTrustDomain implements x509bundle.Source.
func (s *self) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	if current := s.current.Load(); current != nil {
		return current.Bundles.GetX509BundleForTrustDomain(domain)
	}
	return nil, errors.New("the SPIFFE Workload API has given no bundle")
}

// authorize is a tlsconfig.Authorizer. It refuses every server except the broker, so that no other
// server can hand out SVIDs. Source: SPIFFE Broker Endpoint §5.
func (s *self) authorize(id spiffeid.ID, _ [][]*x509.Certificate) error {
	if s.broker.has(id) {
		s.refused.Store(nil)
		return nil
	}
	s.refused.Store(&id)
	return fmt.Errorf("%s is not the broker", id)
}
