package impersonation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// userHeader is the header that names the user to impersonate. Impersonation headers all begin with
// headerPrefix.
const (
	userHeader   = "Impersonate-User"
	headerPrefix = "Impersonate-"
)

// Clients makes clients that act as ServiceAccounts of one cluster. It is safe for concurrent use.
type Clients struct {
	config   *rest.Config
	base     http.RoundTripper
	options  client.Options
	accounts auth.AccountReader
}

// New returns Clients for the cluster of a configuration. All clients share its connections, and
// the options' scheme and REST mapper. The accounts must read ServiceAccounts from the API server
// and not from a cache, such as kube.Live of package auth/kube.
func New(config *rest.Config, options client.Options, accounts auth.AccountReader) (*Clients, error) {
	if config.Impersonate.UserName != "" {
		return nil, errors.New("the program's own configuration impersonates a user already")
	}
	// The workers bound how many requests run at once, and the API server's priority and fairness
	// knows the impersonated user. A rate limit here would be one for each kind of each client.
	config = rest.CopyConfig(config)
	config.QPS = -1
	if options.Mapper == nil || options.Scheme == nil {
		return nil, errors.New("the clients need a REST mapper and a scheme")
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Clients{config: config, base: shared.Transport, options: options, accounts: accounts}, nil
}

// Client acts as one ServiceAccount.
type Client struct {
	client.Client

	discovers discovery.DiscoveryInterface
	accounts  auth.AccountReader
	account   auth.Account
}

// Discover reads from the API server which kinds it serves now. It reads all kinds at once, and the
// result sends no request.
func (c *Client) Discover() (apimeta.RESTMapper, error) { return discover(c.discovers) }

// As returns a client that acts as a ServiceAccount. It reads the account first. If the account
// does not exist, the error has the code [auth.CodeSubjectNotFound].
func (c *Clients) As(ctx context.Context, subject auth.Subject) (*Client, error) {
	if subject.Kind() != auth.KindServiceAccount {
		return nil, fmt.Errorf("cannot impersonate %s: only ServiceAccounts are impersonated", subject)
	}
	account, err := c.accounts.Lookup(ctx, subject)
	if err != nil {
		return nil, err
	}
	if account.UID == "" {
		return nil, fmt.Errorf("the API server gave no UID of %s", subject)
	}
	options := c.options
	options.HTTPClient = &http.Client{Transport: &transport{base: c.base, user: UserName(subject)}}
	made, err := client.New(c.config, options)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", subject, err)
	}
	discovers, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, options.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("make a discovery client for %s: %w", subject, err)
	}
	return &Client{Client: made, discovers: discovers, accounts: c.accounts, account: account}, nil
}

// UserName returns the name by which the API server knows a ServiceAccount.
func UserName(account auth.Subject) string {
	return "system:serviceaccount:" + account.Namespace() + ":" + account.Name()
}

// User returns the name by which the API server knows the account of the client.
func (c *Client) User() string { return UserName(c.account.Subject) }

// UID returns the UID of the client's account.
func (c *Client) UID() string { return c.account.UID }

// Verify returns an error if the account of the client does not exist any more. A new account with
// the same name is another account.
func (c *Client) Verify(ctx context.Context) error {
	now, err := c.accounts.Lookup(ctx, c.account.Subject)
	if err != nil {
		return err
	}
	if now.UID != c.account.UID {
		return &auth.Error{
			Stage: auth.StageSubject, Code: auth.CodeSubjectReplaced, Fix: "try again: the next attempt uses the new account",
			Err: fmt.Errorf("%s was deleted and created anew meanwhile", c.account.Subject),
		}
	}
	return nil
}

// transport adds the header that impersonates a user to each request.
type transport struct {
	base http.RoundTripper
	user string
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name := range request.Header {
		if strings.HasPrefix(http.CanonicalHeaderKey(name), headerPrefix) {
			delete(request.Header, name)
		}
	}
	request.Header.Set(userHeader, t.user)
	return t.base.RoundTrip(request)
}
