package azure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

func wired(tb testing.TB, handler http.HandlerFunc) *azure.Provider {
	tb.Helper()
	return newProvider(tb, azure.Config{Transport: rig.Wire(tb, handler), Timeout: 5 * time.Second})
}

const issuerURL = "https://oidc.example.org/cluster"

func proofA() string {
	return rig.JWT(`{"iss":"` + issuerURL + `","sub":"system:serviceaccount:tenant-a:puller"}`)
}

func asA(tb testing.TB, more ...auth.Option) []auth.Option {
	tb.Helper()
	subject := rig.Subject(accountA(tb), rig.Proof(proofA()))
	return append([]auth.Option{subject}, more...)
}

// entraError answers with an error of Microsoft Entra. Its text has IDs and times that differ in
// each answer.
func entraError(status, code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"error": "invalid_client", "error_codes": []int{code}, "timestamp": time.Now().String(), "trace_id": fmt.Sprint(time.Now().UnixNano()),
			"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %d", code, text, time.Now().UnixNano()),
			"error_uri":         "https://login.microsoftonline.com/error",
		})
	}
}

const goodToken = `{"token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"access_token":"entra-access-token-0123456789"}`

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func TestRefusalsOfEntra(t *testing.T) {
	const (
		asked = "Microsoft Entra at login.microsoftonline.com, token for application " + clientA + " of tenant " + tenantID + ": "
		add   = "add a federated credential with issuer " + issuerURL + ", subject system:serviceaccount:tenant-a:puller and audience api://AzureADTokenExchange to application " + clientA
	)
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		code    auth.Code
		text    string // suffix of the expected error
		fix     string
	}{
		{"subject", entraError(401, 700213, "no"), auth.CodeTrustRefused, asked + "AADSTS700213 (invalid_client): no federated credential has the proof's subject", add},
		{"issuer", entraError(401, 700211, "no"), auth.CodeTrustRefused, "no federated credential has the proof's issuer", add},
		{"audience", entraError(401, 700212, "no"), auth.CodeTrustRefused, "no federated credential has the proof's audience", "at most 20"},
		{"letters", entraError(401, 7002138, "no"), auth.CodeTrustRefused, "with other capital letters", add},
		{"no match", entraError(401, 70021, "no"), auth.CodeTrustRefused, "no federated credential matches the proof", add},
		{"none at all", entraError(401, 70025, "no"), auth.CodeTrustRefused, "the application has no federated credential", add},
		{"application", entraError(400, 700016, "no"), auth.CodeTrustRefused, "the tenant has no such application", "annotation azure.workload.identity/client-id of ServiceAccount tenant-a/puller"},
		{"disabled", entraError(401, 7000112, "no"), auth.CodeTrustRefused, "the application is disabled", "enable application " + clientA},
		{"tenant", entraError(400, 90002, "no"), auth.CodeTrustRefused, "there is no such tenant in this cloud", "AZURE_TENANT_ID"},
		{"clock", entraError(401, 700024, "Current time: 1"), auth.CodeProofInvalid, "the proof is not valid at this time", "the clock of the cluster's API server, which dates the proof, with that of Microsoft Entra"},
		{"signature", entraError(401, 50013, "no"), auth.CodeTrustRefused, "cannot be verified with the issuer's keys", "the keys of " + issuerURL},
		{"elliptic curves", entraError(400, 5002738, "no"), auth.CodeProofInvalid, "the proof is not signed with RSA", "let " + issuerURL + " sign with an RSA key (RS256)"},
		{"long life", entraError(400, 70023, "no"), auth.CodeProofInvalid, "the proof is valid for more than a day", "check how " + issuerURL},
		{"malformed", entraError(400, 50027, "no"), auth.CodeProofInvalid, "the proof is malformed", "check how " + issuerURL},
		{"issuer away", entraError(400, 50166, "no"), auth.CodeUnavailable, "the issuer's keys cannot be fetched", "Microsoft Entra can fetch them"},
		{"issuer is another", entraError(400, 501661, "no"), auth.CodeTrustRefused, "the issuer publishes another issuer's name", "the keys of " + issuerURL},
		{"resource", entraError(400, 500011, "no"), auth.CodeRefused, "the tenant does not know the resource", "scope https://management.azure.com/.default is in AzurePublicCloud"},
		{"policy", entraError(400, 53003, "no"), auth.CodePermissionDenied, "a conditional access policy blocks the application", "exempt application"},
		{"passing", entraError(400, 90033, "no"), auth.CodeUnavailable, "a temporary fault", "wait"},
		{"unheard of", entraError(400, 424242, "short and stout"), auth.CodeRefused, asked + "AADSTS424242 (invalid_client)", "https://login.microsoftonline.com/error?code=424242"},
		{"without codes", status(400, `{"error":"invalid_client","error_description":"AADSTS700213: no"}`), auth.CodeTrustRefused, "AADSTS700213 (invalid_client): no federated credential has the proof's subject", add},
		{"of OAuth alone", status(400, `{"error":"invalid_request"}`), auth.CodeRefused, asked + "invalid_request", "RFC 6749"},
		{"with markup", status(400, `{"error":"<b>\ninvalid"}`), auth.CodeRefused, asked + "an unknown error", "RFC 6749"},
		{"throttling", entraError(429, 90055, "no"), auth.CodeThrottled, "AADSTS90055 (invalid_client): too many requests", "wait"},
		{"throttling as 400", entraError(400, 50196, "no"), auth.CodeThrottled, "too many requests", "wait"},
		{"429 of a gateway", status(429, "slow down"), auth.CodeThrottled, "HTTP status 429", "wait"},
		{"failure", entraError(503, 90033, "oops"), auth.CodeUnavailable, "a temporary fault", "wait"},
		{"HTML of a gateway", status(502, "<html><p>oops"), auth.CodeUnavailable, "HTTP status 502", "wait"},
		{"HTML", status(403, "<html><p>blocked"), auth.CodeResponseInvalid, "an answer that is not the service's (HTTP status 403)", "answers as Microsoft Entra"},
		{"HTML as an answer", says("<html><p>welcome"), auth.CodeResponseInvalid, "it is not the JSON of a token answer", "answers as Microsoft Entra"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusTemporaryRedirect)
		}, auth.CodeResponseInvalid, "(HTTP status 307)", "answers as Microsoft Entra"},
		{"half an answer", says(goodToken[:60]), auth.CodeResponseInvalid, "it is not the JSON of a token answer", "answers as Microsoft Entra"},
		{"too long", says(strings.Repeat(" ", 2<<20) + goodToken), auth.CodeResponseInvalid, "the answer is too long", "answers as Microsoft Entra"},

		// Answers with a missing or impossible value.
		{"nothing", says(`{}`), auth.CodeResponseInvalid, "no access token in it", "answers as"},
		{"no type", says(`{"expires_in":3599,"access_token":"t"}`), auth.CodeResponseInvalid, "not a bearer token", "answers as"},
		{"proof of possession", says(`{"token_type":"pop","expires_in":3599,"access_token":"t"}`), auth.CodeResponseInvalid, "not a bearer token", "answers as"},
		{"no end", says(`{"token_type":"Bearer","access_token":"t"}`), auth.CodeResponseInvalid, "no expires_in in it", "answers as"},
		{"ended", says(`{"token_type":"Bearer","expires_in":0,"access_token":"t"}`), auth.CodeResponseInvalid, "not the lifetime of a token", "answers as"},
		{"ended long ago", says(`{"token_type":"Bearer","expires_in":-3600,"access_token":"t"}`), auth.CodeResponseInvalid, "not the lifetime of a token", "answers as"},
		{"for ever", says(`{"token_type":"Bearer","expires_in":9223372036854775807,"access_token":"t"}`), auth.CodeResponseInvalid, "not the lifetime of a token", "answers as"},
		{"beyond", says(`{"token_type":"Bearer","expires_in":1e300,"access_token":"t"}`), auth.CodeResponseInvalid, "it is not the JSON of a token answer", "answers as"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := wired(t, test.handler)
			token, err := auth.GetToken(t.Context(), provider, asA(t)...)
			_, again := auth.GetToken(t.Context(), provider, asA(t)...)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || token != nil || e.Stage != auth.StageExchange || e.Code != test.code {
				t.Fatalf("%v, %v, want code %s", token, err, test.code)
			}
			if !strings.HasSuffix(e.Err.Error(), test.text) || !strings.HasPrefix(e.Err.Error(), asked) || !strings.Contains(e.Fix, test.fix) || strings.HasSuffix(e.Fix, ".") {
				t.Errorf("cause %q, fix %q", e.Err, e.Fix)
			}
			if again == nil || again.Error() != err.Error() {
				t.Errorf("the same failure, two texts:\n%v\n%v", err, again)
			}
		})
	}
}

