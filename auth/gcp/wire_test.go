package gcp_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

func wired(tb testing.TB, handler http.HandlerFunc) *gcp.Provider {
	tb.Helper()
	return newProvider(tb, gcp.Config{Transport: rig.Wire(tb, handler), Timeout: 5 * time.Second, MetadataHost: rig.Nowhere(tb)})
}

const (
	subA          = "system:serviceaccount:tenant-a:tenant-a-gcs-sa"
	federatedA    = "ya29.d.federated-token-0123456789"
	accountTokenA = "ya29.c.account-token-0123456789"
	goodToken     = `{"access_token":"` + federatedA + `","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3599}`
)

// goodAccountToken returns a response of generateAccessToken with a token that ends in an hour.
func goodAccountToken() string {
	return `{"accessToken":"` + accountTokenA + `","expireTime":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`
}

// proofA returns a JWT of tenant A's issuer with an invalid signature. No test here verifies it.
func proofA() string {
	return rig.JWT(`{"iss":"` + issuerURL + `","sub":"` + subA + `"}`)
}

// asA returns the options of a call for tenant A with a workload identity provider. If email is not
// empty, the call impersonates the service account with this address.
func asA(tb testing.TB, email string, more ...auth.Option) []auth.Option {
	tb.Helper()
	account := rig.WithAttribute(rig.WithAttribute(tenant(tb, "tenant-a"), gcp.ProviderAnnotation, providerName), gcp.ServiceAccountAnnotation, email)
	subject := rig.Subject(account, rig.Proof(proofA()))
	return append([]auth.Option{subject}, more...)
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func oauthError(code, description string) http.HandlerFunc {
	data, _ := json.Marshal(map[string]string{"error": code, "error_description": description})
	return answer(http.StatusBadRequest, string(data))
}

func rpcError(status int, code, reason, message string) http.HandlerFunc {
	return answer(status, fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":%q,"domain":"iam.googleapis.com"}]}}`,
		status, message, code, reason))
}

// then returns a handler that answers token exchanges with a good token. It passes all other
// requests to the given handler.
func then(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/token" {
			answer(http.StatusOK, goodToken)(w, r)
			return
		}
		handler(w, r)
	}
}

// wants has the values that a test expects in an [*auth.Error].
type wants struct {
	stage auth.Stage
	code  auth.Code
	text  string // a part of the error's text
	fix   string
}

func (want wants) check(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*auth.Error](err)
	if !ok {
		t.Fatalf("not an *auth.Error: %v", err)
	}
	if e.Stage != want.stage || e.Code != want.code {
		t.Errorf("stage %s, code %s, want %s, %s", e.Stage, e.Code, want.stage, want.code)
	}
	if !strings.Contains(e.Err.Error(), want.text) {
		t.Errorf("cause %q, want %q in it", e.Err, want.text)
	}
	if !strings.Contains(e.Fix, want.fix) || e.Fix == "" {
		t.Errorf("fix  %q\nwant %q in it", e.Fix, want.fix)
	}
}

