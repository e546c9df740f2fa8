package azure_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const storageScope = "https://storage.azure.com/.default"

// once returns the options of an SDK client that never retries. So the journal has only one entry
// for each call of a test.
func once(transport http.RoundTripper, authority string) azcore.ClientOptions {
	return azcore.ClientOptions{
		Transport: &http.Client{Transport: transport, Timeout: time.Minute}, Retry: policy.RetryOptions{MaxRetries: -1},
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: authority},
	}
}

// assert gets a token with the unmodified SDK's ClientAssertionCredential.
func assert(ctx context.Context, transport http.RoundTripper, authority, tenant, client, assertion, scope string) (azcore.AccessToken, error) {
	credential, err := azidentity.NewClientAssertionCredential(tenant, client,
		func(context.Context) (string, error) { return assertion, nil },
		&azidentity.ClientAssertionCredentialOptions{ClientOptions: once(transport, authority), DisableInstanceDiscovery: strings.Contains(authority, "example")})
	if err != nil {
		return azcore.AccessToken{}, err
	}
	return credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
}

// entraOutcome is a refusal as a client sees it. The zero value means that a token was issued.
type entraOutcome struct {
	Status int
	Error  string
	Code   int
}

func entraOutcomeOf(t *testing.T, err error) entraOutcome {
	t.Helper()
	if err == nil {
		return entraOutcome{}
	}
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		t.Fatalf("no answer of Entra ID: %v", err)
	}
	var body struct {
		Error            string `json:"error"`
		ErrorDescription string `json:"error_description"`
		ErrorCodes       []int  `json:"error_codes"`
	}
	must.Succeed(t, json.NewDecoder(failed.RawResponse.Body).Decode(&body))
	if len(body.ErrorCodes) != 1 || !strings.HasPrefix(body.ErrorDescription, fmt.Sprintf("AADSTS%d: ", body.ErrorCodes[0])) {
		t.Errorf("codes %v, description %q", body.ErrorCodes, body.ErrorDescription)
	}
	return entraOutcome{failed.RawResponse.StatusCode, body.Error, body.ErrorCodes[0]}
}

// claimsOf reads a token's claims without verifying the token. No client should do that.
func claimsOf(t *testing.T, raw string) map[string]any {
	t.Helper()
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		t.Fatalf("not a JWT: %q", raw)
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	must.Succeed(t, err)
	claims := map[string]any{}
	must.Succeed(t, json.Unmarshal(body, &claims))
	return claims
}

