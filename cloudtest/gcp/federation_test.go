package gcp_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

// TestFederation checks that a tenant gets a token of its own service account, under every kind of
// binding. It must get no token of another account.
func TestFederation(t *testing.T) {
	w := newWorld(t)
	inPool := func(subject, namespace string) string {
		a := w.exchange(t, exchangeForm(poolAudience, minted(t)(w.pool.Mint(poolClaims(subject, namespace)))))
		if a.status != http.StatusOK {
			t.Fatalf("HTTP %d %s", a.status, a.body)
		}
		return a.text(t, "access_token")
	}
	ofCluster := func(subject string) string { return w.federated(t, subject) }
	const builder = "builder@legacy-project.example.com.iam.gserviceaccount.com"
	for _, tt := range []struct {
		name, token, account string
		status               int
	}{
		{"legacy member of GKE", ofCluster(ksaA), accountA, http.StatusOK},
		{"principal of GKE", ofCluster(ksaB), accountB, http.StatusOK},
		{"by unique ID", ofCluster(ksaA), "100000000000000000001", http.StatusOK},
		{"by escaped address", ofCluster(ksaA), url.PathEscape(accountA), http.StatusOK},
		{"principal of a pool", inPool(ksaA, "tenant-a"), accountA, http.StatusOK},
		{"attribute of a pool, domain-scoped project", inPool(ksaA, "tenant-a"), builder, http.StatusOK},
		{"other tenant of GKE", ofCluster(ksaA), accountB, http.StatusForbidden},
		{"other tenant of a pool", inPool(ksaB, "tenant-b"), accountA, http.StatusForbidden},
		{"other attribute", inPool(ksaB, "tenant-b"), builder, http.StatusForbidden},
		{"same names in GKE as in the pool", ofCluster("system:serviceaccount:tenant-a:other"), accountA, http.StatusForbidden},
		{"member of nothing", ofCluster(ksaA), controller, http.StatusForbidden},
		{"no such account", ofCluster(ksaA), "nobody-here@my-org-project.iam.gserviceaccount.com", http.StatusNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Journal().Last()
			a := w.impersonate(t, tt.token, tt.account, `{"scope":["`+scopeAll+`"]}`)
			if a.status != tt.status {
				t.Errorf("HTTP %d %s", a.status, a.body)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceIAMCredentials, Operation: "GenerateAccessToken"})
			if len(calls) != 1 || calls[0].Status != tt.status || !strings.HasPrefix(calls[0].Principal, "principal://iam.googleapis.com/projects/"+projectNumber) {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
}

// TestChain checks that a service account can impersonate another account, directly or through a
// delegate. Each account in the chain must allow the previous one.
func TestChain(t *testing.T) {
	w := newWorld(t)
	asA := w.accountToken(t, ksaA, accountA)
	body := func(delegates string) string { return `{"scope":["` + scopeAll + `"],"delegates":[` + delegates + `]}` }
	if a := w.impersonate(t, asA, controller, body("")); a.status != http.StatusOK {
		t.Errorf("one link: HTTP %d %s", a.status, a.body)
	}
	if a := w.impersonate(t, asA, accountB, body("")); a.status != http.StatusForbidden {
		t.Errorf("no link: HTTP %d %s", a.status, a.body)
	}
	chain := body(`"projects/-/serviceAccounts/` + controller + `"`)
	if a := w.impersonate(t, asA, accountB, chain); a.status != http.StatusForbidden {
		t.Errorf("second link missing: HTTP %d %s", a.status, a.body)
	}
	err := w.GCP().PutServiceAccount(projectID, gcp.ServiceAccount{
		Email: accountB, Bindings: bind("roles/iam.serviceAccountTokenCreator", "serviceAccount:"+controller),
	})
	must.Succeed(t, err)
	if a := w.impersonate(t, asA, accountB, chain); a.status != http.StatusOK {
		t.Errorf("two links: HTTP %d %s", a.status, a.body)
	}
}

// TestExchangeRefusals checks every reason why STS refuses a token, with STS's error texts.
func TestExchangeRefusals(t *testing.T) {
	w := newWorld(t)
	rogue, err := oidc.NewIssuer("https://issuer.rogue.example", oidc.RS256)
	must.Succeed(t, err)
	must.Succeed(t, w.HandleIssuer(rogue))
	good := clusterClaims(ksaA)
	with := func(base oidc.Claims, pairs ...any) oidc.Claims {
		out := maps.Clone(base)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i].(string)] = pairs[i+1]
		}
		return out
	}
	mint := func(claims oidc.Claims) string { return minted(t)(w.cluster.Mint(claims)) }
	inPool := func(claims oidc.Claims) string { return minted(t)(w.pool.Mint(claims)) }
	now := time.Now().Unix()
	form := func(audience, token string, pairs ...string) url.Values {
		f := exchangeForm(audience, token)
		for i := 0; i < len(pairs); i += 2 {
			f[pairs[i]] = []string{pairs[i+1]}
		}
		return f
	}
	long := "system:serviceaccount:tenant-a:" + strings.Repeat("a", 97)
	for _, tt := range []struct {
		name              string
		form              url.Values
		code, description string
	}{
		{"wrong grant", form(gkeAudience, mint(good), "grant_type", "client_credentials"), "unsupported_grant_type", "grant_type"},
		{"wrong kind of answer", form(gkeAudience, mint(good), "requested_token_type", "urn:ietf:params:oauth:token-type:id_token"), "invalid_request", "requested_token_type"},
		{"SAML", form(gkeAudience, mint(good), "subject_token_type", "urn:ietf:params:oauth:token-type:saml2"), "invalid_request", "subject_token_type"},
		{"no token", form(gkeAudience, ""), "invalid_request", "subject_token"},
		{"no scope", form(gkeAudience, mint(good), "scope", ""), "invalid_scope", "scope"},
		{"blank scope", form(gkeAudience, mint(good), "scope", "  "), "invalid_scope", "scope"},
		{"scope that is none", form(gkeAudience, mint(good), "scope", scopeAll+" cloud-platform"), "invalid_scope", "Invalid OAuth scope"},
		{"unknown parameter", form(gkeAudience, mint(good), "actor_token", "x"), "invalid_request", "not known"},
		{"parameter twice", url.Values{"audience": {gkeAudience, gkeAudience}}, "invalid_request", "twice"},
		{"parameter in both spellings", form(gkeAudience, mint(good), "subjectToken", "x"), "invalid_request", "twice"},

		{"no audience", form("", mint(good)), "invalid_request", `Invalid value for "audience"`},
		{"a pool, no provider", form("//iam.googleapis.com/projects/"+projectNumber+"/locations/global/workloadIdentityPools/tenants", mint(good)), "invalid_request", "audience"},
		{"with https", form("https:"+poolAudience, mint(good)), "invalid_request", "audience"},
		{"of another universe's host", form(strings.Replace(poolAudience, "googleapis.com", "apis.example", 1), mint(good)), "invalid_request", "audience"},
		{"project ID for the number", form(strings.Replace(poolAudience, projectNumber, projectID, 1), mint(good)), "invalid_request", "audience"},
		{"identity namespace without a cluster", form("identitynamespace:"+gkePool, mint(good)), "invalid_request", "audience"},
		{"unknown project", form(strings.Replace(poolAudience, projectNumber, "1", 1), mint(good)), "invalid_target", "disabled or deleted"},
		{"unknown pool", form(strings.Replace(poolAudience, "tenants", "others", 1), mint(good)), "invalid_target", "disabled or deleted"},
		{"unknown provider", form(strings.Replace(poolAudience, "/kubernetes", "/others", 1), mint(good)), "invalid_target", "disabled or deleted"},
		{"unknown cluster", form(gkeAudience+"2", mint(good)), "invalid_target", "disabled or deleted"},
		{"cluster of another project", form(strings.Replace(gkeAudience, ":"+gkePool, ":other-project.svc.id.goog", 1), mint(good)), "invalid_target", "deleted"},

		{"not a token", form(gkeAudience, "hello world"), "invalid_grant", "Unable to parse the ID Token."},
		{"unsigned", form(gkeAudience, minted(t)(w.cluster.MintUnsigned(good))), "invalid_grant", "Unable to parse the ID Token."},
		{"no exp", form(gkeAudience, mint(with(good, "exp", nil))), "invalid_grant", "Unable to parse the ID Token."},
		{"wrong issuer", form(gkeAudience, minted(t)(rogue.Mint(good))), "invalid_grant", "The issuer in ID Token https://issuer.rogue.example does not match the expected ones: " + clusterIssuer},
		{"the issuer of the other target", form(poolAudience, mint(poolClaims(ksaA, "tenant-a"))), "invalid_grant", "The issuer in ID Token"},
		{"wrong audience", form(gkeAudience, mint(with(good, "aud", "sts.amazonaws.com"))), "invalid_grant", "The audience in ID Token [sts.amazonaws.com] does not match the expected audience."},
		{"the audience of the other target", form(poolAudience, inPool(with(poolClaims(ksaA, "tenant-a"), "aud", gkePool))), "invalid_grant", "The audience in ID Token"},
		{"forged", form(gkeAudience, minted(t)(w.cluster.Forge(good))), "invalid_grant", "Unable to verify the ID Token signature."},
		{"another issuer's key", form(gkeAudience, minted(t)(rogue.Mint(with(good, "iss", clusterIssuer)))), "invalid_grant", "Unable to verify the ID Token signature."},
		{"expired", form(gkeAudience, mint(with(good, "iat", now-7200, "nbf", now-7200, "exp", now-3600))), "invalid_grant", "is stale to sign-in."},
		{"of the future", form(gkeAudience, mint(with(good, "iat", now+3600, "nbf", now+3600, "exp", now+7200))), "invalid_grant", "is not valid yet."},
		{"no iat", form(gkeAudience, mint(with(good, "iat", nil))), "invalid_grant", "iat"},
		{"over two days", form(gkeAudience, mint(with(good, "exp", now+49*3600))), "invalid_grant", "lifetime"},

		{"no ServiceAccount", form(gkeAudience, mint(with(good, "sub", "somebody"))), "invalid_grant", "not a Kubernetes service account"},
		{"ServiceAccount with a slash", form(gkeAudience, mint(with(good, "sub", "system:serviceaccount:a/sa/b:c"))), "invalid_grant", "not a Kubernetes service account"},
		{"long subject", form(poolAudience, inPool(poolClaims(long, "tenant-a"))), "invalid_request", "The size of mapped attribute google.subject exceeds the 127 bytes limit."},
		{"claim to map is missing", form(poolAudience, inPool(with(poolClaims(ksaA, "x"), "kubernetes.io", nil))), "invalid_grant", "attribute.namespace"},
		{"claim to map is no text", form(poolAudience, inPool(with(poolClaims(ksaA, "x"), "kubernetes.io", map[string]any{"namespace": 1}))), "invalid_grant", "must be of type STRING"},
		{"condition", form(poolAudience, inPool(poolClaims(ksaA, "tenant-c"))), "unauthorized_client", "The given credential is rejected by the attribute condition."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := w.Journal().Last()
			a := w.exchange(t, tt.form)
			if a.status != http.StatusBadRequest || a.text(t, "error") != tt.code || !strings.Contains(a.text(t, "error_description"), tt.description) {
				t.Errorf("HTTP %d %s, want %s: …%s…", a.status, a.body, tt.code, tt.description)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: gcp.ServiceSTS, Operation: "ExchangeToken"})
			if len(calls) != 1 || calls[0].Code != tt.code || calls[0].Reason == "" || calls[0].Principal != "" {
				t.Errorf("journal has %+v", calls)
			}
		})
	}
	limit := "system:serviceaccount:tenant-a:" + strings.Repeat("a", 96)
	if a := w.exchange(t, form(poolAudience, inPool(poolClaims(limit, "tenant-a")))); a.status != http.StatusOK {
		t.Errorf("127 bytes: HTTP %d %s", a.status, a.body)
	}
}

