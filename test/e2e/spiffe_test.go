package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	distribution "github.com/distribution/distribution/v3/registry"
	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// trustDomain is the trust domain in testdata/stories. The local cloud serves spiffeIssuer's
	// documents.
	trustDomain  = "example.com"
	spiffeIssuer = "https://spiffe.e2e.example.com"
	// productionNamespace is the namespace in testdata/stories. The controller may also act for
	// objects in stagingNamespace, but not for objects in ungrantedNamespace.
	productionNamespace, stagingNamespace, ungrantedNamespace = "production", "staging", "ungranted"
)

// spiffeWorld is a cluster whose objects have SVIDs. It has no issuer for WorkloadIdentities.
type spiffeWorld struct {
	*local.Cluster

	people      client.Client // client of the administrator
	tokenServer *local.Program
	// company is the authority that issues the registries' certificates. The controller trusts it.
	company *authority
	// bundle is the trust domain's bundle, as a SPIFFE-aware service reads it.
	bundle *spiffebundle.Bundle
	// mutual, guarded, patient, brokered and gated are the addresses of five registries. Each
	// registry requires a client certificate.
	mutual, guarded, patient, brokered, gated string

	controller *local.Program
	// broker is the chart's value spiffe.broker; nil without a broker.
	broker map[string]any
}

// TestSPIFFE tests Stories 2 and 3 of the design of vendor-agnostic credentials. It also tests
// attempts of other tenants, which must be refused. Other projects' software verifies the SVIDs:
// Apache, CNCF Distribution, NATS, Kubernetes' API server and SPIFFE's library.
func TestSPIFFE(t *testing.T) {
	beside(t, lane2)
	w := installSPIFFE(t)
	w.readBundle(t, spiffeIssuer)
	registry := newFederatedRegistry(t, spiffeRegistry)
	manifest := registry.push(t, tokenApp, "latest", "the app")
	registry.push(t, scannedApp, "1.0.0", "the scanned app")
	registry.protect(t, spiffeIssuer, spiffeIssuer+"/jwks", map[string]string{
		tokenApp: id(productionNamespace, tokenApp), scannedApp: imageID(productionNamespace, scannedApp),
	})
	t.Run("JWT", func(t *testing.T) { provesByJWT(t, w, manifest) })
	t.Run("certificate", func(t *testing.T) { provesByCertificate(t, w) })
	t.Run("NATS", func(t *testing.T) { judgedByNATS(t, w) })
	t.Run("Kubernetes", func(t *testing.T) { judgedByKubernetes(t, w) })
	noRightIsMissing(t, w.Cluster)
	t.Run("only the controller", func(t *testing.T) { onlyTheController(t, w) })
	t.Run("lanyard token", func(t *testing.T) { administratorLooks(t, w) })
	t.Run("deleted object", func(t *testing.T) { deletedObject(t, w, manifest) })
	t.Run("documents", func(t *testing.T) { sameDocuments(t, w) })
	t.Run("changes of keys", func(t *testing.T) { keysChange(t, w) })
	t.Run("broker", func(t *testing.T) { issuedByBroker(t, w) })
}

