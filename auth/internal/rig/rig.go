package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/providertest"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// Rig is a local cloud, an issuer and a transport. The cloud can fetch the issuer's keys. The
// transport reaches the local cloud under the host names of the real clouds.
type Rig struct {
	Cloud  *cloudtest.Cloud
	Issuer *oidc.Issuer
	// Proxy is the local cloud's proxy, which connects to all hosts of the cloud.
	Proxy *url.URL
	// Base goes through Proxy and trusts the local cloud's certificates.
	Base *http.Transport
	// Allow permits the use of Proxy, which is on loopback and would otherwise be refused.
	Allow endpoint.Allowed
}

// New starts the local cloud and stops it at the end of the test.
func New(tb testing.TB, config cloudtest.Config, issuerURL string, algorithm oidc.Algorithm) *Rig {
	tb.Helper()
	r, err := Start(tb.Context(), config, issuerURL, algorithm)
	Must(tb, err)
	tb.Cleanup(func() { Must(tb, r.Cloud.Close()) })
	return r
}

// Start is New for examples, where no test stops the cloud. Callers must close Cloud.
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

// As returns call options. They make the call act as the account, with a proof that r.Issuer signs.
func (r *Rig) As(account auth.Account, more ...auth.Option) []auth.Option {
	return append([]auth.Option{Subject(account, r.Sign)}, more...)
}

// OwnIssuer is the URL of Lanyard's own issuer, which differs from the cluster's issuer.
const OwnIssuer = "https://issuer.lanyard.example/clusters/one"

// IssuerOf returns the issuer of a subject's proofs: OwnIssuer for a WorkloadIdentity, otherwise
// the cluster's issuer.
func IssuerOf(subject auth.Subject, cluster string) string {
	if subject.Kind() == auth.KindWorkloadIdentity {
		return OwnIssuer
	}
	return cluster
}

// Sign makes a JWT for the account, signed by the issuer.
func (r *Rig) Sign(account auth.Account, request auth.ProofRequest) (string, error) {
	claims := claimsOf(account, request)
	claims["exp"] = time.Now().Add(request.Lifetime).Unix()
	return r.Issuer.Mint(claims)
}

// claimsOf returns the claims that every proof of the account has, with or without a defect. For a
// WorkloadIdentity they include lanyard.dev, the claim that Lanyard's token server adds.
func claimsOf(account auth.Account, request auth.ProofRequest) oidc.Claims {
	claims := oidc.Claims{"sub": SubjectClaim(account), "aud": request.Audiences, "jti": account.UID}
	if account.Subject.Kind() == auth.KindWorkloadIdentity {
		claims["lanyard.dev"] = map[string]any{"workloadIdentity": map[string]string{
			"namespace": account.Subject.Namespace(), "name": account.Subject.Name(), "uid": account.UID,
		}}
	}
	return claims
}

// SignBadly makes a JWT for the account. The JWT has the given defect.
func (r *Rig) SignBadly(account auth.Account, request auth.ProofRequest, defect providertest.Defect) (string, error) {
	claims := claimsOf(account, request)
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

// Fault injects a fault into calls. The returned function removes the fault.
func (r *Rig) Fault(tb testing.TB, f fault.Fault) (end func()) {
	tb.Helper()
	id, err := r.Cloud.Faults().Add(f)
	Must(tb, err)
	return func() { r.Cloud.Faults().Remove(id) }
}

// Trouble injects the given trouble into an operation of a service. For [providertest.Unreachable]
// it refuses all connections to the host instead.
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

// Calls returns the journal's calls to a service, or to all services if service is empty.
func (r *Rig) Calls(service string) []journal.Call {
	return r.Cloud.Journal().Calls(journal.Filter{Service: service})
}

// Count returns how often an operation of a service was called.
func (r *Rig) Count(service, operation string) int {
	n := 0
	for _, total := range r.Cloud.Journal().Totals() {
		if total.Service == service && total.Operation == operation {
			n += int(total.Count) //nolint:gosec // a test makes few calls
		}
	}
	return n
}

// Must calls tb.Fatal if err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
