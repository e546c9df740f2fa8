package azure_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
)

const (
	formType         = "application/x-www-form-urlencoded"
	contoso          = "contoso.azurecr.io"
	shared           = "shared.azurecr.io"
	registryResource = "https://containerregistry.azure.net"
	armResource      = "https://management.azure.com"
	nullUser         = "00000000-0000-0000-0000-000000000000"
	blobDigest       = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// answer is the part of an answer that the tests compare.
type answer struct {
	Status int
	Code   string // of the first error
	Token  string
}

func (w *world) ask(t *testing.T, client *http.Client, r *http.Request) answer {
	t.Helper()
	res, err := client.Do(r)
	must.Succeed(t, err)
	var body struct {
		RefreshToken string `json:"refresh_token"`
		AccessToken  string `json:"access_token"`
		Errors       []struct{ Code string }
	}
	text := rig.ReadAll(t, res)
	_ = json.Unmarshal([]byte(text), &body) // an answer that is not JSON has no token and no code
	a := answer{Status: res.StatusCode, Token: body.RefreshToken + body.AccessToken}
	if len(body.Errors) > 0 {
		a.Code = body.Errors[0].Code
	}
	return a
}

func (w *world) exchange(t *testing.T, client *http.Client, host string, change ...string) answer {
	t.Helper()
	form := url.Values{"grant_type": {"access_token"}, "service": {host}}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
	}
	return w.ask(t, client, rig.NewRequest(t, http.MethodPost, "https://"+host+"/oauth2/exchange", formType, form.Encode()))
}

// access gets an access token as container runtimes do.
func (w *world) access(t *testing.T, client *http.Client, host, password string, scopes ...string) answer {
	t.Helper()
	r := rig.NewRequest(t, http.MethodGet, "https://"+host+"/oauth2/token?"+url.Values{"service": {host}, "scope": scopes}.Encode(), "", "")
	r.SetBasicAuth(nullUser, password)
	return w.ask(t, client, r)
}

func (w *world) last(t *testing.T) journal.Call {
	t.Helper()
	calls := w.Journal().Calls(journal.Filter{After: w.Journal().Last() - 1})
	if len(calls) != 1 {
		t.Fatal("no call")
	}
	return calls[0]
}

