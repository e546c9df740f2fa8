package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providertest"
)

// Rig is the local cloud, an issuer that it can ask for keys, and a transport that reaches it under the cloud's own names.
type Rig struct {
	Cloud  *cloudtest.Cloud
	Issuer *oidc.Issuer
	// Proxy is the local cloud's, which leads to all of its hosts.
	Proxy *url.URL
	// Base goes through Proxy and trusts the local cloud's certificates.
	Base *http.Transport
	// Allow lists Proxy: one on loopback is nothing that a tenant may name otherwise.
	Allow endpoint.Allowed
}

// New starts the local cloud, which stops with the test.
func New(tb testing.TB, config cloudtest.Config, issuerURL string, algorithm oidc.Algorithm) *Rig {
	tb.Helper()
	r, err := Start(tb.Context(), config, issuerURL, algorithm)
	Must(tb, err)
	tb.Cleanup(func() { Must(tb, r.Cloud.Close()) })
	return r
}

// Start is New for examples, which have no test to stop with: they close Cloud.
func Start(ctx context.Context, config cloudtest.Config, issuerURL string, algorithm oidc.Algorithm) (*Rig, error) {
	cloud, err := cloudtest.New(config)
	if err != nil {
		return nil, err
	}
	issuer, err := oidc.NewIssuer(issuerURL, algorithm)
	if err != nil {
		return nil, err
	}
	if err := cloud.HandleIssuer(issuer); err != nil {
		return nil, err
	}
	if err := cloud.Start(ctx); err != nil {
		return nil, err
	}
	proxy, err := url.Parse(cloud.ProxyURL())
	if err != nil {
		return nil, err
	}
	allow, err := endpoint.ParseAllowed(proxy.Host)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cloud.CAPEM())
	return &Rig{Cloud: cloud, Issuer: issuer, Proxy: proxy, Allow: allow, Base: &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}, nil
}

// As names the account as the subject of a call, with a proof by the issuer.
func (r *Rig) As(account auth.Account, more ...auth.Option) []auth.Option {
	return append([]auth.Option{Subject(account, r.Sign)}, more...)
}

// Sign makes a proof of the account.
func (r *Rig) Sign(account auth.Account, request auth.ProofRequest) (string, error) {
	return r.Issuer.Mint(oidc.Claims{
		"sub": SubjectClaim(account), "aud": []string{request.Audience}, "exp": time.Now().Add(request.Lifetime).Unix(), "jti": account.UID,
	})
}

// SignBadly is Sign with a defect.
func (r *Rig) SignBadly(account auth.Account, request auth.ProofRequest, defect providertest.Defect) (string, error) {
	claims := oidc.Claims{"sub": SubjectClaim(account), "aud": []string{request.Audience}, "jti": account.UID}
	switch defect {
	case providertest.Expired:
		claims["iat"], claims["nbf"] = time.Now().Add(-2*time.Hour).Unix(), time.Now().Add(-2*time.Hour).Unix()
		claims["exp"] = time.Now().Add(-time.Hour).Unix()
	case providertest.Forged:
		return r.Issuer.Forge(claims)
	case providertest.WrongIssuer:
		claims["iss"] = "https://issuer.example.org"
	case providertest.None:
	}
	return r.Issuer.Mint(claims)
}

// Fault injects the fault into calls until end is called.
func (r *Rig) Fault(tb testing.TB, f fault.Fault) (end func()) {
	tb.Helper()
	id, err := r.Cloud.Faults().Add(f)
	Must(tb, err)
	return func() { r.Cloud.Faults().Remove(id) }
}

// Trouble injects the suite's trouble into an operation of a service, which host serves.
func (r *Rig) Trouble(tb testing.TB, trouble providertest.Trouble, service, operation, host string) (end func()) {
	tb.Helper()
	f := fault.Fault{Service: service, Operation: operation}
	switch trouble {
	case providertest.Slow:
		f.Kind, f.Delay = fault.Latency, providertest.SlowAnswer
	case providertest.Throttled:
		f.Kind = fault.Throttle
	case providertest.Failing:
		f.Kind = fault.Unavailable
	case providertest.Broken:
		f.Kind = fault.Malformed
	case providertest.Unreachable:
		f = fault.Fault{Host: host, Kind: fault.Refuse}
	}
	return r.Fault(tb, f)
}

// Calls are what the journal has of a service; of all, if service is empty.
func (r *Rig) Calls(service string) []journal.Call {
	return r.Cloud.Journal().Calls(journal.Filter{Service: service})
}

// Count is how often an operation of a service was asked for.
func (r *Rig) Count(service, operation string) int {
	n := 0
	for _, total := range r.Cloud.Journal().Totals() {
		if total.Service == service && total.Operation == operation {
			n += int(total.Count) //nolint:gosec // a test makes few calls
		}
	}
	return n
}

// Must ends the test if there is an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