// TestEntraTokenMatrix checks Entra ID's answers to good and bad tokens.
func TestEntraTokenMatrix(t *testing.T) {
	w := newWorld(t)
	transport := w.Transport()
	rotated, err := oidc.NewIssuer("https://issuer.rotated.example", oidc.RS256)
	must.Succeed(t, err)
	elliptic, err := oidc.NewIssuer("https://issuer.elliptic.example", oidc.ES256)
	must.Succeed(t, err)
	for _, i := range []*oidc.Issuer{rotated, elliptic} {
		must.Succeed(t, w.HandleIssuer(i))
		err := w.Azure().PutFederatedCredential(directory, clientA, azure.FederatedCredential{Name: i.Host()[7:14], Issuer: i.URL(), Subject: subjectA})
		must.Succeed(t, err)
	}
	for name, issuer := range map[string]string{"absent": "https://issuer.absent.example", "entra": "https://sts.windows.net/x"} {
		err := w.Azure().PutFederatedCredential(directory, clientA, azure.FederatedCredential{Name: name, Issuer: issuer, Subject: subjectA})
		must.Succeed(t, err)
	}
	mint := func(change ...any) func() (string, error) {
		claims := oidc.Claims{"sub": subjectA, "aud": audience}
		for i := 0; i < len(change); i += 2 {
			claims[change[i].(string)] = change[i+1]
		}
		return func() (string, error) { return w.issuer.Mint(claims) }
	}
	by := func(mint func(oidc.Claims) (string, error)) func() (string, error) {
		return func() (string, error) { return mint(oidc.Claims{"sub": subjectA, "aud": audience}) }
	}
	old, err := by(rotated.Mint)()
	must.Succeed(t, err)
	must.Succeed(t, rotated.Rotate(true))
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	client := func(code int) entraOutcome { return entraOutcome{401, "invalid_client", code} }
	request := func(code int) entraOutcome { return entraOutcome{400, "invalid_request", code} }
	tests := []struct {
		name           string
		tenant, client string
		token          func() (string, error)
		want           entraOutcome
		reason         string // text that the journal's reason must contain
	}{
		{"good", directory, clientA, mint(), entraOutcome{}, ""},
		{"good, by domain", "contoso.onmicrosoft.com", clientA, mint(), entraOutcome{}, ""},
		{"good, audience as a list", directory, clientA, mint("aud", []string{audience}), entraOutcome{}, ""},
		{"good, within leeway of its end", directory, clientA, mint("exp", ago(4*time.Minute), "iat", ago(time.Hour), "nbf", ago(time.Hour)), entraOutcome{}, ""},
		{"good, within leeway of its beginning", directory, clientA, mint("nbf", ago(-4*time.Minute), "iat", ago(-4*time.Minute)), entraOutcome{}, ""},
		{"good, lives for a day and an hour", directory, clientA, mint("iat", ago(0), "exp", ago(-25*time.Hour)), entraOutcome{}, ""},
		{"other tenant", directory, clientA, mint("sub", subjectB), client(700213), "subject '" + subjectB + "'"},
		{"other tenant's application", directory, clientB, mint(), client(700213), "subject '" + subjectA + "'"},
		{"subject in another case", directory, clientA, mint("sub", strings.ToUpper(subjectA)), client(7002138), "not with case-sensitive"},
		{"subject with a suffix", directory, clientA, mint("sub", subjectA+"x"), client(700213), ""},
		{"subject with white space", directory, clientA, mint("sub", subjectA+" "), client(700213), ""},
		{"wrong audience", directory, clientA, mint("aud", "https://kubernetes.default.svc"), client(700212), "audience"},
		{"audience in another case", directory, clientA, mint("aud", strings.ToLower(audience)), client(700212), "audience"},
		{"audience of another cloud", directory, clientA, mint("aud", audience+"USGov"), client(700212), "audience"},
		{"several audiences", directory, clientA, mint("aud", []string{audience, "other"}), request(50027), "several audiences"},
		{"wrong issuer", directory, clientA, by(w.rogue.Mint), client(700211), "issuer 'https://issuer.tenant-b.example'"},
		{"issuer with a trailing slash", directory, clientA, mint("iss", issuerURL+"/"), client(700211), ""},
		{"issuer in another case", directory, clientA, mint("iss", strings.Replace(issuerURL, "/tenant", "/Tenant", 1)), client(700211), ""},
		{"issuer that does not answer", directory, clientA, mint("iss", "https://issuer.absent.example"), request(50166), "unreachable"},
		{"issuer that is Entra itself", directory, clientA, mint("iss", "https://sts.windows.net/x"), client(700222), ""},
		{"expired", directory, clientA, mint("exp", ago(time.Hour), "iat", ago(2*time.Hour), "nbf", ago(2*time.Hour)), client(700024), "token has expired"},
		{"not yet valid", directory, clientA, mint("nbf", ago(-time.Hour)), client(700024), "not valid yet"},
		{"lives too long", directory, clientA, mint("iat", ago(0), "exp", ago(-25*time.Hour-time.Minute)), request(70023), "lifetime"},
		{"forged", directory, clientA, by(w.issuer.Forge), client(700027), "signature does not verify"},
		{"of a retired key", directory, clientA, func() (string, error) { return old, nil }, client(700027), "no such key"},
		{"unsigned", directory, clientA, by(w.issuer.MintUnsigned), request(5002738), "'none'"},
		{"of an elliptic key", directory, clientA, by(elliptic.Mint), request(5002738), "'ES256'"},
		{"no JWT", directory, clientA, func() (string, error) { return "hello world", nil }, request(50027), "no compact signature"},
		{"no subject", directory, clientA, mint("sub", nil), request(50027), "required"},
		{"no end", directory, clientA, mint("exp", nil), request(50027), "exp is required"},
		{"unknown application", directory, otherDirectory, mint(), entraOutcome{400, "unauthorized_client", 700016}, "not found in the directory"},
		{"application without credentials", directory, bare, mint(), client(70025), "no configured federated"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			token, err := tt.token()
			must.Succeed(t, err)
			before := w.Journal().Last()
			got, err := assert(t.Context(), transport, "https://login.microsoftonline.com/", tt.tenant, tt.client, token, storageScope)
			if diff := cmp.Diff(tt.want, entraOutcomeOf(t, err)); diff != "" {
				t.Fatalf("(-want +got):\n%s\n%v", diff, err)
			}
			calls := w.Journal().Calls(journal.Filter{After: before, Service: azure.ServiceEntra, Operation: "Token"})
			if len(calls) != 1 {
				t.Fatalf("%d calls", len(calls))
			}
			call := calls[0]
			if !strings.Contains(call.Reason, tt.reason) || call.Role != tt.client {
				t.Errorf("journal: %+v, want reason %q", call, tt.reason)
			}
			if tt.want.Code != 0 {
				if call.Granted() || call.Principal != "" || call.Code != fmt.Sprintf("AADSTS%d", tt.want.Code) {
					t.Errorf("journal: %+v", call)
				}
				return
			}
			if got.Token == "" || call.Principal != clientA+"@"+directory || call.Subject != subjectA || call.Audience != audience ||
				call.Resource != "https://storage.azure.com" {
				t.Errorf("journal: %+v", call)
			}
		})
	}
}

