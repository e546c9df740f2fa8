//nolint:thelper // these are tests, not helpers: a failure is to name their own line
package providertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
)

// Run runs the suite. It calls harness for each of the suite's tests.
func Run(t *testing.T, harness func(t *testing.T) *Harness) {
	t.Helper()
	tests := []suiteTest{
		{"one exchange serves all calls", oneExchange},
		{"without a cache every call exchanges", noCache},
		{"tenants never share", tenantsNeverShare},
		{"a cancelled caller returns at once", cancelled},
		{"a caller's deadline is kept", deadline},
		{"reads race refreshes", readsRaceRefreshes},
		{"unsupported options are errors", unsupported},
		{"the key changes with each input", keys},
		{"registry credentials", registry},
	}
	if !harness(t).Credential {
		tests = append(tests,
			suiteTest{"errors say stage, code and fix", errorsExplain},
			suiteTest{"a bad proof is refused", badProofs},
			suiteTest{"a proof of another form is refused", otherForms},
			suiteTest{"withdrawn trust ends cached tokens", withdrawn},
		)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, newBench(t, harness)) })
	}
}

type suiteTest struct {
	name string
	run  func(t *testing.T, b *bench)
}

func oneExchange(t *testing.T, b *bench) {
	first := b.mustGet(t, b.with(b.A, b.cached()...)...)
	b.belongs(t, first, b.A)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			again, err := b.get(t.Context(), b.with(b.A, b.cached()...)...)
			if err != nil || again != first {
				t.Errorf("another token than the first, or error %v", err)
			}
		})
	}
	wg.Wait()
	if n := b.Cloud.Exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}
}

func noCache(t *testing.T, b *bench) {
	for range 3 {
		b.belongs(t, b.mustGet(t, b.with(b.A)...), b.A)
	}
	if n := b.Cloud.Exchanges(); n != 3 {
		t.Errorf("%d exchanges, want 3", n)
	}
}

func tenantsNeverShare(t *testing.T, b *bench) {
	tokenA := b.mustGet(t, b.with(b.A, b.cached()...)...)
	tokenB := b.mustGet(t, b.with(b.B, b.cached()...)...)
	b.belongs(t, tokenA, b.A)
	b.belongs(t, tokenB, b.B)
	if b.Direct {
		return
	}

	// B claims A's identity while the cache has A's token for this identity.
	identity, err := b.Provider.GetIdentity(b.A)
	must.Succeed(t, err)
	b.accounts.put(b.WithIdentity(b.B, identity))
	token, err := b.get(t.Context(), b.with(b.B, b.cached()...)...)
	if err == nil {
		t.Fatalf("B got a token for A's identity: %v", token)
	}
	if code := auth.CodeOf(err); code != auth.CodeTrustRefused {
		t.Errorf("code %s, want %s: %v", code, auth.CodeTrustRefused, err)
	}
	// The cache still has A's token.
	if again := b.mustGet(t, b.with(b.A, b.cached()...)...); again != tokenA {
		t.Error("A lost its token because B asked for it")
	}
}

// atOnce bounds the duration of a call that does not wait for the cloud. The bound is generous,
// because test machines are busy.
const atOnce = SlowAnswer / 2

func cancelled(t *testing.T, b *bench) {
	defer b.Cloud.Trouble(t, Slow)()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 2)
	go func() {
		_, err := b.get(ctx, b.with(b.A, b.cached()...)...)
		result <- err
	}()
	<-b.accounts.proving
	started := time.Now()
	cancel()
	err := <-result
	if took := time.Since(started); took > atOnce {
		t.Errorf("the cancelled caller returned after %s", took)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want one that wraps context.Canceled", err)
	}
	// The exchange continued after its caller had gone, so this call gets the token.
	b.belongs(t, b.mustGet(t, b.with(b.A, b.cached()...)...), b.A)
	if n := b.Cloud.Exchanges(); n != 1 {
		t.Errorf("%d exchanges, want 1", n)
	}
}

