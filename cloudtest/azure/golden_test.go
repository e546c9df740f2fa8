package azure_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mask hides values that differ from run to run: new IDs, tokens, keys.
func mask(s string) string {
	for pattern, with := range map[string]string{
		`(ID: |Id:|"trace_id":"|"correlation_id":")[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`: "${1}REQUEST-ID",
		`("access_token":"|"refresh_token":"|"n":"|"kid":")[^"]+`:                             "$1…",
		`(\?|&amp;|&)sig=[^"&]+`: "${1}sig=…",
		`(;oid=)[0-9a-f-]+`:      "${1}…",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, with)
	}
	return s
}

// tokenForm returns a form for Entra ID. The form is valid except for the changes, which are given
// in pairs, as alternating names and values. An empty value removes the parameter.
func tokenForm(assertion string, change ...string) string {
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {clientA}, "scope": {storageScope + " openid offline_access profile"},
		"client_assertion": {assertion}, "client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
	}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
		if change[i+1] == "" {
			form.Del(change[i])
		}
	}
	return form.Encode()
}

// TestAnswers compares every kind of answer, byte for byte, with golden files. A changed answer
// needs a changed golden file, which reviewers see.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		const authority = "https://login.microsoftonline.com/"
		token := func(mint func(oidc.Claims) (string, error), change ...any) string {
			t.Helper()
			claims := oidc.Claims{"sub": subjectA, "aud": audience}
			for i := 0; i < len(change); i += 2 {
				claims[change[i].(string)] = change[i+1]
			}
			raw, err := mint(claims)
			must.Succeed(t, err)
			return raw
		}
		post := func(tenant, form string) *http.Request {
			return rig.NewRequest(t, http.MethodPost, authority+tenant+"/oauth2/v2.0/token", formType, form)
		}
		good := token(w.issuer.Mint)
		entra := func(resource string) string {
			t.Helper()
			got, err := assert(t.Context(), transport, authority, directory, clientA, good, resource+"/.default")
			must.Succeed(t, err)
			return got.Token
		}
		get := func(target, token string, header ...string) *http.Request {
			r := rig.NewRequest(t, http.MethodGet, target, "", "")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return r
		}
		exchange := func(token string) *http.Request {
			return rig.NewRequest(t, http.MethodPost, "https://"+shared+"/oauth2/exchange", formType,
				url.Values{"grant_type": {"access_token"}, "service": {shared}, "tenant": {directory}, "access_token": {token}}.Encode())
		}
		scoped := func(refresh, scope string) *http.Request {
			return rig.NewRequest(t, http.MethodPost, "https://"+shared+"/oauth2/token", formType,
				url.Values{"grant_type": {"refresh_token"}, "service": {shared}, "scope": {scope}, "refresh_token": {refresh}}.Encode())
		}
		aad, storage := entra(registryResource), entra(storageResource)
		refresh := w.exchange(t, client, shared, "access_token", aad).Token
		access := w.access(t, client, shared, refresh, "repository:tenant-a/app:pull").Token
		const blobPath = "/v2/tenant-a/app/blobs/" + blobDigest
		w.store(t, shared, blobPath, "a layer")
		const metadata = "http://" + azure.MetadataHost + "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com"
		version := []string{"X-Ms-Version", storageVersion}
		crypto := entra(vaultResource)
		officer, err := assert(t.Context(), transport, authority, directory, pusher, token(w.issuer.Mint, "sub", subjectPusher), vaultResource+"/.default")
		must.Succeed(t, err)
		key := func(method, path, token, body string) *http.Request {
			r := rig.NewRequest(t, method, "https://"+tenantKeys+"/keys/"+path+"?api-version=7.4", "application/json", body)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return r
		}
		for name, change := range map[string]string{"signing": `{"key_ops":["sign"]}`, "disabled": `{"attributes":{"enabled":false}}`, "late": `{"attributes":{"exp":1}}`, "early": `{"attributes":{"nbf":4000000000}}`} {
			w.vault(t, client, http.MethodPost, tenantKeys+"/keys/"+name+"/create", officer.Token, `{"kty":"RSA"}`)
			w.vault(t, client, http.MethodPatch, tenantKeys+"/keys/"+name, officer.Token, change)
		}
		for _, name := range []string{"deleted", "to-delete"} {
			w.vault(t, client, http.MethodPost, tenantKeys+"/keys/"+name+"/create", officer.Token, `{"kty":"RSA"}`)
		}
		w.vault(t, client, http.MethodDelete, tenantKeys+"/keys/deleted", officer.Token, "")
		sealed := block("RSA-OAEP-256", w.seal(t, client, keyA, crypto))
		now := time.Now().Unix()
		tests := map[string]*http.Request{
			"entra-token":                     post(directory, tokenForm(good)),
			"entra-unknown-tenant":            post(bare, tokenForm(good)),
			"entra-not-a-tenant":              post("no_tenant", tokenForm(good)),
			"entra-common":                    post("common", tokenForm(good)),
			"entra-unknown-application":       post(directory, tokenForm(good, "client_id", directory)),
			"entra-no-grant-type":             post(directory, tokenForm(good, "grant_type", "")),
			"entra-other-grant-type":          post(directory, tokenForm(good, "grant_type", "password")),
			"entra-no-client":                 post(directory, tokenForm(good, "client_id", "")),
			"entra-no-scope":                  post(directory, tokenForm(good, "scope", "")),
			"entra-scope-without-default":     post(directory, tokenForm(good, "scope", "https://storage.azure.com/user_impersonation")),
			"entra-scope-of-nothing":          post(directory, tokenForm(good, "scope", "openid")),
			"entra-scopes-of-two-resources":   post(directory, tokenForm(good, "scope", storageScope+" https://vault.azure.net/.default")),
			"entra-unknown-resource":          post(directory, tokenForm(good, "scope", "https://unknown.example/.default")),
			"entra-no-credentials":            post(directory, tokenForm(good, "client_assertion", "", "client_assertion_type", "")),
			"entra-no-assertion":              post(directory, tokenForm(good, "client_assertion", "")),
			"entra-no-assertion-type":         post(directory, tokenForm(good, "client_assertion_type", "")),
			"entra-other-assertion-type":      post(directory, tokenForm(good, "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer")),
			"entra-secret":                    post(directory, tokenForm(good, "client_secret", "hunter2")),
			"entra-parameter-twice":           post(directory, tokenForm(good)+"&client_id="+clientB),
			"entra-not-a-form":                rig.NewRequest(t, http.MethodPost, authority+directory+"/oauth2/v2.0/token", "application/json", "{}"),
			"entra-other-subject":             post(directory, tokenForm(token(w.issuer.Mint, "sub", subjectB))),
			"entra-subject-in-another-case":   post(directory, tokenForm(token(w.issuer.Mint, "sub", strings.ToUpper(subjectA)))),
			"entra-other-audience":            post(directory, tokenForm(token(w.issuer.Mint, "aud", "other"))),
			"entra-other-issuer":              post(directory, tokenForm(token(w.rogue.Mint))),
			"entra-application-without-trust": post(directory, tokenForm(good, "client_id", bare)),
			"entra-expired":                   post(directory, tokenForm(token(w.issuer.Mint, "iat", now-7200, "nbf", now-7200, "exp", now-3600))),
			"entra-lives-too-long":            post(directory, tokenForm(token(w.issuer.Mint, "exp", now+100000))),
			"entra-forged":                    post(directory, tokenForm(token(w.issuer.Forge))),
			"entra-unknown-key":               post(directory, tokenForm(token(w.rogue.Mint, "iss", issuerURL))),
			"entra-unsigned":                  post(directory, tokenForm(token(w.issuer.MintUnsigned))),
			"entra-not-a-token":               post(directory, tokenForm("hello")),
			"entra-get":                       get(authority+directory+"/oauth2/v2.0/token", ""),
			"entra-configuration":             get(authority+directory+"/v2.0/.well-known/openid-configuration", ""),
			"entra-configuration-no-tenant":   get(authority+bare+"/v2.0/.well-known/openid-configuration", ""),
			"entra-keys":                      get(authority+directory+"/discovery/v2.0/keys", ""),
			"entra-instance":                  get(authority+"common/discovery/instance?api-version=1.1&authorization_endpoint=https%3A%2F%2Flogin.microsoftonline.us%2Fx%2Foauth2%2Fv2.0%2Fauthorize", ""),
			"acr-exchange":                    exchange(aad),
			"acr-exchange-other-audience":     exchange(storage),
			"acr-exchange-no-token":           exchange(""),
			"acr-exchange-get":                get("https://"+shared+"/oauth2/exchange", ""),
			"acr-token":                       scoped(refresh, "repository:tenant-a/app:pull"),
			"acr-token-other-repository":      scoped(refresh, "repository:tenant-b/app:pull,push"),
			"acr-token-bad-refresh-token":     scoped(aad, "repository:tenant-a/app:pull"),
			"registry-ping-no-token":          get("https://"+shared+"/v2/", ""),
			"registry-ping":                   get("https://"+shared+"/v2/", access),
			"registry-catalog-no-token":       get("https://"+shared+"/v2/_catalog", ""),
			"registry-no-token":               get("https://"+shared+"/v2/tenant-a/app/manifests/1", ""),
			"registry-other-repository":       get("https://"+shared+"/v2/tenant-b/app/manifests/1", access),
			"registry-bad-token":              get("https://"+shared+"/v2/tenant-a/app/manifests/1", refresh),
			"registry-unsupported":            get("https://"+shared+"/v2/x/y", access),
			"registry-blob":                   get("https://"+shared+blobPath, access),
			"data-no-signature":               get("https://shared.westeurope.data.azurecr.io"+blobPath, ""),
			"data-with-token":                 get("https://shared.westeurope.data.azurecr.io"+blobPath, access),
			"blob-nobody":                     get("https://"+artifacts+"/tenant-a/b", "", version...),
			"blob-nobody-no-version":          get("https://"+artifacts+"/tenant-a/b", ""),
			"blob-other-audience":             get("https://"+artifacts+"/tenant-a/b", aad, version...),
			"blob-no-version":                 get("https://"+artifacts+"/tenant-a/b", storage),
			"blob-other-container":            get("https://"+artifacts+"/tenant-b/b", storage, version...),
			"blob-key":                        get("https://"+artifacts+"/tenant-a/b", "", "X-Ms-Version", storageVersion, "Authorization", "SharedKey artifacts:c2ln"),
			"blob-bad-path":                   get("https://"+artifacts+"/tenant-a/..%2Fb", storage, version...),
			"blob-unsupported":                get("https://"+artifacts+"/tenant-a?restype=container&comp=acl", storage, version...),
			"vault-no-token":                  key("POST", "tenant-a/decrypt", "", ""),
			"vault-bad-token":                 key("POST", "tenant-a/decrypt", good, sealed),
			"vault-other-audience":            key("POST", "tenant-a/decrypt", storage, sealed),
			"vault-other-key":                 key("POST", "tenant-b/0123456789abcdef0123456789abcdef/decrypt", crypto, sealed),
			"vault-decrypt":                   key("POST", "tenant-a/decrypt", crypto, sealed),
			"vault-decrypt-other-ciphertext":  key("POST", "late/decrypt", officer.Token, sealed),
			"vault-decrypt-other-algorithm":   key("POST", "tenant-a/decrypt", crypto, block("RSA1_5", "AAAA")),
			"vault-decrypt-not-base64":        key("POST", "tenant-a/decrypt", crypto, block("RSA-OAEP", "+/+/")),
			"vault-decrypt-disabled":          key("POST", "disabled/decrypt", officer.Token, sealed),
			"vault-decrypt-with-signing-key":  key("POST", "signing/decrypt", officer.Token, sealed),
			"vault-encrypt-early":             key("POST", "early/encrypt", officer.Token, block("RSA-OAEP", "AAAA")),
			"vault-encrypt-late":              key("POST", "late/encrypt", officer.Token, block("RSA-OAEP", "AAAA")),
			"vault-key":                       key("GET", "tenant-a", crypto, ""),
			"vault-key-deleted":               key("GET", "deleted", officer.Token, ""),
			"vault-key-bad-name":              key("GET", "tenant_a", officer.Token, ""),
			"vault-key-no-version":            get("https://"+keyA, crypto),
			"vault-create":                    key("POST", "new/create", officer.Token, `{"kty":"RSA","key_ops":["encrypt","decrypt"],"attributes":{"exp":4000000000}}`),
			"vault-create-deleted":            key("POST", "deleted/create", officer.Token, `{"kty":"RSA"}`),
			"vault-delete":                    key("DELETE", "to-delete", officer.Token, ""),
			"vault-unsupported":               key("PUT", "tenant-a", officer.Token, ""),
			"imds-token":                      get(metadata, "", "Metadata", "true"),
			"imds-no-header":                  get(metadata, ""),
			"imds-unknown-identity":           get(metadata+"&client_id="+pusher, "", "Metadata", "true"),
		}
		faulty := map[string]string{"entra-token": azure.ServiceEntra, "acr-token": azure.ServiceRegistryTokens, "blob-nobody": azure.ServiceBlob, "vault-key": azure.ServiceKeyVault, "imds-token": azure.ServiceIMDS}
		files := rig.Golden{Dir: filepath.Join("testdata", "answers"), Update: *update, Mask: mask}
		check := func(name string, r *http.Request) {
			t.Helper()
			res, err := client.Do(r)
			must.Succeed(t, err)
			files.Answer(t, name, res)
		}
		for name, r := range tests {
			check(name, r)
		}
		for name, service := range faulty {
			for kind, suffix := range map[fault.Kind]string{fault.Throttle: "throttled", fault.Unavailable: "unavailable", fault.InternalFailure: "failed", fault.Malformed: "malformed"} {
				f := fault.Fault{Service: service, Kind: kind, Count: 1}
				if kind == fault.Throttle {
					f.RetryAfter = 5 * time.Second
				}
				if _, err := w.Faults().Add(f); err != nil {
					t.Fatal(err)
				}
				r := tests[name].Clone(t.Context())
				if r.GetBody != nil {
					r.Body, _ = r.GetBody()
				}
				check(service+"-"+suffix, r)
			}
		}
		files.Complete(t)
	})
}