// TestEntraAccessToken requests a token for every kind of resource in every cloud. It checks the
// claims of the tokens, and the error codes of refusals.
func TestEntraAccessToken(t *testing.T) {
	w := newWorld(t)
	transport := w.Transport()
	const public, us, china = "https://login.microsoftonline.com/", "https://login.microsoftonline.us/", "https://login.partner.microsoftonline.cn/"
	for _, tt := range []struct {
		authority, tenant, audience, resource, issuer string
		code                                          int
	}{
		{public, directory, audience, "https://containerregistry.azure.net", "https://sts.windows.net/", 0},
		{public, directory, audience, "https://management.azure.com", "https://sts.windows.net/", 0},
		{public, directory, audience, "https://management.azure.com/", "https://sts.windows.net/", 0},
		{public, directory, audience, "499b84ac-1321-427f-aa17-267ca6975798", "https://sts.windows.net/", 0},
		{public, directory, audience, "https://eventhubs.azure.net", "https://sts.windows.net/", 0},
		{public, directory, audience, "https://vault.azure.net", "https://sts.windows.net/", 0},
		{public, directory, audience, "https://vault.usgovcloudapi.net", "", 500011},
		{public, directory, audience, "https://management.azure.com.attacker.example", "", 500011},
		{us, usDirectory, audience + "USGov", "https://management.usgovcloudapi.net", "https://sts.windows.net/", 0},
		{us, usDirectory, audience + "USGov", "https://vault.usgovcloudapi.net", "https://sts.windows.net/", 0},
		{us, usDirectory, audience + "USGov", "https://management.azure.com", "", 500011},
		{us, usDirectory, audience, "https://storage.azure.com", "", 700212},
		{china, chinaDirectory, audience + "China", "https://management.chinacloudapi.cn", "https://sts.chinacloudapi.cn/", 0},
		{"https://login.chinacloudapi.cn/", chinaDirectory, audience + "China", "https://vault.azure.cn", "https://sts.chinacloudapi.cn/", 0},
		{china, chinaDirectory, audience + "China", "499b84ac-1321-427f-aa17-267ca6975798", "", 500011},
		{"https://login.azure.example/", ownDirectory, "api://OwnTokenExchange", "https://management.azure.example", "https://sts.azure.example/", 0},
	} {
		got, err := assert(t.Context(), transport, tt.authority, tt.tenant, clientA, w.mint(t, subjectA, tt.audience), tt.resource+"/.default")
		if outcome := entraOutcomeOf(t, err); outcome.Code != tt.code {
			t.Errorf("%s %s: %v, want %d", tt.tenant, tt.resource, err, tt.code)
		}
		if tt.code != 0 || err != nil {
			continue
		}
		if left := time.Until(got.ExpiresOn); left < 59*time.Minute || left > time.Hour {
			t.Errorf("it lives for %s", left)
		}
		claims := claimsOf(t, got.Token)
		if life := claims["exp"].(float64) - claims["iat"].(float64); life != 3600 {
			t.Errorf("from iat to exp %v seconds", life)
		}
		if claims["oid"] == "" || claims["oid"] != claims["sub"] {
			t.Errorf("oid %v, sub %v", claims["oid"], claims["sub"])
		}
		for _, varies := range []string{"iat", "nbf", "exp", "oid", "sub", "uti"} {
			delete(claims, varies)
		}
		issuer := tt.issuer + tt.tenant + "/"
		want := map[string]any{
			"aud": tt.resource, "iss": issuer, "idp": issuer, "appid": clientA, "appidacr": "2", "idtyp": "app", "tid": tt.tenant, "ver": "1.0",
		}
		if diff := cmp.Diff(want, claims); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.resource, diff)
		}
	}
	// A tenant of one cloud is not found through another cloud's authority.
	for authority, tenant := range map[string]string{public: usDirectory, us: directory, china: directory} {
		_, err := assert(t.Context(), transport, authority, tenant, clientA, w.mint(t, subjectA, audience), storageScope)
		if err == nil {
			t.Errorf("%s knows %s", authority, tenant)
		}
	}
}

