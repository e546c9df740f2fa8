package kubeconfig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/servedkinds"
)

// Clusters makes clients of the clusters that files name.
type Clusters struct {
	// Guard decides which addresses a file may name.
	Guard endpoint.Guard
	// Scheme has the types that the clients know.
	Scheme *runtime.Scheme
	// UserAgent is the name by which the clusters know this program.
	UserAgent string
}

// Client is a client of one cluster. Its credentials, its proxy, its connections and its knowledge of
// the cluster's kinds belong to this client alone.
type Client struct {
	client.Client

	discovers discovery.DiscoveryInterface
	transport *http.Transport
	cluster   string
}

// patience is how long a server may take for the head of an answer. The webhooks of a cluster may take
// 30 s each. Source: Kubernetes documentation, "Dynamic Admission Control", timeouts.
const patience = time.Minute

// Connect returns a client for the file's cluster. No request is sent yet. The client acts as the file's
// user or, if user is not empty, impersonates another user there. All requests end with ctx. The
// memory of large answers is taken from the account of ctx ([reserve.Take]). The caller must call
// [Client.Close]. An error is an [*Error].
func (c *Clusters) Connect(ctx context.Context, file []byte, user string) (*Client, error) {
	config, err := Parse(file)
	if err != nil {
		return nil, err
	}
	if err := c.checkTarget(config); err != nil {
		return nil, err
	}
	config.Impersonate.UserName, config.UserAgent, config.QPS = user, c.UserAgent, -1
	config.WarningHandler = rest.NoWarnings{} // a tenant's server must not write this program's log
	made := &Client{cluster: clusterOf(config, user)}
	if err := made.connect(ctx, c, config); err != nil {
		return nil, &Error{Err: errors.New("no client can be made from the file"), Fix: "report this file, without its credentials, to the developers of Lanyard"}
	}
	return made, nil
}

func (c *Client) connect(ctx context.Context, clusters *Clusters, config *rest.Config) (err error) {
	c.transport = transport.Default()
	c.transport.Proxy, c.transport.DialContext, c.transport.ResponseHeaderTimeout = config.Proxy, dial(clusters.Guard), patience
	if c.transport.TLSClientConfig, err = rest.TLSConfigFor(config); err != nil {
		return err
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, c.transport)
	if err != nil {
		return err
	}
	sender := &http.Client{
		Transport:     &boundedTransport{ctx: ctx, next: authenticated, taken: map[string]int64{}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, sender)
	if err != nil {
		return err
	}
	if c.discovers, err = discovery.NewDiscoveryClientForConfigAndClient(config, sender); err != nil {
		return err
	}
	c.Client, err = client.New(config, client.Options{HTTPClient: sender, Scheme: clusters.Scheme, Mapper: mapper})
	return err
}

// errRedirect is the error for a redirect. API servers send none.
var errRedirect = errors.New("the server redirects to another address, which is refused")

// Discover reads from the API server which kinds it serves now.
func (c *Client) Discover() (apimeta.RESTMapper, error) { return servedkinds.Read(c.discovers) }

// Cluster identifies the cluster and who acts there. Its value says nothing else. It stays the same if
// only the user's credential changes.
func (c *Client) Cluster() string { return c.cluster }

// Close closes the client's connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// clusterOf returns the result of [Client.Cluster].
func clusterOf(config *rest.Config, user string) string {
	text, _ := json.Marshal([]any{config.Host, config.ServerName, config.CAData, config.Username, user}) // never fails
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// checkTarget refuses a server that a proxy must not be asked to reach. Without a proxy, the address is
// checked when it is dialled.
func (c *Clusters) checkTarget(config *rest.Config) error {
	server, err := url.Parse(config.Host)
	if err != nil {
		return &Error{Field: "clusters", Err: errors.New("the server is no URL"), Fix: "write https://<host>"}
	}
	proxy, err := config.Proxy(nil)
	if proxy == nil || err != nil {
		return err
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	if refused, ok := errors.AsType[*endpoint.AddressError](c.Guard.CheckTarget(net.JoinHostPort(server.Hostname(), port))); ok {
		return &Error{Field: "clusters", Err: errors.New(refused.Detail()), Fix: refused.Fix()}
	}
	return nil
}

// dial returns the guard's dial function with errors for [*AddressError].
func dial(guard endpoint.Guard) func(ctx context.Context, network, address string) (net.Conn, error) {
	guarded := guard.DialContext(transport.Dialer())
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := guarded(ctx, network, address)
		if refused, ok := errors.AsType[*endpoint.AddressError](err); ok {
			return nil, &AddressError{refused}
		}
		return conn, err
	}
}

// AddressError says that the address of a server or a proxy is refused. Its text does not say how to
// solve the problem; NextStep does.
type AddressError struct{ refused *endpoint.AddressError }

// Error implements error.
func (e *AddressError) Error() string { return e.refused.Detail() }

// Unwrap returns the guard's error.
func (e *AddressError) Unwrap() error { return e.refused }

// NextStep returns the next step for the user, as a sentence without a full stop.
func (e *AddressError) NextStep() string { return e.refused.Fix() }