// TestNoSecrets makes granted and refused calls with every kind of secret. None of the secrets may
// be in the journal or in a refusal.
func TestNoSecrets(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	good, bad := w.mint(t, subjectA, audience), w.mint(t, subjectB, audience)
	aad, storage := w.entra(t, clientA, subjectA, registryResource), w.entra(t, clientA, subjectA, storageResource)
	refresh := w.exchange(t, client, shared, "access_token", aad).Token
	access := w.access(t, client, shared, refresh, "repository:tenant-a/app:pull").Token
	crypto, dataKey := w.entra(t, clientA, subjectA, vaultResource), "ZGF0YSBrZXkgb2YgdGVuYW50IEE"
	secrets := map[string]string{
		"assertion": good, "refused assertion": bad, "Entra's token": aad, "token for storage": storage, "refresh token": refresh, "access token": access,
		"token for key vaults": crypto, "data key": dataKey,
		"client secret": "hunter2-hunter2", "account key's signature": "c2lnbmF0dXJl", "shared access signature": "x1y2z3x1y2z3",
	}
	var said strings.Builder
	send := func(r *http.Request) {
		t.Helper()
		res, err := client.Do(r)
		must.Succeed(t, err)
		if body := rig.ReadAll(t, res); res.StatusCode >= 400 {
			fmt.Fprintln(&said, body, res.Header)
		}
	}
	const tokens = "https://login.microsoftonline.com/" + directory + "/oauth2/v2.0/token"
	for _, form := range []string{tokenForm(good), tokenForm(bad), tokenForm(good, "client_secret", "hunter2-hunter2"), tokenForm(storage), tokenForm(good) + "&client_assertion=" + bad} {
		send(rig.NewRequest(t, http.MethodPost, tokens, formType, form))
	}
	w.exchange(t, client, contoso, "access_token", storage)
	w.exchange(t, client, contoso, "access_token", good)
	w.access(t, client, contoso, refresh, "repository:a/b:pull")
	w.access(t, client, shared, good, "repository:a/b:pull")
	for _, token := range []string{good, aad, refresh, access} {
		r := rig.NewRequest(t, http.MethodGet, "https://"+shared+"/v2/tenant-b/app/manifests/1", "", "")
		r.Header.Set("Authorization", "Bearer "+token)
		send(r)
		w.blob(t, client, http.MethodGet, "/tenant-b/x", token)
	}
	w.blob(t, client, http.MethodGet, "/tenant-a/x?sp=r&sig=x1y2z3x1y2z3", storage)
	w.blob(t, client, http.MethodGet, "/tenant-a/x", "", "Authorization", "SharedKey artifacts:c2lnbmF0dXJl")
	for _, key := range []string{keyA, keyB} {
		for _, body := range []string{block("RSA-OAEP", dataKey), block("RSA1_5", dataKey), block("RSA-OAEP", dataKey+"="), dataKey} {
			for _, token := range []string{crypto, storage, good} {
				if _, text, header := w.vault(t, client, http.MethodPost, key+"/encrypt", token, body); !strings.Contains(text, `"kid"`) {
					fmt.Fprintln(&said, text, header)
				}
			}
		}
	}
	calls := w.Journal().Calls(journal.Filter{})
	if len(calls) < 20 {
		t.Fatalf("%d calls", len(calls))
	}
	fmt.Fprintf(&said, "%+v", calls)
	for name, secret := range secrets {
		if strings.Contains(said.String(), secret) || strings.Contains(said.String(), secret[strings.LastIndexByte(secret, '.')+1:]) {
			t.Errorf("the %s is in the journal or in an answer", name)
		}
	}
}
