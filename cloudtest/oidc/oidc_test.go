package oidc_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

func TestParseURL(t *testing.T) {
	for issuer, ok := range map[string]bool{
		"https://issuer.example":     true,
		"https://issuer.example/a/B": true,
		"https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE": true,
		"https://westeurope.oic.prod-aks.azure.com/tenant/cluster/":                   true,
		"https://issuer.example/":             true,
		"https://issuer.example//":            false,
		"":                                    false,
		"issuer.example":                      false,
		"http://issuer.example":               false,
		"HTTPS://issuer.example":              false,
		"https:issuer.example":                false,
		"https://":                            false,
		"https:///path":                       false,
		"https://issuer.example:443":          false,
		"https://issuer.example:":             false,
		"https://Issuer.example":              false,
		"https://user@issuer.example":         false,
		"https://issuer.example?q":            false,
		"https://issuer.example?":             false,
		"https://issuer.example#":             false,
		"https://issuer.example/a%2fb":        false,
		"https://issuer.example/a/../b":       false,
		"https://issuer.example//a":           false,
		"https://issuer.example\n":            false,
		"https://" + strings.Repeat("a", 250): false,
	} {
		u, err := oidc.ParseURL(issuer)
		var refusal *oidc.URLError
		if (err == nil) != ok || (err != nil && (!errors.As(err, &refusal) || refusal.Fix == "")) {
			t.Errorf("%q: %v", issuer, err)
		}
		if err == nil && u.String() != issuer {
			t.Errorf("%q became %q", issuer, u)
		}
	}
}

// hosts is a transport that reaches only the hosts in the map.
type hosts map[string]http.Handler

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	if h[r.URL.Host] == nil {
		return nil, errors.New("no such host")
	}
	w := httptest.NewRecorder()
	h[r.URL.Host].ServeHTTP(w, r)
	return w.Result(), nil
}

func newIssuer(t *testing.T, url string, algorithm oidc.Algorithm) *oidc.Issuer {
	t.Helper()
	i, err := oidc.NewIssuer(url, algorithm)
	must.Succeed(t, err)
	return i
}

func verify(t *testing.T, h hosts, raw string) error {
	t.Helper()
	token, err := oidc.Read(raw)
	if err != nil {
		return err
	}
	v := &oidc.Verifier{Client: &http.Client{Transport: h}, Leeway: time.Minute}
	return v.Verify(t.Context(), token, time.Now())
}

func TestVerify(t *testing.T) {
	for _, algorithm := range []oidc.Algorithm{oidc.RS256, oidc.ES256} {
		t.Run(string(algorithm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t, "https://issuer.example/a", algorithm)
				h := hosts{i.Host(): i}
				claims := oidc.Claims{"sub": "s", "aud": "a"}
				token, err := i.Mint(claims)
				must.Succeed(t, err)
				if err := verify(t, h, token); err != nil {
					t.Error(err)
				}
				forged, err := i.Forge(claims)
				must.Succeed(t, err)
				if err := verify(t, h, forged); !errors.Is(err, oidc.ErrSignature) {
					t.Errorf("forged: %v", err)
				}
				must.Succeed(t, i.Rotate(false))
				if err := verify(t, h, token); err != nil {
					t.Errorf("after rotation: %v", err)
				}
				must.Succeed(t, i.Rotate(true))
				if err := verify(t, h, token); !errors.Is(err, oidc.ErrKey) {
					t.Errorf("after the key was retired: %v", err)
				}
				token, err = i.Mint(claims)
				must.Succeed(t, err)
				time.Sleep(time.Hour + 59*time.Second)
				if err := verify(t, h, token); err != nil {
					t.Errorf("within leeway: %v", err)
				}
				time.Sleep(time.Second)
				if err := verify(t, h, token); !errors.Is(err, oidc.ErrExpired) {
					t.Errorf("after leeway: %v", err)
				}
			})
		})
	}
}

