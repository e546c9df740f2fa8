package tokenserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const appUID = "5c1b1f1e-7c39-4a0e-9f4b-2f5d3b0a9c11"

// stubSVIDs signs certificates with its own authority, or fails with err.
type stubSVIDs struct {
	issuer *svid.Issuer
	err    error
	claims []svid.Claims
}

func newStubSVIDs(t *testing.T) *stubSVIDs {
	t.Helper()
	domain := spiffeid.RequireTrustDomainFromString("example.com")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	authority, err := svid.NewAuthority(domain, key, 24*time.Hour, time.Now())
	must.Succeed(t, err)
	issuer, err := svid.NewIssuer(domain, key, authority, nil)
	must.Succeed(t, err)
	return &stubSVIDs{issuer: issuer}
}

func (s *stubSVIDs) JWT(_ identityv1.Algorithm, claims any, _ time.Time) (string, error) {
	s.claims = append(s.claims, claims.(svid.Claims))
	return stubToken, s.err
}

func (s *stubSVIDs) Certificate(id spiffeid.ID, public *ecdsa.PublicKey) (svid.Certificate, error) {
	if s.err != nil {
		return svid.Certificate{}, s.err
	}
	return s.issuer.Certificate(id, public, time.Now())
}

// app returns an object for which a test requests SVIDs. If credential is nil, the object has no
// spec.credential.
func app(kind, name string, credential map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"url": "oci://registry.example.com/my-app", "image": "registry.example.com/my-app", "provider": "generic"}
	if credential != nil {
		spec["credential"] = credential
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "toolkit.lanyard.dev/v1alpha1", "kind": kind,
		"metadata": map[string]any{"namespace": "production", "name": name, "uid": appUID}, "spec": spec,
	}}
}

// svidKinds returns the kinds whose objects can have SVIDs.
func svidKinds() kinds.Table { return kinds.All().Where(kinds.Kind.HasSVIDs) }

// keep stores an object in the fake API server.
func (r *rig) keep(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	for _, kind := range svidKinds() {
		if kind.Kind != object.GetKind() {
			continue
		}
		must.Succeed(t, r.objects.Tracker().Create(kind.GroupVersion().WithResource(kind.Plural), object, object.GetNamespace()))
		return
	}
	t.Fatalf("no kind %s", object.GetKind())
}

func svidPath(plural, name string) string {
	return "/apis/token.lanyard.dev/v1alpha1/namespaces/production/" + plural + "/" + name + "/svid"
}

// svid asks for an SVID, in a request with the given spec. It adds the field uid if it is missing.
func (c *caller) svid(t *testing.T, path string, spec map[string]any) answer {
	t.Helper()
	spec = maps.Clone(spec)
	if _, set := spec["uid"]; !set {
		spec["uid"] = appUID
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "token.lanyard.dev/v1alpha1", "kind": "SVIDRequest", "spec": spec})
	must.Succeed(t, err)
	return c.do(t, http.MethodPost, path, string(body))
}

func (a answer) svid(t *testing.T) *tokenv1.SVIDRequest {
	t.Helper()
	request := &tokenv1.SVIDRequest{}
	if err := json.Unmarshal([]byte(a.body), request); a.code != http.StatusCreated || err != nil {
		t.Fatalf("the answer is %d, %s; want an SVID", a.code, a.body)
	}
	return request
}

func leafKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must.Succeed(t, err)
	return key, base64.StdEncoding.EncodeToString(der)
}