// installSPIFFE starts the cluster and the chart's programs.
func installSPIFFE(t *testing.T) *spiffeWorld {
	t.Helper()
	cluster := startCluster(t, "spiffe", "", nil)
	w := &spiffeWorld{
		Cluster: cluster, people: cluster.Client(), company: newAuthority(t),
		mutual: freeAddress(t), guarded: freeAddress(t), patient: freeAddress(t), brokered: freeAddress(t), gated: freeAddress(t),
	}
	for _, name := range []string{productionNamespace, stagingNamespace, ungrantedNamespace} {
		must(t, "make a namespace", w.people.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	w.install(t, "")
	var all []local.ProgramOptions
	for _, name := range []string{discoveryServer, tokenServer, "lanyard-controller"} {
		all = append(all, local.ProgramOptions{Workload: name, Binary: daemon(name)})
	}
	must(t, "start the programs", w.StartPrograms(t.Context(), all, func(p *local.Program) {
		switch p.Workload {
		case tokenServer:
			w.tokenServer = p
		case "lanyard-controller":
			w.controller = p
		}
	}))
	return w
}

// install installs the chart. If secret is not empty, the trust domain's authority comes from the
// Secret with this name.
func (w *spiffeWorld) install(t *testing.T, secret string) {
	t.Helper()
	values, spiffe := loudest(), map[string]any{"trustDomain": trustDomain, "issuer": spiffeIssuer, "secretName": secret}
	// With a broker, the trust domain is the broker's, so do not set one.
	if w.broker != nil {
		spiffe = map[string]any{"broker": w.broker}
	}
	maps.Copy(values, map[string]any{
		"spiffe":   spiffe,
		"issuer":   map[string]any{"keys": map[string]any{"publishDelay": publishDelay.String()}},
		"rbac":     map[string]any{"tenantNamespaces": []any{productionNamespace, stagingNamespace}},
		"identity": map[string]any{"allowedEndpointHosts": []any{w.mutual, w.guarded, w.patient, w.brokered, w.gated}},
		"extraEnv": w.company.trusted(t),
	})
	must(t, "install the chart", w.InstallChart(t.Context(), values))
}

// readBundle waits until the trust domain has an active key and an active authority. It then reads
// the trust domain's bundle from the SPIFFE issuer.
func (w *spiffeWorld) readBundle(t *testing.T, issuer string) {
	t.Helper()
	w.awaitAuthority(t, func(*identityv1.Authority) bool { return true })
	bundle, err := spiffebundle.Parse(spiffeid.RequireTrustDomainFromString(trustDomain), published(t, issuer+"/bundle"))
	must(t, "read the bundle", err)
	w.bundle = bundle
}

// awaitAuthority waits until the trust domain has an active key, and an active authority that the
// function accepts. It waits up to a minute, because the token server checks two things only every
// 15 seconds: whether the Secret has another authority, and whether the publish delay is over.
func (w *spiffeWorld) awaitAuthority(t *testing.T, is func(*identityv1.Authority) bool) {
	t.Helper()
	within(t, time.Minute, "a key and the authority are active", func(context.Context) error {
		ring := readRing(t, w.people, identityv1.SPIFFEKeyRing)
		active := slices.ContainsFunc(ring.Status.Authorities, func(a identityv1.Authority) bool {
			return a.State == identityv1.KeyActive && is(&a)
		})
		return wantf(active && kidOf(ring, identityv1.KeyActive) != "", "the ring is %+v", ring.Status)
	})
}

// published returns a public document from the local cloud.
func published(t *testing.T, url string) []byte {
	t.Helper()
	data, err := readDocument(t.Context(), url)
	must(t, "read a public document", err)
	return data
}

// id returns the SPIFFE ID of an OCIRepository.
func id(namespace, name string) string {
	return "spiffe://" + trustDomain + "/ocirepositories/" + namespace + "/" + name
}

// imageID returns the SPIFFE ID of an ImageRepository.
func imageID(namespace, name string) string {
	return "spiffe://" + trustDomain + "/imagerepositories/" + namespace + "/" + name
}

// await reads the object into o again and again, until the function want returns nil.
func (w *spiffeWorld) await(t *testing.T, o *v1alpha1.OCIRepository, want func(o *v1alpha1.OCIRepository) error) {
	t.Helper()
	awaitIn(t, w.people, patience, o, "as wanted", want)
}

// newObject creates an OCIRepository with this credential.
func (w *spiffeWorld) newObject(t *testing.T, namespace, name, url string, credential v1alpha1.Credential) *v1alpha1.OCIRepository {
	t.Helper()
	o := &v1alpha1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.OCIRepositorySpec{URL: url, Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}}, RegistryAccess: v1alpha1.RegistryAccess{Credential: &credential}},
	}
	must(t, "make an object", w.people.Create(t.Context(), o))
	return o
}

