package auth_test

import (
	"context"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// asking is a provider whose GetProofRequest always returns the value of the field request.
type asking struct {
	full

	request auth.ProofRequest
}

func (a asking) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	return a.request, nil
}

// TestCarelessProofRequests checks that no proof is made for an invalid request. Examples are a
// request for a JWT without an audience, and a request with an empty [auth.Form].
func TestCarelessProofRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		request auth.ProofRequest
		code    auth.Code
	}{
		"a JWT for nobody":             {auth.ProofRequest{Form: auth.FormJWT}, auth.CodeAudienceRefused},
		"no form":                      {auth.ProofRequest{Audiences: []string{"sts.test"}}, auth.CodeOptionInvalid},
		"an unknown form":              {auth.ProofRequest{Form: "SAML", Audiences: []string{"sts.test"}}, auth.CodeOptionInvalid},
		"a certificate for a receiver": {auth.ProofRequest{Form: auth.FormCertificate, Audiences: []string{"sts.test"}}, auth.CodeAudienceRefused},
		"a token for a receiver":       {auth.ProofRequest{Form: auth.FormToken, Audiences: []string{"sts.test"}}, auth.CodeAudienceRefused},
	} {
		w := newWorld(t)
		if _, err := auth.GetToken(t.Context(), asking{full{w}, tt.request}, w.options()...); auth.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
		if len(w.proofs) != 0 {
			t.Errorf("%s: a proof was made", name)
		}
	}
}

// charged is a cache that stores nothing and records the tenant that it is asked to charge.
type charged struct {
	tenant   string
	retryNow bool
}

func (*charged) Get(auth.Key, time.Duration, auth.InvolvedObject) (auth.Token, bool) {
	return nil, false
}

func (c *charged) Fetch(ctx context.Context, _ auth.Key, options auth.FetchOptions, fetch func(context.Context) (auth.Fetched, error)) (auth.Fetched, error) {
	c.tenant, c.retryNow = options.Tenant, options.RetryNow
	return fetch(ctx)
}

// charging is a provider that records which tenant its last exchange was charged to.
type charging struct {
	full

	tenant *string
}

func (p charging) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	*p.tenant = request.Tenant()
	return p.full.NewToken(ctx, proof, request)
}

func (p charging) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	*p.tenant = request.Tenant()
	return p.full.NewControllerToken(ctx, request)
}

// TestWhoIsCharged checks towards which namespace's limits an exchange counts. The cache and the
// provider must get the same namespace:
//
//   - for a ServiceAccount, its own namespace, even if [auth.WithTenant] names another namespace
//   - for the controller, the namespace that auth.WithTenant names
//   - for the controller without auth.WithTenant, no namespace
func TestWhoIsCharged(t *testing.T) {
	var tenant string
	w := charging{full{newWorld(t)}, &tenant}
	own := auth.WithServiceAccount("a", "sa", w)
	for name, tt := range map[string]struct {
		opts []auth.Option
		want string
	}{
		"own":              {[]auth.Option{own}, "a"},
		"own, for another": {[]auth.Option{own, auth.WithTenant("b")}, "a"},
		"lent":             {[]auth.Option{auth.WithController(), auth.WithTenant("b")}, "b"},
		"the program's":    {[]auth.Option{auth.WithController()}, ""},
	} {
		c := &charged{tenant: "nobody"}
		if _, err := auth.GetToken(t.Context(), w, append(tt.opts, auth.WithCache(c, auth.InvolvedObject{}))...); err != nil {
			t.Fatal(err)
		}
		if c.tenant != tt.want || tenant != tt.want {
			t.Errorf("%s: the cache charges %q and the provider %q, want %q", name, c.tenant, tenant, tt.want)
		}
	}
	a, err := auth.Resolve(t.Context(), w, auth.WithController(), auth.WithTenant("a"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := auth.Resolve(t.Context(), w, auth.WithController(), auth.WithTenant("b")); err != nil || a != b {
		t.Errorf("two tenants that borrow one identity have two keys, or %v", err)
	}
}

// TestWhoRetriesNow checks for whom [auth.WithRetryNow] repeats an exchange that has just failed. A
// tenant can use the option for its own subjects. A tenant cannot use it for the controller or
// another lent subject ([auth.Subject.Lent]), because other tenants share that subject.
func TestWhoRetriesNow(t *testing.T) {
	w := full{newWorld(t)}
	own := auth.WithServiceAccount("a", "sa", w)
	for name, tt := range map[string]struct {
		opts []auth.Option
		want bool
	}{
		"own":           {[]auth.Option{own, auth.WithTenant("a"), auth.WithRetryNow()}, true},
		"not asked for": {[]auth.Option{own, auth.WithTenant("a")}, false},
		"lent":          {[]auth.Option{auth.WithController(), auth.WithTenant("b"), auth.WithRetryNow()}, false},
		"the program's": {[]auth.Option{auth.WithController(), auth.WithRetryNow()}, true},
	} {
		c := &charged{}
		if _, err := auth.GetToken(t.Context(), w, append(tt.opts, auth.WithCache(c, auth.InvolvedObject{}))...); err != nil {
			t.Fatal(err)
		}
		if c.retryNow != tt.want {
			t.Errorf("%s: %v", name, c.retryNow)
		}
	}
}

// environment returns an option that sets the subject but no Prover. For a tenant's subject, only a
// careless program would do this.
func environment(subject auth.Subject) auth.Option {
	return func(o *auth.Options) { o.Subject, o.Accounts = subject, nil }
}

// TestTenantNeverGetsTheProgramsToken checks that a tenant's subject without a Prover is refused.
// Without a Prover, only a lent subject gets a token from the program's environment.
func TestTenantNeverGetsTheProgramsToken(t *testing.T) {
	w := full{newWorld(t)}
	token, err := auth.GetToken(t.Context(), w, environment(serviceAccount(t, "a", "sa")))
	if token != nil || auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("a tenant's subject without a Prover: %v, %v", token, err)
	}
}

// TestTheControllerCanBeProven checks that a call with a Prover exchanges a proof of the controller
// for a token. Only without a Prover does the token come from the program's environment.
func TestTheControllerCanBeProven(t *testing.T) {
	w := full{newWorld(t)}
	w.set(auth.Account{Subject: auth.Controller(), UID: "uid-c", Attributes: map[string]string{roleAttribute: "role-"}})
	token, err := auth.GetToken(t.Context(), w, auth.WithSubject(auth.Controller(), w))
	if err != nil || token.(*session).who != "controller as role-" {
		t.Errorf("%v, %v; want the exchange of a proof", token, err)
	}
}