// TestEntraPublishedKeys checks that the discovery documents and keys of Entra ID are enough to
// verify its access tokens, and to reject tokens of other issuers.
func TestEntraPublishedKeys(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	get := func(target string, into any) {
		t.Helper()
		res, err := client.Do(rig.NewRequest(t, http.MethodGet, target, "", ""))
		must.Succeed(t, err)
		if body := rig.ReadAll(t, res); res.StatusCode != 200 || json.Unmarshal([]byte(body), into) != nil {
			t.Fatalf("%s: HTTP %d %s", target, res.StatusCode, body)
		}
	}
	var instance struct {
		Endpoint string `json:"tenant_discovery_endpoint"`
		Metadata []struct {
			Aliases []string `json:"aliases"`
		} `json:"metadata"`
	}
	get("https://login.microsoftonline.com/common/discovery/instance?api-version=1.1&authorization_endpoint="+
		url.QueryEscape("https://login.microsoftonline.com/"+directory+"/oauth2/v2.0/authorize"), &instance)
	if len(instance.Metadata) != 3 || len(instance.Metadata[0].Aliases) != 4 {
		t.Errorf("metadata %+v", instance.Metadata)
	}
	var discovery struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	get(instance.Endpoint, &discovery)
	if want := "https://login.microsoftonline.com/" + directory + "/v2.0"; discovery.Issuer != want {
		t.Errorf("issuer %q, want %q", discovery.Issuer, want)
	}
	var first struct{ Issuer string }
	get("https://login.microsoftonline.com/"+directory+"/.well-known/openid-configuration", &first)
	if want := "https://sts.windows.net/" + directory + "/"; first.Issuer != want {
		t.Errorf("issuer of version 1.0 %q, want %q", first.Issuer, want)
	}
	var keys json.RawMessage
	get(discovery.JWKSURI, &keys)

	token, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", directory, clientA, w.mint(t, subjectA, audience), storageScope)
	must.Succeed(t, err)
	if err := verifyWith(keys, token.Token); err != nil {
		t.Errorf("an access token: %v", err)
	}
	if err := verifyWith(keys, w.mint(t, subjectA, audience)); err == nil {
		t.Error("another issuer's token passes")
	}
}

// TestWorkloadIdentityCredential uses the SDK's own credential for pods, with a token file as
// Kubernetes projects it. Entra ID must issue a token only for the tenant's own application.
func TestWorkloadIdentityCredential(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(file, []byte(w.mint(t, subjectA, audience)), 0o600))
	get := func(client string) error {
		credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: once(w.Transport(), "https://login.microsoftonline.com/"), TenantID: directory, ClientID: client, TokenFilePath: file,
		})
		must.Succeed(t, err)
		_, err = credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{storageScope}})
		return err
	}
	if err := get(clientA); err != nil {
		t.Error(err)
	}
	if got := entraOutcomeOf(t, get(clientB)); got.Code != 700213 {
		t.Errorf("the other tenant's application: %+v", got)
	}
	calls := w.Journal().Calls(journal.Filter{Service: azure.ServiceEntra, Operation: "Token"})
	if len(calls) != 2 || !calls[0].Granted() || calls[1].Granted() {
		t.Errorf("calls %+v", calls)
	}
}

// TestEntraThrottles checks that the answer to a throttled request says how long to wait.
func TestEntraThrottles(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	if _, err := w.Faults().Add(fault.Fault{Service: azure.ServiceEntra, Operation: "Token", Kind: fault.Throttle, RetryAfter: time.Minute, Count: 1}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, w.Faults().SetQuotas([]fault.Quota{{Service: azure.ServiceEntra, Operation: "Token", PerSecond: 0.0001, Burst: 2, RetryAfter: 7 * time.Second}}))
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {clientA}, "scope": {storageScope}, "client_assertion": {w.mint(t, subjectA, audience)},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}.Encode()
	var got []string
	for range 3 {
		res, err := client.Do(rig.NewRequest(t, http.MethodPost, "https://login.microsoftonline.com/"+directory+"/oauth2/v2.0/token", "application/x-www-form-urlencoded", form))
		must.Succeed(t, err)
		body := rig.ReadAll(t, res)
		if res.StatusCode == 200 {
			body = "a token"
		}
		got = append(got, fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After"), " ", body))
	}
	if diff := cmp.Diff([]string{"429 60 Too Many Requests", "200  a token", "429 7 Too Many Requests"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