// The names of the objects in testdata/stories.
const (
	tokenApp, certificateApp = "my-app", "secure-app"
	spiffeRegistry           = "spiffe.registry.example.com"
	// scannedApp is the name of an ImageRepository and of its repository.
	scannedApp = "scanned"
)

// provesByJWT tests Story 2 in testdata/stories: the registry authorizes the object's SPIFFE ID.
func provesByJWT(t *testing.T, w *spiffeWorld, manifest string) {
	t.Helper()
	_, err := w.Apply(t.Context(), readStory(t, "credential-2.yaml"))
	must(t, "apply the story", err)
	app := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: productionNamespace, Name: tokenApp}}
	w.await(t, app, revision(manifest))
	if used := app.Status.Identity; used == nil || used.CloudIdentity != id(productionNamespace, tokenApp) {
		t.Errorf("it was pulled as %+v", used)
	}

	own := v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeJWT, Audiences: []string{spiffeRegistry}}
	elsewhere, cluster, cloud := own, own, own
	elsewhere.Audiences, cluster.Audiences, cloud.Audiences = nil, []string{w.issuer()}, []string{stsAudience}
	for _, tt := range []struct {
		namespace, name string
		credential      v1alpha1.Credential
		reason, words   string
	}{
		{stagingNamespace, tokenApp, own, "RegistryRefused", "401"},
		{productionNamespace, "neighbour", own, "RegistryRefused", "401"},
		{productionNamespace, "default-audience", elsewhere, "RegistryRefused", "401"},
		{stagingNamespace, "audience-of-the-cluster", cluster, "AudienceRefused", "API server"},
		{stagingNamespace, "audience-of-sts", cloud, "AudienceRefused", "AWS STS"},
	} {
		t.Run(tt.namespace+"/"+tt.name, func(t *testing.T) {
			o := w.newObject(t, tt.namespace, tt.name, app.Spec.URL, tt.credential)
			w.await(t, o, failing(tt.reason, tt.words))
		})
	}

	t.Run("image", func(t *testing.T) {
		scans(t, w.people, spiffeRegistry+"/"+scannedApp, own, imageID(productionNamespace, scannedApp))
		// An OCIRepository with the same name is another object with another SPIFFE ID, so the
		// registry must refuse it.
		same := w.newObject(t, productionNamespace, scannedApp, "oci://"+spiffeRegistry+"/"+scannedApp, own)
		w.await(t, same, failing("RegistryRefused", "401"))
	})
	t.Run("forged", func(t *testing.T) {
		answer, err := w.request(t.Context(), controllerUser, app, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: app.UID})
		must(t, "get the object's SVID", err)
		genuine := answer.Status.Token
		parsed, err := jwtsvid.ParseAndValidate(genuine, w.bundle, []string{spiffeRegistry})
		if must(t, "SPIFFE's library reads the SVID", err); parsed.ID.String() != id(productionNamespace, tokenApp) {
			t.Errorf("the SVID is of %s", parsed.ID)
		}
		kid, err := kidOfToken(genuine)
		must(t, "read a token", err)
		forged := signAs(t, claimsOf(t, genuine), jose.RS256, jose.JSONWebKey{Key: newKey(t), KeyID: kid})
		tags := "https://" + spiffeRegistry + "/v2/" + tokenApp + "/tags/list"
		cloud := &http.Client{Transport: world.Cloud().Transport()}
		for token, want := range map[string]int{genuine: http.StatusOK, forged: http.StatusUnauthorized, unsigned(t, genuine): http.StatusUnauthorized} {
			if got := statusOf(t, cloud, tags, token); got != want {
				t.Errorf("HTTP %d, want %d, for %s", got, want, strings.SplitN(token, ".", 2)[0])
			}
		}
	})
}

// issuer returns the issuer of the cluster's ServiceAccounts. The cluster's API server accepts
// tokens that have this issuer as their audience.
func (w *spiffeWorld) issuer() string { return "https://oidc.spiffe.example.com/id" }