func TestExchangeRequest(t *testing.T) {
	for _, cloud := range endpoint.AzureClouds() {
		for name, test := range map[string]struct {
			opts  []auth.Option
			scope string
		}{
			"default": {nil, cloud.ResourceManager + "/.default"},
			"scope":   {[]auth.Option{auth.WithScopes(azure.BlobScope(cloud))}, "https://storage.azure.com/.default"},
		} {
			t.Run(cloud.Name+" "+name, func(t *testing.T) {
				var host, path string
				var form url.Values
				provider := newProvider(t, azure.Config{Cloud: cloud, Transport: rig.Wire(t, func(w http.ResponseWriter, r *http.Request) {
					rig.Must(t, r.ParseForm())
					host, path, form = r.Host, r.Method+" "+r.URL.String(), r.PostForm
					says(goodToken)(w, r)
				})})
				before := time.Now()
				got, err := auth.GetToken(t.Context(), provider, asA(t, test.opts...)...)
				rig.Must(t, err)
				if want := strings.TrimPrefix(cloud.Authority, "https://"); host != want || path != "POST /"+tenantID+"/oauth2/v2.0/token" {
					t.Errorf("%s %s", host, path)
				}
				want := url.Values{
					"grant_type": {"client_credentials"}, "client_id": {clientA}, "scope": {test.scope}, "client_assertion": {proofA()},
					"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
				}
				if form.Encode() != want.Encode() {
					t.Errorf("got  %s\nwant %s", form.Encode(), want.Encode())
				}
				token := got.(*azure.Token)
				ends := token.ExpiresAt.Sub(before.Add(3599 * time.Second))
				if token.Secret.Reveal() != "entra-access-token-0123456789" || token.ExpiresAt.Location() != time.UTC || ends < 0 || ends > 5*time.Second {
					t.Errorf("%v", token)
				}
			})
		}
	}
}