func TestRefusalsOfSTS(t *testing.T) {
	const trust = "workload identity provider " + providerName
	without := func(old, with string) http.HandlerFunc { return answer(200, strings.Replace(goodToken, old, with, 1)) }
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		code    auth.Code
		text    string
		fix     string
	}{
		{"issuer", oauthError("invalid_grant", "The issuer in ID Token https://a does not match the expected ones: https://b"), auth.CodeTrustRefused, "sts.googleapis.com, token exchange: invalid_grant: the proof has another issuer", "let " + trust + " trust issuer " + issuerURL},
		{"audience", oauthError("invalid_grant", "The audience in ID Token [x] does not match the expected audience y."), auth.CodeTrustRefused, "the proof has another audience", "add audience https://iam.googleapis.com/" + providerName + " to the allowed audiences of " + trust},
		{"stale", oauthError("invalid_grant", "ID Token issued at 1713260741 is stale to sign-in."), auth.CodeProofInvalid, "not valid at this time", "clock"},
		{"signature", oauthError("invalid_grant", "Unable to verify the ID Token signature."), auth.CodeTrustRefused, "the signature", "upload the current keys of issuer " + issuerURL},
		{"keys", oauthError("invalid_grant", "Error connecting to the given credential's issuer."), auth.CodeUnavailable, "the issuer's keys", "fetch the keys of issuer " + issuerURL},
		{"not yet", oauthError("invalid_grant", "ID Token issued at 1713260741 is not valid yet."), auth.CodeProofInvalid, "not valid at this time", "clock"},
		{"mapping", oauthError("invalid_grant", "The mapped attribute 'google.subject' must be of type STRING"), auth.CodeTrustRefused, "mapping fails", "127 bytes"},
		{"another grant", oauthError("invalid_grant", "no"), auth.CodeTrustRefused, "invalid_grant", "sub = " + subA},
		{"condition", oauthError("unauthorized_client", "The given credential is rejected by the attribute condition."), auth.CodeTrustRefused, "unauthorized_client", "let the attribute condition of " + trust + " admit sub = " + subA},
		{"target", oauthError("invalid_target", "The target service indicated by the \"audience\" parameters is invalid."), auth.CodeTrustRefused, "invalid_target", "check that " + trust + " exists and is enabled"},
		{"scope", oauthError("invalid_scope", "no"), auth.CodeOptionInvalid, "invalid_scope", "scopes"},
		{"request", oauthError("invalid_request", "no"), auth.CodeRefused, "invalid_request", "attribute mapping"},
		{"denied", rpcError(403, "PERMISSION_DENIED", "SERVICE_DISABLED", "no"), auth.CodeRefused, "PERMISSION_DENIED (SERVICE_DISABLED)", "attribute mapping"},
		{"throttled", rpcError(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", "no"), auth.CodeThrottled, "HTTP status 429", "quota"},
		{"failing", rpcError(500, "INTERNAL", "", "oops"), auth.CodeUnavailable, "HTTP status 500", "status.cloud.google.com"},
		{"HTML", answer(502, "<html><p>oops"), auth.CodeUnavailable, "HTTP status 502", "wait"},
		{"HTML refusal", answer(403, "<html><p>blocked by the corporate gateway"), auth.CodeResponseInvalid, "not the service's (HTTP status 403)", "answers as sts.googleapis.com"},
		{"HTML success", answer(200, "<html>sign in"), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"a code that is none", oauthError("ya29.x", "no"), auth.CodeResponseInvalid, "not the service's", "answers as"},
		{"redirect", redirect(http.StatusTemporaryRedirect), auth.CodeResponseInvalid, "307", "answers as sts.googleapis.com"},
		{"redirect to an answer", redirect(http.StatusFound), auth.CodeResponseInvalid, "302", "answers as sts.googleapis.com"},
		{"half an answer", answer(200, goodToken[:len(goodToken)/2]), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"empty", answer(200, ""), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"no content", answer(204, ""), auth.CodeResponseInvalid, "204", "answers as"},
		{"too much", answer(200, goodToken[:30]+strings.Repeat(" ", 2<<20)+goodToken[30:]), auth.CodeResponseInvalid, "too long", "answers as"},
		{"no token", without(federatedA, ""), auth.CodeResponseInvalid, "no access_token", "answers as"},
		{"a token with a space", without(federatedA, "a b"), auth.CodeResponseInvalid, "no access_token", "answers as"},
		{"a token with a line end", without(federatedA, `a\r\nX: y`), auth.CodeResponseInvalid, "no access_token", "answers as"},
		{"another type", without(`"Bearer"`, `"DPoP"`), auth.CodeResponseInvalid, "token_type", "answers as"},
		{"another issued type", without("token-type:access_token", "token-type:id_token"), auth.CodeResponseInvalid, "issued_token_type", "answers as"},
		{"no end", without(`,"expires_in":3599`, ""), auth.CodeResponseInvalid, "no expires_in", "answers as"},
		{"end as text", without("3599", `"3599"`), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"over already", without("3599", "-1"), auth.CodeResponseInvalid, "no expires_in", "answers as"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, auth.CodeUnreachable, "the connection was closed", "reached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := wired(t, test.handler)
			_, err := auth.GetToken(t.Context(), provider, asA(t, "")...)
			wants{auth.StageExchange, test.code, test.text, test.fix}.check(t, err)
			_, again := auth.GetToken(t.Context(), provider, asA(t, "")...)
			if again == nil || again.Error() != err.Error() {
				t.Errorf("the second time another text:\n%v\n%v", err, again)
			}
		})
	}
}