// TestAlteredTokens checks that a token with any change is refused, and that the error does not
// contain the token.
func TestAlteredTokens(t *testing.T) {
	i := newIssuer(t, "https://issuer.example", oidc.ES256)
	h := hosts{i.Host(): i}
	token, err := i.Mint(oidc.Claims{"sub": "s", "aud": "a"})
	must.Succeed(t, err)
	parts := strings.Split(token, ".")
	enc := base64.RawURLEncoding
	header := func(fields string) string {
		return enc.EncodeToString([]byte(fields)) + "." + parts[1] + "." + parts[2]
	}
	payload, err := enc.DecodeString(parts[1])
	must.Succeed(t, err)
	for name, raw := range map[string]string{
		"algorithm none":   header(`{"alg":"none"}`),
		"symmetric":        header(`{"alg":"HS256","kid":"x"}`),
		"another kid":      header(`{"alg":"ES256","kid":"x"}`),
		"no kid":           header(`{"alg":"ES256"}`),
		"embedded key":     header(`{"alg":"ES256","jwk":{"kty":"EC"}}`),
		"another subject":  parts[0] + "." + enc.EncodeToString([]byte(strings.Replace(string(payload), `"sub":"s"`, `"sub":"t"`, 1))) + "." + parts[2],
		"no signature":     parts[0] + "." + parts[1] + ".",
		"two parts":        parts[0] + "." + parts[1],
		"JSON":             `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`,
		"too long":         strings.Repeat("a", 20001),
		"empty":            "",
		"trailing newline": token + "\nx",
	} {
		err := verify(t, h, raw)
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
		if err != nil && (strings.Contains(err.Error(), parts[2]) || strings.Contains(err.Error(), parts[1])) {
			t.Errorf("%s: the error has the token: %v", name, err)
		}
	}
}

