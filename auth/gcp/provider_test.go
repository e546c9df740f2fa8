package gcp_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/auth/internal/rig"
)

var (
	_ auth.ControllerProvider = (*gcp.Provider)(nil)
	_ auth.RegistryProvider   = (*gcp.Provider)(nil)
)

const emailA = "tenant-a-bucket@" + projectID + ".iam.gserviceaccount.com"

func newProvider(tb testing.TB, config gcp.Config) *gcp.Provider {
	tb.Helper()
	provider, err := gcp.NewProvider(config)
	rig.Must(tb, err)
	tb.Cleanup(provider.Close)
	return provider
}

func list(tb testing.TB, values ...string) auth.List {
	tb.Helper()
	l, err := auth.NewList(values...)
	rig.Must(tb, err)
	return l
}

func TestGetTarget(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy.example.org:3128"}
	const s3ns = "s3nsapis.fr"
	for _, test := range []struct {
		name     string
		universe string
		options  auth.Options
		want     auth.Target
		code     auth.Code
		fix      string
	}{
		{name: "nothing"},
		{name: "repository", options: auth.Options{ImageRepository: imageA}, want: auth.Target{Image: "gcp"}},
		{name: "registry alone", options: auth.Options{ImageRepository: "us-docker.pkg.dev"}, want: auth.Target{Image: "gcp"}},
		{name: "gcr.io", options: auth.Options{ImageRepository: "eu.gcr.io/p/app"}, want: auth.Target{Image: "gcp"}},
		{name: "that stays in its region", options: auth.Options{ImageRepository: "docker.me-central2.rep.pkg.dev/p/r/app"}, want: auth.Target{Image: "gcp"}},
		{name: "another universe", universe: s3ns, options: auth.Options{ImageRepository: "u-france-east1-docker.s3nsregistry.fr/s3ns/p/r/app"}, want: auth.Target{Image: "gcp", STSEndpoint: "https://sts.s3nsapis.fr"}},
		{name: "a universe's that is not the controller's", universe: s3ns, options: auth.Options{ImageRepository: imageA}, code: auth.CodeEndpointRefused, fix: "universe s3nsapis.fr"},
		{name: "the other way round", options: auth.Options{ImageRepository: "u-france-east1-docker.s3nsregistry.fr/s3ns/p"}, code: auth.CodeEndpointRefused, fix: "universe googleapis.com"},
		{name: "look-alike", options: auth.Options{ImageRepository: "gcr.io.evil.example/p/app"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike before", options: auth.Options{ImageRepository: "evil.example/gcr.io/p/app"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "look-alike user", options: auth.Options{ImageRepository: "gcr.io@evil.example/p"}, code: auth.CodeEndpointRefused, fix: "remove"},
		{name: "another cloud's", options: auth.Options{ImageRepository: "123456789123.dkr.ecr.eu-west-1.amazonaws.com/app"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "Docker Hub", options: auth.Options{ImageRepository: "alpine"}, code: auth.CodeEndpointRefused, fix: "write "},
		{name: "STS endpoint", options: auth.Options{STSEndpoint: "https://sts.googleapis.com"}, code: auth.CodeOptionUnsupported, fix: "leave out the STS endpoint"},
		{name: "STS region", options: auth.Options{STSRegion: "europe-west1"}, code: auth.CodeOptionUnsupported, fix: "leave out the STS region"},
		{name: "scopes", options: auth.Options{Scopes: list(t, "https://www.googleapis.com/auth/pubsub", "email")}},
		{name: "two scopes in one", options: auth.Options{Scopes: list(t, "a b")}, code: auth.CodeOptionInvalid, fix: "each scope by itself"},
		{name: "a scope with a quote", options: auth.Options{Scopes: list(t, `a"b`)}, code: auth.CodeOptionInvalid, fix: "each scope by itself"},
		{name: "proxy", options: auth.Options{ProxyURL: proxy}},
		{name: "controller", options: auth.Options{Subject: auth.Controller()}},
		{name: "controller by proxy", options: auth.Options{Subject: auth.Controller(), ProxyURL: proxy}, code: auth.CodeEndpointRefused, fix: "such as a ServiceAccount"},
	} {
		t.Run(test.name, func(t *testing.T) {
			provider := newProvider(t, gcp.Config{UniverseDomain: test.universe})
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
				if e, ok := errors.AsType[*auth.Error](err); ok && !strings.Contains(e.Fix, test.fix) {
					t.Errorf("fix %q, want %q in it", e.Fix, test.fix)
				}
			}
		})
	}
}

func TestGetIdentity(t *testing.T) {
	account := tenant(t, "tenant-a")
	workload, err := auth.WorkloadIdentity("tenant-a", "reader")
	rig.Must(t, err)
	const scoped, compute, appEngine = "tenant-a@p.example.com.iam.gserviceaccount.com", "12-compute@developer.gserviceaccount.com", "p@appspot.gserviceaccount.com"
	for _, test := range []struct {
		universe, account, provider string
		want                        string
	}{
		{"", "", "", ""},
		{"", emailA, "", emailA},
		{"", scoped, "", scoped},
		{"", compute, "", compute},
		{"", appEngine, "", appEngine},
		{"", "", providerName, providerName},
		{"", "", "//iam.googleapis.com/" + providerName, providerName},
		{"", "", "https://iam.googleapis.com/" + providerName, providerName},
		{"", emailA, "https://iam.googleapis.com/" + providerName, providerName + "/serviceAccounts/" + emailA},
		{"s3nsapis.fr", "tenant-a@p.s3ns.iam.gserviceaccount.com", providerName, providerName + "/serviceAccounts/tenant-a@p.s3ns.iam.gserviceaccount.com"},
	} {
		provider := newProvider(t, gcp.Config{UniverseDomain: test.universe})
		a := rig.WithAttribute(rig.WithAttribute(account, gcp.ServiceAccountAnnotation, test.account), gcp.ProviderAnnotation, test.provider)
		for range 2 {
			if got, err := provider.GetIdentity(a); err != nil || got != test.want {
				t.Errorf("%+v: %q, %v", test, got, err)
			}
		}
		// A WorkloadIdentity names its identity in its providerConfig; its annotations do not
		// count.
		b := rig.WithAttribute(rig.WithAttribute(auth.Account{Subject: workload, UID: "1"}, gcp.ServiceAccountField, test.account), gcp.ProviderField, test.provider)
		got, err := provider.GetIdentity(b)
		if test.provider == "" {
			e, ok := errors.AsType[*auth.Error](err)
			if !ok || e.Code != auth.CodeIdentityMissing || !strings.HasSuffix(e.Fix, "set providerConfig.workloadIdentityProvider of WorkloadIdentity tenant-a/reader to the resource name of a workload identity provider") {
				t.Errorf("WorkloadIdentity %+v: %v", test, err)
			}
		} else if err != nil || got != test.want {
			t.Errorf("WorkloadIdentity %+v: %q, %v", test, got, err)
		}
		a.Subject = workload
		if _, err := provider.GetIdentity(a); auth.CodeOf(err) != auth.CodeIdentityMissing {
			t.Errorf("annotations of a WorkloadIdentity: %v", err)
		}
	}
}

func TestGetIdentityRefuses(t *testing.T) {
	const (
		ofAccount  = "annotation iam.gke.io/gcp-service-account of ServiceAccount tenant-a/tenant-a-gcs-sa"
		ofFlux     = "annotation gcp.auth.fluxcd.io/workload-identity-provider of ServiceAccount tenant-a/tenant-a-gcs-sa"
		ofProvider = "annotation gcp.lanyard.dev/workload-identity-provider of ServiceAccount tenant-a/tenant-a-gcs-sa"
	)
	provider := newProvider(t, gcp.Config{})
	for _, test := range []struct{ annotation, value, where, text string }{
		{gcp.ServiceAccountAnnotation, "", ofAccount, "it is empty"},
		{gcp.ServiceAccountAnnotation, " ", ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, "tenant-a", ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, emailA + "\n", ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, emailA + ",", ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, strings.ToUpper(emailA), ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, "someone@gmail.com", ofAccount, "not a domain of service accounts"},
		{gcp.ServiceAccountAnnotation, emailA + ".evil.example", ofAccount, "not a domain of service accounts"},
		{gcp.ServiceAccountAnnotation, "a-b-c-d@iam.gserviceaccount.com", ofAccount, "not a domain of service accounts"},
		{gcp.ServiceAccountAnnotation, "tenant-a@p.s3ns.iam.gserviceaccount.com", ofAccount, "in universe s3nsapis.fr"},
		{gcp.ServiceAccountAnnotation, "tenant-a@p.evil.iam.gserviceaccount.com", ofAccount, "neither a domain nor the prefix"},
		{gcp.ServiceAccountAnnotation, "../x@p.iam.gserviceaccount.com", ofAccount, "the name"},
		{gcp.ServiceAccountAnnotation, "114732234123412341234", ofAccount, "not an address"},
		{gcp.ServiceAccountAnnotation, "projects/-/serviceAccounts/" + emailA, ofAccount, "the name"},
		{gcp.ProviderAnnotation, "", ofProvider, "it is empty"},
		{gcp.ProviderAnnotation, "my-cluster", ofProvider, "not the name of a provider"},
		{gcp.ProviderAnnotation, "https://evil.example/" + providerName, ofProvider, "not a resource name of iam.googleapis.com"},
		{gcp.ProviderAnnotation, "https://iam.googleapis.com.evil.example/" + providerName, ofProvider, "not a resource name of iam.googleapis.com"},
		{gcp.ProviderAnnotation, strings.Replace(providerName, projectNumber, projectID, 1), ofProvider, "not a number"},
		{gcp.ProviderAnnotation, strings.Replace(providerName, "global", "eu", 1), ofProvider, "not global"},
		{gcp.ProviderAnnotation, strings.Replace(providerName, "pools", "pool", 1), ofProvider, ""},
		{gcp.ProviderAnnotation, providerName + "/", ofProvider, "not the name of a provider"},
		{gcp.ProviderAnnotation, providerName + "\n", ofProvider, "the provider"},
		{gcp.ProviderAnnotation, providerName + "/serviceAccounts/" + emailA, ofProvider, "not the name of a provider"},
		{gcp.FluxProviderAnnotation, "", ofFlux, "it is empty"},
		{gcp.FluxProviderAnnotation, "https://evil.example/" + providerName, ofFlux, "not a resource name of iam.googleapis.com"},
	} {
		account := tenant(t, "tenant-a")
		account.Attributes[test.annotation] = test.value
		_, err := provider.GetIdentity(account)
		e, ok := errors.AsType[*auth.Error](err)
		if test.text == "" && err == nil {
			continue
		}
		if !ok || e.Stage != auth.StageIdentity || e.Code != auth.CodeIdentityInvalid || e.Fix == "" ||
			!strings.HasPrefix(e.Err.Error(), test.where+": ") || !strings.Contains(e.Err.Error(), test.text) {
			t.Errorf("%s %q: %v", test.annotation, test.value, err)
		}
	}
}

// TestFluxAnnotation checks that Flux's annotation may name the provider in every form that Flux
// accepts. Flux's annotation and ProviderAnnotation give the proof different audiences. So
// GetIdentity must return different identities for them.
func TestFluxAnnotation(t *testing.T) {
	const full = "//iam.googleapis.com/" + providerName
	provider := newProvider(t, gcp.Config{})
	for _, test := range []struct{ said, account, want string }{
		{providerName, "", full},
		{full, "", full},
		{"https:" + full, emailA, full + "/serviceAccounts/" + emailA},
	} {
		account := rig.WithAttribute(rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, test.account), gcp.FluxProviderAnnotation, test.said)
		if got, err := provider.GetIdentity(account); err != nil || got != test.want {
			t.Errorf("%q: %q, %v", test.said, got, err)
		}
	}
	both := rig.WithAttribute(rig.WithAttribute(tenant(t, "tenant-a"), gcp.ProviderAnnotation, providerName), gcp.FluxProviderAnnotation, providerName)
	if _, err := provider.GetIdentity(both); auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), gcp.FluxProviderAnnotation) {
		t.Errorf("both annotations: %v", err)
	}
	workload, err := auth.WorkloadIdentity("tenant-a", "reader")
	rig.Must(t, err)
	foreign := rig.WithAttribute(auth.Account{Subject: workload, UID: "1"}, gcp.FluxProviderAnnotation, providerName)
	if _, err := provider.GetIdentity(foreign); auth.CodeOf(err) != auth.CodeIdentityMissing {
		t.Errorf("a WorkloadIdentity: %v", err)
	}
}