func TestJWTSVID(t *testing.T) {
	r := newRig(t)
	r.keep(t, app("OCIRepository", "my-app", map[string]any{"type": "SpiffeJWT", "audiences": []any{"registry.example.com", "mirror.example.com"}}))
	r.keep(t, app("OCIRepository", "default", map[string]any{"type": "SpiffeJWT"}))
	r.keep(t, app("ImageRepository", "my-app", map[string]any{"type": "SpiffeJWT"}))
	for _, c := range []struct {
		path, id  string
		spec      map[string]any
		audiences string
	}{
		{svidPath("ocirepositories", "my-app"), "spiffe://example.com/ocirepositories/production/my-app", map[string]any{"type": "SpiffeJWT"}, "registry.example.com mirror.example.com"},
		{
			svidPath("ocirepositories", "my-app"), "spiffe://example.com/ocirepositories/production/my-app",
			map[string]any{"type": "SpiffeJWT", "audiences": []string{"mirror.example.com"}},
			"mirror.example.com",
		},
		{svidPath("ocirepositories", "default"), "spiffe://example.com/ocirepositories/production/default", map[string]any{"type": "SpiffeJWT"}, "oci://registry.example.com/my-app"},
		{svidPath("imagerepositories", "my-app"), "spiffe://example.com/imagerepositories/production/my-app", map[string]any{"type": "SpiffeJWT"}, "registry.example.com/my-app"},
	} {
		r.svids.claims = nil
		got := r.minter(t).svid(t, c.path, c.spec).svid(t)
		claims := r.svids.claims[0]
		if got.Status.SPIFFEID != c.id || got.Status.Token != stubToken || got.Status.CertificateChain != "" || got.UID != appUID {
			t.Errorf("%s: %+v", c.path, got)
		}
		if claims.Subject != c.id || claims.Issuer != "https://spiffe.example.com" || strings.Join(claims.Audiences, " ") != c.audiences || claims.ID == "" ||
			claims.ExpiresAt != got.Status.ExpirationTimestamp.Unix() || claims.ExpiresAt-claims.IssuedAt != 3600 {
			t.Errorf("%s: %+v", c.path, claims)
		}
		if log := r.audit.String(); !strings.Contains(log, claims.ID) || !strings.Contains(log, c.id) || strings.Contains(log, stubToken) {
			t.Errorf("the audit log says %s", log)
		}
	}
	if n := testutil.ToFloat64(r.metrics.svids.WithLabelValues("SpiffeJWT", "ocirepositories")); n != 3 {
		t.Errorf("%v SVIDs were counted", n)
	}
}

func TestX509SVID(t *testing.T) {
	r := newRig(t)
	r.keep(t, app("OCIRepository", "my-app", map[string]any{"type": "SpiffeCertificate"}))
	key, public := leafKey(t)
	got := r.minter(t).svid(t, svidPath("ocirepositories", "my-app"), map[string]any{"type": "SpiffeCertificate", "publicKey": public}).svid(t)
	chain, err := svid.ParseChain(got.Status.CertificateChain)
	must.Succeed(t, err)
	id := spiffeid.RequireFromString("spiffe://example.com/ocirepositories/production/my-app")
	if err := svid.CheckChain(chain, id, &key.PublicKey, time.Now()); err != nil || got.Status.SPIFFEID != id.String() || got.Status.Token != "" {
		t.Errorf("%v, %+v", err, got.Status)
	}
	if !got.Status.ExpirationTimestamp.Equal(&metav1.Time{Time: chain[0].NotAfter}) {
		t.Errorf("it expires at %v, and says %v", chain[0].NotAfter, got.Status.ExpirationTimestamp)
	}
	if serial := chain[0].SerialNumber.Text(16); !strings.Contains(r.audit.String(), serial) {
		t.Errorf("the audit log lacks %s: %s", serial, r.audit)
	}
}