func TestExchange(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	other, err := assert(t.Context(), w.Transport(), "https://login.microsoftonline.com/", otherDirectory, clientA, w.mint(t, subjectA, audience), registryResource+"/.default")
	must.Succeed(t, err)
	good := w.entra(t, clientA, subjectA, registryResource)
	forged, err := w.issuer.Mint(oidc.Claims{
		"iss": "https://sts.windows.net/" + directory + "/", "aud": registryResource, "sub": "x", "tid": directory, "appid": clientA,
	})
	must.Succeed(t, err)
	const no = "UNAUTHORIZED"
	for _, tt := range []struct {
		name, host string
		change     []string
		status     int
		code       string
		reason     string
	}{
		{"good", contoso, []string{"access_token", good}, 200, "", ""},
		{"good, with tenant", contoso, []string{"access_token", good, "tenant", directory}, 200, "", ""},
		{"good, with domain", contoso, []string{"access_token", good, "tenant", "contoso.onmicrosoft.com"}, 200, "", ""},
		{"good, audience with a slash", contoso, []string{"access_token", w.entra(t, clientA, subjectA, registryResource+"/")}, 200, "", ""},
		{"good, for Azure Resource Manager", contoso, []string{"access_token", w.entra(t, clientA, subjectA, armResource)}, 200, "", ""},
		{"for Azure Resource Manager, refused", shared, []string{"access_token", w.entra(t, clientA, subjectA, armResource)}, 401, no, "refuses tokens for Azure Resource Manager"},
		{"for a registry, where those are refused", shared, []string{"access_token", good}, 200, "", ""},
		{"for storage", contoso, []string{"access_token", w.entra(t, clientA, subjectA, "https://storage.azure.com")}, 401, no, "is for https://storage.azure.com"},
		{"of another tenant", contoso, []string{"access_token", other.Token}, 401, no, "registry belongs to " + directory},
		{"at another tenant's registry", "fabrikam.azurecr.io", []string{"access_token", good}, 401, no, "registry belongs to " + otherDirectory},
		{"at its own registry", "fabrikam.azurecr.io", []string{"access_token", other.Token}, 200, "", ""},
		{"of an application without role", contoso, []string{"access_token", w.entra(t, clientB, subjectB, registryResource)}, 401, no, "no role on the registry"},
		{"tenant that is not the token's", contoso, []string{"access_token", good, "tenant", otherDirectory}, 401, no, "parameter tenant"},
		{"external token", contoso, []string{"access_token", w.mint(t, subjectA, audience)}, 401, no, "no such key"},
		{"external token that says to be Entra's", contoso, []string{"access_token", forged}, 401, no, "no such key"},
		{"no JWT", contoso, []string{"access_token", "hello"}, 401, no, "not an acceptable JWT"},
		{"no token", contoso, nil, 400, "BAD_REQUEST", "access_token is required"},
		{"refresh token of Entra", contoso, []string{"grant_type", "refresh_token", "refresh_token", good}, 400, "BAD_REQUEST", "deprecated"},
		{"another registry's name", contoso, []string{"access_token", good, "service", shared}, 400, "BAD_REQUEST", "service must be"},
	} {
		got := w.exchange(t, client, tt.host, tt.change...)
		call := w.last(t)
		if got.Status != tt.status || got.Code != tt.code || (got.Token == "") != (tt.code != "") || !strings.Contains(call.Reason, tt.reason) {
			t.Errorf("%s: %+v, %+v, want %d %s %q", tt.name, got, call, tt.status, tt.code, tt.reason)
		}
		if call.Service != azure.ServiceRegistryTokens || call.Operation != "Exchange" || call.Granted() != (tt.code == "") {
			t.Errorf("%s: journal %+v", tt.name, call)
		}
	}
	claims := claimsOf(t, w.exchange(t, client, contoso, "access_token", good).Token)
	if life := claims["exp"].(float64) - claims["iat"].(float64); life != 3*3600 || claims["grant_type"] != "refresh_token" || claims["aud"] != contoso || claims["tenant"] != directory {
		t.Errorf("refresh token %v", claims)
	}
}