// TestExchangeForms checks that STS accepts parameters in these formats:
//   - a form with the names of RFC 8693
//   - JSON with the names of RFC 8693
//   - JSON with the API's names
//
// Every other request must be refused.
func TestExchangeForms(t *testing.T) {
	w := newWorld(t)
	token := minted(t)(w.cluster.Mint(clusterClaims(ksaA)))
	camel := map[string]string{
		"grantType": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": gkeAudience, "scope": scopeAll,
		"requestedTokenType": "urn:ietf:params:oauth:token-type:access_token", "subjectToken": token, "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
	}
	snake := map[string]string{}
	for name, values := range exchangeForm(gkeAudience, token) {
		snake[name] = values[0]
	}
	text := func(v any) string {
		out, err := json.Marshal(v)
		must.Succeed(t, err)
		return string(out)
	}
	const endpoint = "https://sts.googleapis.com/v1/token"
	for _, tt := range []struct {
		name, method, target, contentType, body string
		status                                  int
	}{
		{"form", "POST", endpoint, "application/x-www-form-urlencoded", exchangeForm(gkeAudience, token).Encode(), 200},
		{"form, region", "POST", "https://sts.europe-west1.rep.googleapis.com/v1/token", "application/x-www-form-urlencoded", exchangeForm(gkeAudience, token).Encode(), 200},
		{"JSON", "POST", endpoint, "application/json; charset=utf-8", text(camel), 200},
		{"JSON as in the RFC", "POST", endpoint, "application/json", text(snake), 200},
		{"JSON list", "POST", endpoint, "application/json", "[]", 400},
		{"JSON number", "POST", endpoint, "application/json", `{"grantType":1}`, 400},
		{"text", "POST", endpoint, "text/plain", text(camel), 400},
		{"no type", "POST", endpoint, "", text(camel), 400},
		{"form with a bad escape", "POST", endpoint, "application/x-www-form-urlencoded", "audience=%zz", 400},
		{"two megabytes", "POST", endpoint, "application/x-www-form-urlencoded", "audience=" + strings.Repeat("x", 2<<20), 413},
		{"GET", "GET", endpoint, "", "", 404},
		{"another path", "POST", "https://sts.googleapis.com/v1/introspect", "application/json", "{}", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if a := w.do(t, rig.NewRequest(t, tt.method, tt.target, tt.contentType, tt.body)); a.status != tt.status {
				t.Errorf("HTTP %d %s, want %d", a.status, a.body, tt.status)
			}
		})
	}
}

