package artifacts

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/cli/creds"
	"github.com/lanyard-dev/lanyard/internal/cli/frame"
)

// stillness is the longest time that a connection may be silent during a request. It is long: a
// registry is silent while it checks the digest of a large layer or moves the layer in its storage.
const stillness = 2 * time.Minute

// registryFlags say how a registry is reached, and with which credential.
type registryFlags struct {
	creds    *creds.Flags
	insecure bool
	caFile   string
	timeout  time.Duration
}

func (f *registryFlags) addTo(c *cobra.Command) {
	f.creds.AddTo(c)
	c.Flags().BoolVar(&f.insecure, "insecure-registry", false,
		"allow plain http to the registry; not with a short-lived credential, of --creds or of Docker's credential helper")
	c.Flags().StringVar(&f.caFile, "ca-file", "", "file with the certificate authorities (PEM) of the registry (default: the system's)")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "give up after this time (default: never, as long as the registry answers)")
	frame.CompleteFile(c, "ca-file", "pem", "crt")
	frame.CompleteNothing(c, "timeout")
}

// check refuses flags that make no sense together.
func (f *registryFlags) check() error {
	switch {
	case f.insecure && f.creds.ShortLived():
		return withoutTLS("the credential of --creds")
	case f.timeout < 0:
		return errors.New("--timeout: write a positive time, such as 5m")
	}
	return f.creds.Check()
}

func withoutTLS(credential string) error {
	return fmt.Errorf("--insecure-registry: %s is never sent without TLS; use --ca-file to trust the registry's certificate", credential)
}

// limit bounds a command by --timeout.
func (f *registryFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("--timeout=%s is over", f.timeout))
}

// connect logs in to the registry of a repository. It adds the credential and the transport to
// opts. The caller calls the returned function to close the connection.
func (f *registryFlags) connect(ctx context.Context, repository oci.Repository, opts oci.Options) (*oci.Client, func(), error) {
	opts, closing, err := f.options(ctx, repository, opts)
	if err != nil {
		return nil, nil, err
	}
	client, err := oci.Connect(ctx, repository, opts)
	if err != nil {
		closing()
		return nil, nil, err
	}
	return client, closing, nil
}

// options gets the credential for a repository, and makes the transport to its registry. It returns
// opts with both. The caller calls the returned function when the transport is not needed any more.
func (f *registryFlags) options(ctx context.Context, repository oci.Repository, opts oci.Options) (oci.Options, func(), error) {
	way, err := f.transport()
	if err != nil {
		return oci.Options{}, nil, err
	}
	login, err := f.creds.Login(ctx, repository)
	if err != nil {
		return oci.Options{}, nil, err
	}
	if f.insecure && login.ShortLived {
		login.Close()
		return oci.Options{}, nil, withoutTLS("the short-lived credential of the Docker configuration")
	}
	var next http.RoundTripper = way
	if login.Certificate != nil {
		identified := way.Clone()
		identified.TLSClientConfig.GetClientCertificate = login.Certificate
		next = certified{host: repository.Host(), identified: identified, others: way}
	}
	opts.Auth, opts.Transport, opts.Insecure = login.Auth, next, f.insecure
	opts.Caller = origin.Caller{
		Anonymous: login.Auth == nil && login.Certificate == nil, CommandLine: true, Proxy: proxySetting(repository.Host()),
	}
	return opts, func() { login.Close(); way.CloseIdleConnections() }, nil
}

// transport returns the transport for requests to the registry, its token server and its storage.
func (f *registryFlags) transport() (*http.Transport, error) {
	way := transport.Default()
	way.ResponseHeaderTimeout = stillness
	dial := way.DialContext
	way.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &restless{conn}, nil
	}
	if f.caFile == "" {
		return way, nil
	}
	authorities, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	way.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !way.TLSClientConfig.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--ca-file: %s has no certificate in PEM", f.caFile)
	}
	return way, nil
}

// proxySetting returns the name of the environment variable with the proxy for a host. The result
// is empty without a proxy.
func proxySetting(host string) string {
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: host}})
	if err == nil && proxy == nil {
		return ""
	}
	return "HTTPS_PROXY"
}

// certified shows a client certificate to the registry only. Redirect targets and token servers do
// not get it.
type certified struct {
	host               string
	identified, others http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c certified) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.EqualFold(req.URL.Host, c.host) {
		return c.identified.RoundTrip(req)
	}
	return c.others.RoundTrip(req)
}

// restless is a connection that fails when it is silent for longer than [stillness].
type restless struct{ net.Conn }

func (r *restless) Read(p []byte) (int, error) {
	if err := r.SetDeadline(time.Now().Add(stillness)); err != nil {
		return 0, err
	}
	return r.Conn.Read(p)
}

func (r *restless) Write(p []byte) (int, error) {
	if err := r.SetDeadline(time.Now().Add(stillness)); err != nil {
		return 0, err
	}
	return r.Conn.Write(p)
}

// completeTags completes the tag of an artifact after the user has typed the repository.
func (f *registryFlags) completeTags(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, tag, ok := cutTag(begun)
	if !ok || len(args) > 0 {
		return completeRepository(c, args, begun)
	}
	ctx, cancel := context.WithTimeout(c.Context(), frame.CompletionTimeout)
	defer cancel()
	err := f.check() // send no request with flags that the command itself would refuse
	var tags []string
	if err == nil {
		tags, err = f.tags(ctx, name)
	}
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	var words []cobra.Completion
	for _, one := range tags {
		if strings.HasPrefix(one, tag) {
			words = append(words, name+":"+one)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeRepository completes an argument that is a repository. It offers only the scheme oci://,
// and no names.
func completeRepository(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || !strings.HasPrefix(scheme, begun) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{scheme}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// scheme begins an artifact's URL.
const scheme = "oci://"

// cutTag splits an incomplete argument: it returns the repository, and the part of the tag that the
// user has typed.
func cutTag(begun string) (name, tag string, ok bool) {
	colon := strings.LastIndex(begun, ":")
	if colon < len(scheme) || strings.Contains(begun[colon:], "/") {
		return "", "", false
	}
	return begun[:colon], begun[colon+1:], true
}

// tags lists the tags of a repository.
func (f *registryFlags) tags(ctx context.Context, name string) ([]string, error) {
	repository, _, err := oci.ParseArtifact(name)
	if err != nil {
		return nil, err
	}
	client, closing, err := f.connect(ctx, repository, oci.Options{})
	if err != nil {
		return nil, err
	}
	defer closing()
	return client.List(ctx, oci.TagFilter{})
}