func TestScopes(t *testing.T) {
	for i, want := range [][5]string{
		{"https://management.azure.com/.default", "https://containerregistry.azure.net/.default", "https://storage.azure.com/.default", "https://vault.azure.net/.default", "https://eventhubs.azure.net/.default"},
		{"https://management.usgovcloudapi.net/.default", "https://containerregistry.azure.net/.default", "https://storage.azure.com/.default", "https://vault.usgovcloudapi.net/.default", "https://eventhubs.azure.net/.default"},
		{"https://management.chinacloudapi.cn/.default", "https://containerregistry.azure.net/.default", "https://storage.azure.com/.default", "https://vault.azure.cn/.default", "https://eventhubs.azure.net/.default"},
	} {
		c := endpoint.AzureClouds()[i]
		if got := [5]string{azure.ResourceManagerScope(c), azure.RegistryScope(c), azure.BlobScope(c), azure.KeyVaultScope(c), azure.EventHubsScope(c)}; got != want {
			t.Errorf("%s: %v", c.Name, got)
		}
	}
	if azure.DevOpsScope != "499b84ac-1321-427f-aa17-267ca6975798/.default" || azure.KeyVaultScope(endpoint.AzureCloud{}) != "" {
		t.Error(azure.DevOpsScope)
	}
}

