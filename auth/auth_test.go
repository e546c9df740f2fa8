package auth_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// world is a fake of a provider, of an API server and of the server's informers. It refuses
// unexpected requests.
type world struct {
	mu     sync.Mutex
	live   map[auth.Subject]auth.Account // the accounts in the API server
	memory map[auth.Subject]auth.Account // the accounts in the informers' cache, which may be stale
	proofs map[string]auth.Account       // keyed by the proof's token
	steps  []string
}

const roleAttribute = "test/role"

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{live: map[auth.Subject]auth.Account{}, memory: map[auth.Subject]auth.Account{}, proofs: map[string]auth.Account{}}
	for _, namespace := range []string{"a", "b"} {
		w.set(auth.Account{
			Subject: serviceAccount(tb, namespace, "sa"), UID: "uid-" + namespace, Attributes: map[string]string{roleAttribute: "role-" + namespace},
		})
	}
	return w
}

func (w *world) set(account auth.Account) {
	w.live[account.Subject], w.memory[account.Subject] = account, account
}

func (w *world) options() []auth.Option {
	return []auth.Option{auth.WithServiceAccount("a", "sa", w)}
}

func (w *world) step(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *world) find(in map[auth.Subject]auth.Account, subject auth.Subject) (auth.Account, error) {
	account, ok := in[subject]
	if !ok {
		return auth.Account{}, &auth.Error{Stage: auth.StageSubject, Code: auth.CodeSubjectNotFound, Fix: "create " + subject.String(), Err: errors.New("not found")}
	}
	return account, nil
}

func (w *world) Lookup(_ context.Context, subject auth.Subject) (auth.Account, error) {
	return w.find(w.memory, subject)
}
func (w *world) Subscribe(func(auth.Subject)) {}

func (w *world) Read(_ context.Context, subject auth.Subject) (auth.Account, error) {
	w.step("read %s", subject)
	return w.find(w.live, subject)
}

func (w *world) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	w.step("prove %s for %s", account.UID, strings.Join(request.Audiences, " and "))
	if w.live[account.Subject].UID != account.UID {
		return nil, &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeSubjectReplaced, Err: errors.New("another UID")}
	}
	token := "proof-" + account.UID
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proofs[token] = account
	return &auth.JWT{Token: auth.NewSecret(token), ExpiresAt: time.Now().Add(request.Lifetime)}, nil
}

func (w *world) GetName() string { return "test" }

func (w *world) GetTarget(o *auth.Options) (auth.Target, error) {
	return auth.Target{Scopes: o.Scopes, Image: o.ImageRepository, STSEndpoint: o.STSEndpoint, STSRegion: o.STSRegion}, nil
}

func (w *world) GetIdentity(account auth.Account) (string, error) {
	role, ok := account.Attributes[roleAttribute]
	if !ok {
		return "", &auth.Error{Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing, Fix: "set " + roleAttribute, Err: errors.New("no role")}
	}
	return role, nil
}

func (w *world) GetProofRequest(context.Context, *auth.Request) (auth.ProofRequest, error) {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"sts.test"}}, nil
}

type session struct {
	who  string
	ends time.Time
}

func (s *session) GetDuration() time.Duration { return time.Until(s.ends) }

func (w *world) NewToken(_ context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	w.step("exchange for %s", request.Key.Identity)
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	account, ok := w.proofs[jwt.Token.Reveal()]
	if !ok || "role-"+account.Subject.Namespace() != request.Key.Identity {
		return nil, &auth.Error{Stage: auth.StageExchange, Code: auth.CodeTrustRefused, Fix: "trust " + request.Key.Subject.String(), Err: errors.New("refused")}
	}
	return &session{account.Subject.String() + " as " + request.Key.Identity, time.Now().Add(time.Hour)}, nil
}

// full is a world that also implements ControllerProvider and RegistryProvider.
type full struct{ *world }

func (w full) NewControllerToken(_ context.Context, request *auth.Request) (auth.Token, error) {
	w.step("ambient")
	if request.Key.Subject != auth.Controller() {
		return nil, errors.New("asked for the controller's token on behalf of somebody else")
	}
	return &session{"controller", time.Now().Add(time.Hour)}, nil
}