func TestRegistryAccessTokens(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	refresh := func(clientID, subject, host string) string {
		t.Helper()
		got := w.exchange(t, client, host, "access_token", w.entra(t, clientID, subject, registryResource))
		if got.Token == "" {
			t.Fatalf("%+v", got)
		}
		return got.Token
	}
	a, b, push := refresh(clientA, subjectA, shared), refresh(clientB, subjectB, shared), refresh(pusher, subjectPusher, shared)
	atContoso := refresh(clientA, subjectA, contoso)
	narrow := w.access(t, client, shared, push, "repository:tenant-a/app:pull").Token
	for _, tt := range []struct {
		name, host, password string
		scopes               []string
		want                 string // JSON of the claim "access"; empty for a refusal
	}{
		{"own repository", shared, a, []string{"repository:tenant-a/app:pull"}, `[{"actions":["pull"],"name":"tenant-a/app","type":"repository"}]`},
		{"own repository, another below the prefix", shared, a, []string{"repository:tenant-a/b/c:pull"}, `[{"actions":["pull"],"name":"tenant-a/b/c","type":"repository"}]`},
		{"more actions than granted", shared, a, []string{"repository:tenant-a/app:pull,push,delete"}, `[{"actions":["pull"],"name":"tenant-a/app","type":"repository"}]`},
		{"all actions", shared, a, []string{"repository:tenant-a/app:*"}, `[{"actions":["pull","metadata_read"],"name":"tenant-a/app","type":"repository"}]`},
		{"two scopes, one granted", shared, a, []string{"repository:tenant-a/app:pull", "repository:tenant-b/app:pull"}, `[{"actions":["pull"],"name":"tenant-a/app","type":"repository"}]`},
		{"two scopes in one parameter", shared, a, []string{"repository:tenant-b/app:pull repository:tenant-a/app:pull"}, `[{"actions":["pull"],"name":"tenant-a/app","type":"repository"}]`},
		{"no scope", shared, a, nil, `[]`},
		{"other tenant's repository", shared, a, []string{"repository:tenant-b/app:pull"}, ""},
		{"look-alike of the prefix", shared, a, []string{"repository:tenant-ab/app:pull"}, ""},
		{"the prefix itself", shared, a, []string{"repository:tenant-a:pull"}, ""},
		{"push with a reader's role", shared, a, []string{"repository:tenant-a/app:push"}, ""},
		{"catalog with a reader's role", shared, a, []string{"registry:catalog:*"}, ""},
		{"repository with a path", shared, a, []string{"repository:tenant-a/../tenant-b/app:pull"}, ""},
		{"all repositories", shared, a, []string{"repository:*:pull"}, ""},
		{"no scope that is one", shared, a, []string{"hello"}, ""},
		{"exact name", shared, b, []string{"repository:tenant-b/app:pull"}, `[{"actions":["pull"],"name":"tenant-b/app","type":"repository"}]`},
		{"below an exact name", shared, b, []string{"repository:tenant-b/app/x:pull"}, ""},
		{"catalog", shared, push, []string{"registry:catalog:*"}, `[{"actions":["*"],"name":"catalog","type":"registry"}]`},
		{"registry-wide role", contoso, atContoso, []string{"repository:any/thing:pull", "registry:catalog:*"}, `[{"actions":["pull"],"name":"any/thing","type":"repository"},{"actions":["*"],"name":"catalog","type":"registry"}]`},
		{"registry-wide role, push", contoso, atContoso, []string{"repository:any/thing:push"}, ""},
		{"another registry's refresh token", contoso, a, []string{"repository:tenant-a/app:pull"}, ""},
		{"an access token as password", shared, narrow, []string{"repository:tenant-a/app:pull"}, `[{"actions":["pull"],"name":"tenant-a/app","type":"repository"}]`},
		{"an access token as password, for more than it has", shared, narrow, []string{"repository:tenant-a/app:push"}, ""},
		{"an access token as password, for another repository", shared, narrow, []string{"repository:tenant-b/app:pull"}, ""},
		{"an access token of Entra", shared, w.entra(t, clientA, subjectA, registryResource), []string{"repository:tenant-a/app:pull"}, ""},
		{"no password", shared, "", []string{"repository:tenant-a/app:pull"}, ""},
	} {
		for _, posted := range []bool{false, true} {
			var got answer
			if posted {
				form := url.Values{"grant_type": {"password"}, "service": {tt.host}, "scope": tt.scopes, "username": {nullUser}, "password": {tt.password}}
				if tt.password != narrow {
					form = url.Values{"grant_type": {"refresh_token"}, "service": {tt.host}, "scope": tt.scopes, "refresh_token": {tt.password}}
				}
				got = w.ask(t, client, rig.NewRequest(t, http.MethodPost, "https://"+tt.host+"/oauth2/token", formType, form.Encode()))
			} else {
				got = w.access(t, client, tt.host, tt.password, tt.scopes...)
			}
			if tt.want == "" {
				if got.Status != 401 || got.Code != "UNAUTHORIZED" || got.Token != "" || w.last(t).Granted() {
					t.Errorf("%s: %+v", tt.name, got)
				}
				continue
			}
			if got.Token == "" {
				t.Errorf("%s: %+v, %+v", tt.name, got, w.last(t))
				continue
			}
			claims := claimsOf(t, got.Token)
			access, err := json.Marshal(claims["access"])
			if err != nil || string(access) != tt.want {
				t.Errorf("%s: access %s, want %s", tt.name, access, tt.want)
			}
			end := claims["iat"].(float64) + 75*60
			if tt.password == narrow { // the new token expires at the same time as the old one
				end, _ = claimsOf(t, narrow)["exp"].(float64)
			}
			if claims["exp"] != end || claims["aud"] != tt.host || claims["iss"] != "Azure Container Registry" {
				t.Errorf("%s: %v", tt.name, claims)
			}
		}
	}
	renewed := url.Values{"grant_type": {"refresh_token"}, "service": {shared}, "scope": {"repository:tenant-a/app:pull"}, "refresh_token": {narrow}}
	if got := w.ask(t, client, rig.NewRequest(t, http.MethodPost, "https://"+shared+"/oauth2/token", formType, renewed.Encode())); got.Status != 401 || got.Token != "" {
		t.Errorf("an access token as refresh token: %+v", got)
	}
	other := rig.NewRequest(t, http.MethodGet, "https://"+shared+"/oauth2/token?service="+shared+"&scope=repository:tenant-a/app:pull", "", "")
	other.SetBasicAuth("someone", a)
	if got := w.ask(t, client, other); got.Status != 401 {
		t.Errorf("another user: %+v", got)
	}
	// After a role is withdrawn, the next access token is refused.
	must.Succeed(t, w.Azure().PutRegistry(directory, azure.RegistryConfig{Name: "contoso"}))
	if got := w.access(t, client, contoso, atContoso, "repository:any/thing:pull"); got.Status != 401 {
		t.Errorf("after its role was withdrawn: %+v", got)
	}
	// Tokens of a deleted application stay invalid, even if the application is created again.
	must.Succeed(t, w.Azure().DeleteApplication(directory, clientA))
	must.Succeed(t, w.Azure().PutApplication(directory, application(clientA, subjectA)))
	if got := w.access(t, client, shared, a, "repository:tenant-a/app:pull"); got.Status != 401 || !strings.Contains(w.last(t).Reason, "not in the directory") {
		t.Errorf("of a deleted application: %+v", got)
	}
}

