package azure_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

var (
	_ auth.ControllerProvider = (*azure.Provider)(nil)
	_ auth.RegistryProvider   = (*azure.Provider)(nil)
)

const (
	tenantID = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	clientA  = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	imageA   = "contoso.azurecr.io/tenant-a/app"
)

func newProvider(tb testing.TB, config azure.Config) *azure.Provider {
	tb.Helper()
	provider, err := azure.NewProvider(config)
	rig.Must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

func accountA(tb testing.TB) auth.Account {
	tb.Helper()
	subject, err := auth.ServiceAccount("tenant-a", "puller")
	rig.Must(tb, err)
	return auth.Account{Subject: subject, UID: "7b4e", Attributes: map[string]string{
		"azure.workload.identity/client-id": clientA, "azure.workload.identity/tenant-id": tenantID,
	}}
}

func list(tb testing.TB, values ...string) auth.List {
	tb.Helper()
	l, err := auth.NewList(values...)
	rig.Must(tb, err)
	return l
}

func TestGetTarget(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy.example.org:3128"}
	for _, test := range []struct {
		name    string
		options auth.Options
		want    auth.Target
		code    auth.Code
		fix     string
	}{
		{name: "bare"},
		{name: "proxy", options: auth.Options{ProxyURL: proxy}},

		// Images.
		{name: "image", options: auth.Options{ImageRepository: imageA}, want: auth.Target{Image: imageA}},
		{name: "image, canonical", options: auth.Options{ImageRepository: "Contoso.AzureCR.io/tenant-a/app"}, want: auth.Target{Image: imageA}},
		{
			name: "regional image", options: auth.Options{ImageRepository: "contoso.eastus.geo.azurecr.io/app"},
			want: auth.Target{Image: "contoso.eastus.geo.azurecr.io/app"},
		},
		{name: "registry alone", options: auth.Options{ImageRepository: "contoso.azurecr.io"}, code: auth.CodeOptionInvalid, fix: "contoso.azurecr.io/<repository>"},
		{name: "data endpoint", options: auth.Options{ImageRepository: "contoso.eastus.data.azurecr.io/a"}, code: auth.CodeEndpointRefused, fix: "contoso.azurecr.io"},
		{name: "look-alike", options: auth.Options{ImageRepository: "contoso.azurecr.io.evil.org/a"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike before", options: auth.Options{ImageRepository: "evil.org/contoso.azurecr.io/a"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike user", options: auth.Options{ImageRepository: "contoso.azurecr.io@evil.org/a"}, code: auth.CodeEndpointRefused, fix: "remove"},
		{name: "other cloud", options: auth.Options{ImageRepository: "contoso.azurecr.cn/a"}, code: auth.CodeEndpointRefused, fix: "AZURE_AUTHORITY_HOST"},
		{name: "Docker Hub", options: auth.Options{ImageRepository: "alpine"}, code: auth.CodeEndpointRefused, fix: "write "},

		// Scopes.
		{name: "scope", options: auth.Options{Scopes: list(t, "https://storage.azure.com/.default")}},
		{name: "scope of DevOps", options: auth.Options{Scopes: list(t, azure.DevOpsScope)}},
		{name: "scope of an API", options: auth.Options{Scopes: list(t, "api://d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08/.default")}},
		{name: "scope of ARM, as its SDK says it", options: auth.Options{Scopes: list(t, "https://management.core.windows.net//.default")}},
		{name: "two scopes", options: auth.Options{Scopes: list(t, "https://storage.azure.com/.default", azure.DevOpsScope)}, code: auth.CodeOptionInvalid, fix: "one scope"},
		{name: "scope of a user", options: auth.Options{Scopes: list(t, "https://storage.azure.com/user_impersonation")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope that is two", options: auth.Options{Scopes: list(t, "https://storage.azure.com/.default offline_access/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope with a comma", options: auth.Options{Scopes: list(t, "https://storage.azure.com,x/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope with a parameter", options: auth.Options{Scopes: list(t, "https://a.example/?x=y/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope over lines", options: auth.Options{Scopes: list(t, "https://a.example/\n/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope of nothing", options: auth.Options{Scopes: list(t, "/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope without TLS", options: auth.Options{Scopes: list(t, "http://storage.azure.com/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope with a user", options: auth.Options{Scopes: list(t, "https://u:p@storage.azure.com/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "long scope", options: auth.Options{Scopes: list(t, "https://"+strings.Repeat("a", 300)+"/.default")}, code: auth.CodeOptionInvalid, fix: "/.default"},
		{name: "scope and image", options: auth.Options{Scopes: list(t, azure.DevOpsScope), ImageRepository: imageA}, code: auth.CodeOptionInvalid, fix: "leave out the scopes"},

		// The provider refuses unsupported options, and options that exclude each other.
		{name: "STS region", options: auth.Options{STSRegion: "westeurope"}, code: auth.CodeOptionUnsupported, fix: "leave out the STS region"},
		{name: "STS endpoint", options: auth.Options{STSEndpoint: "https://login.microsoftonline.com"}, code: auth.CodeOptionUnsupported, fix: "AZURE_AUTHORITY_HOST"},
		{name: "controller", options: auth.Options{Subject: auth.Controller()}},
		{name: "controller by proxy", options: auth.Options{Subject: auth.Controller(), ProxyURL: proxy}, code: auth.CodeEndpointRefused, fix: "such as a ServiceAccount"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := newProvider(t, azure.Config{})
			for range 2 { // the second result is from the memo
				got, err := provider.GetTarget(&test.options)
				if auth.CodeOf(err) != test.code || (test.code == "" && err != nil) {
					t.Fatalf("error %v, want code %q", err, test.code)
				}
				want := test.want
				if err == nil {
					want.Scopes = test.options.Scopes
				}
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
				if e, ok := errors.AsType[*auth.Error](err); ok && (!strings.Contains(e.Fix, test.fix) || strings.ContainsAny(e.Error(), "\n")) {
					t.Errorf("fix %q, want %q in it", e.Fix, test.fix)
				}
			}
		})
	}
}

func TestGetIdentity(t *testing.T) {
	account := accountA(t)
	const want = tenantID + "/" + clientA
	// The controller's Entra tenant does not replace a malformed or empty Entra tenant of an
	// account.
	provider := newProvider(t, azure.Config{TenantID: "11111111-2222-3333-4444-555555555555"})
	for name, account := range map[string]auth.Account{
		"as it is":   account,
		"upper case": rig.WithAttribute(rig.WithAttribute(account, azure.ClientAnnotation, strings.ToUpper(clientA)), azure.TenantAnnotation, strings.ToUpper(tenantID)),
	} {
		for range 2 {
			if got, err := provider.GetIdentity(account); err != nil || got != want {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	}
	for _, id := range []string{
		"", "common", "organizations", "consumers", "contoso.onmicrosoft.com", " " + tenantID, tenantID + "\n", "{" + tenantID + "}", strings.ReplaceAll(tenantID, "-", ""),
		tenantID[:35], tenantID + "0", strings.Replace(tenantID, "7", "g", 1), strings.Replace(tenantID, "-", "7", 1), "7-f988bf86f1-41af-91ab-2d7cd011db47", "../" + tenantID[3:],
		tenantID[:35] + "\u00e9", "\u212a" + tenantID[3:],
	} {
		for _, annotation := range []string{azure.ClientAnnotation, azure.TenantAnnotation} {
			account := accountA(t)
			account.Attributes[annotation] = id
			_, err := provider.GetIdentity(account)
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityInvalid || e.Fix == "" || strings.ContainsAny(e.Error(), "\n\u00e9") ||
				!strings.Contains(e.Err.Error(), "annotation "+annotation+" of ServiceAccount tenant-a/puller") {
				t.Errorf("%s %q: %v", annotation, id, err)
			}
		}
	}
}

func TestGetIdentityDefaultTenant(t *testing.T) {
	account := accountA(t)
	delete(account.Attributes, azure.TenantAnnotation)
	const want = "11111111-2222-3333-4444-aaaaaaaaaaaa/" + clientA
	provider := newProvider(t, azure.Config{TenantID: "11111111-2222-3333-4444-AAAAAAAAAAAA"})
	if got, err := provider.GetIdentity(account); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	// The annotation has precedence over the default.
	if got, err := provider.GetIdentity(accountA(t)); err != nil || got != tenantID+"/"+clientA {
		t.Errorf("%s, %v", got, err)
	}
	_, err := newProvider(t, azure.Config{}).GetIdentity(account)
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != auth.CodeIdentityMissing ||
		e.Fix != "set annotation azure.workload.identity/tenant-id of ServiceAccount tenant-a/puller to the ID of the application's tenant, or AZURE_TENANT_ID in the controller's environment" {
		t.Errorf("neither: %v", err)
	}
	_, err = provider.GetIdentity(auth.Account{Subject: account.Subject, UID: "1"})
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeIdentityMissing ||
		e.Fix != "set annotation azure.workload.identity/client-id of ServiceAccount tenant-a/puller to the client ID of a Microsoft Entra application or managed identity" {
		t.Errorf("no client: %v", err)
	}
}

// TestGetIdentityOfWorkloadIdentity checks that a WorkloadIdentity names its identity in fields of
// its providerConfig, and that its annotations are ignored.
func TestGetIdentityOfWorkloadIdentity(t *testing.T) {
	provider := newProvider(t, azure.Config{})
	subject, err := auth.WorkloadIdentity("tenant-a", "pull")
	rig.Must(t, err)
	got, err := provider.GetIdentity(auth.Account{Subject: subject, UID: "1", Attributes: map[string]string{"clientID": clientA, "tenantID": tenantID}})
	if err != nil || got != tenantID+"/"+clientA {
		t.Errorf("%s, %v", got, err)
	}
	_, err = provider.GetIdentity(auth.Account{Subject: subject, UID: "1", Attributes: accountA(t).Attributes})
	if e, ok := errors.AsType[*auth.Error](err); !ok || e.Code != auth.CodeIdentityMissing || !strings.Contains(e.Fix, "providerConfig.clientID of WorkloadIdentity tenant-a/pull") {
		t.Errorf("%v", err)
	}
}

func TestProofAudience(t *testing.T) {
	for i, want := range []string{"api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina"} {
		provider := newProvider(t, azure.Config{Cloud: endpoint.AzureClouds()[i]})
		request := &auth.Request{Key: auth.Key{Subject: accountA(t).Subject, Identity: tenantID + "/" + clientA}}
		if got, err := rig.Audience(t.Context(), provider, request); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		// An impossible identity is refused before a proof is made.
		for _, identity := range []string{"", tenantID, "common/" + clientA, tenantID + "/" + clientA + "/x"} {
			request.Key.Identity = identity
			if got, err := rig.Audience(t.Context(), provider, request); got != "" || auth.CodeOf(err) == "" {
				t.Errorf("%q: %q, %v", identity, got, err)
			}
		}
	}
}

func TestNewProviderRefuses(t *testing.T) {
	plain := endpoint.AzurePublic()
	plain.Authority = "http://login.example.org"
	for name, config := range map[string]azure.Config{
		"tenant":        {TenantID: "contoso.onmicrosoft.com"},
		"timeout":       {Timeout: -1},
		"insecure":      {Transport: rig.Insecure(t)},
		"half a cloud":  {Cloud: endpoint.AzureCloud{Name: "mine"}},
		"without TLS":   {Cloud: plain},
		"many tenants'": {TenantID: "common"},
	} {
		if _, err := azure.NewProvider(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestKeyVectors checks that the text of keys never changes, because other programs and people
// compare the digests of keys.
func TestKeyVectors(t *testing.T) {
	provider := newProvider(t, azure.Config{})
	tenant := rig.Subject(accountA(t), nil)
	const account = "provider=azure,serviceAccountName=puller,serviceAccountNamespace=tenant-a,cloudProviderIdentity=72f988bf-86f1-41af-91ab-2d7cd011db47/d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	proxy := &url.URL{Scheme: "http", Host: "proxy.example.org:3128"}
	for _, test := range []struct {
		name         string
		opts         []auth.Option
		text, digest string
	}{
		{"controller", []auth.Option{auth.WithController()}, "provider=azure", "1fa64d66a9b51dc107e26b835e96243981e8f1de1d421627e75a9c1c5306c2a8"},
		{
			"controller's registry credentials",
			[]auth.Option{auth.WithController(), auth.WithImageRepository(imageA)},
			"provider=azure,imageRepositoryKey=contoso.azurecr.io/tenant-a/app", "",
		},
		{"account", []auth.Option{tenant}, account + ",serviceAccountUID=7b4e", ""},
		{
			"scope",
			[]auth.Option{tenant, auth.WithScopes(azure.DevOpsScope)},
			account + ",scopes=499b84ac-1321-427f-aa17-267ca6975798/.default,serviceAccountUID=7b4e", "",
		},
		{"image", []auth.Option{tenant, auth.WithImageRepository(imageA)}, account + ",imageRepositoryKey=contoso.azurecr.io/tenant-a/app,serviceAccountUID=7b4e", ""},
		// The key does not contain the proxy. A proxy cannot change the token, because it sees only
		// TLS.
		{"proxy", []auth.Option{tenant, auth.WithProxyURL(proxy)}, account + ",serviceAccountUID=7b4e", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, err := auth.Resolve(t.Context(), provider, test.opts...)
			rig.Must(t, err)
			if got := key.String(); got != test.text {
				t.Errorf("text\n got %s\nwant %s", got, test.text)
			}
			if got := key.Digest(); test.digest != "" && got != test.digest {
				t.Errorf("digest %s, want %s", got, test.digest)
			}
		})
	}
}

func TestTokenDoesNotPrint(t *testing.T) {
	token := &azure.Token{Secret: auth.NewSecret("bearer-key"), ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	rig.DoesNotPrint(t, token, "-key", "[Azure token until 2030-01-02T03:04:05Z]")
}

// TestMemoryIsBounded checks that the provider remembers a limited number of identities, however
// many different annotations a tenant writes.
func TestMemoryIsBounded(t *testing.T) {
	provider := newProvider(t, azure.Config{})
	for i := range 20_000 {
		client := fmt.Sprintf("%s%08x", clientA[:28], i)
		if got, err := provider.GetIdentity(rig.WithAttribute(accountA(t), azure.ClientAnnotation, client)); err != nil || got != tenantID+"/"+client {
			t.Fatalf("%s: %s, %v", client, got, err)
		}
	}
	if n := azure.Remembered(provider); n == 0 || n > 5000 {
		t.Errorf("%d identities are remembered", n)
	}
}

// TestHotPathDoesNotAllocate checks that GetIdentity and GetTarget do not allocate memory. They run
// even if the cache has the token.
func TestHotPathDoesNotAllocate(t *testing.T) {
	provider := newProvider(t, azure.Config{TenantID: tenantID})
	account := accountA(t)
	scopes := list(t, azure.DevOpsScope)
	for name, run := range map[string]func(){
		"GetIdentity":      func() { _, _ = provider.GetIdentity(account) },
		"GetTarget":        func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject}) },
		"GetTarget, image": func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject, ImageRepository: imageA}) },
		"GetTarget, scope": func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject, Scopes: scopes}) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzGetIdentity checks that an accepted identity is the two GUIDs of the annotations, in lower
// case. The controller's Entra tenant must not replace an Entra tenant that is set.
func FuzzGetIdentity(f *testing.F) {
	f.Add(tenantID, clientA)
	f.Add("common", clientA)
	f.Add(strings.ToUpper(tenantID), " "+clientA)
	f.Add("", "")
	f.Add("", clientA)
	f.Add(tenantID, "")
	f.Add(tenantID+"/"+clientA, clientA)
	provider, err := azure.NewProvider(azure.Config{TenantID: "11111111-2222-3333-4444-555555555555"})
	rig.Must(f, err)
	f.Fuzz(func(t *testing.T, tenant, client string) {
		account := accountA(t)
		account.Attributes[azure.TenantAnnotation], account.Attributes[azure.ClientAnnotation] = tenant, client
		got, err := provider.GetIdentity(account)
		if err != nil {
			if text := err.Error(); got != "" || len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %s", got, text)
			}
			return
		}
		if got != strings.ToLower(tenant+"/"+client) || len(got) != 73 || strings.Trim(got, "0123456789abcdef-/") != "" || strings.Count(got, "/") != 1 {
			t.Errorf("%q and %q are %q", tenant, client, got)
		}
	})
}

// FuzzScopes checks that an accepted scope is one resource and /.default. The scope must have no
// character that could alter the request to Microsoft Entra.
func FuzzScopes(f *testing.F) {
	for _, seed := range []string{azure.DevOpsScope, "https://storage.azure.com/.default", "api://x/.default", "https://a b/.default", "a,b/.default", "/.default", "https://u@h/.default", "https://&/.default", "https://x/a=b/.default"} {
		f.Add(seed)
	}
	provider, err := azure.NewProvider(azure.Config{})
	rig.Must(f, err)
	f.Fuzz(func(t *testing.T, scope string) {
		scopes, err := auth.NewList(scope)
		if err != nil {
			return
		}
		if _, err := provider.GetTarget(&auth.Options{Scopes: scopes}); err != nil {
			return
		}
		if scopes.String() != scope || !strings.HasSuffix(scope, "/.default") || strings.ContainsAny(scope, " ,=&?#%\\\"\n") || len(scope) > 300 {
			t.Errorf("%q is accepted, and sent as %q", scope, scopes)
		}
	})
}

// TestCloudsShareNoKey checks that tokens of different clouds have different keys, because a
// program may serve two clouds with one cache.
func TestCloudsShareNoKey(t *testing.T) {
	own, err := endpoint.ParseAzureEnvironment([]byte(custom), "")
	rig.Must(t, err)
	seen := map[auth.Key]string{}
	for _, cloud := range append(endpoint.AzureClouds(), own) {
		for _, opts := range [][]auth.Option{nil, {auth.WithScopes(azure.BlobScope(cloud))}} {
			key, err := auth.Resolve(t.Context(), newProvider(t, azure.Config{Cloud: cloud}), asA(t, opts...)...)
			rig.Must(t, err)
			if other, ok := seen[key]; ok {
				t.Errorf("%s and %s share %s", cloud.Name, other, key)
			}
			seen[key] = cloud.Name
		}
	}
}
