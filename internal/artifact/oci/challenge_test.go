package oci_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// asks returns the number of requests for a host's challenge.
func (n *network) asks(host string) int {
	count := 0
	for _, r := range n.sent(host) {
		if r.URL.Path == "/v2/" {
			count++
		}
	}
	return count
}

// resolve connects and requests a digest, like a reconciliation that finds no change.
func resolve(ctx context.Context, n http.RoundTripper, opts oci.Options, repo oci.Repository) error {
	opts.Transport = n
	client, err := oci.Connect(ctx, repo, opts)
	if err != nil {
		return err
	}
	_, err = client.Resolve(ctx, oci.Reference{})
	return err
}

// bearer returns a registry that accepts the given bearer token. It answers other requests with a
// challenge that names the token server's URL, realm.
func bearer(realm, token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="test"`, realm))
			registryError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func tokenServer(token string) http.Handler {
	return basic(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
	}))
}

func TestChallengesAreRemembered(t *testing.T) {
	f, _ := artifact("layer")
	for name, registry := range map[string]http.Handler{
		"none":   f,
		"basic":  basic(f),
		"bearer": bearer("https://"+tokenHost+"/token", "t0ken", f),
	} {
		n := serve(t, map[string]http.Handler{registryHost: registry, tokenHost: tokenServer("t0ken")})
		opts := credentials()
		opts.Challenges = &oci.Challenges{}
		for range 3 {
			if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := n.asks(registryHost); got != 1 {
			t.Errorf("%s: the registry was asked %d times for its challenge", name, got)
		}
		// Clients with another route or another TLS setting must not use the remembered answer.
		for what, change := range map[string]func(*oci.Options){
			"route":    func(o *oci.Options) { o.Route = "another" },
			"insecure": func(o *oci.Options) { o.Insecure = true },
		} {
			before, other := n.asks(registryHost), opts
			change(&other)
			if err := resolve(t.Context(), n, other, repository(t, appURL)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n.asks(registryHost) == before {
				t.Errorf("%s: another %s was served", name, what)
			}
		}
	}
}

// TestChallengesBelongToOneHost checks that a hostile host's answer is used for that host only.
func TestChallengesBelongToOneHost(t *testing.T) {
	f, _ := artifact("layer")
	const hostile = "hostile.example.com"
	n := serve(t, map[string]http.Handler{
		registryHost: basic(f),
		hostile:      bearer("https://"+tokenHost+"/"+registryHost, "t0ken", f),
		tokenHost:    tokenServer("t0ken"),
	})
	opts := credentials()
	opts.Challenges = &oci.Challenges{}
	for _, url := range []string{"oci://" + hostile + "/team/app", appURL, appURL} {
		if err := resolve(t.Context(), n, opts, repository(t, url)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if got := len(n.sent(tokenHost)); got != 1 {
		t.Errorf("the hostile registry's token server was asked %d times", got)
	}
}

// TestChangedChallenge changes the registry's challenge between requests. No request may fail.
func TestChangedChallenge(t *testing.T) {
	f, _ := artifact("layer")
	open, password, token := http.Handler(f), basic(f), bearer("https://"+tokenHost+"/token", "t0ken", f)
	for name, change := range map[string][2]http.Handler{
		"none to basic": {open, password}, "none to bearer": {open, token}, "basic to bearer": {password, token},
		"bearer to basic": {token, password}, "bearer to none": {token, open},
	} {
		var registry atomic.Value
		registry.Store(http.HandlerFunc(change[0].ServeHTTP))
		n := serve(t, map[string]http.Handler{
			tokenHost: tokenServer("t0ken"),
			registryHost: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				registry.Load().(http.HandlerFunc)(w, r)
			}),
		})
		opts := credentials()
		opts.Challenges = &oci.Challenges{}
		for i, handler := range []http.Handler{change[0], change[1], change[1]} {
			registry.Store(http.HandlerFunc(handler.ServeHTTP))
			if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
				t.Errorf("%s: attempt %d: %v", name, i, err)
			}
		}
		if got := n.asks(registryHost); got > 2 {
			t.Errorf("%s: the registry was asked %d times", name, got)
		}
	}
}

// TestRefusedCredentialsEnd checks that wrong credentials cause only a few requests.
func TestRefusedCredentialsEnd(t *testing.T) {
	f, _ := artifact("layer")
	n := serve(t, map[string]http.Handler{registryHost: basic(f)})
	opts := credentials()
	opts.Challenges = &oci.Challenges{}
	must.Succeed(t, resolve(t.Context(), n, opts, repository(t, appURL)))
	opts.Auth = oci.Basic(username, "wrong")
	before := len(n.sent(registryHost))
	if err := resolve(t.Context(), n, opts, repository(t, appURL)); origin.CodeOf(err) != origin.CodeUnauthorized {
		t.Errorf("wrong password: %v", err)
	}
	if got := len(n.sent(registryHost)) - before; got > 4 { // at most HEAD, GET /v2/ for the challenge, HEAD again, GET
		t.Errorf("%d requests with a wrong password", got)
	}
}

// TestRememberedRealmIsJudged checks that the realm of a remembered challenge is checked like the
// realm of a new one.
func TestRememberedRealmIsJudged(t *testing.T) {
	f, _ := artifact("layer")
	for _, realm := range []string{"https://169.254.169.254/token", "http://" + tokenHost + "/token", "https://10.0.0.1/token"} {
		n := serve(t, map[string]http.Handler{registryHost: bearer(realm, "t0ken", f), tokenHost: tokenServer("t0ken")})
		opts := credentials()
		opts.Challenges = &oci.Challenges{}
		for range 2 {
			if err := resolve(t.Context(), n, opts, repository(t, appURL)); origin.CodeOf(err) != origin.CodeProtocol {
				t.Errorf("%s: %v", realm, err)
			}
		}
		for _, r := range n.requests {
			if r.URL.Host != registryHost {
				t.Errorf("%s was asked", r.URL)
			}
		}
	}
}

// TestInsecureRegistryKeepsItsConnection checks a registry without TLS: only the first call tries
// TLS, and later calls use the same connection.
func TestInsecureRegistryKeepsItsConnection(t *testing.T) {
	f, _ := artifact("layer")
	n := serveBoth(t, nil, map[string]http.Handler{registryHost: basic(f)})
	var dials atomic.Int32
	dial := n.DialContext
	n.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, address)
	}
	opts := credentials()
	opts.Insecure, opts.Challenges = true, &oci.Challenges{}
	must.Succeed(t, resolve(t.Context(), n, opts, repository(t, appURL)))
	first := dials.Load()
	for range 3 {
		if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
			t.Error(err)
		}
	}
	if got := dials.Load() - first; got != 0 {
		t.Errorf("%d new connections", got)
	}
	// The first call sends at most five requests: three over https, which fail, one over http, and
	// HEAD. Each of the three later calls sends only HEAD.
	if got := len(n.sent(registryHost)); got > 3+5 {
		t.Errorf("%d requests", got)
	}
	// A client that demands TLS must not use these challenges.
	opts.Insecure = false
	if err := resolve(t.Context(), n, opts, repository(t, appURL)); err == nil {
		t.Error("plain http without insecure")
	}
}

// TestInsecureRegistryChangesItsMind checks a registry that gets TLS, and then loses it. After the
// loss, one attempt fails, and the next attempt succeeds.
func TestInsecureRegistryChangesItsMind(t *testing.T) {
	f, _ := artifact("layer")
	plain := serveBoth(t, nil, map[string]http.Handler{registryHost: f})
	secure := serve(t, map[string]http.Handler{registryHost: f})
	// net/http's TLS servers give this answer to a request without TLS.
	secure.RegisterProtocol("http", roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusBadRequest, Body: io.NopCloser(strings.NewReader("Client sent an HTTP request to an HTTPS server.\n")),
			Header: http.Header{}, Request: r,
		}, nil
	}))
	opts := credentials()
	opts.Insecure, opts.Challenges = true, &oci.Challenges{}
	for i, n := range []*network{plain, secure, secure} {
		if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
	if err := resolve(t.Context(), plain, opts, repository(t, appURL)); err == nil {
		t.Error("https without TLS")
	}
	if err := resolve(t.Context(), plain, opts, repository(t, appURL)); err != nil {
		t.Errorf("after the failure: %v", err)
	}
}

// TestTokenServerNamedWithoutTLSIsNotRemembered checks that a challenge without TLS is not
// remembered if it names a token server. An attacker on the network could insert their own token
// server for all later requests.
func TestTokenServerNamedWithoutTLSIsNotRemembered(t *testing.T) {
	f, _ := artifact("layer")
	n := serveBoth(t, map[string]http.Handler{tokenHost: tokenServer("t0ken")},
		map[string]http.Handler{registryHost: bearer("https://"+tokenHost+"/token", "t0ken", f)})
	opts := credentials()
	opts.Insecure, opts.Challenges = true, &oci.Challenges{}
	before := 0
	for range 2 {
		must.Succeed(t, resolve(t.Context(), n, opts, repository(t, appURL)))
		if n.asks(registryHost) == before {
			t.Error("a token server that was named without TLS is remembered")
		}
		before = n.asks(registryHost)
	}
}

// TestChallengesAreBounded checks that failures and long headers are not remembered, and that a
// remembered answer expires.
func TestChallengesAreBounded(t *testing.T) {
	_, digest := artifact("layer")
	synctest.Test(t, func(t *testing.T) {
		asked, status, header := 0, http.StatusOK, ""
		n := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Docker-Content-Digest": {digest}}, Body: http.NoBody, Request: r}
			if r.URL.Path == "/v2/" {
				asked++
				resp.StatusCode = status
				resp.Header.Set("WWW-Authenticate", header)
			}
			return resp, nil
		})
		opts := credentials()
		opts.Challenges = &oci.Challenges{}
		expect := func(what string, want int, wait time.Duration) {
			t.Helper()
			time.Sleep(wait)
			asked = 0
			for range 2 {
				_ = resolve(t.Context(), n, opts, repository(t, appURL))
			}
			if asked != want {
				t.Errorf("%s: asked %d times, want %d", what, asked, want)
			}
		}
		status = http.StatusForbidden
		expect("failure", 2, 0)
		status, header = http.StatusUnauthorized, `Basic realm="`+strings.Repeat("x", 4<<10)+`"`
		expect("long header", 2, 0)
		header = `Basic realm="x"`
		expect("first", 1, 0)
		expect("kept", 0, 9*time.Minute)
		expect("ended", 1, 2*time.Minute)
		for i := range 5000 {
			_ = resolve(t.Context(), n, opts, repository(t, fmt.Sprintf("oci://r%d.example.com/team/app", i)))
		}
		asked = 0
		for i := range 5000 {
			_ = resolve(t.Context(), n, opts, repository(t, fmt.Sprintf("oci://r%d.example.com/team/app", i)))
		}
		if asked < 4000 {
			t.Errorf("of 5000 registries %d were remembered", 5000-asked)
		}
	})
}

// TestEndedChallengeGivesWay checks an insecure registry that loses its TLS. The remembered answer
// came over https, and has expired. So the registry's next answer, over http, must be remembered.
func TestEndedChallengeGivesWay(t *testing.T) {
	_, digest := artifact("layer")
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64 // atomic, because https and http are tried concurrently
		var lost atomic.Bool
		n := roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v2/" {
				asked.Add(1)
			}
			if lost.Load() && r.URL.Scheme == "https" {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Docker-Content-Digest": {digest}}, Body: http.NoBody, Request: r,
			}, nil
		})
		opts := credentials()
		opts.Insecure, opts.Challenges = true, &oci.Challenges{}
		_ = resolve(t.Context(), n, opts, repository(t, appURL))
		time.Sleep(time.Hour)
		lost.Store(true)
		for range 2 {
			asked.Store(0)
			if err := resolve(t.Context(), n, opts, repository(t, appURL)); err != nil {
				t.Error(err)
			}
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("asked %d times again", n)
		}
	})
}