// TestKeys checks the text of keys, which must not change by accident. Accounts and options that
// need different tokens must have keys with different texts.
func TestKeys(t *testing.T) {
	provider := newProvider(t, gcp.Config{})
	const (
		prefix = "provider=gcp,serviceAccountName=tenant-a-gcs-sa,serviceAccountNamespace=tenant-a"
		uid    = ",serviceAccountUID=uid-of-tenant-a"
		sha    = 64
	)
	for _, test := range []struct {
		account, provider string
		options           []auth.Option
		want              string
	}{
		{want: prefix + uid},
		{account: emailA, want: prefix + ",cloudProviderIdentity=" + emailA + uid},
		{provider: "//iam.googleapis.com/" + providerName, want: prefix + ",cloudProviderIdentity=" + providerName + uid},
		{account: emailA, provider: providerName, want: prefix + ",cloudProviderIdentity=" + providerName + "/serviceAccounts/" + emailA + uid},
		{options: []auth.Option{auth.WithImageRepository(imageA)}, want: prefix + ",imageRepositoryKey=gcp" + uid},
		{
			account: emailA, options: []auth.Option{auth.WithScopes("https://www.googleapis.com/auth/pubsub", "email")},
			want: prefix + ",cloudProviderIdentity=" + emailA + ",scopes=https://www.googleapis.com/auth/pubsub,email" + uid,
		},
		// The auth.Key does not name the proxy, because the proxy cannot change the token. On the
		// way to Google, it sees only TLS.
		{options: []auth.Option{auth.WithProxyURL(&url.URL{Scheme: "http", Host: "proxy:1"})}, want: prefix + uid},
	} {
		account := rig.WithAttribute(rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, test.account), gcp.ProviderAnnotation, test.provider)
		subject := rig.Subject(account, nil)
		key, err := auth.Resolve(t.Context(), provider, append(test.options, subject)...)
		if err != nil || key.String() != test.want || len(key.Digest()) != sha {
			t.Errorf("%s, %v\nwant %s", key, err, test.want)
		}
	}
	key, err := auth.Resolve(t.Context(), provider, auth.WithController(), auth.WithImageRepository(imageA))
	if err != nil || key.String() != "provider=gcp,imageRepositoryKey=gcp" {
		t.Errorf("%s, %v", key, err)
	}
}