// statusOf sends a GET request and returns the status of the answer. It presents a bearer token
// unless the token is empty. The status is 0 if the server refuses the connection.
func statusOf(t *testing.T, c *http.Client, address, bearer string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, "make a request", err)
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	answer, err := c.Do(request)
	if _, refused := errors.AsType[*url.Error](err); refused {
		return 0
	}
	must(t, "call "+address, err)
	must(t, "read an answer", answer.Body.Close())
	return answer.StatusCode
}

// controllerUser is the user name of the controller's ServiceAccount.
const controllerUser = "system:serviceaccount:" + local.Namespace + ":lanyard-controller"

// request impersonates a user, and requests the SVID of an object.
func (w *spiffeWorld) request(ctx context.Context, user string, o *v1alpha1.OCIRepository, spec tokenv1.SVIDRequestSpec) (*tokenv1.SVIDRequest, error) {
	config := w.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(&tokenv1.SVIDRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: tokenv1.GroupVersion().String(), Kind: tokenv1.SVIDRequestKind}, Spec: spec,
	})
	if err != nil {
		return nil, err
	}
	answer := typed.CoreV1().RESTClient().Post().
		AbsPath("/apis/token.lanyard.dev/v1alpha1/namespaces/"+o.Namespace+"/ocirepositories/"+o.Name+"/svid").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx)
	if err := answer.Error(); err != nil {
		// Unlike answer.Raw, answer.Error decodes the Status in the answer.
		return nil, err
	}
	data, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	minted.add(data)
	made := &tokenv1.SVIDRequest{}
	return made, json.Unmarshal(data, made)
}

// requireCertificate is the part of certificateRegistry that docs/trust.md shows.
const requireCertificate = `SSLVerifyClient require
SSLVerifyDepth 2
SSLCACertificateFile {{.Authorities}}
{{- range $repository, $id := .Subjects}}
<Location /v2/{{$repository}}/>
  Require expr "'URI:{{$id}}' in PeerExtList('subjectAltName')"
</Location>
{{- end}}
`

// certificateRegistry is the configuration of Apache in front of the registry CNCF Distribution.
// For each repository, Apache requires a certificate with one SPIFFE ID.
var certificateRegistry = template.Must(template.New("certificates").Parse(apacheBase + `
Listen {{.TLS}}
SSLSessionCache none
<VirtualHost {{.TLS}}>
  SSLEngine on
  SSLCertificateFile {{.Certificate}}
  SSLCertificateKeyFile {{.Key}}
  ProxyPreserveHost On
  ProxyPass /v2/ http://{{.Storage}}/v2/
` + requireCertificate + `</VirtualHost>
`))

// serverFiles writes the files for a server that verifies client certificates: the server's
// certificate and key, and the authorities of the trust domain.
func (w *spiffeWorld) serverFiles(t *testing.T) (certificate, key, authorities string) {
	t.Helper()
	return w.serverFilesFor(t, w.bundle.X509Authorities())
}

// serverFilesFor is like serverFiles, with other authorities for clients.
func (w *spiffeWorld) serverFilesFor(t *testing.T, clients []*x509.Certificate) (certificate, key, authorities string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key, authorities = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "clients.pem")
	made, private := w.company.issue(t)
	var trusted bytes.Buffer
	for _, a := range clients {
		must(t, "write an authority", pem.Encode(&trusted, &pem.Block{Type: "CERTIFICATE", Bytes: a.Raw}))
	}
	for path, content := range map[string][]byte{certificate: made, key: private, authorities: trusted.Bytes()} {
		must(t, "write a file", os.WriteFile(path, content, 0o600))
	}
	return certificate, key, authorities
}

// startMutual runs CNCF Distribution for clients with a certificate of the trust domain.
func (w *spiffeWorld) startMutual(t *testing.T) {
	t.Helper()
	w.startDistribution(t, w.mutual, w.bundle.X509Authorities())
}

