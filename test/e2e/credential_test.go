package e2e

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"text/template"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// federatedRegistry is the registry CNCF Distribution behind an Apache server. Apache's module
// mod_auth_openidc accepts requests with the token that a repository requires. Neither program has
// code for Lanyard.
type federatedRegistry struct {
	host    string
	storage http.Handler
}

// requireToken is the part of registryConfig that docs/trust.md shows.
const requireToken = `OIDCOAuthVerifyJwksUri {{.JWKS}}
OIDCOAuthRemoteUserClaim sub
{{- range $repository, $subject := .Subjects}}
<Location /v2/{{$repository}}/>
  AuthType oauth20
  <RequireAll>
    Require claim iss:{{$.Issuer}}
    Require claim aud:{{$.Audience}}
    Require claim sub:{{$subject}}
  </RequireAll>
</Location>
{{- end}}
`

// registryConfig protects each repository: only the token of one subject gives access.
var registryConfig = template.Must(template.New("registry").Parse(apacheBase + requireToken + `
OIDCOutgoingProxy {{.Proxy}}
OIDCCABundlePath {{.Dir}}/ca.pem
ProxyPreserveHost On
ProxyPass /v2/ http://{{.Storage}}/v2/
`))

// clusterKeys is the URL of the keys of the cluster's issuer.
const clusterKeys = local.Issuer + "/keys"

// newFederatedRegistry starts a registry that everybody may use, so that tests can push content.
// Later, protect() restricts access.
func newFederatedRegistry(t *testing.T, host string) *federatedRegistry {
	t.Helper()
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.RelativeURLs = true
	config.Log.AccessLog.Disabled = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &federatedRegistry{host: host, storage: handlers.NewApp(ctx, config)}
	must(t, "start a registry", world.Cloud().Handle(host, r.storage))
	t.Cleanup(func() {
		_ = world.Cloud().Handle(host, nil)
		cancel()
	})
	return r
}

// push publishes a file without a token, and returns the manifest's digest. Call push before
// protect.
func (r *federatedRegistry) push(t *testing.T, repository, tag, content string) string {
	t.Helper()
	return publish(t, "oci://"+r.host+"/"+repository, tag, layer(t, file("app.yaml", content)), authn.Anonymous)
}

// protect makes the registry require a token. For each repository, the map gives the subject that
// the token must have. The token's audience must be the registry's host. The public keys of the
// token's issuer are at the URL jwks.
func (r *federatedRegistry) protect(t *testing.T, issuer, jwks string, subjects map[string]string) {
	t.Helper()
	r.protectFor(t, issuer, jwks, r.host, subjects)
}

// protectFor is like protect, but for tokens with the given audience.
func (r *federatedRegistry) protectFor(t *testing.T, issuer, jwks, audience string, subjects map[string]string) {
	t.Helper()
	address := runApache(t, registryConfig, map[string]any{
		"JWKS": jwks, "Issuer": issuer, "Audience": audience, "Subjects": subjects, "Storage": r.serve(t),
	}, "auth_openidc", "proxy", "proxy_http")
	door := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	must(t, "close the registry", world.Cloud().Handle(r.host, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		minted.add([]byte(req.Header.Get("Authorization")))
		door.ServeHTTP(w, req)
	})))
}

// serve makes the registry's content available on this machine, without protection. It returns the
// host:port.
func (r *federatedRegistry) serve(t *testing.T) (address string) {
	t.Helper()
	storage := httptest.NewServer(r.storage)
	t.Cleanup(storage.Close)
	return storage.Listener.Addr().String()
}

// applyStory applies the manifests in a file of testdata/stories. It waits if another test is still
// removing a namespace of this name.
func applyStory(t *testing.T, name, namespace string) {
	t.Helper()
	eventually(t, "namespace "+namespace+" is free", func(ctx context.Context) error {
		return objects.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	})
	t.Cleanup(func() { (&tenant{namespace: namespace}).remove(t) })
	_, err := world.Apply(t.Context(), readStory(t, name))
	must(t, "apply a story", err)
}

// readStory reads the manifests in a file of testdata/stories. Replacements in the file's text are
// given in pairs of old and new text.
func readStory(t *testing.T, name string, replace ...string) *local.Manifests {
	t.Helper()
	data, err := os.ReadFile("testdata/stories/" + name)
	must(t, "read a story", err)
	data = []byte(strings.NewReplacer(replace...).Replace(string(data)))
	manifests, err := local.ReadManifests(t.Context(), "testdata/stories", fstest.MapFS{name: {Data: data}})
	must(t, "read a story", err)
	return manifests
}