func TestProofRequest(t *testing.T) {
	w := newWorld(t)
	subject := tenant(t, "tenant-a").Subject
	workload, err := auth.WorkloadIdentity("tenant-a", "reader")
	rig.Must(t, err)
	for _, test := range []struct {
		subject         auth.Subject
		identity, image string
		want            string
		code            auth.Code
		lifetime        time.Duration
	}{
		{subject: subject, want: gkePool, lifetime: time.Hour},
		{subject: subject, identity: emailA, want: gkePool},
		{subject: subject, identity: providerName, want: "https://iam.googleapis.com/" + providerName, lifetime: time.Hour},
		{subject: subject, identity: providerName + "/serviceAccounts/" + emailA, want: "https://iam.googleapis.com/" + providerName},
		// An identity from Flux's annotation begins with //. The audience of its proof is then
		// the full resource name of the workload identity provider.
		{subject: subject, identity: "//iam.googleapis.com/" + providerName, want: "//iam.googleapis.com/" + providerName, lifetime: time.Hour},
		{subject: subject, identity: "//iam.googleapis.com/" + providerName + "/serviceAccounts/" + emailA, want: "//iam.googleapis.com/" + providerName},
		{subject: subject, image: imageA, want: gkePool, lifetime: time.Hour},
		{subject: workload, identity: providerName, want: "https://iam.googleapis.com/" + providerName, lifetime: time.Hour},
		// These requests are refused before a proof is made.
		{subject: workload, code: auth.CodeIdentityMissing},
		{subject: workload, identity: emailA, code: auth.CodeIdentityMissing},
		{subject: subject, image: "gcr.io.evil.example/app", code: auth.CodeEndpointRefused},
		{subject: subject, identity: "nonsense", code: auth.CodeIdentityInvalid},
		{subject: subject, identity: "/serviceAccounts/x", code: auth.CodeIdentityInvalid},
	} {
		request := &auth.Request{Key: auth.Key{Subject: test.subject, Identity: test.identity}, ImageRepository: test.image}
		asked, err := w.gcp.GetProofRequest(t.Context(), request)
		got := strings.Join(asked.Audiences, " and ")
		if got != test.want || auth.CodeOf(err) != test.code {
			t.Errorf("%+v: audience %q, %v", test, got, err)
		}
		if e, ok := errors.AsType[*auth.Error](err); ok && e.Fix == "" {
			t.Errorf("%+v: no fix: %v", test, err)
		}
		if got := asked.Lifetime; got != test.lifetime {
			t.Errorf("%+v: a proof for %s, want %s", test, got, test.lifetime)
		}
	}
}