// startDistribution runs CNCF Distribution for clients with a certificate of these authorities.
func (w *spiffeWorld) startDistribution(t *testing.T, address string, clients []*x509.Certificate) {
	t.Helper()
	config := &configuration.Configuration{Storage: configuration.Storage{
		"inmemory":    configuration.Parameters{},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
	}}
	config.HTTP.RelativeURLs, config.HTTP.Addr = true, address
	config.Log.AccessLog.Disabled, config.Log.Level = true, "error"
	certificate, key, authorities := w.serverFilesFor(t, clients)
	config.HTTP.TLS.Certificate, config.HTTP.TLS.Key, config.HTTP.TLS.ClientCAs = certificate, key, []string{authorities}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	registry, err := distribution.NewRegistry(ctx, config)
	must(t, "make a registry", err)
	ended := make(chan error, 1)
	go func() { ended <- registry.ListenAndServe() }()
	t.Cleanup(func() {
		_ = registry.Shutdown(ctx)
		<-ended
		cancel()
	})
	eventually(t, "distribution listens", func(ctx context.Context) error {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// provesByCertificate tests Story 3 in testdata/stories: the object authenticates itself in TLS.
func provesByCertificate(t *testing.T, w *spiffeWorld) {
	t.Helper()
	w.startMutual(t)
	_, err := w.Apply(t.Context(), readStory(t, "credential-3.yaml", "127.0.0.1:443", w.mutual))
	must(t, "apply the story", err)
	app := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: productionNamespace, Name: certificateApp}}
	must(t, "read the object", w.people.Get(t.Context(), client.ObjectKeyFromObject(app), app))
	own := w.certificate(t, app)
	w.await(t, app, revision(w.publish(t, own)))
	if used := app.Status.Identity; used == nil || used.CloudIdentity != id(productionNamespace, certificateApp) {
		t.Errorf("it was pulled as %+v", used)
	}

	t.Run("foreign", func(t *testing.T) {
		address := "https://" + w.mutual + "/v2/" + certificateApp + "/tags/list"
		for name, tt := range map[string]struct {
			shown []tls.Certificate
			want  int
		}{
			"own": {[]tls.Certificate{own}, http.StatusOK}, "no certificate": {nil, 0},
			"same ID of a foreign authority": {[]tls.Certificate{w.foreign(t, id(productionNamespace, certificateApp))}, 0},
		} {
			if got := statusOf(t, w.client(tt.shown...), address, ""); got != tt.want {
				t.Errorf("%s: HTTP %d, want %d", name, got, tt.want)
			}
		}
	})
	t.Run("one ID", func(t *testing.T) { idsAreToldApart(t, w) })
}

// idsAreToldApart tests a registry that checks the SPIFFE ID of a certificate.
func idsAreToldApart(t *testing.T, w *spiffeWorld) {
	t.Helper()
	const guarded = "guarded"
	open := newFederatedRegistry(t, "guarded.registry.example.com")
	manifest := open.push(t, guarded, "latest", "the guarded app")
	open.push(t, scannedApp, "1.0.0", "the scanned app")
	story := open.push(t, certificateApp, "latest", "the secure app")
	certificate, key, authorities := w.serverFiles(t)
	runApache(t, certificateRegistry, map[string]any{
		"TLS": w.guarded, "Certificate": certificate, "Key": key, "Authorities": authorities, "Storage": open.serve(t),
		"Subjects": map[string]string{guarded: id(productionNamespace, guarded), scannedApp: imageID(productionNamespace, scannedApp), certificateApp: id(productionNamespace, certificateApp)},
	}, "auth_openidc", "ssl", "proxy", "proxy_http")
	url, own := "oci://"+w.guarded+"/"+guarded, v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate}
	w.await(t, w.newObject(t, productionNamespace, guarded, url, own), revision(manifest))
	w.await(t, w.newObject(t, stagingNamespace, guarded, url, own), failing("RegistryRefused", "403"))
	// Test Story 3 at this registry: with the story's object, and with another tenant's object of
	// the same name.
	_, err := w.Apply(t.Context(), readStory(t, "credential-3.yaml", "127.0.0.1:443", w.guarded))
	must(t, "apply the story", err)
	w.await(t, &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: productionNamespace, Name: certificateApp}}, revision(story))
	w.await(t, w.newObject(t, stagingNamespace, certificateApp, "oci://"+w.guarded+"/"+certificateApp, own), failing("RegistryRefused", "403"))
	scans(t, w.people, w.guarded+"/"+scannedApp, own, imageID(productionNamespace, scannedApp))
}