// TestServiceAccountToken tests Stories 1 and 4 of the design of vendor-agnostic credentials
// (testdata/stories). A tenant must not get another tenant's content.
func TestServiceAccountToken(t *testing.T) {
	beside(t, stories)
	zot, harbor := newFederatedRegistry(t, "zot.registry.example.com"), newFederatedRegistry(t, "harbor.registry.example.com")
	manifest := zot.push(t, "tenant-a", "latest", "tenant A's")
	zot.push(t, "tenant-b", "latest", "tenant B's")
	named := zot.push(t, "tenant-e", "1.0.0", "tenant E's")
	harbor.push(t, "apps/my-app", "1.0.0", "the app")
	harbor.push(t, "apps/other", "1.0.0", "another")
	zot.protect(t, local.Issuer, clusterKeys, map[string]string{
		"tenant-a": "system:serviceaccount:tenant-a:tenant-a-sa", "tenant-b": "system:serviceaccount:tenant-b:tenant-b-sa",
		"tenant-e": "system:serviceaccount:tenant-e:named",
	})
	harbor.protect(t, local.Issuer, clusterKeys, map[string]string{
		"apps/my-app": "system:serviceaccount:apps:my-app-sa", "apps/other": "system:serviceaccount:apps:other-sa",
	})

	applyStory(t, "credential-1.yaml", "tenant-a")
	first := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "tenant-a-repo"}}
	await(t, first, "the artifact", revision(manifest))
	if id := first.Status.Identity; id == nil || id.Subject != "system:serviceaccount:tenant-a:tenant-a-sa" || id.CloudIdentity != "" {
		t.Errorf("it was pulled as %+v", id)
	}
	applyStory(t, "credential-4.yaml", "apps")
	scanned := &v1alpha1.ImageRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "my-app"}}
	await(t, scanned, "the tags", func(i *v1alpha1.ImageRepository) error {
		c, scan := ready(i), i.Status.LastScanResult
		return wantf(c.Status == metav1.ConditionTrue && scan != nil && slices.Equal(scan.LatestTags, []string{"1.0.0"}), "%+v, %+v", c, scan)
	})

	t.Run("refused", func(t *testing.T) { refuseTokens(t, zot) })
	t.Run("user name", func(t *testing.T) { takesUserNames(t, zot, named) })
	t.Run("Story 4 of another tenant", func(t *testing.T) {
		tn := newTenant(t, "tenant-d")
		// This ServiceAccount has the same name as the one in credential-4.yaml, but is in another
		// namespace.
		tn.putAccount(t, scanned.Spec.ServiceAccountName, "")
		theirs := scanned.DeepCopy()
		theirs.ObjectMeta, theirs.Status = metav1.ObjectMeta{Namespace: tn.namespace, Name: scanned.Name}, v1alpha1.ImageRepositoryStatus{}
		create(t, theirs)
		await(t, theirs, "the refusal", func(i *v1alpha1.ImageRepository) error {
			return errors.Join(failed(ready(i), "RegistryRefused", "system:serviceaccount:tenant-d:"+scanned.Spec.ServiceAccountName),
				wantf(i.Status.LastScanResult == nil, "it has scanned %+v", i.Status.LastScanResult))
		})
	})
}

// TestServiceAccountTokenInside tests Story 1 in testdata/stories with a registry whose address is
// in --deny-cidrs. By default, --deny-cidrs denies a registry inside the cluster. The controller
// must refuse the registry until the administrator lists its host.
func TestServiceAccountTokenInside(t *testing.T) {
	beside(t, stories)
	zot := newFederatedRegistry(t, "zot.registry.example.com") // this host is the audience in Story 1's manifest
	manifest := zot.push(t, "tenant-a", "latest", "tenant A's")
	zot.protect(t, local.Issuer, clusterKeys, map[string]string{"tenant-a": "system:serviceaccount:tenant-a:tenant-a-sa"})
	company, address := newAuthority(t), ownAddress(t)
	door := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			minted.add([]byte(r.In.Header.Get("Authorization")))
			r.SetURL(&url.URL{Scheme: "https", Host: zot.host})
		},
		Transport: world.Cloud().Transport(),
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	must(t, "listen at "+address, err)
	inside := company.serveAt(t, listener, door)
	for _, tt := range []struct {
		name   string
		listed []any
		want   func(*v1alpha1.OCIRepository) error
	}{
		{"denied", []any{}, failing("EndpointRefused", inside, "--deny-cidrs", "--allowed-endpoint-hosts")},
		{"listed", []any{inside}, revision(manifest)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bundle := filepath.Join(t.TempDir(), "ca.pem")
			must(t, "write the CAs", os.WriteFile(bundle, slices.Concat(world.Cloud().CAPEM(), company.pem), 0o600))
			s := takeShard(t)
			s.start(t, "inside-"+tt.name, map[string]any{
				"identity": map[string]any{"denyCIDRs": []any{address + "/32"}, "allowedEndpointHosts": tt.listed},
				"extraEnv": environment("NO_PROXY="+address, "no_proxy="+address, "SSL_CERT_FILE="+bundle),
			})
			eventually(t, "the namespace is free", func(ctx context.Context) error {
				return objects.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a"}})
			})
			t.Cleanup(func() { (&tenant{namespace: "tenant-a"}).remove(t) })
			_, err := world.Apply(t.Context(), readStory(t, "credential-1.yaml", "oci://"+zot.host, "oci://"+inside,
				"  namespace: tenant-a\nspec:", "  namespace: tenant-a\n  labels: {lanyard.dev/shard: "+s.name+"}\nspec:"))
			must(t, "apply the story", err)
			story := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "tenant-a-repo"}}
			await(t, story, tt.name, tt.want)
		})
	}
}