func TestIssuersDocuments(t *testing.T) {
	i := newIssuer(t, "https://issuer.example/a", oidc.ES256)
	token, err := i.Mint(oidc.Claims{"sub": "s", "aud": "a"})
	must.Succeed(t, err)
	docs := func(discovery, keys string) http.Handler {
		mux := http.NewServeMux()
		for path, body := range map[string]string{"/a/.well-known/openid-configuration": discovery, "/keys": keys} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		}
		return mux
	}
	status := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	good := `{"issuer":"https://issuer.example/a","jwks_uri":"https://issuer.example/keys"}`
	private := `{"keys":[{"kty":"oct","k":"AA","kid":"x"}]}`
	key := strings.TrimSuffix(strings.TrimPrefix(string(i.JWKS()), `{"keys":[`), `]}`)
	for name, tt := range map[string]struct {
		handler http.Handler
		want    error
	}{
		"good":                {docs(good, string(i.JWKS())), nil},
		"unreachable":         {nil, oidc.ErrUnreachable},
		"down":                {status(503), oidc.ErrUnreachable},
		"not there":           {status(404), oidc.ErrIssuer},
		"redirect":            {http.RedirectHandler("https://issuer.example/a/keys", http.StatusFound), oidc.ErrIssuer},
		"another issuer":      {docs(strings.Replace(good, "/a", "/b", 1), string(i.JWKS())), oidc.ErrIssuer},
		"issuer with a slash": {docs(strings.Replace(good, "/a", "/a/", 1), string(i.JWKS())), oidc.ErrIssuer},
		"keys over http":      {docs(strings.Replace(good, "https://issuer.example/keys", "http://issuer.example/keys", 1), string(i.JWKS())), oidc.ErrIssuer},
		"no keys URI":         {docs(`{"issuer":"https://issuer.example/a"}`, string(i.JWKS())), oidc.ErrIssuer},
		"not JSON":            {docs("<html>", string(i.JWKS())), oidc.ErrIssuer},
		"keys not JSON":       {docs(good, "<html>"), oidc.ErrIssuer},
		"no keys":             {docs(good, `{"keys":[]}`), oidc.ErrIssuer},
		"symmetric key":       {docs(good, private), oidc.ErrKey},
		"key for encryption":  {docs(good, strings.Replace(string(i.JWKS()), `"sig"`, `"enc"`, 1)), oidc.ErrKey},
		"key twice":           {docs(good, `{"keys":[`+key+`,`+key+`]}`), oidc.ErrKey},
		"endless":             {docs(good, strings.Repeat(" ", 1<<20)), oidc.ErrIssuer},
	} {
		h := hosts{"issuer.example": tt.handler}
		client := &http.Client{Transport: h, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		read, err := oidc.Read(token)
		must.Succeed(t, err)
		if err := (&oidc.Verifier{Client: client}).Verify(t.Context(), read, time.Now()); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if err := (&oidc.Verifier{}).Verify(t.Context(), oidc.Token{Issuer: "https://issuer.example"}, time.Now()); !errors.Is(err, oidc.ErrMalformed) {
		t.Errorf("a token that was not read: %v", err)
	}
}

func TestStatic(t *testing.T) {
	i := newIssuer(t, "https://issuer.example/a", oidc.RS256)
	h, err := oidc.Static{URL: i.URL(), JWKS: i.JWKS()}.Handler()
	must.Succeed(t, err)
	token, err := i.Mint(oidc.Claims{"sub": "s", "aud": "a"})
	must.Succeed(t, err)
	if err := verify(t, hosts{i.Host(): h}, token); err != nil {
		t.Error(err)
	}
	for name, s := range map[string]oidc.Static{
		"no URL":        {JWKS: i.JWKS()},
		"no keys":       {URL: i.URL()},
		"empty keys":    {URL: i.URL(), JWKS: []byte(`{"keys":[]}`)},
		"symmetric key": {URL: i.URL(), JWKS: []byte(`{"keys":[{"kty":"oct","k":"AA","kid":"x"}]}`)},
	} {
		if _, err := s.Handler(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// TestProxy checks that a kube-apiserver's documents are served under the public issuer URL. The
// proxy must replace jwks_uri, and must keep the issuer that the API server claims.
func TestProxy(t *testing.T) {
	const issuer = "https://oidc.eks.eu-west-1.amazonaws.com/id/A"
	i := newIssuer(t, issuer, oidc.RS256)
	apiserver := func(name string) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": name, "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks", "x": "y"})
		})
		mux.HandleFunc("GET /openid/v1/jwks", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(i.JWKS()) })
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { t.Error("the API server was asked for something else") })
		return mux
	}
	token, err := i.Mint(oidc.Claims{"sub": "s", "aud": "a"})
	must.Succeed(t, err)
	for name, want := range map[string]error{issuer: nil, "https://kubernetes.default.svc": oidc.ErrIssuer} {
		upstream := hosts{"127.0.0.1:6443": apiserver(name)}
		p, err := oidc.Proxy(issuer, &url.URL{Scheme: "https", Host: "127.0.0.1:6443"}, upstream)
		must.Succeed(t, err)
		if err := verify(t, hosts{"oidc.eks.eu-west-1.amazonaws.com": p}, token); !errors.Is(err, want) {
			t.Errorf("API server that calls itself %s: %v, want %v", name, err, want)
		}
		var got []int
		for _, r := range []string{"GET /id/A/api/v1/secrets", "GET /.well-known/openid-configuration", "POST /id/A/keys", "HEAD /id/A/keys"} {
			method, path, _ := strings.Cut(r, " ")
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			got = append(got, w.Code)
		}
		if diff := cmp.Diff([]int{404, 404, 405, 200}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	down, err := oidc.Proxy(issuer, &url.URL{Scheme: "https", Host: "127.0.0.1:6443"}, hosts{})
	must.Succeed(t, err)
	if err := verify(t, hosts{"oidc.eks.eu-west-1.amazonaws.com": down}, token); !errors.Is(err, oidc.ErrUnreachable) {
		t.Errorf("API server down: %v", err)
	}
}

// FuzzRead checks that a token that Read accepts has an issuer, a subject, an audience and an
// expiry. It also checks that Verify accepts only claims that the issuer signed.
func FuzzRead(f *testing.F) {
	i, err := oidc.NewIssuer("https://issuer.example", oidc.ES256)
	must.Succeed(f, err)
	token, err := i.Mint(oidc.Claims{"sub": "s", "aud": "a"})
	must.Succeed(f, err)
	forged, err := i.Forge(oidc.Claims{"sub": "s", "aud": []string{"a", "b"}})
	must.Succeed(f, err)
	minted, err := oidc.Read(token)
	must.Succeed(f, err)
	f.Add(token)
	f.Add(forged)
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := oidc.Read(raw)
		if err != nil {
			if !errors.Is(err, oidc.ErrMalformed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if read.Issuer == "" || read.Subject == "" || len(read.Audience) == 0 || read.Expiry.IsZero() {
			t.Errorf("read %+v", read)
		}
		v := &oidc.Verifier{Client: &http.Client{Transport: hosts{i.Host(): i}}}
		err = v.Verify(t.Context(), read, read.Expiry.Add(-time.Second))
		if err == nil && !cmp.Equal(read.Claims, minted.Claims) {
			t.Errorf("verified %v, which the issuer did not sign", read.Claims)
		}
	})
}