func TestRetriesAreFew(t *testing.T) {
	rig.Attempts(t, func(t *testing.T, handler http.HandlerFunc) {
		t.Helper()
		_, _ = auth.GetToken(t.Context(), wired(t, handler), asA(t)...)
	},
		rig.Attempt{Name: "refused", Handler: entraError(401, 700213, "no"), Requests: 1},
		rig.Attempt{Name: "throttled", Handler: entraError(429, 90055, "no"), Requests: 1},
		rig.Attempt{Name: "failing", Handler: entraError(503, 90033, "no"), Requests: 2},
		rig.Attempt{Name: "failing for a while", Handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "30")
			entraError(503, 90033, "no")(w, r)
		}, Requests: 1},
	)
}

func TestFaultThatPasses(t *testing.T) {
	var requests atomic.Int32
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			entraError(503, 90033, "no")(w, r)
			return
		}
		rig.Must(t, r.ParseForm())
		if r.PostForm.Get("client_assertion") != proofA() {
			t.Error("the second request is not the first")
		}
		says(goodToken)(w, r)
	})
	_, err := auth.GetToken(t.Context(), provider, asA(t)...)
	rig.Must(t, err)
}

func TestRetryAfter(t *testing.T) {
	rig.RetryAfter(t, func(t *testing.T, header string) error {
		t.Helper()
		provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", header)
			entraError(429, 90055, "no")(w, r)
		})
		_, err := auth.GetToken(t.Context(), provider, asA(t)...)
		return err
	})
}

// TestErrorsRepeatNothing checks that an error does not repeat the request, even if the answer of
// Microsoft Entra does.
func TestErrorsRepeatNothing(t *testing.T) {
	for _, code := range []int{700213, 424242, 0} {
		provider := wired(t, entraError(400, code, "bad token "+proofA()+"\n<b>\x01"))
		_, err := auth.GetToken(t.Context(), provider, asA(t)...)
		text := fmt.Sprintf("%v %+v", err, errors.Unwrap(err))
		if strings.Contains(text, proofA()[40:60]) || strings.ContainsAny(text, "\n\x01<") || strings.Contains(text, "Trace") || len(text) > 2000 {
			t.Errorf("%d: %s", code, text)
		}
	}
}

func TestDisconnections(t *testing.T) {
	rig.Disconnections(t, "Microsoft Entra at login.microsoftonline.com", func(t *testing.T, base *http.Transport) error {
		t.Helper()
		_, err := auth.GetToken(t.Context(), newProvider(t, azure.Config{Transport: base}), asA(t)...)
		return err
	})
}

func TestSlowAnswerIsCutOff(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	provider := newProvider(t, azure.Config{Timeout: 50 * time.Millisecond, Transport: rig.Wire(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-stop
	})})
	_, err := auth.GetToken(t.Context(), provider, asA(t)...)
	if e, ok := errors.AsType[*auth.Error](err); !ok || !e.Temporary() {
		t.Errorf("%v, want a temporary error", err)
	}
}

func TestAnswerThatBreaksOff(t *testing.T) {
	provider := wired(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, goodToken[:60])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	_, err := auth.GetToken(t.Context(), provider, asA(t)...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the answer broke off") {
		t.Errorf("%v", err)
	}
}