// TestTokenLives checks the lifetimes of tokens. A federated token is valid as long as the
// exchanged token, and at most an hour. A service account's token is valid as long as requested. An
// expired token and an unknown token get different errors.
func TestTokenLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for life, want := range map[int64]int64{600: 600, 3600: 3600, 86400: 3600} {
			claims := clusterClaims(ksaA)
			claims["exp"] = time.Now().Unix() + life
			a := w.exchange(t, exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(claims))))
			var got struct {
				ExpiresIn int64  `json:"expires_in"`
				Type      string `json:"token_type"`
				Issued    string `json:"issued_token_type"`
			}
			must.Succeed(t, json.Unmarshal([]byte(a.body), &got))
			if got.ExpiresIn != want || got.Type != "Bearer" || got.Issued != "urn:ietf:params:oauth:token-type:access_token" {
				t.Errorf("a proof of %d s: %s", life, a.body)
			}
		}
		ended := clusterClaims(ksaA)
		ended["iat"], ended["exp"] = time.Now().Unix()-600, time.Now().Unix()-1
		if a := w.exchange(t, exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(ended)))); a.text(t, "error") != "invalid_grant" {
			t.Errorf("a proof that ended a second ago: HTTP %d %s", a.status, a.body)
		}
		token := w.federated(t, ksaA)
		short := w.impersonate(t, token, accountA, `{"scope":["`+scopeAll+`"],"lifetime":"600s"}`)
		if got, want := short.text(t, "expireTime"), time.Now().Add(10*time.Minute).UTC().Format(time.RFC3339); got != want {
			t.Errorf("expires at %s, want %s", got, want)
		}
		for _, tt := range []struct {
			wait   time.Duration
			token  string
			status int
			reason string
		}{
			{599 * time.Second, short.text(t, "accessToken"), 200, ""},
			{time.Second, short.text(t, "accessToken"), 401, "ACCESS_TOKEN_EXPIRED"},
			{0, token, 403, ""}, // valid token, not allowed to impersonate
			{50 * time.Minute, token, 401, "ACCESS_TOKEN_EXPIRED"},
			{0, token + "x", 401, "ACCESS_TOKEN_TYPE_UNSUPPORTED"},
			{0, "", 401, "CREDENTIALS_MISSING"},
		} {
			time.Sleep(tt.wait)
			if a := w.impersonate(t, tt.token, controller, `{"scope":["`+scopeAll+`"]}`); a.status != tt.status || !strings.Contains(a.body, tt.reason) {
				t.Errorf("after %s: HTTP %d %s, want %d %s", tt.wait, a.status, a.body, tt.status, tt.reason)
			}
		}
	})
}

