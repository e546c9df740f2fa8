package azure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/cache"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

// environment sets the given environment variables, and removes every other Azure identity from the
// environment.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{"AZURE_", "IDENTITY_", "MSI_", "IMDS_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	// Put fake programs first in PATH. If one of them is started, it creates a file. The test fails
	// if this file exists at the end.
	programs := t.TempDir()
	for _, name := range []string{"az", "azd", "pwsh", "powershell"} {
		rig.Must(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\ntouch "+filepath.Join(programs, "started")+"\n"), 0o700))
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(programs, "started")); !os.IsNotExist(err) {
			t.Errorf("a program was started: %v", err)
		}
	})
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	rig.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// host is a fake of Microsoft Entra and of the host's identity endpoint.
type host struct {
	mu    sync.Mutex
	asked []string
	form  url.Values
	entra http.HandlerFunc // answers token requests
	imds  http.HandlerFunc
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = r.ParseForm()
	h.asked = append(h.asked, r.Host+r.URL.Path)
	switch {
	case r.TLS == nil:
		h.imds(w, r)
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		base := "https://" + r.Host + strings.TrimSuffix(r.URL.Path, "/v2.0/.well-known/openid-configuration")
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q}`, base+"/v2.0", base+"/oauth2/v2.0/authorize", base+"/oauth2/v2.0/token")
	default:
		h.form = r.PostForm
		h.entra(w, r)
	}
}

// provider returns a provider that connects to h, whatever the host name. Port 80 has no TLS;
// all other ports have TLS.
func (h *host) provider(t *testing.T, config azure.Config) *azure.Provider {
	t.Helper()
	config.Transport = rig.Wire(t, h.ServeHTTP)
	plain := httptest.NewServer(h)
	t.Cleanup(plain.Close)
	secure := config.Transport.DialContext
	config.Transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasSuffix(address, ":80") {
			return (&net.Dialer{}).DialContext(ctx, network, plain.Listener.Addr().String())
		}
		return secure(ctx, network, address)
	}
	// The proxy refuses plain HTTP, so a test fails if a metadata request goes through the proxy.
	config.Transport.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Scheme != "https" {
			return nil, errors.New("plain HTTP is sent to the proxy")
		}
		return nil, nil
	}
	return newProvider(t, config)
}

func newHost() *host {
	return &host{entra: says(goodToken), imds: func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }}
}

func asController(t *testing.T, provider *azure.Provider, opts ...auth.Option) (*azure.Token, error) {
	t.Helper()
	token, err := auth.GetToken(t.Context(), provider, append(opts, auth.WithController())...)
	if err != nil {
		return nil, err
	}
	return token.(*azure.Token), nil
}

func TestControllerWorkloadIdentity(t *testing.T) {
	for i, want := range []string{"login.microsoftonline.com", "login.microsoftonline.us", "login.chinacloudapi.cn"} {
		environment(t, map[string]string{
			"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof"),
			// The provider's cloud decides the authority, not this variable.
			"AZURE_AUTHORITY_HOST": "https://login.evil.example",
		})
		h := newHost()
		cloud := endpoint.AzureClouds()[i]
		token, err := asController(t, h.provider(t, azure.Config{Cloud: cloud, TenantID: tenantID}), auth.WithScopes(azure.BlobScope(cloud)))
		rig.Must(t, err)
		if left := token.GetDuration(); token.Secret.Reveal() != "entra-access-token-0123456789" || left > time.Hour || left < 59*time.Minute {
			t.Errorf("%v", token)
		}
		if h.form.Get("client_assertion") != "the-controllers-proof" || !strings.Contains(h.form.Get("scope"), "https://storage.azure.com/.default") || h.form.Get("client_id") != clientA {
			t.Errorf("%v", h.form)
		}
		// Instance discovery is off: the SDK does not ask another authority whether the provider's
		// authority is genuine.
		for _, asked := range h.asked {
			if !strings.HasPrefix(asked, want+"/"+tenantID+"/") {
				t.Errorf("asked %s", asked)
			}
		}
	}
}

func TestControllerSecret(t *testing.T) {
	environment(t, map[string]string{
		"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_CLIENT_SECRET": "client-secret",
		"AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof"), // the client secret has precedence over this file
	})
	h := newHost()
	_, err := asController(t, h.provider(t, azure.Config{}))
	rig.Must(t, err)
	if h.form.Get("client_secret") != "client-secret" || !strings.Contains(h.form.Get("scope"), "https://management.azure.com/.default") {
		t.Errorf("%v", h.form)
	}
}

func TestControllerCertificate(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	rig.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "controller"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	rig.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	rig.Must(t, err)
	both := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	environment(t, map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_CLIENT_CERTIFICATE_PATH": file(t, both)})
	h := newHost()
	_, err = asController(t, h.provider(t, azure.Config{}))
	rig.Must(t, err)
	if strings.Count(h.form.Get("client_assertion"), ".") != 2 {
		t.Errorf("%v", h.form)
	}
	// A file without a certificate is refused. The error must not contain the file's path.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	encoded, err = x509.MarshalPKCS8PrivateKey(other)
	rig.Must(t, err)
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	path := file(t, secret)
	t.Setenv("AZURE_CLIENT_CERTIFICATE_PATH", path)
	_, err = asController(t, h.provider(t, azure.Config{}))
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != auth.CodeIdentityInvalid || e.Stage != auth.StageIdentity || !strings.Contains(e.Fix, "AZURE_CLIENT_CERTIFICATE_PATH") || strings.Contains(e.Error(), path) {
		t.Errorf("%v", err)
	}
}

// managedToken is the handler of an identity endpoint that requires a client ID. A test that gets a
// token must have its own client ID, because the SDK caches these tokens for the whole process.
func managedToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("client_id") == "" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, `{"access_token":"token-of-the-host","expires_in":"3600","expires_on":"%d","resource":%q,"token_type":"Bearer","client_id":"x"}`,
		time.Now().Add(time.Hour).Unix(), r.URL.Query().Get("resource"))
}

func TestControllerManagedIdentity(t *testing.T) {
	environment(t, map[string]string{"AZURE_CLIENT_ID": "00000000-0000-0000-0000-000000000001", "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"})
	h := newHost()
	h.imds = managedToken
	token, err := asController(t, h.provider(t, azure.Config{}), auth.WithScopes("https://vault.azure.net/.default"))
	rig.Must(t, err)
	if left := token.GetDuration(); token.Secret.Reveal() != "token-of-the-host" || left > time.Hour || left < 59*time.Minute {
		t.Errorf("%v", token)
	}
	if len(h.asked) != 1 || h.asked[0] != "169.254.169.254/metadata/identity/oauth2/token" {
		t.Errorf("%v", h.asked)
	}
}

// TestControllerIsNotTheHost checks that a controller on AKS whose identity is only half configured
// does not get the node's identity. Only AZURE_TOKEN_CREDENTIALS can select the managed identity.
func TestControllerIsNotTheHost(t *testing.T) {
	secret := map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_CLIENT_SECRET": "client-secret"}
	proof := map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof")}
	everything := map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_CLIENT_SECRET": "client-secret", "AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof")}
	for name, test := range map[string]struct {
		set   map[string]string
		named string
		asked string // form field of the token request; empty if there must be no request
		code  auth.Code
		text  string
	}{
		"nothing":                  {code: auth.CodeIdentityMissing, text: `label its Pod azure.workload.identity/use: "true"`},
		"a Pod without the label":  {set: map[string]string{"AZURE_TENANT_ID": tenantID}, code: auth.CodeIdentityMissing, text: "AZURE_FEDERATED_TOKEN_FILE is not set"},
		"a client":                 {set: map[string]string{"AZURE_CLIENT_ID": clientA}, code: auth.CodeIdentityMissing, text: "AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential"},
		"the workload identity":    {set: everything, named: "WorkloadIdentityCredential", asked: "client_assertion"},
		"in other letters":         {set: everything, named: "workloadidentitycredential", asked: "client_assertion"},
		"the secret":               {set: everything, named: "EnvironmentCredential", asked: "client_secret"},
		"no file":                  {set: secret, named: "WorkloadIdentityCredential", code: auth.CodeIdentityInvalid, text: "AZURE_FEDERATED_TOKEN_FILE"},
		"no secret":                {set: proof, named: "EnvironmentCredential", code: auth.CodeIdentityInvalid, text: "AZURE_CLIENT_SECRET"},
		"a password":               {set: map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_USERNAME": "me", "AZURE_PASSWORD": "x"}, named: "EnvironmentCredential", code: auth.CodeIdentityInvalid, text: "AZURE_CLIENT_SECRET"},
		"several":                  {set: everything, named: "prod", code: auth.CodeOptionUnsupported, text: "or remove it"},
		"a program":                {set: everything, named: "AzureCLICredential", code: auth.CodeOptionUnsupported, text: "or remove it"},
		"something with a newline": {set: everything, named: "prod\n", code: auth.CodeOptionUnsupported, text: "or remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, test.set)
			t.Setenv("AZURE_TOKEN_CREDENTIALS", test.named)
			h := newHost()
			h.imds = managedToken
			_, err := asController(t, h.provider(t, azure.Config{}))
			for _, asked := range h.asked {
				if strings.HasPrefix(asked, "169.254.") {
					t.Errorf("asked %s", asked)
				}
			}
			if test.asked != "" {
				if err != nil || h.form.Get(test.asked) == "" {
					t.Errorf("%v, %v", err, h.form)
				}
				return
			}
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != auth.StageIdentity || e.Code != test.code || !strings.Contains(e.Error(), test.text) || e.Fix == "" || strings.ContainsAny(e.Error(), "\n") {
				t.Errorf("%v, want %s", err, test.code)
			}
			if len(h.asked) != 0 {
				t.Errorf("asked %v", h.asked)
			}
		})
	}
}

func TestControllerRefusals(t *testing.T) {
	proof := map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof")}
	managed := 0
	host := func() map[string]string {
		managed++
		return map[string]string{"AZURE_CLIENT_ID": fmt.Sprintf("00000000-0000-0000-0001-%012d", managed), "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"}
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, test := range []struct {
		name        string
		set         map[string]string
		entra, imds http.HandlerFunc
		stage       auth.Stage
		code        auth.Code
		text        string
	}{
		{"trust", proof, entraError(401, 700213, "no"), nil, auth.StageExchange, auth.CodeTrustRefused, "the federated credential for its ServiceAccount"},
		{"clock", proof, entraError(401, 700024, "no"), nil, auth.StageExchange, auth.CodeProofInvalid, "AZURE_FEDERATED_TOKEN_FILE"},
		{"secret", map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_CLIENT_SECRET": "client-secret"}, entraError(401, 7000215, "client-secret"), nil, auth.StageExchange, auth.CodeTrustRefused, "AZURE_CLIENT_SECRET"},
		{"throttled", proof, answer(429, `{"error":"x"}`), nil, auth.StageExchange, auth.CodeThrottled, "asked too often"},
		{"failing", proof, answer(503, "oops"), nil, auth.StageExchange, auth.CodeUnavailable, "HTTP status 503"},
		{"HTML", proof, answer(200, "<html>"), nil, auth.StageExchange, auth.CodeResponseInvalid, "not the JSON of a token answer"},
		{"redirect", proof, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example", http.StatusFound)
		}, nil, auth.StageExchange, auth.CodeResponseInvalid, "302"},
		{"hanging up", proof, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, auth.StageExchange, auth.CodeUnreachable, "the connection was closed"},
		{"no token file", map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": "/none/token"}, nil, nil, auth.StageIdentity, auth.CodeIdentityInvalid, "AZURE_FEDERATED_TOKEN_FILE"},
		{"no client", map[string]string{"AZURE_FEDERATED_TOKEN_FILE": "/none/token", "AZURE_TENANT_ID": tenantID}, nil, nil, auth.StageIdentity, auth.CodeIdentityInvalid, "AZURE_CLIENT_ID"},
		{"no tenant", map[string]string{"AZURE_CLIENT_SECRET": "client-secret", "AZURE_CLIENT_ID": clientA}, nil, nil, auth.StageIdentity, auth.CodeIdentityInvalid, "AZURE_TENANT_ID"},
		{"no identity", host(), nil, answer(400, `{"error":"invalid_request","error_description":"Identity not found"}`), auth.StageIdentity, auth.CodeIdentityMissing, "the host has no such identity"},
		{"metadata as HTML", host(), nil, answer(200, "<html>"), auth.StageExchange, auth.CodeResponseInvalid, "not the JSON of a token answer"},
		{"metadata throttled", host(), nil, answer(429, "{}"), auth.StageExchange, auth.CodeThrottled, "asked too often"},
		{"metadata updating", host(), nil, answer(404, "{}"), auth.StageExchange, auth.CodeUnavailable, "being updated"},
		{"metadata forbidden", host(), nil, answer(403, "unreachable"), auth.StageExchange, auth.CodeRefused, "does not give the controller a token"},
		{"metadata hangs up", host(), nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, auth.StageExchange, auth.CodeUnreachable, "AZURE_CLIENT_ID of the controller says which"},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.set)
			h := newHost()
			if test.entra != nil {
				h.entra = test.entra
			}
			if test.imds != nil {
				h.imds = test.imds
			}
			provider := h.provider(t, azure.Config{})
			_, err := asController(t, provider)
			_, again := asController(t, provider)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != test.stage || e.Code != test.code || !strings.Contains(e.Error(), test.text) || e.Fix == "" || strings.ContainsAny(e.Error(), "\n") {
				t.Errorf("%v, want %s, %s", err, test.stage, test.code)
			}
			for _, hidden := range []string{"client-secret", "the-controllers-proof", "aka.ms", "Trace"} {
				if strings.Contains(fmt.Sprint(err), hidden) {
					t.Errorf("%s is told: %v", hidden, err)
				}
			}
			if again == nil || again.Error() != err.Error() {
				t.Errorf("the same failure, two texts:\n%v\n%v", err, again)
			}
			if e.Code == auth.CodeThrottled && e.RetryAfter != 9*time.Second {
				t.Errorf("retry after %s", e.RetryAfter)
			}
		})
	}
}

func TestControllerMetadataIsAway(t *testing.T) {
	environment(t, map[string]string{"AZURE_CLIENT_ID": "00000000-0000-0000-0002-000000000001", "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"})
	stop := make(chan struct{})
	defer close(stop)
	h := newHost()
	h.imds = func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}
	provider := h.provider(t, azure.Config{Timeout: 50 * time.Millisecond})
	started := time.Now()
	_, err := asController(t, provider)
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeUnreachable || !strings.Contains(e.Error(), "no answer in time") || time.Since(started) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := auth.GetToken(ctx, provider, auth.WithController()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestControllerTakesNoDetour checks that NewControllerToken itself refuses a tenant's proxy,
// although GetTarget refuses the proxy earlier.
func TestControllerTakesNoDetour(t *testing.T) {
	h := newHost()
	environment(t, map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, "x")})
	request := &auth.Request{Key: auth.Key{Subject: auth.Controller()}, ProxyURL: &url.URL{Scheme: "http", Host: "proxy:1"}}
	if _, err := h.provider(t, azure.Config{}).NewControllerToken(t.Context(), request); auth.CodeOf(err) != auth.CodeEndpointRefused || len(h.asked) != 0 {
		t.Errorf("%v, asked %v", err, h.asked)
	}
}

func TestControllerRegistry(t *testing.T) {
	environment(t, map[string]string{"AZURE_CLIENT_ID": clientA, "AZURE_TENANT_ID": tenantID, "AZURE_FEDERATED_TOKEN_FILE": file(t, "the-controllers-proof")})
	h := newHost()
	h.entra = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "login.") {
			says(goodToken)(w, r)
			return
		}
		fmt.Fprintf(w, `{"refresh_token":%q,"access_token":%q}`, rig.JWT(`{"iat":1,"exp":3601}`), rig.JWT(`{"iat":1,"exp":3601}`))
	}
	token, err := auth.GetToken(t.Context(), h.provider(t, azure.Config{}), auth.WithController(), auth.WithImageRepository(imageA))
	if err != nil || token.(*auth.RegistryCredentials).Password.IsZero() || h.form.Get("scope") != "repository:tenant-a/app:pull,metadata_read" {
		t.Errorf("%v, %v, %v", token, err, h.form)
	}
}

func TestTokenCredential(t *testing.T) {
	var requests atomic.Int32
	var scope atomic.Value
	provider := wired(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		scope.Store(r.PostFormValue("scope"))
		says(goodToken)(w, r)
	})
	credential := azure.NewTokenCredential(provider, asA(t, auth.WithCache(cache.New(cache.Options{MaxSize: 10}), auth.InvolvedObject{}))...)
	blob := policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}, EnableCAE: true}
	for range 3 {
		got, err := credential.GetToken(t.Context(), blob)
		rig.Must(t, err)
		// The reported expiry is at most a minute away, so that the SDK asks again soon.
		if left := time.Until(got.ExpiresOn); got.Token != "entra-access-token-0123456789" || left > time.Minute || left < 50*time.Second {
			t.Errorf("until %s", got.ExpiresOn)
		}
	}
	if requests.Load() != 1 || scope.Load() != "https://storage.azure.com/.default" {
		t.Errorf("%d requests, the last for %v", requests.Load(), scope.Load())
	}
	// Another scope gets another token. The SDK may name the identity's own Entra tenant.
	_, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://vault.azure.net/.default"}, TenantID: strings.ToUpper(tenantID)})
	rig.Must(t, err)
	if requests.Load() != 2 || scope.Load() != "https://vault.azure.net/.default" {
		t.Errorf("%d requests, the last for %v", requests.Load(), scope.Load())
	}
	for name, test := range map[string]struct {
		options policy.TokenRequestOptions
		code    auth.Code
	}{
		"challenge":  {policy.TokenRequestOptions{Scopes: blob.Scopes, Claims: `{"access_token":{}}`, EnableCAE: true}, auth.CodeOptionUnsupported},
		"tenant":     {policy.TokenRequestOptions{Scopes: blob.Scopes, TenantID: "11111111-2222-3333-4444-555555555555"}, auth.CodeOptionUnsupported},
		"no scope":   {policy.TokenRequestOptions{}, auth.CodeOptionInvalid},
		"two scopes": {policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default", azure.DevOpsScope}}, auth.CodeOptionInvalid},
		"empty":      {policy.TokenRequestOptions{Scopes: []string{""}}, auth.CodeOptionInvalid},
	} {
		if _, err := credential.GetToken(t.Context(), test.options); auth.CodeOf(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := azure.NewTokenCredential(provider, asA(t, auth.WithImageRepository(imageA))...).GetToken(t.Context(), blob); auth.CodeOf(err) != auth.CodeOptionInvalid {
		t.Errorf("with an image repository: %v", err)
	}
	if _, err := azure.NewTokenCredential(provider).GetToken(t.Context(), blob); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("for nobody: %v", err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// TestTokenCredentialContext checks that GetToken obeys the context of its caller, not the context
// in which the credential was made.
func TestTokenCredentialContext(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	provider := wired(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := azure.NewTokenCredential(provider, asA(t)...).GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{azure.DevOpsScope}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
}