func (w full) NewRegistryToken(_ context.Context, token auth.Token, request *auth.Request) (*auth.RegistryCredentials, error) {
	w.step("registry %s", request.ImageRepository)
	return &auth.RegistryCredentials{Username: token.(*session).who, Password: auth.NewSecret("p"), ExpiresAt: time.Now().Add(time.Hour)}, nil
}

func TestGetTokenTakesItsSteps(t *testing.T) {
	w := full{newWorld(t)}
	opts := append(w.options(), auth.WithImageRepository("host/app"), auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))
	for range 2 {
		token, err := auth.GetToken(t.Context(), w, opts...)
		must.Succeed(t, err)
		if got := token.(*auth.RegistryCredentials).Username; got != "system:serviceaccount:a:sa as role-a" {
			t.Errorf("credentials of %s", got)
		}
	}
	want := []string{"read system:serviceaccount:a:sa", "prove uid-a for sts.test", "exchange for role-a", "registry host/app"}
	if !slices.Equal(w.steps, want) {
		t.Errorf("steps for two calls\n got %q\nwant %q", w.steps, want)
	}
}

func TestGetTokenWithoutCacheExchangesEachTime(t *testing.T) {
	w := full{newWorld(t)}
	for range 2 {
		if _, err := auth.GetToken(t.Context(), w, w.options()...); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.steps) != 6 {
		t.Errorf("steps %q", w.steps)
	}
}

func TestControllerOnlyByName(t *testing.T) {
	w := full{newWorld(t)}
	if _, err := auth.GetToken(t.Context(), w); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("nobody's token: %v, want %s", err, auth.CodeSubjectInvalid)
	}
	token, err := auth.GetToken(t.Context(), w, auth.WithController())
	if err != nil || token.(*session).who != "controller" {
		t.Errorf("controller's token: %v, %v", token, err)
	}
	if _, err := auth.GetToken(t.Context(), w.world, auth.WithController()); auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("of a provider that has none: %v, want %s", err, auth.CodeOptionUnsupported)
	}
}

// TestBadOptions checks that GetToken returns an error for each bad option, and does nothing else.
func TestBadOptions(t *testing.T) {
	w := full{newWorld(t)}
	sa := auth.WithServiceAccount("a", "sa", w)
	for _, tt := range []struct {
		name string
		opts []auth.Option
		code auth.Code
	}{
		{"name without namespace", []auth.Option{auth.WithServiceAccount("", "sa", w)}, auth.CodeSubjectInvalid},
		{"namespace without name", []auth.Option{auth.WithServiceAccount("a", "", w)}, auth.CodeSubjectInvalid},
		{"another namespace in the name", []auth.Option{auth.WithServiceAccount("a", "b/sa", w)}, auth.CodeSubjectInvalid},
		{"colon in the name", []auth.Option{auth.WithServiceAccount("a", "b:sa", w)}, auth.CodeSubjectInvalid},
		{"dot in the namespace", []auth.Option{auth.WithServiceAccount("a.b", "sa", w)}, auth.CodeSubjectInvalid},
		{"upper case", []auth.Option{auth.WithServiceAccount("A", "sa", w)}, auth.CodeSubjectInvalid},
		{"a bad subject, then the controller", []auth.Option{auth.WithServiceAccount("", "sa", w), auth.WithController()}, auth.CodeSubjectInvalid},
		{"nobody vouches", []auth.Option{auth.WithSubject(serviceAccount(t, "a", "sa"), nil)}, auth.CodeSubjectInvalid},
		{"empty scope", []auth.Option{sa, auth.WithScopes("x", "")}, auth.CodeOptionInvalid},
		{"empty image", []auth.Option{sa, auth.WithImageRepository("")}, auth.CodeOptionInvalid},
		{"no proxy", []auth.Option{sa, auth.WithProxyURL(nil)}, auth.CodeOptionInvalid},
		{"proxy of another scheme", []auth.Option{sa, auth.WithProxyURL(&url.URL{Scheme: "socks5", Host: "p"})}, auth.CodeOptionInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token, err := auth.GetToken(t.Context(), w, tt.opts...)
			if token != nil || auth.CodeOf(err) != tt.code {
				t.Errorf("GetToken = %v, %v; want %s", token, err, tt.code)
			}
			var e *auth.Error
			if !errors.As(err, &e) || e.Stage == "" || e.Fix == "" || e.Err == nil {
				t.Errorf("error %#v lacks stage, fix or cause", e)
			}
		})
	}
	if len(w.steps) != 0 {
		t.Errorf("something was done: %q", w.steps)
	}
	if _, err := auth.GetToken(t.Context(), w.world, sa, auth.WithImageRepository("host/app")); auth.CodeOf(err) != auth.CodeOptionUnsupported {
		t.Errorf("registry credentials of a provider that has none: %v", err)
	}
}

