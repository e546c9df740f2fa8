// Package broker gets SVIDs of Kubernetes objects from a SPIFFE broker, such as an agent of SPIRE,
// in place of Lanyard's token server.
//
// An object's SPIFFE ID comes from its kind, namespace and name, as with the token server. The
// broker vouches for the object and signs, but it does not choose the ID. An SVID of any other ID
// is refused. docs/adr/0009 says why.
//
// The broker makes the private key of a certificate and sends it with the certificate. The key
// stays in memory, and is never logged.
//
// Sources are the standards SPIFFE Broker API and SPIFFE Broker Endpoint, at
// https://github.com/spiffe/spiffe/tree/main/standards. The protocol's types are from go-spiffe.
package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	brokerapi "github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// callTimeout bounds one call to the broker. Calls to the API server have the same timeout.
const callTimeout = 10 * time.Second

// Config configures a [Broker].
type Config struct {
	// Endpoint is the address of the broker (--spiffe-broker-endpoint): unix:///path/of/a.sock,
	// tcp://ip:port or dns:///host:port. Required.
	Endpoint string
	// ID is the SPIFFE ID of the broker (--spiffe-broker-id). With a slash at its end, it is a
	// prefix of the IDs of several brokers, such as the agents of a cluster's nodes. Its trust
	// domain is also the trust domain of the objects. Required.
	ID string
	// WorkloadAPI is the address of the SPIFFE Workload API, which gives this program its own SVID:
	// unix:///path/of/a.sock, as in the variable SPIFFE_ENDPOINT_SOCKET. Required.
	WorkloadAPI string
}

// Broker is the client of a SPIFFE broker. It is safe for concurrent use.
type Broker struct {
	endpoint   string
	domain     spiffeid.TrustDomain
	self       *self
	connection *grpc.ClientConn
	api        brokerapi.APIClient
}

var (
	_ kube.SVIDBroker = (*Broker)(nil)
	_ svid.Ring       = (*Broker)(nil)
)

// New returns a Broker, and sends no request. This program gets its own SVID while [Broker.Start]
// runs. The error says which flag is malformed.
func New(ctx context.Context, config Config) (*Broker, error) {
	target, err := targetOf(config.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("--spiffe-broker-endpoint: %w", err)
	}
	ids, err := parseAllowed(config.ID)
	if err != nil {
		return nil, fmt.Errorf("--spiffe-broker-id: %w", err)
	}
	own, err := newSelf(ctx, config.WorkloadAPI, ids)
	if err != nil {
		return nil, fmt.Errorf("--spiffe-broker-endpoint needs the variable SPIFFE_ENDPOINT_SOCKET: %w", err)
	}
	connection, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(credentials.NewTLS(tlsconfig.MTLSClientConfig(own, own, own.authorize))),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		// With short delays, the client soon reconnects to a broker that was down.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second},
			MinConnectTimeout: callTimeout,
		}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--spiffe-broker-endpoint: %w", err), own.close())
	}
	return &Broker{
		endpoint: config.Endpoint, domain: ids.domain, self: own, connection: connection, api: brokerapi.NewAPIClient(connection),
	}, nil
}

// Start keeps this program's SVID up to date until ctx ends. Then it closes the connections. It
// implements controller-runtime's Runnable.
func (b *Broker) Start(ctx context.Context) error {
	b.self.watch(ctx)
	<-ctx.Done()
	return errors.Join(b.connection.Close(), b.self.close())
}

// NeedLeaderElection implements controller-runtime's LeaderElectionRunnable: every replica gets its
// own SVID.
func (*Broker) NeedLeaderElection() bool { return false }

// Signers implements [svid.Ring].
func (b *Broker) Signers() (svid.Signers, error) {
	return svid.Signers{TrustDomain: b.domain, Broker: b.endpoint}, nil
}

// Prove implements [kube.SVIDBroker] with one call to the broker. For a certificate, the call is a
// subscription. Prove takes only the first answer, which the broker must send without delay. Later
// answers are not needed: the credential cache calls Prove again before the certificate expires.
// Source: SPIFFE Broker API §4.4.
func (b *Broker) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	id, err := svid.IDOf(b.domain, account.Subject)
	if err != nil {
		return nil, err
	}
	if err := b.self.ready(); err != nil {
		return nil, err
	}
	reference, err := referenceOf(account)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "broker.spiffe.io", "true"), callTimeout)
	defer cancel() // also ends the subscription
	now := time.Now()
	if request.Form == auth.FormCertificate {
		answer, err := b.subscribe(ctx, reference)
		if err != nil {
			return nil, b.failure(ctx, err, id)
		}
		return certificateOf(answer.GetSvids(), id, b.self, now)
	}
	answer, err := b.api.FetchJWTSVID(ctx, &brokerapi.FetchJWTSVIDRequest{
		Reference: reference, Audience: request.Audiences, SpiffeId: id.String(),
	})
	if err != nil {
		return nil, b.failure(ctx, err, id)
	}
	return jwtOf(answer.GetSvids(), id, request.Audiences, now)
}

// subscribe returns the first answer of a subscription.
func (b *Broker) subscribe(ctx context.Context, reference *brokerapi.WorkloadReference) (*brokerapi.SubscribeToX509SVIDResponse, error) {
	stream, err := b.api.SubscribeToX509SVID(ctx, &brokerapi.SubscribeToX509SVIDRequest{Reference: reference})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// referenceOf returns the broker's reference to an object. Because the reference has the UID, the
// broker must refuse an object that was deleted and created again. Source: SPIFFE Broker API
// §3.1.3.
func referenceOf(account auth.Account) (*brokerapi.WorkloadReference, error) {
	plural, _ := svid.Resource(account.Subject.Kind())
	object, err := anypb.New(&brokerapi.KubernetesObjectReference{
		Type: &brokerapi.KubernetesObjectType{Plural: plural, Group: v1alpha1.GroupVersion().Group},
		Key:  &brokerapi.KubernetesObjectKey{Namespace: account.Subject.Namespace(), Name: account.Subject.Name()},
		Uid:  account.UID,
	})
	if err != nil {
		return nil, err
	}
	return &brokerapi.WorkloadReference{Reference: object}, nil
}

// allowed is the set of SPIFFE IDs that a broker may have.
type allowed struct {
	domain spiffeid.TrustDomain
	text   string // an ID, or a prefix of IDs that ends with a slash
}

// parseAllowed parses a SPIFFE ID. A text that ends with a slash allows all IDs that begin with the
// text.
func parseAllowed(text string) (allowed, error) {
	id, err := spiffeid.FromString(strings.TrimSuffix(text, "/"))
	if err == nil && id.Path() == "" {
		err = errors.New("it has no path, so every member of the trust domain could be the broker")
	}
	if err != nil {
		return allowed{}, fmt.Errorf(
			"%q is not the SPIFFE ID of a broker, such as spiffe://example.com/spire/agent/k8s_psat/prod/ for all agents of a cluster: %w",
			text, err)
	}
	if _, err := svid.ParseTrustDomain(id.TrustDomain().Name()); err != nil {
		return allowed{}, err
	}
	return allowed{domain: id.TrustDomain(), text: text}, nil
}

func (a allowed) has(id spiffeid.ID) bool {
	return id.String() == a.text || strings.HasSuffix(a.text, "/") && strings.HasPrefix(id.String(), a.text)
}