func deadline(t *testing.T, b *bench) {
	defer b.Cloud.Trouble(t, Slow)()
	for name, opts := range map[string][]auth.Option{"cached": b.with(b.A, b.cached()...), "without cache": b.with(b.B)} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		started := time.Now()
		_, err := b.get(ctx, opts...)
		if took := time.Since(started); took > atOnce {
			t.Errorf("%s: a deadline of 100 ms, returned after %s", name, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v, want one that wraps context.DeadlineExceeded", name, err)
		}
		cancel()
	}
}

func readsRaceRefreshes(t *testing.T, b *bench) {
	const enough = 20 // the test ends after this number of different tokens
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	owner := map[auth.Token]auth.Subject{}
	accounts := []auth.Account{b.A, b.B}
	done := make(chan struct{})
	var refresher, readers sync.WaitGroup
	refresher.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				b.cache.Invalidate(accounts[i%2].Subject)
			}
		}
	})
	for i := range 8 {
		account := accounts[i%2]
		readers.Go(func() {
			for tokens := 0; tokens < enough; {
				token, err := auth.GetToken(ctx, b.Provider, b.with(account, b.cached()...)...)
				if err != nil {
					t.Errorf("%s: %v", account.Subject, err)
					return
				}
				mu.Lock()
				if whose, known := owner[token]; known && whose != account.Subject {
					t.Errorf("%s was given %s's token", account.Subject, whose)
				}
				owner[token] = account.Subject
				tokens = len(owner)
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	close(done)
	refresher.Wait()
	for token, subject := range owner {
		account := b.A
		if subject == b.B.Subject {
			account = b.B
		}
		b.belongs(t, token, account)
	}
}

func errorsExplain(t *testing.T, b *bench) {
	identityB, err := b.Provider.GetIdentity(b.B)
	must.Succeed(t, err)
	trouble := func(trouble Trouble) func() func() {
		return func() func() { return b.Cloud.Trouble(t, trouble) }
	}
	account := func(account auth.Account) func() func() {
		return func() func() {
			b.accounts.put(account)
			return func() { b.accounts.put(b.A) }
		}
	}
	type errorCase struct {
		name  string
		begin func() (end func())
		stage auth.Stage
		code  auth.Code
	}
	tests := []errorCase{
		{"malformed identity", account(b.WithIdentity(b.A, b.MalformedIdentity)), auth.StageIdentity, auth.CodeIdentityInvalid},
		{"trust withdrawn", func() func() { return b.Cloud.Revoke(t, b.A) }, b.TrustStage, auth.CodeTrustRefused},
		{"throttled", trouble(Throttled), auth.StageExchange, auth.CodeThrottled},
		{"failing", trouble(Failing), auth.StageExchange, auth.CodeUnavailable},
		{"broken", trouble(Broken), auth.StageExchange, auth.CodeResponseInvalid},
		{"unreachable", trouble(Unreachable), auth.StageExchange, auth.CodeUnreachable},
	}
	if !b.IdentityOptional {
		tests = append(tests, errorCase{"no identity", account(b.WithIdentity(b.A, "")), auth.StageIdentity, auth.CodeIdentityMissing})
	}
	if !b.Direct {
		tests = append(tests, errorCase{"another's identity", account(b.WithIdentity(b.A, identityB)), b.TrustStage, auth.CodeTrustRefused})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			end := test.begin()
			_, first := b.get(t.Context(), b.with(b.A)...)
			_, second := b.get(t.Context(), b.with(b.A)...)
			end()
			explains(t, first, test.stage, test.code)
			if first != nil && second != nil && first.Error() != second.Error() {
				t.Errorf("the same failure, two texts:\n%s\n%s", first, second)
			}
			b.belongs(t, b.mustGet(t, b.with(b.A)...), b.A) // the fault is over, so a call succeeds
		})
	}
}

// explains checks that err is an [*auth.Error] with this stage and code, a fix and a cause.
func explains(t *testing.T, err error, stage auth.Stage, code auth.Code) {
	t.Helper()
	e, ok := errors.AsType[*auth.Error](err)
	if !ok {
		t.Fatalf("not an *auth.Error: %v", err)
	}
	if e.Stage != stage || e.Code != code {
		t.Errorf("stage %s, code %s; want %s, %s: %v", e.Stage, e.Code, stage, code, err)
	}
	if e.Fix == "" || strings.HasSuffix(e.Fix, ".") || strings.ContainsAny(e.Fix, "\n\r\t") {
		t.Errorf("fix %q is not one sentence without a full stop", e.Fix)
	}
	if e.Err == nil {
		t.Error("no cause")
	}
	if text := err.Error(); len(text) > 1000 || strings.ContainsAny(text, "\n\r\t") {
		t.Errorf("%d bytes, or more than one line: %s", len(text), text)
	}
}

func badProofs(t *testing.T, b *bench) {
	// After this call, b.accounts.form returns the form of proof that the provider requests.
	b.mustGet(t, b.with(b.A)...)
	for _, test := range []struct {
		name  string
		spoil func(d *directory)
	}{
		{"expired", func(d *directory) { d.defect = Expired }},
		{"forged", func(d *directory) { d.defect = Forged }},
		{"wrong issuer", func(d *directory) { d.defect = WrongIssuer }},
		{"wrong audience", func(d *directory) { d.audience = "https://kubernetes.default.svc" }},
		{"other tenant", func(d *directory) { d.instead = b.B }},
	} {
		if test.name == "wrong audience" && b.accounts.form() != auth.FormJWT {
			continue // only a JWT has audiences
		}
		t.Run(test.name, func(t *testing.T) {
			b.accounts.spoil(test.spoil)
			// Do not use a cache: each case would have to wait for the cache's backoff after a
			// failure.
			token, err := b.get(t.Context(), b.with(b.A)...)
			b.accounts.behave()
			if err == nil {
				t.Fatalf("a token for this proof: %v", token)
			}
			if e, ok := errors.AsType[*auth.Error](err); !ok || e.Temporary() || e.Stage != auth.StageExchange || e.Fix == "" {
				t.Errorf("not a lasting refusal of the exchange with a fix: %v", err)
			}
		})
	}
}

// foreign is a proof of a form that no provider requests.
type foreign struct{}

// GetDuration implements [auth.Proof].
func (foreign) GetDuration() time.Duration { return time.Hour }

func otherForms(t *testing.T, b *bench) {
	for name, proof := range map[string]auth.Proof{
		"none": nil, "another's": foreign{}, "a JWT that is nil": (*auth.JWT)(nil), "a certificate that is nil": (*auth.Certificate)(nil),
	} {
		b.accounts.spoil(func(d *directory) { d.other, d.proof = true, proof })
		token, err := b.get(t.Context(), b.with(b.A)...)
		b.accounts.behave()
		if err == nil || auth.CodeOf(err) != auth.CodeProofInvalid {
			t.Errorf("%s: token %v, error %v, want code %s", name, token, err, auth.CodeProofInvalid)
		}
	}
	if n := b.Cloud.Exchanges(); n != 0 {
		t.Errorf("%d exchanges of proofs that are refused", n)
	}
}

func withdrawn(t *testing.T, b *bench) {
	token := b.mustGet(t, b.with(b.A, b.cached()...)...)
	restore := b.Cloud.Revoke(t, b.A)
	defer restore()
	// The cloud refuses a refresh. Then the cache must drop the token.
	longer := token.GetDuration() + time.Minute
	if _, err := b.get(t.Context(), b.with(b.A, b.cached(auth.WithMinRemaining(longer))...)...); auth.CodeOf(err) != auth.CodeTrustRefused {
		t.Fatalf("the refresh ended with %v, want %s", err, auth.CodeTrustRefused)
	}
	if token, err := b.get(t.Context(), b.with(b.A, b.cached()...)...); auth.CodeOf(err) != auth.CodeTrustRefused {
		t.Errorf("after the refusal: token %v, error %v", token, err)
	}
}

func unsupported(t *testing.T, b *bench) {
	options := map[string]auth.Option{}
	maps.Copy(options, b.Unsupported)
	if !b.Credential {
		options["audiences"] = auth.WithAudiences("registry.example")
	}
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			_, err := b.get(t.Context(), b.with(b.A, option)...)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != auth.CodeOptionUnsupported || e.Fix == "" {
				t.Errorf("error %v, want code %s with a fix", err, auth.CodeOptionUnsupported)
			}
		})
	}
	if n := b.Cloud.Exchanges(); n != 0 {
		t.Errorf("%d exchanges for options that are refused", n)
	}
}