func TestMemoryIsBehind(t *testing.T) {
	sa := serviceAccount(t, "a", "sa")
	for _, tt := range []struct {
		name   string
		change func(w *world)
		code   auth.Code // empty if GetToken returns a token of role-a
	}{
		{"account not seen yet", func(w *world) { delete(w.memory, sa) }, ""},
		{"account gone", func(w *world) { delete(w.live, sa) }, auth.CodeSubjectNotFound},
		{"account gone and forgotten", func(w *world) { delete(w.live, sa); delete(w.memory, sa) }, auth.CodeSubjectNotFound},
		{"account re-created", func(w *world) {
			w.live[sa] = auth.Account{Subject: sa, UID: "uid-new", Attributes: map[string]string{roleAttribute: "role-a"}}
		}, ""},
		{"account re-annotated", func(w *world) {
			w.live[sa] = auth.Account{Subject: sa, UID: "uid-a", Attributes: map[string]string{roleAttribute: "role-b"}}
		}, auth.CodeTrustRefused},
		{"annotation removed", func(w *world) { w.live[sa] = auth.Account{Subject: sa, UID: "uid-a"} }, auth.CodeIdentityMissing},
		{"truth without UID", func(w *world) { w.live[sa] = auth.Account{Subject: sa} }, auth.CodeSubjectInvalid},
		{"truth about another", func(w *world) { w.live[sa] = w.live[serviceAccount(t, "b", "sa")] }, auth.CodeSubjectInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := full{newWorld(t)}
			tt.change(w.world)
			c := cache.New(cache.Options{MaxSize: 10})
			token, err := auth.GetToken(t.Context(), w, append(w.options(), auth.WithCache(c, auth.InvolvedObject{}))...)
			if auth.CodeOf(err) != tt.code || (err == nil) != (tt.code == "") {
				t.Fatalf("GetToken = %v, %v; want code %q", token, err, tt.code)
			}
			if err == nil && token.(*session).who != "system:serviceaccount:a:sa as role-a" {
				t.Errorf("token of %s", token.(*session).who)
			}
			if c.Len() != 0 {
				t.Error("a token is kept although memory and truth disagree")
			}
		})
	}
}

// TestKeyOfTheTokenThatWasIssued checks the [auth.Key] that GetTokenAndKey returns with a token.
// Its Identity must be the one that the token was issued for, role-a. At first the informers' copy
// of the account is out of date, and names another identity, role-b.
func TestKeyOfTheTokenThatWasIssued(t *testing.T) {
	sa := serviceAccount(t, "a", "sa")
	for name, cached := range map[string][]auth.Option{
		"without a cache": nil, "with a cache": {auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{})},
	} {
		t.Run(name, func(t *testing.T) {
			w := full{newWorld(t)}
			// The informers' cache (memory) lags behind the API server (live).
			w.memory[sa] = auth.Account{Subject: sa, UID: "uid-a", Attributes: map[string]string{roleAttribute: "role-b"}}
			token, key, err := auth.GetTokenAndKey(t.Context(), w, append(w.options(), cached...)...)
			if err != nil || token.(*session).who != "system:serviceaccount:a:sa as role-a" || key.Identity != "role-a" || key.Subject != sa {
				t.Errorf("token %v, key %v, %v; want both of role-a", token, key, err)
			}
			w.memory[sa] = w.live[sa]
			for range 2 { // the second call is a hit if there is a cache
				if _, key, err := auth.GetTokenAndKey(t.Context(), w, append(w.options(), cached...)...); err != nil || key.Identity != "role-a" {
					t.Errorf("key %v, %v; want role-a", key, err)
				}
			}
		})
	}
}