// TestSVIDRefusals checks which requests get no SVID.
func TestSVIDRefusals(t *testing.T) {
	r := newRig(t)
	_, public := leafKey(t)
	deleted := app("OCIRepository", "deleted", map[string]any{"type": "SpiffeJWT"})
	now := metav1.Now()
	deleted.SetDeletionTimestamp(&now)
	deleted.SetFinalizers([]string{"a/b"})
	r.keep(t, deleted)
	for name, credential := range map[string]map[string]any{
		"jwt":         {"type": "SpiffeJWT", "audiences": []any{"registry.example.com"}},
		"certificate": {"type": "SpiffeCertificate"},
		"account":     {"type": "ServiceAccountToken"},
		"static":      nil,
		"cluster":     {"type": "SpiffeJWT", "audiences": []any{"registry.example.com", "https://kubernetes.default.svc"}},
		"aws":         {"type": "SpiffeJWT", "audiences": []any{"sts.amazonaws.com"}},
		"azure":       {"type": "SpiffeJWT", "audiences": []any{"api://AzureADTokenExchange"}},
		"gcp":         {"type": "SpiffeJWT", "audiences": []any{"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"}},
		"both":        {"type": "SpiffeCertificate", "audiences": []any{"a"}},
		"unprintable": {"type": "SpiffeJWT", "audiences": []any{"a b"}},
		"empty":       {"type": "SpiffeJWT", "audiences": []any{""}},
	} {
		r.keep(t, app("OCIRepository", name, credential))
	}
	for name, more := range map[string]map[string]any{
		"excluded":    {"serviceAccountName": "puller"},
		"authorities": {"certSecretRef": map[string]any{"name": "../other"}},
		"proxy":       {"proxySecretRef": map[string]any{"name": ""}},
	} {
		object := app("OCIRepository", name, map[string]any{"type": "SpiffeJWT"})
		maps.Copy(object.Object["spec"].(map[string]any), more)
		r.keep(t, object)
	}
	jwt := map[string]any{"type": "SpiffeJWT"}
	for what, c := range map[string]struct {
		name string
		spec map[string]any
		code int
		says string
	}{
		"no such object":                     {"missing", jwt, 404, "not found"},
		"an object that is being deleted":    {"deleted", jwt, 409, "being deleted"},
		"an object that was created again":   {"jwt", map[string]any{"type": "SpiffeJWT", "uid": "former"}, 409, "another UID"},
		"no UID":                             {"jwt", map[string]any{"type": "SpiffeJWT", "uid": ""}, 422, "spec.uid"},
		"no type":                            {"jwt", map[string]any{}, 422, "spec.type"},
		"an unknown type":                    {"jwt", map[string]any{"type": "ServiceAccountToken"}, 422, "spec.type"},
		"a token for a certificate's object": {"certificate", jwt, 422, `type is \"SpiffeCertificate\"`},
		"a certificate for a token's object": {"jwt", map[string]any{"type": "SpiffeCertificate", "publicKey": public}, 422, `type is \"SpiffeJWT\"`},
		"an object with another credential":  {"account", jwt, 422, "the object gets no credential"},
		"an object without a credential":     {"static", jwt, 422, `type is \"\"`},
		"an audience that the object lacks":  {"jwt", map[string]any{"type": "SpiffeJWT", "audiences": []string{"other.example.com"}}, 422, "does not have this audience"},
		"more audiences than the object has": {"jwt", map[string]any{"type": "SpiffeJWT", "audiences": []string{"registry.example.com", "other"}}, 422, "spec.audiences[1]"},
		"an audience twice":                  {"jwt", map[string]any{"type": "SpiffeJWT", "audiences": []string{"registry.example.com", "registry.example.com"}}, 422, "twice"},
		"an audience of the API server":      {"cluster", jwt, 422, "no SVID may open the cluster"},
		"an audience of AWS":                 {"aws", jwt, 422, "AWS STS"},
		"an audience of Entra":               {"azure", jwt, 422, "Microsoft Entra"},
		"an audience of Google":              {"gcp", jwt, 422, "Google"},
		"a spec that no schema accepts":      {"both", map[string]any{"type": "SpiffeCertificate", "publicKey": public}, 422, "audiences do not work"},
		"an object that names an account":    {"excluded", jwt, 422, "proves the object itself"},
		"a name that no Secret can have":     {"authorities", jwt, 422, "spec.certSecretRef.name"},
		"an empty name of a Secret":          {"proxy", jwt, 422, "spec.proxySecretRef.name"},
		"an audience with a space":           {"unprintable", jwt, 422, "printable"},
		"an empty audience":                  {"empty", jwt, 422, "printable"},
		"a token with a public key":          {"jwt", map[string]any{"type": "SpiffeJWT", "publicKey": public}, 422, "spec.publicKey"},
		"a certificate with audiences":       {"certificate", map[string]any{"type": "SpiffeCertificate", "publicKey": public, "audiences": []string{"a"}}, 422, "spec.audiences"},
		"a certificate without a key":        {"certificate", map[string]any{"type": "SpiffeCertificate"}, 422, "spec.publicKey"},
		"a certificate with no key":          {"certificate", map[string]any{"type": "SpiffeCertificate", "publicKey": "AAAA"}, 422, "P-256"},
	} {
		got := r.minter(t).svid(t, svidPath("ocirepositories", c.name), c.spec)
		if got.code != c.code || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %d, %s; want %d and %q", what, got.code, got.body, c.code, c.says)
		}
	}
	if len(r.svids.claims) > 0 {
		t.Errorf("something was signed: %+v", r.svids.claims)
	}
	stranger := r.call(t, r.proxies, frontName, http.Header{"X-Remote-User": {"mallory"}})
	if got := stranger.svid(t, svidPath("ocirepositories", "jwt"), jwt); got.code != http.StatusForbidden {
		t.Errorf("a stranger: %d, %s", got.code, got.body)
	}
	forged := r.call(t, mustAuthority(t), "", http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"minters"}})
	if got := forged.svid(t, svidPath("ocirepositories", "jwt"), jwt); got.code != 0 { // code 0: the server has refused the TLS handshake
		t.Errorf("forged headers: %d, %s", got.code, got.body)
	}
	for method, code := range map[string]int{http.MethodGet: 405, http.MethodPut: 405, http.MethodDelete: 405} {
		if got := r.minter(t).do(t, method, svidPath("ocirepositories", "jwt"), `{}`); got.code != code {
			t.Errorf("%s: %d", method, got.code)
		}
	}
	for uids, says := range map[[2]string]string{{appUID, "former"}: "metadata.uid", {"former", appUID}: "spec.uid", {"former", "former"}: "spec.uid"} {
		body := `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"SVIDRequest","metadata":{"uid":"` + uids[1] + `"},"spec":{"type":"SpiffeJWT","uid":"` + uids[0] + `"}}`
		got := r.minter(t).do(t, http.MethodPost, svidPath("ocirepositories", "jwt"), body)
		if got.code != http.StatusConflict || !strings.Contains(got.body, "another UID than "+says) {
			t.Errorf("spec.uid and metadata.uid are %q: %d, %s; want 409 and %s", uids, got.code, got.body, says)
		}
	}
	other := `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"SVIDRequest","metadata":{"name":"other"},"spec":{"type":"SpiffeJWT","uid":"` + appUID + `"}}`
	if got := r.minter(t).do(t, http.MethodPost, svidPath("ocirepositories", "jwt"), other); got.code != http.StatusBadRequest {
		t.Errorf("another name in the metadata: %d, %s", got.code, got.body)
	}
}

