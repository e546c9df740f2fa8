package tokenserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
)

// The ConfigMap in which an API server publishes how it authenticates when it forwards requests.
// Source: Kubernetes, "Configure the Aggregation Layer".
const (
	configNamespace = "kube-system"
	configName      = "extension-apiserver-authentication"
	configCA        = "requestheader-client-ca-file"
)

// frontProxy has the settings for forwarded requests that the API server publishes in a ConfigMap.
// When the ConfigMap changes, the settings change too. They are:
//
//   - the CA of the API server's client certificate
//   - the names that this certificate may have
//   - the headers that name the caller
type frontProxy struct {
	ca *dynamiccertificates.ConfigMapCAController
	// roots returns the options to verify a certificate that ca has signed. The result known is
	// false until ca has been read.
	roots   func() (options x509.VerifyOptions, known bool)
	headers *headerrequest.RequestHeaderAuthRequestController
}

// newFrontProxy reads the ConfigMap once. It fails if the ConfigMap lists no names of clients that
// may forward requests. Without such a list, any client of the proxy CA could act as any caller.
func newFrontProxy(ctx context.Context, client kubernetes.Interface) (*frontProxy, error) {
	published, err := client.CoreV1().ConfigMaps(configNamespace).Get(ctx, configName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf(
			"read ConfigMap %s/%s: %w; grant this program the Role extension-apiserver-authentication-reader of that namespace",
			configNamespace, configName, err)
	}
	if published.Data[configCA] == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s has no %s: set the API server's flag --requestheader-client-ca-file",
			configNamespace, configName, configCA)
	}
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("request-header", configNamespace, configName, configCA, client)
	if err != nil {
		return nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(configName, configNamespace, client,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	if err := headers.RunOnce(ctx); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", configNamespace, configName, err)
	}
	f := &frontProxy{ca: ca, roots: ca.VerifyOptions, headers: headers}
	return f, f.check()
}

func (f *frontProxy) check() error {
	switch {
	case len(f.headers.AllowedClientNames()) == 0:
		return fmt.Errorf("ConfigMap %s/%s has no requestheader-allowed-names, so that every certificate of the proxy CA could name any caller: set the API server's flag --requestheader-allowed-names", configNamespace, configName)
	case len(f.headers.UsernameHeaders()) == 0:
		return fmt.Errorf(
			"ConfigMap %s/%s has no requestheader-username-headers: set the API server's flag --requestheader-username-headers",
			configNamespace, configName)
	}
	return nil
}

// start launches goroutines that follow the ConfigMap until ctx ends. It returns as soon as
// requests can be checked.
func (f *frontProxy) start(ctx context.Context) error {
	go f.ca.Run(ctx, 1)
	go f.headers.Run(ctx, 1)
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		_, known := f.ca.VerifyOptions()
		return known, nil
	})
}

// tls returns the configuration of TLS connections to the token server. A handshake succeeds only
// if the client shows a certificate of the front proxy, and has the certificate's private key. So
// other clients can send no request. Each handshake uses the current settings in f.
func (f *frontProxy) tls(serving *Certificate) *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			options, known := f.roots()
			if !known || options.Roots == nil { // without roots, crypto/tls would accept all CAs that the machine trusts
				return nil, errors.New("the CA of the front proxy is not known")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: protocols, GetCertificate: serving.GetCertificate,
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: options.Roots,
				VerifyConnection: func(state tls.ConnectionState) error {
					if !f.allowed(&state) {
						return errors.New("the client is not the front proxy: its name is not allowed")
					}
					return nil
				},
				SessionTicketsDisabled: true, // each handshake verifies the certificate
			}, nil
		},
	}
}

// allowed reports whether the name in a client certificate is one of the front proxy's names.
// The caller must verify the certificate. If the API server lists no names, no name is allowed.
func (f *frontProxy) allowed(state *tls.ConnectionState) bool {
	return state != nil && len(state.PeerCertificates) > 0 &&
		slices.Contains(f.headers.AllowedClientNames(), state.PeerCertificates[0].Subject.CommonName)
}

// config returns the settings for the library that authenticates forwarded requests. In such a
// request, the API server names the caller in certain headers. The library reads these headers and
// then removes them.
func (f *frontProxy) config() *authenticatorfactory.RequestHeaderConfig {
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   f.ca,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(f.headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(f.headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(f.headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(f.headers.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(f.headers.AllowedClientNames),
	}
}

// authenticator accepts only callers that the API server names in the headers. It accepts no bearer
// token, no client certificate of a caller, and no anonymous caller. So the API server and its
// audit log see each token request.
func (f *frontProxy) authenticator() authenticator.Request {
	c := f.config()
	verified := headerrequest.NewDynamicVerifyOptionsSecure(f.roots, c.AllowedClientNames,
		c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes)
	named := headerrequest.NewDynamic(c.UsernameHeaders, c.UIDHeaders, c.GroupHeaders, c.ExtraHeaderPrefixes)
	var last lastProxy
	return group.NewAuthenticatedGroupAdder(authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
		if err := f.check(); err != nil { // the ConfigMap may have changed
			return nil, false, err
		}
		names := f.headers.AllowedClientNames()
		options, known := f.roots()
		if known && last.is(request.TLS, options.Roots, names) {
			return named.AuthenticateRequest(request)
		}
		response, ok, err := verified.AuthenticateRequest(request)
		// Compare the name here too: all names may have been withdrawn since f.check, and the
		// library accepts every name if the list is empty.
		if !ok || !f.allowed(request.TLS) {
			return nil, false, err
		}
		if known {
			last.remember(request.TLS, options.Roots)
		}
		return response, true, nil
	}))
}

// proxyMemory is how long a verified certificate of the front proxy is accepted without another
// verification.
const proxyMemory = time.Minute

// lastProxy is the certificate of the front proxy that was verified last. A verification takes as
// long as all other work for a request. So the certificate is not verified again for each request.
// Each TLS handshake still checks that the client has the private key.
type lastProxy struct{ seen atomic.Pointer[seenProxy] }

type seenProxy struct {
	leaf  []byte         // DER of the certificate
	roots *x509.CertPool // the CA that verified the certificate
	until time.Time
}

// is reports whether a connection needs no new verification. These conditions must hold:
//
//   - The client has the remembered certificate.
//   - The CA is the same.
//   - The name is still allowed.
//
// The certificate is remembered for proxyMemory, but not after it expires.
func (l *lastProxy) is(state *tls.ConnectionState, roots *x509.CertPool, names []string) bool {
	last := l.seen.Load()
	if last == nil || state == nil || len(state.PeerCertificates) == 0 {
		return false
	}
	leaf := state.PeerCertificates[0]
	return last.roots == roots && time.Now().Before(last.until) &&
		bytes.Equal(last.leaf, leaf.Raw) && slices.Contains(names, leaf.Subject.CommonName)
}

func (l *lastProxy) remember(state *tls.ConnectionState, roots *x509.CertPool) {
	leaf := state.PeerCertificates[0]
	until := time.Now().Add(proxyMemory)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	l.seen.Store(&seenProxy{leaf: leaf.Raw, roots: roots, until: until})
}

// NewAuthorizer returns an authorizer that asks the API server whether a caller may make a request.
// The API server has already checked this before it forwards the request.
func NewAuthorizer(client kubernetes.Interface) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             10 * time.Second,
		DenyCacheTTL:              10 * time.Second,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 4},
	}.New()
}