// TestImageRepositoryHasNoTag checks that an image repository with a scheme, a tag or a digest is
// refused. The error says what to leave out. It does not quote the text, because the text may be a
// URL with a password.
func TestImageRepositoryHasNoTag(t *testing.T) {
	const host = "user-password.example.com:5000"
	for repository, want := range map[string]struct{ problem, fix string }{
		host + "/team/app":                             {},
		host:                                           {},
		host + "/team/app:1.0.0":                       {"image repository: it has a tag", `leave out ":"`},
		host + "/team/app@sha256:0123":                 {"image repository: it has a digest", `leave out "@"`},
		host + "/team/app:1.0.0@sha256:0123":           {"image repository: it has a digest", `leave out "@"`},
		"oci://" + host + "/team/app":                  {"image repository: it has a scheme", "without"},
		"https://user:user-password@example.com/app:1": {"image repository: it has a scheme", "without"},
		"": {"image repository: it is empty", "as host/path"},
	} {
		w := full{newWorld(t)}
		_, err := auth.GetToken(t.Context(), w, append(w.options(), auth.WithImageRepository(repository))...)
		if want.problem == "" {
			if err != nil {
				t.Errorf("%s: %v", repository, err)
			}
			continue
		}
		refused, ok := errors.AsType[*auth.Error](err)
		if !ok || refused.Code != auth.CodeOptionInvalid || refused.Stage != auth.StageRegistry ||
			!strings.Contains(err.Error(), want.problem) || !strings.Contains(refused.Fix, want.fix) || strings.Contains(err.Error(), "user-password") {
			t.Errorf("%s: %v", repository, err)
		}
	}
}

// TestAccountSwappedBetweenReadAndProof checks that GetToken fails if another account replaces the
// account between Read and Prove.
func TestAccountSwappedBetweenReadAndProof(t *testing.T) {
	w := full{newWorld(t)}
	swapping := swapper{w}
	_, err := auth.GetToken(t.Context(), w, auth.WithSubject(serviceAccount(t, "a", "sa"), swapping))
	if auth.CodeOf(err) != auth.CodeSubjectReplaced {
		t.Errorf("got %v, want %s", err, auth.CodeSubjectReplaced)
	}
}

type swapper struct{ full }

func (s swapper) Read(ctx context.Context, subject auth.Subject) (auth.Account, error) {
	account, err := s.full.Read(ctx, subject)
	s.live[subject] = auth.Account{Subject: subject, UID: "uid-swapped", Attributes: account.Attributes}
	return account, err
}

// TestAnotherKindOfSubject checks that GetToken does not treat every subject as a ServiceAccount.
func TestAnotherKindOfSubject(t *testing.T) {
	w := full{newWorld(t)}
	wi, err := auth.WorkloadIdentity("a", "sa")
	must.Succeed(t, err)
	w.set(auth.Account{Subject: wi, UID: "uid-wi", Attributes: map[string]string{roleAttribute: "role-a"}})
	c := cache.New(cache.Options{MaxSize: 10})
	get := func(subject auth.Subject) string {
		t.Helper()
		token, err := auth.GetToken(t.Context(), w, auth.WithSubject(subject, w), auth.WithCache(c, auth.InvolvedObject{}))
		must.Succeed(t, err)
		return token.(*session).who
	}
	// Both subjects have the same namespace and name. The second round is answered from the cache.
	for range 2 {
		if got := get(wi); got != "lanyard.dev:workloadidentity:a:sa as role-a" {
			t.Errorf("the WorkloadIdentity's token is of %s", got)
		}
		if got := get(serviceAccount(t, "a", "sa")); got != "system:serviceaccount:a:sa as role-a" {
			t.Errorf("the ServiceAccount's token is of %s", got)
		}
	}
}

func TestStagesAreObserved(t *testing.T) {
	w := full{newWorld(t)}
	var seen []string
	observer := observerFunc(func(provider string, stage auth.Stage, outcome string, _ time.Duration) {
		seen = append(seen, fmt.Sprintf("%s %s %s", provider, stage, outcome))
	})
	opts := append(w.options(), auth.WithObserver(observer), auth.WithImageRepository("host/app"))
	if _, err := auth.GetToken(t.Context(), w, opts...); err != nil {
		t.Fatal(err)
	}
	sa := serviceAccount(t, "a", "sa")
	w.set(auth.Account{Subject: sa, UID: "uid-a", Attributes: map[string]string{roleAttribute: "role-b"}})
	_, _ = auth.GetToken(t.Context(), w, opts...)
	want := []string{
		"test token-request success", "test exchange success", "test registry success", "test token-request success", "test exchange TrustRefused",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("observed\n got %q\nwant %q", seen, want)
	}
}