// takesUserNames tests a registry that only supports Basic authentication and identifies its users
// by name. The password is the token, and the user name is in the ServiceAccount's annotation.
func takesUserNames(t *testing.T, zot *federatedRegistry, manifest string) {
	t.Helper()
	const host, user = "basic.registry.example.com", "robot$e"
	door := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: zot.host}) },
		Transport: world.Cloud().Transport(),
	}
	must(t, "serve a registry", world.Cloud().Handle(host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, basic := r.BasicAuth()
		if !basic || name != user {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("Authorization", "Bearer "+password)
		door.ServeHTTP(w, r)
	})))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
	tn := newTenant(t, "tenant-e")
	pull := func(account string, annotations map[string]string) *v1alpha1.OCIRepository {
		must(t, "make a ServiceAccount", objects.Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: account, Annotations: annotations},
		}))
		o := tn.generic(account, "oci://"+host+"/tenant-e")
		o.Spec.ServiceAccountName = account
		o.Spec.Credential = &v1alpha1.Credential{Type: v1alpha1.CredentialServiceAccountToken, Audiences: []string{zot.host}}
		create(t, o)
		return o
	}
	const annotation = "lanyard.dev/registry-username"
	await(t, pull("named", map[string]string{annotation: user}), "the artifact", revision(manifest))
	await(t, pull("other", map[string]string{annotation: user}), "the refusal", failing("RegistryRefused", "401"))
	await(t, pull("nameless", nil), "the refusal", failing("RegistryRefused", "401"))
	await(t, pull("malformed", map[string]string{annotation: "a:b"}), "the refusal", failing("IdentityInvalid", annotation))
}

// refuseTokens creates objects that refer to zot, a registry that trusts the cluster's issuer.
// Either the controller must refuse the object, or zot must refuse its token.
func refuseTokens(t *testing.T, zot *federatedRegistry) {
	t.Helper()
	tn := newTenant(t, "tenant-f")
	tn.putAccount(t, "tenant-a-sa", "") // the same name as tenant A's account
	stalled := func(reason string, words ...string) func(o *v1alpha1.OCIRepository) error {
		return func(o *v1alpha1.OCIRepository) error {
			return errors.Join(failing(reason, words...)(o),
				wantf(apimeta.IsStatusConditionTrue(o.Status.Conditions, meta.ConditionStalled), "it is not stalled: %+v", o.Status.Conditions))
		}
	}
	for name, tt := range map[string]struct {
		account, url string
		audiences    []string
		want         func(o *v1alpha1.OCIRepository) error
	}{
		"own-account-other-repository": {puller, "tenant-a", []string{zot.host}, failing("RegistryRefused", "tenant-f:"+puller, "401")},
		"account-of-the-same-name":     {"tenant-a-sa", "tenant-a", []string{zot.host}, failing("RegistryRefused", "system:serviceaccount:tenant-f:tenant-a-sa")},
		"no-such-account":              {"tenant-b-sa", "tenant-b", []string{zot.host}, stalled("SubjectNotFound", "tenant-f/tenant-b-sa")},
		"default-audience":             {puller, "tenant-a", nil, failing("RegistryRefused", "401")},
		"nobody":                       {"", "tenant-a", []string{zot.host}, stalled("NotGranted", "--controller-identity-namespaces")},
		"audience-of-the-cluster":      {puller, "tenant-a", []string{local.Issuer}, stalled("AudienceRefused", "API server")},
		"audience-of-sts":              {puller, "tenant-a", []string{stsAudience}, stalled("AudienceRefused", "AWS STS")},
		"audience-of-entra":            {puller, "tenant-a", []string{azureAudience}, stalled("AudienceRefused", "Microsoft Entra")},
	} {
		t.Run(name, func(t *testing.T) {
			o := tn.generic(name, "oci://"+zot.host+"/"+tt.url)
			o.Spec.ServiceAccountName = tt.account
			o.Spec.Credential = &v1alpha1.Credential{Type: v1alpha1.CredentialServiceAccountToken, Audiences: tt.audiences}
			create(t, o)
			await(t, o, "the refusal", tt.want)
		})
	}
	// If a registry refuses a token, the controller presents one new token, and then none for a
	// minute.
	t.Run("one-new-token", func(t *testing.T) {
		tn.putAccount(t, "once", "")
		o := tn.generic("once", "oci://"+zot.host+"/tenant-b")
		o.Spec.ServiceAccountName, o.Spec.Credential = "once", &v1alpha1.Credential{Type: v1alpha1.CredentialServiceAccountToken, Audiences: []string{zot.host}}
		create(t, o)
		await(t, o, "the refusal", failing("RegistryRefused", "401"))
		for range 3 {
			await(t, o, "another attempt", handled(request(t, o)))
		}
		made := 0
		for _, e := range auditLog(t) {
			if e.Verb == "create" && strings.HasSuffix(e.RequestURI, "/namespaces/"+tn.namespace+"/serviceaccounts/once/token") {
				made++
			}
		}
		if made != 2 {
			t.Errorf("%d tokens were made, want 2", made)
		}
	})
}