// scans makes an ImageRepository use the credential to scan a repository. Only the production
// namespace's object may read the repository. An object with the same name in another namespace
// must be refused.
func scans(t *testing.T, people client.Client, image string, credential v1alpha1.Credential, as string) {
	t.Helper()
	scanner := func(namespace string) *v1alpha1.ImageRepository {
		o := &v1alpha1.ImageRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: scannedApp},
			Spec:       v1alpha1.ImageRepositorySpec{Image: image, Schedule: v1alpha1.Schedule{Interval: metav1.Duration{Duration: interval}}, RegistryAccess: v1alpha1.RegistryAccess{Credential: &credential}},
		}
		must(t, "make an object", people.Create(t.Context(), o))
		t.Cleanup(func() { _ = people.Delete(context.WithoutCancel(t.Context()), o) })
		return o
	}
	awaitIn(t, people, patience, scanner(productionNamespace), "the tags", func(i *v1alpha1.ImageRepository) error {
		scan, used := i.Status.LastScanResult, i.Status.Identity
		return wantf(scan != nil && slices.Equal(scan.LatestTags, []string{"1.0.0"}) && used != nil && used.CloudIdentity == as,
			"%+v as %+v: %+v", scan, used, ready(i))
	})
	awaitIn(t, people, patience, scanner(stagingNamespace), "the refusal", func(i *v1alpha1.ImageRepository) error {
		return failed(ready(i), "RegistryRefused")
	})
}

// certificate gets an object's certificate as the controller does. SPIFFE's library must accept it.
func (w *spiffeWorld) certificate(t *testing.T, o *v1alpha1.OCIRepository) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, "write a key", err)
	answer, err := w.request(t.Context(), controllerUser, o, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeCertificate, UID: o.UID, PublicKey: public})
	must(t, "get the object's SVID", err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, "write a key", err)
	encoded := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	minted.add(encoded)
	made, err := x509svid.Parse([]byte(answer.Status.CertificateChain), encoded)
	must(t, "SPIFFE's library reads the SVID", err)
	if _, _, err := x509svid.Verify(made.Certificates, w.bundle); err != nil || made.ID.String() != id(o.Namespace, o.Name) {
		t.Errorf("the SVID is of %s: %v", made.ID, err)
	}
	pair, err := tls.X509KeyPair([]byte(answer.Status.CertificateChain), encoded)
	must(t, "read a certificate", err)
	return pair
}

// foreign returns a certificate with this ID from an authority that nobody trusts.
func (w *spiffeWorld) foreign(t *testing.T, id string) tls.Certificate {
	t.Helper()
	authority := newAuthority(t)
	return certify(t, authority.certificate, authority.key, id, time.Now().Add(time.Hour))
}

// certify returns a certificate with this ID that is valid until end, which may be in the past.
func certify(t *testing.T, authority *x509.Certificate, signer crypto.Signer, id string, end time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	name, err := url.Parse(id)
	must(t, "read an ID", err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(3), NotBefore: end.Add(-2 * time.Hour), NotAfter: end,
		URIs: []*url.URL{name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, &key.PublicKey, signer)
	must(t, "make a certificate", err)
	return tls.Certificate{Certificate: [][]byte{der, authority.Raw}, PrivateKey: key}
}

// client returns an HTTP client for the company's servers. The client presents a certificate if one
// is given.
func (w *spiffeWorld) client(shown ...tls.Certificate) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: w.showing(shown...)}, Timeout: direct.Timeout}
}

// showing returns a TLS configuration that trusts the company's servers. It presents a certificate
// even if the server requests certificates of other authorities.
func (w *spiffeWorld) showing(shown ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(w.company.certificate)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(shown) == 0 {
			return &tls.Certificate{}, nil
		}
		return &shown[0], nil
	}}
}