type observerFunc func(string, auth.Stage, string, time.Duration)

func (f observerFunc) ObserveStage(provider string, stage auth.Stage, outcome string, took time.Duration) {
	f(provider, stage, outcome, took)
}

func TestSecretsDoNotPrint(t *testing.T) {
	const hidden = "hunter2"
	credentials := &auth.RegistryCredentials{Username: "AWS", Password: auth.NewSecret(hidden)}
	proof := &auth.JWT{Token: auth.NewSecret(hidden)}
	certificate := auth.NewCertificate(nil, ed25519.NewKeyFromSeed([]byte(hidden + hidden + hidden + hidden + hidden)[:ed25519.SeedSize]), time.Time{})
	proxy := &url.URL{Scheme: "http", User: url.UserPassword("user", hidden), Host: "proxy"}
	request := auth.Request{ProxyURL: proxy}
	var options auth.Options
	auth.WithProxyURL(proxy)(&options)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{credentials, *credentials, proof, *proof, certificate, *certificate, credentials.Password, request, &request, options, &options} {
			got := fmt.Sprintf(verb, value)
			if strings.Contains(got, hidden) || strings.Contains(got, fmt.Sprintf("%x", hidden)) {
				t.Errorf("Sprintf(%q, %T) = %s", verb, value, got)
			}
		}
	}
	if credentials.Password.Reveal() != hidden {
		t.Error("Reveal does not")
	}
	var none auth.Secret
	if !none.IsZero() || none.Reveal() != "" || credentials.Password.IsZero() {
		t.Error("the zero secret is not empty")
	}
}

func BenchmarkGetToken(b *testing.B) {
	w := full{newWorld(b)}
	opts := append(w.options(), auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := auth.GetToken(b.Context(), w, opts...); err != nil {
			b.Fatal(err)
		}
	}
}

// careless is a provider that answers without an error and without a token.
type careless struct {
	full

	registry bool
}

func (c careless) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	if c.registry {
		return c.full.NewToken(ctx, proof, request)
	}
	return nil, nil // the fault: neither a token nor an error
}

func (careless) NewRegistryToken(context.Context, auth.Token, *auth.Request) (*auth.RegistryCredentials, error) {
	return nil, nil // the fault: neither a token nor an error
}

func TestProviderWithoutToken(t *testing.T) {
	for name, registry := range map[string]bool{"session": false, "registry": true} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " cached ", cached), func(t *testing.T) {
				w := careless{full{newWorld(t)}, registry}
				opts := w.options()
				if registry {
					opts = append(opts, auth.WithImageRepository("host/app"))
				}
				if cached {
					opts = append(opts, auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))
				}
				token, err := auth.GetToken(t.Context(), w, opts...)
				if token != nil || auth.CodeOf(err) != auth.CodeResponseInvalid {
					t.Errorf("GetToken = %v, %v; want %s", token, err, auth.CodeResponseInvalid)
				}
			})
		}
	}
}

// proxied is a provider that records two values of each exchange: the proxy's host, and the proxy's
// URL in the token's [auth.Key].
type proxied struct {
	full

	seen *[]string
}

func (p proxied) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	*p.seen = append(*p.seen, request.ProxyURL.Host+" as "+request.Key.ProxyURL)
	return p.full.NewToken(ctx, proof, request)
}

// TestProxyIsTheOneOfTheKey changes a proxy's URL after passing it to WithProxyURL. It checks that
// the exchange and the token's key still have the proxy that WithProxyURL got.
func TestProxyIsTheOneOfTheKey(t *testing.T) {
	var seen []string
	w := proxied{full{newWorld(t)}, &seen}
	proxy := &url.URL{Scheme: "http", Host: "first"}
	opts := append(w.options(), auth.WithSTSEndpoint("https://sts.example.org"), auth.WithProxyURL(proxy))
	proxy.Host = "second"
	if _, err := auth.GetToken(t.Context(), w, opts...); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first as http://first"}; !slices.Equal(seen, want) {
		t.Errorf("exchanges through %q, want %q", seen, want)
	}
}