// TestTenantProxy checks that all calls go through the proxy that a tenant chose, and that a proxy
// inside the cluster is refused.
func TestTenantProxy(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.Host)
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	rig.Must(t, err)
	allow, err := endpoint.ParseAllowed(u.Host)
	rig.Must(t, err)
	opts := asA(t, auth.WithProxyURL(u))
	_, err = auth.GetToken(t.Context(), newProvider(t, azure.Config{AllowedEndpointHosts: allow}), opts...)
	if auth.CodeOf(err) != auth.CodeUnreachable || len(asked) == 0 || asked[0] != "CONNECT login.microsoftonline.com:443" {
		t.Errorf("%v, %v", err, asked)
	}
	before := len(asked)
	_, err = auth.GetToken(t.Context(), newProvider(t, azure.Config{}), opts...)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != auth.CodeEndpointRefused || e.Temporary() || !strings.Contains(e.Fix, "--allowed-endpoint-hosts") || len(asked) != before {
		t.Errorf("%v", err)
	}
}

// registryWire returns a provider whose server answers as Microsoft Entra and as a registry.
func registryWire(tb testing.TB, config azure.Config, registry http.HandlerFunc) *azure.Provider {
	tb.Helper()
	config.Transport = rig.Wire(tb, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "login.") {
			says(goodToken)(w, r)
			return
		}
		registry(w, r)
	})
	return newProvider(tb, config)
}

func TestRegistryExchange(t *testing.T) {
	now := time.Now()
	refresh := rig.JWT(fmt.Sprintf(`{"iat":%d,"exp":%d,"grant_type":"refresh_token"}`, now.Unix(), now.Add(3*time.Hour).Unix()))
	access := rig.JWT(fmt.Sprintf(`{"iat":%d,"exp":%d,"grant_type":"access_token"}`, now.Unix(), now.Add(75*time.Minute).Unix()))
	for _, skew := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute} {
		var asked []string
		access := access
		if skew != 0 {
			access = rig.JWT(fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(skew).Unix(), now.Add(skew+75*time.Minute).Unix()))
		}
		provider := registryWire(t, azure.Config{}, func(w http.ResponseWriter, r *http.Request) {
			rig.Must(t, r.ParseForm())
			asked = append(asked, r.Method+" https://"+r.Host+r.URL.String()+" "+r.PostForm.Encode())
			if r.URL.Path == "/oauth2/exchange" {
				fmt.Fprintf(w, `{"refresh_token":%q}`, refresh)
				return
			}
			fmt.Fprintf(w, `{"access_token":%q}`, access)
		})
		token, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithImageRepository("Contoso.azurecr.io/tenant-a/app"))...)
		rig.Must(t, err)
		got := token.(*auth.RegistryCredentials)
		if got.Username != "00000000-0000-0000-0000-000000000000" || got.Password.Reveal() != access {
			t.Errorf("%+v", got)
		}
		// The registry's clock, not the local clock, decides the lifetime.
		if left := got.GetDuration(); left > 75*time.Minute || left < 74*time.Minute {
			t.Errorf("skew %s: %s left", skew, left)
		}
		want := []string{
			"POST https://contoso.azurecr.io/oauth2/exchange " + url.Values{
				"grant_type": {"access_token"}, "service": {"contoso.azurecr.io"}, "tenant": {tenantID}, "access_token": {"entra-access-token-0123456789"},
			}.Encode(),
			"POST https://contoso.azurecr.io/oauth2/token " + url.Values{
				"grant_type": {"refresh_token"}, "service": {"contoso.azurecr.io"}, "scope": {"repository:tenant-a/app:pull,metadata_read"}, "refresh_token": {refresh},
			}.Encode(),
		}
		if strings.Join(asked, "\n") != strings.Join(want, "\n") {
			t.Errorf("got  %q\nwant %q", asked, want)
		}
	}
}