func TestRefusalsOfIAMCredentials(t *testing.T) {
	const denied = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
	without := func(old, with string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			answer(200, strings.Replace(goodAccountToken(), old, with, 1))(w, r)
		}
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		code    auth.Code
		text    string
		fix     string
	}{
		{
			"denied", rpcError(403, "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", denied), auth.CodeTrustRefused,
			"iamcredentials.googleapis.com, generateAccessToken for " + emailA + ": PERMISSION_DENIED (IAM_PERMISSION_DENIED)",
			"grant roles/iam.workloadIdentityUser on " + emailA + " to " + pools + "tenants/subject/" + subA,
		},
		{"API off", rpcError(403, "PERMISSION_DENIED", "SERVICE_DISABLED", "no"), auth.CodeRefused, "SERVICE_DISABLED", "enable iamcredentials.googleapis.com"},
		{"missing", rpcError(404, "NOT_FOUND", "", "Not found; Gaia id not found for email x"), auth.CodeTrustRefused, "NOT_FOUND", "create service account " + emailA},
		{"disabled", rpcError(400, "FAILED_PRECONDITION", "", "no"), auth.CodeRefused, "FAILED_PRECONDITION", "is enabled"},
		{"argument", rpcError(400, "INVALID_ARGUMENT", "", "no"), auth.CodeRefused, "INVALID_ARGUMENT", "scopes"},
		{"our token", rpcError(401, "UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED", "token "+federatedA), auth.CodeRefused, "UNAUTHENTICATED", "clock"},
		{"unheard of", rpcError(418, "TEAPOT", "", "no"), auth.CodeRefused, "TEAPOT", "API reference"},
		{"throttled", rpcError(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", "no"), auth.CodeThrottled, "429", "quota"},
		{"failing", rpcError(503, "UNAVAILABLE", "", "no"), auth.CodeUnavailable, "503", "wait"},
		{"HTML", answer(404, "<html>"), auth.CodeResponseInvalid, "not the service's", "answers as iamcredentials.googleapis.com"},
		{"redirect", redirect(http.StatusFound), auth.CodeResponseInvalid, "302", "answers as"},
		{"not JSON", answer(200, "<html>"), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"no token", without(accountTokenA, ""), auth.CodeResponseInvalid, "no accessToken", "answers as"},
		{"no end", answer(200, `{"accessToken":"`+accountTokenA+`"}`), auth.CodeResponseInvalid, "no expireTime", "answers as"},
		{"an end that is none", answer(200, `{"accessToken":"`+accountTokenA+`","expireTime":"soon"}`), auth.CodeResponseInvalid, "not JSON", "answers as"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, auth.CodeUnreachable, "the connection was closed", "reached"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := auth.GetToken(t.Context(), wired(t, then(test.handler)), asA(t, emailA)...)
			wants{auth.StageImpersonation, test.code, test.text, test.fix}.check(t, err)
			if text := fmt.Sprintf("%v %+v", err, errors.Unwrap(err)); strings.Contains(text, federatedA) || strings.Contains(text, proofA()[40:60]) {
				t.Errorf("a secret is told: %s", text)
			}
		})
	}
	_, err := auth.GetToken(t.Context(), wired(t, then(rpcError(400, "INVALID_ARGUMENT", "", "no"))), asA(t, emailA, auth.WithScopes("x"))...)
	wants{auth.StageImpersonation, auth.CodeOptionInvalid, "INVALID_ARGUMENT", "scopes"}.check(t, err)
	// A token with an expireTime in the past is refused.
	_, err = auth.GetToken(t.Context(), wired(t, then(answer(200, `{"accessToken":"`+accountTokenA+`","expireTime":"1999-01-01T00:00:00Z"}`))), asA(t, emailA)...)
	wants{auth.StageExchange, auth.CodeResponseInvalid, "already expired", "clocks"}.check(t, err)
}

// redirect redirects to another host, which would answer with a good token.
func redirect(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			answer(http.StatusOK, goodToken)(w, r)
			return
		}
		http.Redirect(w, r, "https://sts.example.org/elsewhere", status)
	}
}

