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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/transport"
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

// Use says how a client is used.
type Use struct {
	// Impersonate is the name of a user whom the file's user impersonates. Empty: the file's user acts
	// as itself.
	Impersonate string
	// Retains charges all answers until the account is closed. Set Retains if the caller stores parts
	// of answers. Otherwise only a few answers are charged, the largest.
	Retains bool
}

// Client is a client of one cluster. Its credentials, its proxy, its connections and its knowledge
// of the cluster's kinds belong to this client alone. It has the methods Get, List, Patch and
// Delete for objects without Go types, and for metadata.
type Client struct {
	client.Client

	newKinds  func(cachesMisses bool) (*kinds, error)
	transport *http.Transport
	cluster   string
}

// headerTimeout is the time limit for response headers. The webhooks of a cluster may take 30 s
// each. Source: Kubernetes documentation, "Dynamic Admission Control", timeouts.
const headerTimeout = time.Minute

// connections is how many connections a client has at once.
const connections = 8

// Connect returns a client for the file's cluster. No request is sent yet. All requests end with
// ctx. The memory of answers is taken from the account of ctx ([reserve.Take]). The caller must
// call [Client.Close]. An error is an [*Error].
func (c *Clusters) Connect(ctx context.Context, file []byte, use Use) (*Client, error) {
	connection, err := Parse(file, c.Guard.CheckTarget)
	if err != nil {
		return nil, err
	}
	config := connection.Config
	config.Impersonate.UserName, config.UserAgent, config.QPS = use.Impersonate, c.UserAgent, -1
	config.WarningHandler = rest.NoWarnings{} // a tenant's server must not write this program's log
	made := &Client{cluster: clusterOf(connection)}
	if err := made.connect(ctx, c, connection, use); err != nil {
		return nil, &Error{Err: errors.New("no client can be made from the file"), Fix: "report this file, without its credentials, to the developers of Lanyard"}
	}
	return made, nil
}

func (c *Client) connect(ctx context.Context, clusters *Clusters, connection *Connection, use Use) (err error) {
	config := connection.Config
	server, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	c.transport = transport.Default()
	c.transport.Proxy, c.transport.DialContext = config.Proxy, dial(clusters.Guard)
	c.transport.ResponseHeaderTimeout, c.transport.MaxConnsPerHost = headerTimeout, connections
	c.transport.TLSClientConfig = connection.TLS
	authenticated, err := rest.HTTPWrappersForConfig(config, c.transport)
	if err != nil {
		return err
	}
	sender := func(retains bool) *http.Client {
		return &http.Client{
			Transport:     &boundedTransport{ctx: ctx, next: authenticated, host: server.Host, retains: retains},
			CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
		}
	}
	// Package rest counts requests by the host. The counters of many tenants' hosts would fill the
	// memory.
	config = rest.CopyConfig(config)
	config.Host = (&url.URL{Scheme: "https", Host: anyHost, Path: server.Path}).String()
	reader := sender(true) // the kinds are stored
	c.newKinds = func(cachesMisses bool) (*kinds, error) { return newKinds(ctx, config, reader, cachesMisses) }
	mapper, err := c.newKinds(false)
	if err != nil {
		return err
	}
	c.Client, err = client.New(config, client.Options{HTTPClient: sender(use.Retains), Scheme: clusters.Scheme, Mapper: mapper})
	return err
}

// anyHost stands for the host of any server, in metrics and in errors.
const anyHost = "server-of-kubeconfig"

// errRedirect is the error for a redirect. API servers send none.
var errRedirect = errors.New("the server redirects to another address, which is refused")

// Discover returns the kinds that the API server serves now. A kind is read when somebody asks for
// it.
func (c *Client) Discover() (apimeta.RESTMapper, error) { return c.newKinds(true) }

// Cluster returns a hash of the server's address and authority, the name of a user with a password,
// and the impersonated user. A new token or certificate does not change the hash.
func (c *Client) Cluster() string { return c.cluster }

// Close closes the client's connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// clusterOf returns the result of [Client.Cluster].
func clusterOf(c *Connection) string {
	text, _ := json.Marshal([]any{c.Config.Host, c.TLS.ServerName, c.authority, c.Config.Username, c.Config.Impersonate.UserName}) // never fails
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
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