func TestRefusalsOfRegistry(t *testing.T) {
	now := time.Now()
	life := fmt.Sprintf(`"iat":%d,"exp":%d`, now.Unix(), now.Add(time.Hour).Unix())
	answers := func(exchange, token string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body := token
			if r.URL.Path == "/oauth2/exchange" {
				body = exchange
			}
			if status, text, ok := strings.Cut(body, " "); ok && len(status) == 3 {
				code := map[string]int{"400": 400, "401": 401, "403": 403, "404": 404, "429": 429, "503": 503}[status]
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(code)
				body = text
			}
			_, _ = io.WriteString(w, body)
		}
	}
	refreshed := `{"refresh_token":"` + rig.JWT(`{`+life+`}`) + `"}`
	const unauthorized = `401 {"errors":[{"code":"UNAUTHORIZED","message":"authentication required, visit https://aka.ms/acr/authorization entra-access-token-0123456789"}]}`
	for _, test := range []struct {
		name            string
		exchange, token string
		code            auth.Code
		text, fix       string
	}{
		{"permission", unauthorized, "", auth.CodePermissionDenied, "registry contoso.azurecr.io, exchange: HTTP status 401", "assign to application " + clientA + " the role AcrPull at registry contoso"},
		{"permission in the repository", refreshed, strings.Replace(unauthorized, "401", "403", 1), auth.CodePermissionDenied, "token: HTTP status 403", "repository tenant-a/app"},
		{"none such", `404 {"errors":[]}`, "", auth.CodeRefused, "HTTP status 404", "check that registry contoso.azurecr.io exists"},
		{"malformed", `400 {"errors":[]}`, "", auth.CodeRefused, "HTTP status 400", "tenant of application"},
		{"throttled", `429 {}`, "", auth.CodeThrottled, "HTTP status 429", "wait"},
		{"failing", `503 oops`, "", auth.CodeUnavailable, "HTTP status 503", "wait"},
		{"HTML", `403 <html>`, "", auth.CodeResponseInvalid, "not the service's", "answers as registry contoso.azurecr.io"},
		{"HTML as an answer", `<html>`, "", auth.CodeResponseInvalid, "not the JSON of a token answer", "answers as"},
		{"no token", `{}`, "", auth.CodeResponseInvalid, "no refresh_token in it", "answers as"},
		{"no string", `{"refresh_token":1}`, "", auth.CodeResponseInvalid, "no refresh_token in it", "answers as"},
		{"no JWT", `{"refresh_token":"opaque"}`, "", auth.CodeResponseInvalid, "its refresh_token is not a JWT", "answers as"},
		{"no exp", `{"refresh_token":"` + rig.JWT(`{"iat":1}`) + `"}`, "", auth.CodeResponseInvalid, "its refresh_token has no expiry (exp)", "answers as"},
		{"no exp in the second", refreshed, `{"access_token":"` + rig.JWT(`{"sub":"x"}`) + `"}`, auth.CodeResponseInvalid, "its access_token has no expiry (exp)", "answers as"},
		{"the first for the second", refreshed, refreshed, auth.CodeResponseInvalid, "no access_token in it", "answers as"},
		{"expired", refreshed, `{"access_token":"` + rig.JWT(`{"exp":1700000000}`) + `"}`, auth.CodeResponseInvalid, "has already expired", "answers as"},
		{"ends before it begins", refreshed, `{"access_token":"` + rig.JWT(`{"iat":2,"exp":1}`) + `"}`, auth.CodeResponseInvalid, "has already expired", "answers as"},
		{"ends never", refreshed, `{"access_token":"` + rig.JWT(`{"iat":2,"exp":-1e308}`) + `"}`, auth.CodeResponseInvalid, "has already expired", "answers as"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := registryWire(t, azure.Config{}, answers(test.exchange, test.token))
			_, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithImageRepository(imageA))...)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != auth.StageRegistry || e.Code != test.code || !strings.Contains(e.Err.Error(), test.text) || !strings.Contains(e.Fix, test.fix) {
				t.Errorf("%v", err)
			}
			if strings.Contains(fmt.Sprint(err), "entra-access") {
				t.Errorf("a token is told: %v", err)
			}
			if e.Temporary() && e.RetryAfter != 7*time.Second {
				t.Errorf("retry after %s", e.RetryAfter)
			}
		})
	}
}