func TestExchangeRequest(t *testing.T) {
	// No environment variable may decide where a tenant's proof goes.
	for _, name := range []string{
		"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_UNIVERSE_DOMAIN", "GCE_METADATA_HOST", "GOOGLE_API_USE_MTLS_ENDPOINT", "GOOGLE_CLOUD_QUOTA_PROJECT",
	} {
		t.Setenv(name, "https://evil.example")
	}
	type call struct {
		host, path, authorization string
		form                      url.Values
		body                      string
	}
	var calls []call
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		c := call{host: r.Host, path: r.URL.Path, authorization: r.Header.Get("Authorization")}
		if r.URL.Path == "/v1/token" {
			rig.Must(t, r.ParseForm())
			c.form = r.PostForm
			answer(200, goodToken)(w, r)
		} else {
			body, _ := io.ReadAll(r.Body)
			c.body = string(body)
			answer(200, goodAccountToken())(w, r)
		}
		calls = append(calls, c)
	})
	const all = "https://www.googleapis.com/auth/cloud-platform"
	form := func(scope string) string {
		return url.Values{
			"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
			"audience":             {"//iam.googleapis.com/" + providerName},
			"scope":                {scope},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
			"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"},
			"subject_token":        {proofA()},
		}.Encode()
	}
	for _, test := range []struct {
		email   string
		options []auth.Option
		scope   string // expected scope of the token exchange
		body    string // expected body of the generateAccessToken call; empty if none is expected
		token   string
	}{
		{scope: all, token: federatedA},
		{options: []auth.Option{auth.WithScopes("https://www.googleapis.com/auth/pubsub", "x,y=%z")}, scope: "https://www.googleapis.com/auth/pubsub x,y=%z", token: federatedA},
		{email: emailA, scope: "https://www.googleapis.com/auth/iam", body: `{"scope":["` + all + `"],"lifetime":"3600s"}`, token: accountTokenA},
		{email: emailA, options: []auth.Option{auth.WithScopes("a", "b")}, scope: "https://www.googleapis.com/auth/iam", body: `{"scope":["a","b"],"lifetime":"3600s"}`, token: accountTokenA},
	} {
		calls = nil
		token, err := auth.GetToken(t.Context(), provider, asA(t, test.email, test.options...)...)
		rig.Must(t, err)
		if got := token.(*gcp.Token); got.Secret.Reveal() != test.token || got.GetDuration() > time.Hour || got.GetDuration() < 59*time.Minute {
			t.Errorf("%+v: another token, or valid for %s", test, got.GetDuration())
		}
		if c := calls[0]; c.host != "sts.googleapis.com" || c.authorization != "" || c.form.Encode() != form(test.scope) {
			t.Errorf("%+v: sent %+v", test, c)
		}
		if test.email == "" {
			if len(calls) != 1 {
				t.Errorf("%d calls", len(calls))
			}
			continue
		}
		if c := calls[1]; len(calls) != 2 || c.host != "iamcredentials.googleapis.com" || c.path != "/v1/projects/-/serviceAccounts/"+emailA+":generateAccessToken" ||
			c.authorization != "Bearer "+federatedA || c.body != test.body {
			t.Errorf("%+v: sent %+v", test, calls)
		}
	}
}

// TestExchangePerUniverse checks that requests go to the hosts of the provider's universe. The full
// resource name of a workload identity provider begins with //iam.googleapis.com in every universe.
func TestExchangePerUniverse(t *testing.T) {
	const email = "tenant-a@p.s3ns.iam.gserviceaccount.com"
	var hosts, audiences []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		if r.URL.Path == "/v1/token" {
			audiences = append(audiences, r.PostFormValue("audience"))
			answer(200, goodToken)(w, r)
			return
		}
		answer(200, goodAccountToken())(w, r)
	}
	server := metadataServer(t, map[string]string{
		"project/project-id": "s3ns:p", "project/numeric-project-id": "7",
		"instance/attributes/cluster-location": "u-france-east1", "instance/attributes/cluster-name": "c",
	})
	provider := newProvider(t, gcp.Config{Transport: rig.Wire(t, handler), UniverseDomain: "s3nsapis.fr", MetadataHost: server})
	_, err := auth.GetToken(t.Context(), provider, asA(t, email)...)
	rig.Must(t, err)
	account := rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, email)
	var proofAudience string
	subject := rig.Subject(account, func(_ auth.Account, request auth.ProofRequest) (string, error) {
		proofAudience = request.Audiences[0]
		return proofA(), nil
	})
	_, err = auth.GetToken(t.Context(), provider, subject)
	rig.Must(t, err)
	if got := strings.Join(hosts, " "); got != "sts.s3nsapis.fr iamcredentials.s3nsapis.fr sts.s3nsapis.fr iamcredentials.s3nsapis.fr" {
		t.Errorf("asked %s", got)
	}
	if got := strings.Join(audiences, " "); proofAudience != "p.s3ns.svc.id.goog" ||
		got != "//iam.googleapis.com/"+providerName+" identitynamespace:p.s3ns.svc.id.goog:https://container.s3nsapis.fr/v1/projects/s3ns:p/locations/u-france-east1/clusters/c" {
		t.Errorf("proof for %s, audiences %s", proofAudience, got)
	}
}