func TestAccessTokenRequests(t *testing.T) {
	w := newWorld(t)
	token := w.federated(t, ksaA)
	f := exchangeForm(gkeAudience, minted(t)(w.cluster.Mint(clusterClaims(ksaA))))
	f.Set("scope", "https://www.googleapis.com/auth/devstorage.read_only")
	narrow := w.exchange(t, f).text(t, "access_token")
	const base = "https://iamcredentials.googleapis.com/v1/projects/"
	for _, tt := range []struct {
		name, path, body string
		token            string
		status           int
		code             string
	}{
		{"one hour", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifetime":"3600s"}`, token, 200, ""},
		{"an hour and a second", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifetime":"3601s"}`, token, 400, "INVALID_ARGUMENT"},
		{"nothing", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifetime":"0s"}`, token, 400, "INVALID_ARGUMENT"},
		{"minus", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifetime":"-1s"}`, token, 400, "INVALID_ARGUMENT"},
		{"hours", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifetime":"1h"}`, token, 400, "INVALID_ARGUMENT"},
		{"no scope", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{}`, token, 400, "INVALID_ARGUMENT"},
		{"scope that is none", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["email address"]}`, token, 400, "INVALID_ARGUMENT"},
		{"project in the path", projectID + "/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"]}`, token, 400, "INVALID_ARGUMENT"},
		{"delegate without its path", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"delegates":["` + controller + `"]}`, token, 400, "INVALID_ARGUMENT"},
		{"not JSON", "-/serviceAccounts/" + accountA + ":generateAccessToken", `scope=x`, token, 400, "INVALID_ARGUMENT"},
		{"token of a narrow scope", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"]}`, narrow, 403, "ACCESS_TOKEN_SCOPE_INSUFFICIENT"},
		{"misspelt field", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"scope":["` + scopeAll + `"],"lifeTime":"600s"}`, token, 400, "Unknown name"},
		{"field in capitals", "-/serviceAccounts/" + accountA + ":generateAccessToken", `{"SCOPE":["` + scopeAll + `"]}`, token, 400, "Unknown name"},
		{"another method", "-/serviceAccounts/" + accountA + ":signJwt", `{}`, token, 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rig.NewRequest(t, http.MethodPost, base+tt.path, "application/json", tt.body)
			r.Header.Set("Authorization", "Bearer "+tt.token)
			if a := w.do(t, r); a.status != tt.status || !strings.Contains(a.body, tt.code) {
				t.Errorf("HTTP %d %s, want %d %s", a.status, a.body, tt.status, tt.code)
			}
		})
	}
}

// TestChangesAreInForce checks which issued tokens become invalid if an object is disabled or
// deleted, as Google documents. A new object with the name of a deleted one must not inherit its
// permissions.
func TestChangesAreInForce(t *testing.T) {
	w := newWorld(t)
	body := `{"scope":["` + scopeAll + `"]}`
	inPool := func() answer {
		return w.exchange(t, exchangeForm(poolAudience, minted(t)(w.pool.Mint(poolClaims(ksaA, "tenant-a")))))
	}
	token := inPool().text(t, "access_token")
	pool := worldConfig().GCP.Projects[0].Pools[0]
	put := func(change func(*gcp.Pool)) {
		t.Helper()
		changed := pool
		changed.Providers = append([]gcp.Provider{}, pool.Providers...)
		change(&changed)
		must.Succeed(t, w.GCP().PutPool(projectID, changed))
	}
	status := func() int { return w.impersonate(t, token, accountA, body).status }
	put(func(p *gcp.Pool) { p.Providers[0].Disabled = true })
	if a := inPool(); a.text(t, "error") != "invalid_target" || status() != http.StatusOK {
		t.Errorf("provider disabled: exchange %s, use HTTP %d", a.body, status())
	}
	put(func(p *gcp.Pool) { p.Disabled = true })
	if a := inPool(); a.text(t, "error") != "invalid_target" || status() != http.StatusUnauthorized {
		t.Errorf("pool disabled: exchange %s, use HTTP %d", a.body, status())
	}
	put(func(*gcp.Pool) {})
	if status() != http.StatusOK {
		t.Errorf("pool enabled again: use HTTP %d", status())
	}
	must.Succeed(t, w.GCP().DeletePool(projectID, "tenants"))
	put(func(*gcp.Pool) {})
	if status() != http.StatusUnauthorized {
		t.Errorf("pool made anew: use HTTP %d", status())
	}

	asA := w.accountToken(t, ksaA, accountA)
	must.Succeed(t, w.GCP().DeleteServiceAccount(projectID, accountA))
	if a := w.impersonate(t, asA, controller, body); a.status != http.StatusUnauthorized {
		t.Errorf("token of a deleted account: HTTP %d", a.status)
	}
	again := worldConfig().GCP.Projects[0].ServiceAccounts[0]
	again.UniqueID = ""
	must.Succeed(t, w.GCP().PutServiceAccount(projectID, again))
	if a := w.impersonate(t, asA, controller, body); a.status != http.StatusUnauthorized {
		t.Errorf("former token of an account of the same name: HTTP %d", a.status)
	}
	if a := w.impersonate(t, w.accountToken(t, ksaA, accountA), controller, body); a.status != http.StatusForbidden {
		t.Errorf("a new account has inherited: HTTP %d", a.status)
	}
}

// TestUploadedKeys checks that uploaded keys replace the keys that the issuer publishes. With
// uploaded keys, the issuer need not be reachable.
func TestUploadedKeys(t *testing.T) {
	w := newWorld(t)
	hidden, err := oidc.NewIssuer("https://kubernetes.default.svc.cluster.local", oidc.ES256)
	must.Succeed(t, err)
	put := func(jwks []byte) {
		err := w.GCP().PutCluster(projectID, gcp.Cluster{Location: "europe-west1", Name: "tenants", Issuer: hidden.URL(), JWKS: jwks})
		must.Succeed(t, err)
	}
	exchange := func() answer {
		return w.exchange(t, exchangeForm(gkeAudience, minted(t)(hidden.Mint(clusterClaims(ksaA)))))
	}
	put(nil)
	if a := exchange(); a.text(t, "error_description") != "Error connecting to the given credential's issuer." {
		t.Errorf("unreachable: %s", a.body)
	}
	put(hidden.JWKS())
	if a := exchange(); a.status != http.StatusOK {
		t.Errorf("uploaded: %s", a.body)
	}
	put(w.pool.JWKS())
	if a := exchange(); a.text(t, "error_description") != "Unable to verify the ID Token signature." {
		t.Errorf("other keys: %s", a.body)
	}
}

// TestUniverses checks that the names, tokens and hosts of one universe are not valid in another.
func TestUniverses(t *testing.T) {
	w := newWorld(t)
	err := w.GCP().AddProject(gcp.Project{
		ID: "eu0:sovereign-project", Number: "999999999999", UniverseDomain: "apis-sovereign.example",
		Pools:           worldConfig().GCP.Projects[0].Pools,
		ServiceAccounts: []gcp.ServiceAccount{{Email: "tenant-a-bucket@sovereign-project.eu0.iam.gserviceaccount.com"}},
	})
	must.Succeed(t, err)
	audience := strings.Replace(poolAudience, projectNumber, "999999999999", 1)
	claims := poolClaims(ksaA, "tenant-a")
	claims["aud"] = audience
	form := exchangeForm(audience, minted(t)(w.pool.Mint(claims))).Encode()
	post := func(host string) answer {
		return w.do(t, rig.NewRequest(t, http.MethodPost, "https://"+host+"/v1/token", "application/x-www-form-urlencoded", form))
	}
	if a := post("sts.googleapis.com"); a.text(t, "error") != "invalid_target" {
		t.Errorf("the public universe knows it: %s", a.body)
	}
	a := post("sts.apis-sovereign.example")
	if a.status != http.StatusOK {
		t.Fatalf("HTTP %d %s", a.status, a.body)
	}
	if b := w.impersonate(t, a.text(t, "access_token"), accountA, `{"scope":["`+scopeAll+`"]}`); b.status != http.StatusUnauthorized {
		t.Errorf("its token is known in the public universe: HTTP %d", b.status)
	}
	for host, want := range map[string]bool{
		"iamcredentials.apis-sovereign.example": true, "storage.apis-sovereign.example": true, "sts.europe-west1.rep.apis-sovereign.example": false,
		"sts.apis-other.example": false,
	} {
		if got := w.GCP().Service(host) != nil; got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}

// TestOtherUniverse uses Cloud de Confiance, a universe whose names differ in form from those of
// the public universe. It checks the names of a pool, accounts, clusters, registries and
// repositories.
func TestOtherUniverse(t *testing.T) {
	const (
		id      = "s3ns:sovereign-project"
		pool    = "sovereign-project.s3ns.svc.id.goog"
		cluster = "https://container.s3nsapis.fr/v1/projects/" + id + "/locations/u-france-east1/clusters/tenants"
		good    = "identitynamespace:" + pool + ":" + cluster
		robot   = "tenant-a-bucket@sovereign-project.s3ns.iam.gserviceaccount.com"
		compute = "999999999999-compute@developer.s3ns-system.iam.gserviceaccount.com"
		image   = "/v2/s3ns/sovereign-project/tenant-a/app/manifests/1"
	)
	w := newWorld(t)
	w.withData(t)
	granted := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w.GCP().ServeStorage(granted)
	w.GCP().ServeRegistry(func(gcp.Registry) http.Handler { return granted })
	err := w.GCP().AddProject(gcp.Project{
		ID: id, Number: "999999999999", UniverseDomain: "s3nsapis.fr",
		Clusters: []gcp.Cluster{{Location: "u-france-east1", Name: "tenants", Issuer: clusterIssuer}},
		ServiceAccounts: []gcp.ServiceAccount{
			{Email: robot, Bindings: bind("roles/iam.workloadIdentityUser", "serviceAccount:"+pool+"[tenant-a/tenant-a-bucket-sa]")}, {Email: compute},
		},
		Repositories: []gcp.Repository{{Location: "u-france-east1", Name: "tenant-a", Bindings: bind("roles/artifactregistry.reader", "serviceAccount:"+robot)}},
		Buckets:      []gcp.Bucket{{Name: "sovereign-bucket", Bindings: bind("roles/storage.objectViewer", "serviceAccount:"+robot)}},
	})
	must.Succeed(t, err)
	exchange := func(host, audience, aud string) answer {
		token := minted(t)(w.cluster.Mint(oidc.Claims{"sub": ksaA, "aud": aud}))
		return w.do(t, rig.NewRequest(t, http.MethodPost, "https://"+host+"/v1/token", "application/x-www-form-urlencoded", exchangeForm(audience, token).Encode()))
	}
	for _, tt := range []struct{ name, host, audience, aud, code string }{
		{"names of the universe", "sts.s3nsapis.fr", good, pool, ""},
		{"public universe", "sts.googleapis.com", good, pool, "invalid_request"},
		{"pool as in the public universe", "sts.s3nsapis.fr", "identitynamespace:" + id + ".svc.id.goog:" + cluster, id + ".svc.id.goog", "invalid_target"},
		{"cluster as in the public universe", "sts.s3nsapis.fr", strings.Replace(good, "s3nsapis.fr", "googleapis.com", 1), pool, "invalid_request"},
		{"proof for a pool of the public universe", "sts.s3nsapis.fr", good, id + ".svc.id.goog", "invalid_grant"},
		{"public project", "sts.s3nsapis.fr", strings.Replace(gkeAudience, "googleapis.com", "s3nsapis.fr", 1), gkePool, "invalid_target"},
	} {
		if a := exchange(tt.host, tt.audience, tt.aud); a.text(t, "error") != tt.code {
			t.Errorf("%s: HTTP %d %s", tt.name, a.status, a.body)
		}
	}
	r := rig.NewRequest(t, http.MethodPost, "https://iamcredentials.s3nsapis.fr/v1/projects/-/serviceAccounts/"+robot+":generateAccessToken", "application/json", `{"scope":["`+scopeAll+`"]}`)
	r.Header.Set("Authorization", "Bearer "+exchange("sts.s3nsapis.fr", good, pool).text(t, "access_token"))
	token := "Bearer " + w.do(t, r).text(t, "accessToken")
	// The image imageOpen and the bucket open.bucket exist only in the public universe.
	for target, want := range map[string]int{
		"https://u-france-east1-docker.s3nsregistry.fr" + image:                          http.StatusOK,
		"https://u-france-east1-docker.s3nsregistry.fr/v2/" + imageOpen + "/manifests/1": http.StatusNotFound,
		"https://" + dockerHost + image:                                                  http.StatusUnauthorized,
		"https://storage.s3nsapis.fr/sovereign-bucket/a":                                 http.StatusOK,
		"https://storage.s3nsapis.fr/open.bucket/a":                                      http.StatusNotFound,
		"https://storage.googleapis.com/sovereign-bucket/a":                              http.StatusUnauthorized,
	} {
		if a := w.get(t, target, token); a.status != want {
			t.Errorf("%s: HTTP %d %s, want %d", target, a.status, a.body, want)
		}
	}
	if w.GCP().Service("u-germany-northeast1-docker.pkg-berlin-build0.goog") != nil || w.GCP().Service("us-docker.s3nsregistry.fr") != nil {
		t.Error("hosts are answered for that are of no universe here, or of no location")
	}
}

// TestFaults checks that each service answers injected faults in its own error format. A throttled
// request's answer must say how long to wait.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	metadata := func() *http.Request {
		r := rig.NewRequest(t, http.MethodGet, "http://metadata.google.internal/computeMetadata/v1/project/project-id", "", "")
		r.Header.Set("Metadata-Flavor", "Google")
		return r
	}
	calls := map[string]func() *http.Request{
		gcp.ServiceSTS: func() *http.Request {
			return rig.NewRequest(t, http.MethodPost, "https://sts.googleapis.com/v1/token", "application/json", "{}")
		},
		gcp.ServiceIAMCredentials: func() *http.Request {
			return rig.NewRequest(t, http.MethodPost, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/x:generateAccessToken", "application/json", "{}")
		},
		gcp.ServiceMetadata: metadata,
		gcp.ServiceRegistry: func() *http.Request { return rig.NewRequest(t, http.MethodGet, "https://gcr.io/v2/", "", "") },
		gcp.ServiceStorage: func() *http.Request {
			return rig.NewRequest(t, http.MethodGet, "https://storage.googleapis.com/storage/v1/b/x/o", "", "")
		},
	}
	for service, call := range calls {
		for kind, want := range map[fault.Kind]int{fault.Throttle: 429, fault.Unavailable: 503, fault.InternalFailure: 500, fault.Malformed: 200} {
			w.Faults().Clear()
			f := fault.Fault{Service: service, Kind: kind}
			if kind == fault.Throttle {
				f.RetryAfter = 7 * time.Second
			}
			if _, err := w.Faults().Add(f); err != nil {
				t.Fatal(err)
			}
			a := w.do(t, call())
			if a.status != want || (a.header.Get("Retry-After") == "7") != (kind == fault.Throttle) {
				t.Errorf("%s, %s: HTTP %d, Retry-After %q", service, kind, a.status, a.header.Get("Retry-After"))
			}
			if kind == fault.Malformed && service == gcp.ServiceMetadata && !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
				t.Errorf("the metadata server answers %s", a.header.Get("Content-Type"))
			}
		}
		w.Faults().Clear()
		if _, err := w.Faults().Add(fault.Fault{Service: service, Kind: fault.Drop}); err != nil {
			t.Fatal(err)
		}
		if res, err := w.client.Do(call()); err == nil {
			_ = res.Body.Close()
			t.Errorf("%s: HTTP %d in place of a lost connection", service, res.StatusCode)
		}
	}
	w.Faults().Clear()
	if _, err := w.Faults().Add(fault.Fault{Host: gcp.MetadataHost, Kind: fault.Refuse}); err != nil {
		t.Fatal(err)
	}
	w.client.CloseIdleConnections()
	if res, err := w.client.Do(metadata()); err == nil {
		_ = res.Body.Close()
		t.Errorf("the metadata server took a connection: HTTP %d", res.StatusCode)
	}
}