func TestNewProviderRefuses(t *testing.T) {
	for name, config := range map[string]gcp.Config{
		"universe":        {UniverseDomain: "evil.example"},
		"timeout":         {Timeout: -1},
		"insecure":        {Transport: rig.Insecure(t)},
		"metadata URL":    {MetadataHost: "http://169.254.169.254"},
		"metadata path":   {MetadataHost: "169.254.169.254/x"},
		"metadata user":   {MetadataHost: "me@169.254.169.254"},
		"metadata spaces": {MetadataHost: "a b"},
		"metadata port":   {MetadataHost: ":80"},
	} {
		if _, err := gcp.NewProvider(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, host := range []string{"", "metadata.google.internal", "169.254.169.254", "localhost:8080", "[fd20:ce::254]:80"} {
		if _, err := gcp.NewProvider(gcp.Config{MetadataHost: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestTokenDoesNotPrint(t *testing.T) {
	token := &gcp.Token{Secret: auth.NewSecret("ya29-secret"), ExpiresAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	rig.DoesNotPrint(t, token, "-secret", "[Google Cloud token until 2030-01-02T03:04:05Z]")
	if o := token.OAuth2(); o.AccessToken != "ya29-secret" || o.TokenType != "Bearer" || !o.Expiry.Equal(token.ExpiresAt) {
		t.Error("OAuth2 is another token")
	}
}

// TestMemoryIsBounded checks that the provider remembers a limited number of identities, however
// many a tenant names.
func TestMemoryIsBounded(t *testing.T) {
	provider := newProvider(t, gcp.Config{})
	for i := range 20_000 {
		email := fmt.Sprintf("tenant-%d@p.iam.gserviceaccount.com", i)
		if got, err := provider.GetIdentity(rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, email)); err != nil || got != email {
			t.Fatalf("%s: %s, %v", email, got, err)
		}
	}
	if n := gcp.Remembered(provider); n == 0 || n > 5000 {
		t.Errorf("%d claims are remembered", n)
	}
}

// TestHotPathDoesNotAllocate checks that GetIdentity and GetTarget do not allocate. GetTarget runs
// on every call of auth.GetToken, even if the cache has the token. So does GetIdentity, if the call
// has Accounts.
func TestHotPathDoesNotAllocate(t *testing.T) {
	provider := newProvider(t, gcp.Config{})
	account := rig.WithAttribute(rig.WithAttribute(tenant(t, "tenant-a"), gcp.ServiceAccountAnnotation, emailA), gcp.ProviderAnnotation, providerName)
	for name, run := range map[string]func(){
		"GetIdentity":              func() { _, _ = provider.GetIdentity(account) },
		"GetTarget":                func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject}) },
		"GetTarget, with an image": func() { _, _ = provider.GetTarget(&auth.Options{Subject: account.Subject, ImageRepository: imageA}) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestUniversesShareNoKey checks that tokens of different universes have different keys, because a
// program may serve two universes with one cache.
func TestUniversesShareNoKey(t *testing.T) {
	seen := map[auth.Key]string{}
	for _, universe := range endpoint.GCPUniverses() {
		account := rig.WithAttribute(tenant(t, "tenant-a"), gcp.ProviderAnnotation, providerName)
		key, err := auth.Resolve(t.Context(), newProvider(t, gcp.Config{UniverseDomain: universe.Domain}), rig.Subject(account, nil))
		rig.Must(t, err)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s share %s", universe.Domain, other, key)
		}
		seen[key] = universe.Domain
	}
}

// TestScopesDoNotAllocate checks that GetTarget does not allocate for scopes that the provider has
// parsed before.
func TestScopesDoNotAllocate(t *testing.T) {
	provider := newProvider(t, gcp.Config{})
	scopes, err := auth.NewList("https://www.googleapis.com/auth/devstorage.read_only", "https://www.googleapis.com/auth/pubsub")
	rig.Must(t, err)
	options := auth.Options{Subject: tenant(t, "tenant-a").Subject, Scopes: scopes}
	if n := testing.AllocsPerRun(100, func() { _, _ = provider.GetTarget(&options) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