func TestSVIDDryRun(t *testing.T) {
	r := newRig(t)
	r.keep(t, app("OCIRepository", "my-app", map[string]any{"type": "SpiffeJWT"}))
	got := r.minter(t).svid(t, svidPath("ocirepositories", "my-app")+"?dryRun=All", map[string]any{"type": "SpiffeJWT"}).svid(t)
	if got.Status.Token != "" || len(r.svids.claims) > 0 || got.Status.SPIFFEID == "" {
		t.Errorf("%+v", got.Status)
	}
}

// TestSVIDUnavailable checks the answer while nothing can be signed: it is 503, and only the log
// has the cause.
func TestSVIDUnavailable(t *testing.T) {
	r := newRig(t)
	r.keep(t, app("OCIRepository", "jwt", map[string]any{"type": "SpiffeJWT"}))
	r.keep(t, app("OCIRepository", "certificate", map[string]any{"type": "SpiffeCertificate"}))
	_, public := leafKey(t)
	for _, cause := range []error{sign.ErrStale, sign.ErrNoKey, svid.ErrExpired, errors.New("KMS is down")} {
		r.svids.err = cause
		for name, spec := range map[string]map[string]any{"jwt": {"type": "SpiffeJWT"}, "certificate": {"type": "SpiffeCertificate", "publicKey": public}} {
			got := r.minter(t).svid(t, svidPath("ocirepositories", name), spec)
			if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || strings.Contains(got.body, cause.Error()) {
				t.Errorf("%v: %d, %s", cause, got.code, got.body)
			}
		}
		if !strings.Contains(r.log.String(), cause.Error()) {
			t.Errorf("the log lacks %v", cause)
		}
	}
	r.svids.err = nil
	r.objects.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: svidKinds()[0].Plural}, "jwt", errors.New("no right"))
	})
	if got := r.minter(t).svid(t, svidPath("ocirepositories", "jwt"), map[string]any{"type": "SpiffeJWT"}); got.code != http.StatusServiceUnavailable || strings.Contains(got.body, "no right") {
		t.Errorf("an object that cannot be read: %d, %s", got.code, got.body)
	}
}

// TestSVIDPrecondition checks that no SVID is made while a Precondition does not hold.
func TestSVIDPrecondition(t *testing.T) {
	r := newRigWith(t, func(c *Config) {
		c.Preconditions = []*Precondition{NewPrecondition("rights", "it is not certain", nil)}
	})
	r.keep(t, app("OCIRepository", "my-app", map[string]any{"type": "SpiffeJWT"}))
	if got := r.minter(t).svid(t, svidPath("ocirepositories", "my-app"), map[string]any{"type": "SpiffeJWT"}); got.code != http.StatusServiceUnavailable {
		t.Errorf("%d, %s", got.code, got.body)
	}
}

// TestSVIDKinds checks that [New] refuses kinds that package svid does not list.
func TestSVIDKinds(t *testing.T) {
	for _, kind := range []kinds.Kind{kinds.Bucket(), {GroupVersionKind: kinds.OCIRepository().GroupVersionKind, Plural: "others"}} {
		_, err := New(t.Context(), Config{SVIDKinds: kinds.Table{kind}})
		if err == nil || !strings.Contains(err.Error(), "objects of kind "+kind.Kind+" ("+kind.Plural+") cannot have SVIDs") {
			t.Errorf("%s: %v", kind.Plural, err)
		}
	}
}

// TestSVIDWithoutIssuer checks that a request for a JWT-SVID is refused if the trust domain has
// certificates only.
func TestSVIDWithoutIssuer(t *testing.T) {
	s := &svids{SVIDs: &SVIDs{}, kind: svidKinds()[0]}
	_, wrong := s.judge(t.Context(), app("OCIRepository", "my-app", map[string]any{"type": "SpiffeJWT"}), &tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT})
	if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), "spiffe.issuer") {
		t.Error(wrong)
	}
}