// TestRegistryDataPlane checks which requests of a container runtime the registry and its data
// endpoint allow.
func TestRegistryDataPlane(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	token := func(clientID, subject string, scopes ...string) string {
		t.Helper()
		refresh := w.exchange(t, client, shared, "access_token", w.entra(t, clientID, subject, registryResource)).Token
		return w.access(t, client, shared, refresh, scopes...).Token
	}
	push := token(pusher, subjectPusher, "repository:tenant-a/app:pull,push,delete", "repository:tenant-b/app:pull,push", "registry:catalog:*")
	pull := token(clientA, subjectA, "repository:tenant-a/app:pull")
	metadata := token(clientA, subjectA, "repository:tenant-a/app:metadata_read")
	send := func(method, path, bearer, body string) (*http.Response, string) {
		t.Helper()
		r := rig.NewRequest(t, method, "https://"+shared+path, "", body)
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		res, err := client.Do(r)
		must.Succeed(t, err)
		return res, rig.ReadAll(t, res)
	}
	const manifest, blob = "/v2/tenant-a/app/manifests/1.0.0", "/v2/tenant-a/app/blobs/" + blobDigest
	// Only the manifest is pushed. The blob, the tags and the catalog are written to the data plane
	// directly.
	for _, path := range []string{manifest, blob, "/v2/tenant-a/app/tags/list", "/v2/_catalog"} {
		if !strings.Contains(path, "manifests") {
			continue
		}
		if res, body := send(http.MethodPut, path, push, "content of "+path); res.StatusCode != 201 {
			t.Fatalf("push: HTTP %d %s", res.StatusCode, body)
		}
	}
	w.store(t, shared, blob, "a layer")
	w.store(t, shared, "/v2/tenant-a/app/tags/list", "tags")
	w.store(t, shared, "/v2/_catalog", "catalog")
	challenge := func(scope, problem string) string {
		c := `Bearer realm="https://` + shared + `/oauth2/token",service="` + shared + `"`
		if scope != "" {
			c += `,scope="` + scope + `"`
		}
		if problem != "" {
			c += `,error="` + problem + `"`
		}
		return c
	}
	for _, tt := range []struct {
		name, method, path, token string
		status                    int
		challenge                 string
	}{
		{"ping", "GET", "/v2/", "", 401, challenge("", "")},
		{"ping with a token", "GET", "/v2/", pull, 200, ""},
		{"pull", "GET", manifest, pull, 200, ""},
		{"head", "HEAD", manifest, pull, 200, ""},
		{"pull without token", "GET", manifest, "", 401, challenge("repository:tenant-a/app:pull", "")},
		{"pull with no token of ours", "GET", manifest, w.mint(t, subjectA, audience), 401, challenge("repository:tenant-a/app:pull", "invalid_token")},
		{"pull from the other tenant", "GET", "/v2/tenant-b/app/manifests/1.0.0", pull, 401, challenge("repository:tenant-b/app:pull", "insufficient_scope")},
		{"push with a token to pull", "PUT", manifest, pull, 401, challenge("repository:tenant-a/app:push", "insufficient_scope")},
		{"delete with a token to pull", "DELETE", manifest, pull, 401, challenge("repository:tenant-a/app:delete", "insufficient_scope")},
		{"upload", "POST", "/v2/tenant-a/app/blobs/uploads/?mount=" + blobDigest + "&from=tenant-b/app", push, 202, ""},
		{"upload with a token to pull", "POST", "/v2/tenant-a/app/blobs/uploads/", pull, 401, challenge("repository:tenant-a/app:push", "insufficient_scope")},
		{"tags with a token to pull", "GET", "/v2/tenant-a/app/tags/list", pull, 200, ""},
		{"tags with a token for metadata", "GET", "/v2/tenant-a/app/tags/list", metadata, 200, ""},
		{"pull with a token for metadata", "GET", manifest, metadata, 401, challenge("repository:tenant-a/app:pull", "insufficient_scope")},
		{"catalog", "GET", "/v2/_catalog", push, 200, ""},
		{"catalog with a token to pull", "GET", "/v2/_catalog", pull, 401, challenge("registry:catalog:*", "insufficient_scope")},
		{"path with an escape", "GET", "/v2/tenant-a%2fapp/manifests/1.0.0", pull, 405, ""},
		{"path that leads elsewhere", "GET", "/v2/tenant-a/app/../../tenant-b/app/manifests/1.0.0", pull, 405, ""},
		{"unknown path", "GET", "/acr/v1/_catalog", pull, 405, ""},
		{"no such manifest", "GET", "/v2/tenant-a/app/manifests/none", pull, 404, ""},
		{"no such blob", "GET", strings.Replace(blob, "aa", "bb", 1), pull, 404, ""},
	} {
		res, body := send(tt.method, tt.path, tt.token, "x")
		if res.StatusCode != tt.status || res.Header.Get("Www-Authenticate") != tt.challenge {
			t.Errorf("%s: HTTP %d %q %s, want %d %q", tt.name, res.StatusCode, res.Header.Get("Www-Authenticate"), body, tt.status, tt.challenge)
		}
	}
	if calls := w.Journal().Calls(journal.Filter{Service: azure.ServiceRegistry, Operation: "PullManifest", Verdict: journal.Granted}); len(calls) != 2 ||
		calls[0].Principal != clientA+"@"+directory || calls[0].Resource != shared+"/tenant-a/app" {
		t.Errorf("journal %+v", calls)
	}

	// A blob comes from the data endpoint. The link is valid for that blob only.
	res, _ := send(http.MethodGet, blob, pull, "")
	link, err := res.Location()
	if res.StatusCode != 307 || err != nil || link.Host != "shared.westeurope.data.azurecr.io" {
		t.Fatalf("HTTP %d, %v, %v", res.StatusCode, link, err)
	}
	follow := func(target, authorization string) string {
		t.Helper()
		r := rig.NewRequest(t, http.MethodGet, target, "", "")
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		res, err := client.Do(r)
		must.Succeed(t, err)
		return fmt.Sprint(res.StatusCode, " ", strings.TrimPrefix(rig.ReadAll(t, res), "\uFEFF"))
	}
	if got := follow(link.String(), ""); got != "200 a layer" {
		t.Errorf("the link: %s", got)
	}
	w.store(t, shared, strings.Replace(blob, "aa", "bb", 1), "another")
	for name, tt := range map[string]struct{ target, authorization, want string }{
		"with a token": {link.String(), "Bearer " + pull, "400 "},
		"another blob": {strings.Replace(link.String(), "aa", "bb", 1), "", "403 "},
		"another host": {strings.Replace(link.String(), "westeurope", "northeurope", 1), "", "403 "},
		"another end":  {strings.Replace(link.String(), "se=1", "se=2", 1), "", "403 "},
		"no signature": {"https://" + link.Host + link.Path, "", "403 "},
		"no such path": {"https://" + link.Host + "/v2/", "", "403 "},
		"a manifest":   {"https://" + link.Host + manifest + "?" + link.RawQuery, "", "403 "},
	} {
		if got := follow(tt.target, tt.authorization); !strings.HasPrefix(got, tt.want) || !strings.Contains(got, "<Code>") {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// store writes content into a data plane directly, without a request.
func (w *world) store(t *testing.T, host, path, content string) {
	t.Helper()
	h := w.planes(host)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.content[path] = []byte(content)
}

// TestRegistryTokensEnd checks that each kind of token works until it expires, and not longer.
func TestRegistryTokensEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		token, err := assert(t.Context(), transport, "https://login.microsoftonline.com/", directory, clientA, w.mint(t, subjectA, audience), registryResource+"/.default")
		must.Succeed(t, err)
		refresh := w.exchange(t, client, contoso, "access_token", token.Token).Token
		access := w.access(t, client, contoso, refresh, "repository:a/b:pull").Token
		w.store(t, contoso, "/v2/a/b/manifests/1", "m")
		var got []string
		var again string // a new access token, obtained with the old one in its last minute
		start := time.Now()
		for _, at := range []time.Duration{64 * time.Minute, 66 * time.Minute, 74 * time.Minute, 75 * time.Minute, 179 * time.Minute, 180 * time.Minute} {
			time.Sleep(time.Until(start.Add(at)))
			r := rig.NewRequest(t, http.MethodGet, "https://"+contoso+"/v2/a/b/manifests/1", "", "")
			r.Header.Set("Authorization", "Bearer "+access)
			got = append(got, fmt.Sprint(at, " ", w.exchange(t, client, contoso, "access_token", token.Token).Status, " ",
				w.access(t, client, contoso, refresh, "repository:a/b:pull").Status, " ", w.ask(t, client, r).Status))
			if at == 74*time.Minute {
				again = w.access(t, client, contoso, access, "repository:a/b:pull").Token
			}
			if at == 75*time.Minute {
				r.Header.Set("Authorization", "Bearer "+again)
				if status := w.ask(t, client, r).Status; again == "" || status != http.StatusUnauthorized {
					t.Errorf("an access token outlives the one that it was made from: HTTP %d", status)
				}
			}
		}
		want := []string{"1h4m0s 200 200 200", "1h6m0s 401 200 200", "1h14m0s 401 200 200", "1h15m0s 401 200 401", "2h59m0s 401 200 401", "3h0m0s 401 401 401"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestWithdrawnRole withdraws a client's role. An access token contains its permissions, so the
// client's access token still works until it expires. For a new token, the client must exchange an
// older one. The new token has only the permissions of the client's present roles. It inherits no
// permissions from the older token.
func TestWithdrawnRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		client := w.client()
		defer client.CloseIdleConnections()
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		const scope = "repository:a/b:pull,push"
		token, err := assert(t.Context(), transport, "https://login.microsoftonline.com/", directory, pusher, w.mint(t, subjectPusher, audience), registryResource+"/.default")
		must.Succeed(t, err)
		assign := func(role string) {
			t.Helper()
			cfg := azure.RegistryConfig{Name: "contoso"}
			if role != "" {
				cfg.RoleAssignments = []azure.RegistryRole{{ClientID: pusher, Role: role}}
			}
			must.Succeed(t, w.Azure().PutRegistry(directory, cfg))
		}
		w.store(t, contoso, "/v2/a/b/manifests/1", "m")
		start := time.Now()
		refresh := w.exchange(t, client, contoso, "access_token", token.Token).Token
		access := w.access(t, client, contoso, refresh, scope).Token
		pull := func(token string) int {
			t.Helper()
			r := rig.NewRequest(t, http.MethodGet, "https://"+contoso+"/v2/a/b/manifests/1", "", "")
			r.Header.Set("Authorization", "Bearer "+token)
			return w.ask(t, client, r).Status
		}
		push := func(token string) int {
			t.Helper()
			r := rig.NewRequest(t, http.MethodPut, "https://"+contoso+"/v2/a/b/manifests/2", "application/vnd.oci.image.manifest.v1+json", "m")
			r.Header.Set("Authorization", "Bearer "+token)
			return w.ask(t, client, r).Status
		}
		posted := func(refresh string) answer {
			t.Helper()
			form := url.Values{"grant_type": {"refresh_token"}, "service": {contoso}, "scope": {scope}, "refresh_token": {refresh}}
			return w.ask(t, client, rig.NewRequest(t, http.MethodPost, "https://"+contoso+"/oauth2/token", formType, form.Encode()))
		}
		renew := func() string {
			t.Helper()
			return fmt.Sprint(posted(refresh).Status, w.access(t, client, contoso, refresh, scope).Status, w.access(t, client, contoso, access, scope).Status,
				w.exchange(t, client, contoso, "access_token", token.Token).Status)
		}
		if got := renew(); got != "200 200 200 200" || push(access) != http.StatusCreated {
			t.Fatalf("with its role: %s, %+v", got, w.last(t))
		}
		assign("")
		if got := renew(); got != "401 401 401 401" {
			t.Errorf("without a role there are new tokens: %s", got)
		}
		if pull(access) != http.StatusOK || push(access) != http.StatusCreated {
			t.Errorf("the access token ended with the role: %+v", w.last(t))
		}
		assign("AcrPull")
		less := posted(refresh).Token
		if pull(less) != http.StatusOK || push(less) != http.StatusUnauthorized {
			t.Errorf("a token of a lesser role: %+v", w.last(t))
		}
		time.Sleep(time.Until(start.Add(azure.RegistryAccessLife - time.Second)))
		if push(access) != http.StatusCreated {
			t.Errorf("a second before its end: %+v", w.last(t))
		}
		time.Sleep(time.Second)
		if pull(access) != http.StatusUnauthorized || push(access) != http.StatusUnauthorized {
			t.Errorf("after its end: %+v", w.last(t))
		}
	})
}

// TestRegionalEndpoints: a registry's regional endpoint is a login server of its own. It shares the
// registry's roles and content, but not its tokens.
func TestRegionalEndpoints(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	const regional = "contoso.westeurope.geo.azurecr.io"
	put := func(regions ...string) {
		t.Helper()
		config := azure.RegistryConfig{Name: "contoso", RoleAssignments: []azure.RegistryRole{{ClientID: clientA, Role: "AcrPull"}}, RegionalEndpoints: regions}
		must.Succeed(t, w.Azure().PutRegistry(directory, config))
	}
	put("westeurope", "northeurope")
	w.store(t, contoso, "/v2/a/b/manifests/1", "m")
	aad := w.entra(t, clientA, subjectA, registryResource)
	here, there := w.exchange(t, client, contoso, "access_token", aad).Token, w.exchange(t, client, regional, "access_token", aad).Token
	const scope = "repository:a/b:pull"
	pull := func(host, token string) int {
		t.Helper()
		r := rig.NewRequest(t, http.MethodGet, "https://"+host+"/v2/a/b/manifests/1", "", "")
		r.Header.Set("Authorization", "Bearer "+token)
		return w.ask(t, client, r).Status
	}
	access := w.access(t, client, regional, there, scope).Token
	for name, got := range map[string][2]int{
		"its own refresh token":               {w.access(t, client, regional, there, scope).Status, 200},
		"the login server's refresh token":    {w.access(t, client, regional, here, scope).Status, 401},
		"its refresh token elsewhere":         {w.access(t, client, contoso, there, scope).Status, 401},
		"another region's":                    {w.access(t, client, "contoso.northeurope.geo.azurecr.io", there, scope).Status, 401},
		"its own access token":                {pull(regional, access), 200},
		"its access token elsewhere":          {pull(contoso, access), 401},
		"the login server's access token":     {pull(regional, w.access(t, client, contoso, here, scope).Token), 401},
		"exchange for another service's name": {w.exchange(t, client, regional, "access_token", aad, "service", contoso).Status, 400},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: HTTP %d, want %d", name, got[0], got[1])
		}
	}
	if put(); w.Azure().Service(regional) != nil {
		t.Error("a regional endpoint that was taken away still answers")
	}
}