func keys(t *testing.T, b *bench) {
	resolve := func(opts ...auth.Option) auth.Key {
		t.Helper()
		key, err := auth.Resolve(t.Context(), b.Provider, opts...)
		must.Succeed(t, err)
		return key
	}
	seen := map[auth.Key]string{resolve(b.with(b.A)...): "A"}
	texts := map[string]string{resolve(b.with(b.A)...).String(): "A"}
	add := func(name string, key auth.Key) {
		t.Helper()
		if other, taken := seen[key]; taken {
			t.Errorf("%s has the key of %s: %s", name, other, key)
		}
		if other, taken := texts[key.String()]; taken {
			t.Errorf("%s prints like %s: %s", name, other, key)
		}
		seen[key], texts[key.String()] = name, name
	}
	add("B", resolve(b.with(b.B)...))
	for name, opts := range b.Variations {
		add(name, resolve(b.with(b.A, opts...)...))
		if again := resolve(b.with(b.A, opts...)...); seen[again] != name {
			t.Errorf("%s has two keys", name)
		}
	}
	recreated := b.A
	recreated.UID += "-2"
	b.accounts.put(recreated)
	add("A created again", resolve(b.with(b.A)...))
	if b.Direct {
		return
	}
	identity, err := b.Provider.GetIdentity(b.B)
	must.Succeed(t, err)
	b.accounts.put(b.WithIdentity(b.A, identity))
	add("A with another identity", resolve(b.with(b.A)...))
}