func TestRetriesAreFew(t *testing.T) {
	rig.Attempts(t, func(t *testing.T, handler http.HandlerFunc) {
		t.Helper()
		_, _ = auth.GetToken(t.Context(), wired(t, handler), asA(t, "")...)
	},
		rig.Attempt{Name: "refused", Handler: oauthError("invalid_grant", "no"), Requests: 1},
		rig.Attempt{Name: "throttled", Handler: rpcError(429, "RESOURCE_EXHAUSTED", "", "no"), Requests: 1},
		rig.Attempt{Name: "failing", Handler: rpcError(503, "UNAVAILABLE", "", "no"), Requests: 2},
		rig.Attempt{Name: "failing for a while", Handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "60")
			rpcError(503, "UNAVAILABLE", "", "no")(w, r)
		}, Requests: 1},
	)
}

func TestRetryAfter(t *testing.T) {
	for _, stage := range []auth.Stage{auth.StageExchange, auth.StageImpersonation} {
		rig.RetryAfter(t, func(t *testing.T, header string) error {
			t.Helper()
			throttle := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", header)
				rpcError(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", "no")(w, r)
			}
			if stage == auth.StageImpersonation {
				throttle = then(throttle)
			}
			_, err := auth.GetToken(t.Context(), wired(t, throttle), asA(t, emailA)...)
			wants{stage, auth.CodeThrottled, "429", "quota"}.check(t, err)
			return err
		})
	}
}

// TestEndOfToken checks that a token never lives longer than Google allows, even if Google's clock
// is behind or ahead.
func TestEndOfToken(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		0: time.Hour, 5 * time.Minute: time.Hour, -5 * time.Minute: 55 * time.Minute, 24 * time.Hour: time.Hour,
	} {
		body := `{"accessToken":"` + accountTokenA + `","expireTime":"` + time.Now().Add(time.Hour+ahead).UTC().Format(time.RFC3339Nano) + `"}`
		token, err := auth.GetToken(t.Context(), wired(t, then(answer(200, body))), asA(t, emailA)...)
		rig.Must(t, err)
		if d := token.GetDuration(); d > want || d < want-10*time.Second {
			t.Errorf("Google's clock %s ahead: valid for %s, want %s", ahead, d, want)
		}
	}
	for seconds, want := range map[string]time.Duration{"60": time.Minute, "43200": 12 * time.Hour, "999999999999999999": 12 * time.Hour} {
		token, err := auth.GetToken(t.Context(), wired(t, answer(200, strings.Replace(goodToken, "3599", seconds, 1))), asA(t, "")...)
		rig.Must(t, err)
		if d := token.GetDuration(); d > want || d < want-10*time.Second {
			t.Errorf("expires_in %s: valid for %s, want %s", seconds, d, want)
		}
	}
}

// TestProofOfAnother checks that the provider does not send a proof of another subject. Google
// might return a token of that other subject.
func TestProofOfAnother(t *testing.T) {
	provider := wired(t, func(http.ResponseWriter, *http.Request) { t.Error("the proof was sent") })
	enc := base64.RawURLEncoding.EncodeToString
	for name, proof := range map[string]string{
		"another's":      enc([]byte(`{}`)) + "." + enc([]byte(`{"sub":"system:serviceaccount:tenant-b:tenant-b-gcs-sa"}`)) + ".x",
		"a longer name":  enc([]byte(`{}`)) + "." + enc([]byte(`{"sub":"`+subA+`2"}`)) + ".x",
		"nobody's":       enc([]byte(`{}`)) + "." + enc([]byte(`{}`)) + ".x",
		"no JWT":         "token",
		"nothing at all": "",
	} {
		account := rig.WithAttribute(tenant(t, "tenant-a"), gcp.ProviderAnnotation, providerName)
		subject := rig.Subject(account, rig.Proof(proof))
		_, err := auth.GetToken(t.Context(), provider, subject)
		if e, ok := errors.AsType[*auth.Error](err); !ok || e.Stage != auth.StageExchange || e.Code != auth.CodeProofInvalid || e.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDisconnections(t *testing.T) {
	rig.Disconnections(t, "sts.googleapis.com", func(t *testing.T, base *http.Transport) error {
		t.Helper()
		_, err := auth.GetToken(t.Context(), newProvider(t, gcp.Config{Transport: base}), asA(t, "")...)
		return err
	})
}

func TestAnswerThatDoesNotEnd(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	slow := newProvider(t, gcp.Config{Timeout: 50 * time.Millisecond, Transport: rig.Wire(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-stop
	})})
	_, err := auth.GetToken(t.Context(), slow, asA(t, "")...)
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeUnreachable {
		t.Errorf("slow: %v", err)
	}
	_, err = auth.GetToken(t.Context(), wired(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, goodToken[:30])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), asA(t, "")...)
	if auth.CodeOf(err) != auth.CodeUnreachable || !strings.Contains(err.Error(), "the answer broke off") {
		t.Errorf("half: %v", err)
	}
}