func TestRegistryFaults(t *testing.T) {
	w := newWorld(t)
	client := w.client()
	for _, tt := range []struct {
		fault fault.Fault
		want  answer
		after string
	}{
		{fault.Fault{Service: azure.ServiceRegistryTokens, Kind: fault.Throttle, RetryAfter: 3 * time.Second, Count: 1}, answer{Status: 429, Code: "TOOMANYREQUESTS"}, "3"},
		{fault.Fault{Service: azure.ServiceRegistryTokens, Kind: fault.Unavailable, RetryAfter: time.Second, Count: 1}, answer{Status: 503, Code: "UNAVAILABLE"}, "1"},
		{fault.Fault{Service: azure.ServiceRegistryTokens, Kind: fault.InternalFailure, Count: 1}, answer{Status: 500, Code: "UNKNOWN"}, ""},
		{fault.Fault{Service: azure.ServiceRegistryTokens, Kind: fault.Malformed, Count: 1}, answer{Status: 200}, ""},
	} {
		if _, err := w.Faults().Add(tt.fault); err != nil {
			t.Fatal(err)
		}
		if got := w.exchange(t, client, contoso, "access_token", "x"); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.fault.Kind, got, tt.want)
		}
	}
}

// TestOwns checks at which hosts the local Azure has a service. The registry contoso must have no
// host in China, because China has no registry of this name. There must be no service at look-alike
// hosts.
func TestOwns(t *testing.T) {
	w := newWorld(t)
	for host, want := range map[string]bool{
		"login.microsoftonline.com": true, "login.windows.net": true, "sts.windows.net": true, "login.microsoft.com": true,
		"login.microsoftonline.us": true, "login.partner.microsoftonline.cn": true, "login.chinacloudapi.cn": true, "login.azure.example": true,
		"login.microsoftonline.com.attacker.example": false, "xlogin.microsoftonline.com": false, "microsoftonline.com": false, "login.microsoftonline.de": false,
		contoso: true, "contoso.azurecr.us": true, "contoso.azurecr.cn": false, "absent.azurecr.io": false, "azurecr.io": false, "contoso.azurecr.io.attacker.example": false,
		"contoso.westeurope.data.azurecr.io": false, "shared.westeurope.data.azurecr.io": true, "shared.eastus.data.azurecr.io": false, "shared.data.azurecr.io": false,
		"management.azure.com": true, "management.core.windows.net": false, "management.usgovcloudapi.net": true, "management.azure.example": true,
		"graph.microsoft.com": true, "graph.microsoft.us": true, "graph.azure.example": false, "xgraph.microsoft.com": false,
		"169.254.169.254": false, "": false,
	} {
		if got := w.Azure().Service(host) != nil; got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}