func registry(t *testing.T, b *bench) {
	_, capable := b.Provider.(auth.RegistryProvider)
	if capable != (b.ImageRepository != "") {
		t.Fatalf("RegistryProvider is %t, image repository is %q", capable, b.ImageRepository)
	}
	if !capable {
		_, err := b.get(t.Context(), b.with(b.A, auth.WithImageRepository("registry.example/app"))...)
		if code := auth.CodeOf(err); code != auth.CodeOptionUnsupported {
			t.Errorf("code %s, want %s", code, auth.CodeOptionUnsupported)
		}
		return
	}
	image := auth.WithImageRepository(b.ImageRepository)
	session := b.mustGet(t, b.with(b.A, b.cached()...)...)
	var passwords []string
	for _, account := range []auth.Account{b.A, b.B, b.A} {
		token := b.mustGet(t, b.with(account, b.cached(image)...)...)
		credentials, ok := token.(*auth.RegistryCredentials)
		if !ok || credentials.Username == "" || credentials.Password.IsZero() {
			t.Fatalf("a %T, want registry credentials", token)
		}
		if token == session {
			t.Error("registry credentials and session share a key")
		}
		passwords = append(passwords, credentials.Password.Reveal())
	}
	if passwords[0] == passwords[1] {
		t.Error("two tenants have one registry password")
	}
	if passwords[0] != passwords[2] || b.Cloud.Exchanges() != 3 {
		t.Errorf("%d exchanges, want 3: the second call for A was to come from the cache", b.Cloud.Exchanges())
	}
	// A repository on a host that only looks like the registry's host is refused.
	host, path, _ := strings.Cut(b.ImageRepository, "/")
	for _, fake := range []string{
		host + ".example.org/" + path, "example.org/" + b.ImageRepository, host + "@example.org/" + path, "x" + b.ImageRepository,
	} {
		_, err := b.get(t.Context(), b.with(b.A, auth.WithImageRepository(fake))...)
		if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeEndpointRefused || e.Fix == "" ||
			!slices.Contains([]auth.Stage{auth.StageRegistry, auth.StageSubject}, e.Stage) {
			t.Errorf("%s: %v, want code %s with a fix", fake, err, auth.CodeEndpointRefused)
		}
	}
}