// tokensAreCredentials tests objects that use tokens of WorkloadIdentities as credentials for a
// registry. The registry trusts Lanyard's own issuer.
func tokensAreCredentials(t *testing.T, w *issuerWorld) {
	t.Helper()
	const name = "puller"
	registry := newFederatedRegistry(t, "identities.registry.example.com")
	manifest := registry.push(t, name, "latest", "the app")
	registry.push(t, "other", "latest", "another")
	identity := w.newIdentity(t, grantedNamespace, name, registry.host)
	elsewhere := w.newIdentity(t, grantedNamespace, "elsewhere", "https://elsewhere.example.com")
	atCloud := w.newRole(t, newTenant(t, "credential"), registry.host)
	registry.protect(t, ownIssuer, ownIssuer+"/jwks", map[string]string{name: issuer.Subject(identity), "other": issuer.Subject(elsewhere)})

	object := func(as, repository string) *v1alpha1.OCIRepository {
		o := &v1alpha1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: as + "-at-" + repository},
			Spec: v1alpha1.OCIRepositorySpec{
				URL:      "oci://" + registry.host + "/" + repository,
				Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
				RegistryAccess: v1alpha1.RegistryAccess{
					Access:     v1alpha1.Access{WorkloadIdentityName: as},
					Credential: &v1alpha1.Credential{Type: v1alpha1.CredentialWorkloadIdentityToken, Audiences: []string{registry.host}},
				},
			},
		}
		must(t, "make an object", w.people.Create(t.Context(), o))
		t.Cleanup(func() { _ = w.people.Delete(context.WithoutCancel(t.Context()), o) })
		return o
	}
	own := object(name, name)
	awaitIn(t, w.people, patience, own, "the artifact", revision(manifest))
	if used := own.Status.Identity; used == nil || used.Subject != "lanyard.dev:workloadidentity:"+grantedNamespace+":"+name {
		t.Errorf("it was pulled as %+v", used)
	}
	for _, tt := range []struct{ as, repository, reason, words string }{
		{name, "other", "RegistryRefused", "401"},
		{elsewhere.Name, "other", "AudienceRefused", "spec.audiences"},
		{atCloud.Name, name, "IdentityInvalid", "targetSystem.type"},
		{"nobody", name, "SubjectNotFound", "nobody"},
	} {
		awaitIn(t, w.people, patience, object(tt.as, tt.repository), "the refusal", failing(tt.reason, tt.words))
	}
	image := &v1alpha1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: grantedNamespace, Name: "image"},
		Spec: v1alpha1.ImageRepositorySpec{
			Image:          registry.host + "/" + name,
			Schedule:       v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}},
			RegistryAccess: v1alpha1.RegistryAccess{Access: v1alpha1.Access{WorkloadIdentityName: name}, Credential: own.Spec.Credential.DeepCopy()},
		},
	}
	must(t, "make an object", w.people.Create(t.Context(), image))
	awaitIn(t, w.people, patience, image, "the tags", func(i *v1alpha1.ImageRepository) error {
		scan := i.Status.LastScanResult
		return wantf(scan != nil && slices.Equal(scan.LatestTags, []string{"latest"}), "%+v: %+v", scan, ready(i))
	})
	must(t, "delete an object", w.people.Delete(t.Context(), image))
}