// TestRegistryTokenLife checks that a registry token with impossible times gets a limited lifetime.
// Without the claim iat, the claim exp decides when the token expires.
func TestRegistryTokenLife(t *testing.T) {
	now := time.Now()
	for claims, want := range map[string]time.Duration{
		`{"iat":1,"exp":9e18}`:                               28 * time.Hour,
		fmt.Sprintf(`{"exp":%d}`, now.Add(time.Hour).Unix()): time.Hour,
	} {
		provider := registryWire(t, azure.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"refresh_token":%q,"access_token":%q}`, rig.JWT(claims), rig.JWT(claims))
		})
		token, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithImageRepository(imageA))...)
		rig.Must(t, err)
		if left := token.GetDuration(); left > want || left < want-time.Minute {
			t.Errorf("%s: %s left, want %s", claims, left, want)
		}
	}
}

// TestRegistryAudience checks the scopes of token requests for registries. In a cloud that an
// administrator described, the provider may fall back to the scope of Azure Resource Manager. In a
// predefined cloud it must not.
func TestRegistryAudience(t *testing.T) {
	custom, err := endpoint.ParseAzureEnvironment([]byte(`{"activeDirectoryEndpoint":"https://login.example.gov","resourceManagerEndpoint":"https://arm.example.gov","containerRegistryDNSSuffix":"azurecr.example.gov"}`), "")
	rig.Must(t, err)
	const own, manager = "https://containerregistry.azure.net/.default", "https://arm.example.gov/.default"
	for _, test := range []struct {
		name   string
		cloud  endpoint.AzureCloud
		image  string
		knows  string
		scopes []string
		fails  bool
	}{
		{"public", endpoint.AzurePublic(), imageA, own, []string{own}, false},
		{"public without", endpoint.AzurePublic(), imageA, "", []string{own}, true},
		{"custom", custom, "contoso.azurecr.example.gov/app", own, []string{own}, false},
		{"custom without", custom, "contoso.azurecr.example.gov/app", manager, []string{own, manager}, false},
		{"custom without either", custom, "contoso.azurecr.example.gov/app", "", []string{own, manager}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var scopes []string
			provider := newProvider(t, azure.Config{Cloud: test.cloud, Transport: rig.Wire(t, func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.Host, "login.") {
					token := rig.JWT(fmt.Sprintf(`{"iat":1,"exp":%d}`, 3601))
					fmt.Fprintf(w, `{"refresh_token":%q,"access_token":%q}`, token, token)
					return
				}
				scope := r.PostFormValue("scope")
				scopes = append(scopes, scope)
				if scope != test.knows {
					entraError(400, 500011, "no")(w, r)
					return
				}
				says(goodToken)(w, r)
			})})
			_, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithImageRepository(test.image))...)
			if (err != nil) != test.fails || strings.Join(scopes, " ") != strings.Join(test.scopes, " ") {
				t.Errorf("%v, asked for %v", err, scopes)
			}
		})
	}
}

func TestOnlyItsOwnTokens(t *testing.T) {
	provider := newProvider(t, azure.Config{})
	request := &auth.Request{ImageRepository: imageA}
	for _, token := range []auth.Token{nil, (*azure.Token)(nil), &auth.RegistryCredentials{}} {
		if _, err := provider.NewRegistryToken(t.Context(), token, request); auth.CodeOf(err) != auth.CodeResponseInvalid {
			t.Errorf("%T: %v", token, err)
		}
	}
}

// TestThrottledTenantWaits checks that, after an answer with Retry-After, calls with the same cache
// send no request.
func TestThrottledTenantWaits(t *testing.T) {
	var requests atomic.Int32
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "60")
		entraError(429, 90055, "no")(w, r)
	})
	tokens := cache.New(cache.Options{MaxSize: 10})
	for range 3 {
		if _, err := auth.GetToken(t.Context(), provider, asA(t, auth.WithCache(tokens, auth.InvolvedObject{}))...); auth.CodeOf(err) != auth.CodeThrottled {
			t.Errorf("%v", err)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}