// publish pushes certificateApp with a certificate, and returns the manifest's digest.
func (w *spiffeWorld) publish(t *testing.T, shown tls.Certificate) string {
	t.Helper()
	return w.publishAt(t, w.mutual, shown)
}

// publishAt is like publish, at another address.
func (w *spiffeWorld) publishAt(t *testing.T, address string, shown tls.Certificate) string {
	t.Helper()
	reference, err := name.ParseReference(address + "/" + certificateApp + ":latest")
	must(t, "name a reference", err)
	made := image(t, layer(t, file("app.yaml", "the secure app")))
	must(t, "push", remote.Write(reference, made, remote.WithContext(t.Context()), remote.WithTransport(w.client(shown).Transport)))
	return digestOf(t, made)
}

// onlyTheController requests SVIDs as the controller, as a tenant's administrator and as other
// programs of the chart. Of these, only the controller may get an SVID, and only if:
//   - the controller has the right to SVIDs in the object's namespace
//   - the request has the object's UID
//   - the object's spec allows the requested audience and type of SVID
func onlyTheController(t *testing.T, w *spiffeWorld) {
	t.Helper()
	const tenantUser = "production-admin"
	must(t, "bind a role", w.people.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: productionNamespace, Name: tenantUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenantUser}},
	}))
	app := &v1alpha1.OCIRepository{}
	must(t, "read the object", w.people.Get(t.Context(), client.ObjectKey{Namespace: productionNamespace, Name: tokenApp}, app))
	other := w.newObject(t, ungrantedNamespace, tokenApp, app.Spec.URL, *app.Spec.Credential)
	w.await(t, other, failing("ProofDenied", "ocirepositories/svid", ungrantedNamespace))
	none := &v1alpha1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: productionNamespace, Name: "none"}}
	right := tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: app.UID, Audiences: []string{spiffeRegistry}}
	wrongUID, noUID, otherAudience, otherType := right, right, right, right
	wrongUID.UID, noUID.UID, otherAudience.Audiences, otherType.Type = other.UID, "", []string{"elsewhere.example.com"}, tokenv1.SpiffeCertificate
	program := func(name string) string { return "system:serviceaccount:" + local.Namespace + ":" + name }
	for name, tt := range map[string]struct {
		user    string
		of      *v1alpha1.OCIRepository
		spec    tokenv1.SVIDRequestSpec
		refused func(error) bool
	}{
		"the controller":              {controllerUser, app, right, nil},
		"the tenant":                  {tenantUser, app, right, apierrors.IsForbidden},
		"the token server":            {program(tokenServer), app, right, apierrors.IsForbidden},
		"discovery":                   {program(discoveryServer), app, right, apierrors.IsForbidden},
		"where nothing is granted":    {controllerUser, other, right, apierrors.IsForbidden},
		"another object's UID":        {controllerUser, app, wrongUID, apierrors.IsConflict},
		"no UID":                      {controllerUser, app, noUID, apierrors.IsInvalid},
		"another audience":            {controllerUser, app, otherAudience, apierrors.IsInvalid},
		"another type":                {controllerUser, app, otherType, apierrors.IsInvalid},
		"an object that is not there": {controllerUser, none, right, apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := w.request(t.Context(), tt.user, tt.of, tt.spec)
			switch {
			case tt.refused == nil && (err != nil || answer.Status.Token == ""):
				t.Errorf("no SVID: %v", err)
			case tt.refused != nil && !tt.refused(err):
				t.Errorf("the answer is %v", err)
			}
		})
	}
}

// administratorLooks runs `lanyard token`, which prints the SVID that the controller presents to
// the registry. SPIFFE's library must accept this SVID.
func administratorLooks(t *testing.T, w *spiffeWorld) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary("lanyard"), "token", "ocirepository/"+tokenApp, "--namespace", productionNamespace,
		"--kubeconfig", w.Kubeconfig()).Output()
	must(t, "lanyard token", err)
	if _, err := jwtsvid.ParseAndValidate(strings.TrimSpace(string(out)), w.bundle, []string{spiffeRegistry}); err != nil {
		t.Errorf("SPIFFE's library does not read the SVID: %v", err)
	}
}

// deletedObject deletes the object of Story 2 in testdata/stories, and creates it again. The former
// UID must get no SVID. The new object must pull with an SVID of its own.
func deletedObject(t *testing.T, w *spiffeWorld, manifest string) {
	t.Helper()
	made := func() (requests int) {
		for _, e := range auditLogOf(t, w.Cluster) {
			if e.Verb == "create" && e.User.Username == controllerUser && strings.HasSuffix(e.RequestURI, "/"+productionNamespace+"/ocirepositories/"+tokenApp+"/svid") {
				requests++
			}
		}
		return requests
	}
	before := made()
	app := &v1alpha1.OCIRepository{}
	must(t, "read the object", w.people.Get(t.Context(), client.ObjectKey{Namespace: productionNamespace, Name: tokenApp}, app))
	former := tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: app.UID}
	must(t, "delete the object", w.people.Delete(t.Context(), app))
	eventually(t, "the object is gone", func(ctx context.Context) error {
		err := w.people.Get(ctx, client.ObjectKeyFromObject(app), &v1alpha1.OCIRepository{})
		return wantf(apierrors.IsNotFound(err), "it is still there: %v", err)
	})
	if _, err := w.request(t.Context(), controllerUser, app, former); !apierrors.IsNotFound(err) {
		t.Errorf("of an object that is gone: %v", err)
	}
	_, err := w.Apply(t.Context(), readStory(t, "credential-2.yaml"))
	must(t, "apply the story", err)
	if _, err := w.request(t.Context(), controllerUser, app, former); !apierrors.IsConflict(err) {
		t.Errorf("of the former object: %v", err)
	}
	w.await(t, app, func(o *v1alpha1.OCIRepository) error {
		return errors.Join(wantf(o.UID != former.UID, "it is the former object"), revision(manifest)(o))
	})
	if after := made(); before == 0 || after != before+1 {
		t.Errorf("the controller got %d SVIDs for the object, and %d when there was a new object", before, after)
	}
}

// sameDocuments reads the trust domain's key ring with kubectl, and compares it with the public
// documents.
func sameDocuments(t *testing.T, w *spiffeWorld) {
	t.Helper()
	data, err := w.Kubectl(t.Context(), "get", "--raw", "/apis/identity.lanyard.dev/v1alpha1/namespaces/"+local.Namespace+"/keyrings/"+identityv1.SPIFFEKeyRing).Output()
	must(t, "read the ring", err)
	ring := &identityv1.KeyRing{}
	must(t, "read the ring", json.Unmarshal(data, ring))
	for _, a := range ring.Status.Authorities {
		block, _ := pem.Decode([]byte(a.Certificate))
		if block == nil {
			t.Fatalf("authority %s has no certificate", a.ID)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if must(t, "read an authority", err); !w.bundle.HasX509Authority(certificate) {
			t.Errorf("the bundle lacks authority %s", a.ID)
		}
	}
	for _, k := range ring.Status.Keys {
		if _, ok := w.bundle.FindJWTAuthority(k.KID); !ok {
			t.Errorf("the bundle lacks key %s", k.KID)
		}
	}
	folder := t.TempDir()
	out, err := exec.CommandContext(t.Context(), binary("lanyard"), "discovery", "export", folder, "--ring", identityv1.SPIFFEKeyRing,
		"--namespace", local.Namespace, "--kubeconfig", w.Kubeconfig()).CombinedOutput()
	if err != nil {
		t.Fatalf("lanyard discovery export: %v\n%s", err, out)
	}
	for _, document := range []string{"jwks", "bundle", ".well-known/openid-configuration"} {
		exported, err := os.ReadFile(filepath.Join(folder, document))
		if must(t, "read an exported document", err); !bytes.Equal(exported, published(t, spiffeIssuer+"/"+document)) {
			t.Errorf("%s is served otherwise than exported", document)
		}
	}
}
