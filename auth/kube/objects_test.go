package kube_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

const (
	objectUID    = "5d0c7a8e-1c5f-4b0e-9a43-2f1b7a0c9e21"
	spiffeIssuer = "https://spiffe.example.com"
	svidAudience = "registry.example.com"
)

var (
	toolkitGroup = schema.GroupVersion{Group: "toolkit.lanyard.dev", Version: "v1alpha1"}
	spiffeRing   = types.NamespacedName{Namespace: "lanyard-system", Name: "spiffe"}
)

// spiffeServer is an API server with OCIRepositories and the subresource svid. It refuses what
// internal/tokenserver refuses. A request for anything else fails the test.
type spiffeServer struct {
	*httptest.Server
	t              *testing.T
	objects, rings *feed[*unstructured.Unstructured]
	domain         spiffeid.TrustDomain
	key            crypto.Signer
	issuer         *svid.Issuer
	authority      map[string]any // what the KeyRing's status says about the signing authority

	mu       sync.Mutex
	requests []map[string]any // the specs of the SVIDRequests

	// Tests set the fields below before the first request.
	tamper    func(claims *svid.Claims, spec map[string]any)
	intercept func(w http.ResponseWriter) bool
}

func newSPIFFEServer(t *testing.T) *spiffeServer {
	t.Helper()
	kind := func(gv schema.GroupVersion, name string) func() *unstructured.Unstructured {
		return func() *unstructured.Unstructured {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(gv.WithKind(name))
			return object
		}
	}
	s := &spiffeServer{t: t, objects: newFeed(kind(toolkitGroup, "OCIRepository")), rings: newFeed(kind(identityGroup, "KeyRing"))}
	s.domain = s.trustDomain("example.com")
	s.key, s.issuer, s.authority = s.newAuthority("Active")
	mux := http.NewServeMux()
	mux.Handle("GET /apis/toolkit.lanyard.dev/v1alpha1/ocirepositories", s.objects)
	mux.Handle("GET /apis/identity.lanyard.dev/v1alpha1/keyrings", s.rings)
	mux.HandleFunc("GET /apis/toolkit.lanyard.dev/v1alpha1/namespaces/{namespace}/ocirepositories/{name}", s.get)
	mux.HandleFunc("POST /apis/token.lanyard.dev/v1alpha1/namespaces/{namespace}/ocirepositories/{name}/svid", s.svid)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *spiffeServer) trustDomain(name string) spiffeid.TrustDomain {
	s.t.Helper()
	domain, err := svid.ParseTrustDomain(name)
	must.Succeed(s.t, err)
	return domain
}

// newAuthority makes an authority. It returns the key, the issuer and the authority's entry in a
// ring. The entry has the given state.
func (s *spiffeServer) newAuthority(state string) (crypto.Signer, *svid.Issuer, map[string]any) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(s.t, err)
	certificate, err := svid.NewAuthority(s.domain, key, 24*time.Hour, time.Now())
	must.Succeed(s.t, err)
	issuer, err := svid.NewIssuer(s.domain, key, certificate, nil)
	must.Succeed(s.t, err)
	return key, issuer, map[string]any{"id": svid.AuthorityID(certificate), "certificate": svid.EncodeCertificate(certificate), "state": state}
}

// in makes a copy of the authority's entry, with the given state.
func in(authority map[string]any, state string) map[string]any {
	return map[string]any{"id": authority["id"], "certificate": authority["certificate"], "state": state}
}

// put creates or changes tenant A's object.
func (s *spiffeServer) put(uid string, change ...func(*unstructured.Unstructured)) {
	object := s.objects.empty()
	object.SetNamespace("tenant-a")
	object.SetName("app")
	object.SetUID(types.UID(uid))
	for _, f := range change {
		f(object)
	}
	s.objects.put(object)
}

// putRing writes the ring of the trust domain. The parameter key is the state of the ring's only
// key, kid-1.
func (s *spiffeServer) putRing(key string, authorities ...map[string]any) {
	s.putRingOf("example.com", spiffeIssuer, key, authorities...)
}

func (s *spiffeServer) putRingOf(domain, issuer, key string, authorities ...map[string]any) {
	ring := s.rings.empty()
	ring.SetNamespace(spiffeRing.Namespace)
	ring.SetName(spiffeRing.Name)
	var all []any
	for _, a := range authorities {
		all = append(all, a)
	}
	ring.Object["status"] = map[string]any{
		"revision": int64(1), "trustDomain": domain, "issuer": issuer, "authorities": all, "keys": []any{map[string]any{"kid": "kid-1", "state": key, "algorithm": "ES256"}},
	}
	s.rings.put(ring)
}

func (s *spiffeServer) get(w http.ResponseWriter, r *http.Request) {
	if object, ok := s.objects.get(r.PathValue("namespace"), r.PathValue("name")); ok {
		answer(w, http.StatusOK, object)
		return
	}
	refuse(w, apierrors.NewNotFound(toolkitGroup.WithResource("ocirepositories").GroupResource(), r.PathValue("name")))
}

// svid answers requests for SVIDs as internal/tokenserver does.
func (s *spiffeServer) svid(w http.ResponseWriter, r *http.Request) {
	if s.intercept != nil && s.intercept(w) {
		return
	}
	var request struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Type      svid.Type `json:"type"`
			Audiences []string  `json:"audiences"`
			PublicKey []byte    `json:"publicKey"`
			UID       types.UID `json:"uid"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	spec := map[string]any{"type": string(request.Spec.Type), "audiences": request.Spec.Audiences, "publicKey": request.Spec.PublicKey, "uid": string(request.Spec.UID)}
	s.mu.Lock()
	s.requests = append(s.requests, spec)
	s.mu.Unlock()
	name := r.PathValue("name")
	object, ok := s.objects.get(r.PathValue("namespace"), name)
	resource := toolkitGroup.WithResource("ocirepositories").GroupResource()
	invalid := func(at, what string) {
		refuse(w, apierrors.NewInvalid(tokenGroup.WithKind("SVIDRequest").GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath("spec", at), "x", what)}))
	}
	switch {
	case !ok:
		refuse(w, apierrors.NewNotFound(resource, name))
		return
	case request.Spec.UID != object.GetUID():
		refuse(w, apierrors.NewConflict(resource, name, errors.New("the object has another UID than spec.uid")))
		return
	case request.Spec.Type == svid.JWT && (len(request.Spec.PublicKey) > 0 || !slices.Equal(request.Spec.Audiences, []string{svidAudience})):
		invalid("audiences", "the object's are "+svidAudience)
		return
	case request.Spec.Type == svid.X509 && len(request.Spec.Audiences) > 0:
		invalid("audiences", "a certificate has none")
		return
	}
	status, err := s.sign(request.Spec.Type, r.PathValue("namespace"), name, request.Spec.PublicKey, spec)
	if err != nil {
		invalid("publicKey", err.Error())
		return
	}
	answer(w, http.StatusCreated, map[string]any{"apiVersion": tokenGroup.String(), "kind": "SVIDRequest", "status": status})
}

func (s *spiffeServer) sign(form svid.Type, namespace, name string, public []byte, spec map[string]any) (map[string]any, error) {
	id, err := svid.ID(s.domain, "ocirepositories", namespace, name)
	if err != nil {
		return nil, err
	}
	claims, err := svid.NewClaims(spiffeIssuer, id, []string{svidAudience}, rand.Text(), time.Now())
	if err != nil {
		return nil, err
	}
	kid := "kid-1"
	if s.tamper != nil {
		s.tamper(&claims, spec)
		if other, ok := spec["kid"].(string); ok {
			kid = other
		}
		if other, ok := spec["publicKey"].([]byte); ok {
			public = other
		}
		id = spiffeid.RequireFromString(claims.Subject)
	}
	if form == svid.JWT {
		token, err := svid.SignJWT(claims, kid, s.key)
		return map[string]any{"token": token, "spiffeID": id.String()}, err
	}
	key, err := svid.ParsePublicKey(public)
	if err != nil {
		return nil, err
	}
	made, err := s.issuer.Certificate(id, key, time.Now())
	return map[string]any{"certificateChain": made.Chain(), "spiffeID": id.String()}, err
}

func app(t *testing.T) auth.Subject {
	t.Helper()
	subject, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	return subject
}

func objectMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(toolkitGroup.WithKind("OCIRepository"), meta.RESTScopeNamespace)
	mapper.Add(identityGroup.WithKind("KeyRing"), meta.RESTScopeNamespace)
	return mapper, nil
}

// newObjects makes an Objects and a ring for the API server s, and waits until they are in sync.
func newObjects(t *testing.T, s *spiffeServer) (*kube.Objects, *kube.SPIFFERing) {
	t.Helper()
	c, err := cluster.New(&rest.Config{Host: s.URL, QPS: -1}, func(o *cluster.Options) { o.MapperProvider = objectMapper })
	must.Succeed(t, err)
	ring, err := kube.NewSPIFFERing(t.Context(), c.GetCache(), spiffeRing)
	must.Succeed(t, err)
	objects, err := kube.ObjectsFromManager(t.Context(), c, kube.ObjectOptions{Kind: "OCIRepository", Ring: ring})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !c.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache does not sync")
	}
	return objects, ring
}

// signs makes the test wait until the ring can sign.
func signs(t *testing.T, ring *kube.SPIFFERing) {
	t.Helper()
	waitUntil(t, "the ring is known", func() bool { _, err := ring.Signers(); return err == nil })
}

func TestObjectProof(t *testing.T) {
	s := newSPIFFEServer(t)
	s.put(objectUID)
	s.putRing("Active", s.authority)
	objects, ring := newObjects(t, s)
	signs(t, ring)
	account, err := objects.Read(t.Context(), app(t))
	if err != nil || account.UID != objectUID || account.Subject != app(t) {
		t.Fatalf("%+v, %v", account, err)
	}

	proof, err := objects.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{svidAudience}})
	must.Succeed(t, err)
	jwt, err := auth.JWTOf(proof)
	if err != nil || jwt.GetDuration() < 59*time.Minute || jwt.GetDuration() > time.Hour {
		t.Errorf("%v, %v", jwt, err)
	}
	first, err := objects.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormCertificate})
	must.Succeed(t, err)
	certificate, err := auth.CertificateOf(first)
	if err != nil || certificate.GetDuration() < 59*time.Minute || len(certificate.TLS().Certificate) != 1 {
		t.Errorf("%v, %v", certificate, err)
	}
	if _, err := objects.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormCertificate}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if request["uid"] != objectUID {
			t.Errorf("a request for UID %s", request["uid"])
		}
	}
	// Each certificate has its own key. The server sees only the public half.
	if one, two := s.requests[1]["publicKey"].([]byte), s.requests[2]["publicKey"].([]byte); len(one) == 0 || slices.Equal(one, two) {
		t.Error("two certificates share a key")
	}
}

// TestTamperedSVIDs checks that Prove refuses an SVID that differs from the request.
func TestTamperedSVIDs(t *testing.T) {
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	another, err := x509.MarshalPKIXPublicKey(foreign.Public())
	must.Succeed(t, err)
	for name, test := range map[string]struct {
		form   svid.Type
		tamper func(claims *svid.Claims, spec map[string]any)
		code   auth.Code
	}{
		"another object": {svid.JWT, func(c *svid.Claims, _ map[string]any) { c.Subject += "-2" }, auth.CodeProofInvalid},
		"another tenant": {svid.JWT, func(c *svid.Claims, _ map[string]any) {
			c.Subject = "spiffe://example.com/ocirepositories/tenant-b/app"
		}, auth.CodeProofInvalid},
		"another trust domain": {svid.JWT, func(c *svid.Claims, _ map[string]any) {
			c.Subject = "spiffe://example.org/ocirepositories/tenant-a/app"
		}, auth.CodeProofInvalid},
		"another audience": {svid.JWT, func(c *svid.Claims, _ map[string]any) { c.Audiences = []string{"other"} }, auth.CodeProofInvalid},
		"more audiences":   {svid.JWT, func(c *svid.Claims, _ map[string]any) { c.Audiences = []string{svidAudience, "other"} }, auth.CodeProofInvalid},
		"expired":          {svid.JWT, func(c *svid.Claims, _ map[string]any) { c.ExpiresAt = time.Now().Add(-time.Minute).Unix() }, auth.CodeProofInvalid},
		"another issuer":   {svid.JWT, func(c *svid.Claims, _ map[string]any) { c.Issuer = "https://other.example.com" }, auth.CodeProofInvalid},
		"a key of nobody":  {svid.JWT, func(_ *svid.Claims, spec map[string]any) { spec["kid"] = "kid-2" }, auth.CodeUnavailable},
		"a certificate of another": {svid.X509, func(c *svid.Claims, _ map[string]any) {
			c.Subject = "spiffe://example.com/ocirepositories/tenant-b/app"
		}, auth.CodeProofInvalid},
		"another key": {svid.X509, func(_ *svid.Claims, spec map[string]any) { spec["publicKey"] = another }, auth.CodeProofInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSPIFFEServer(t)
			s.tamper = test.tamper
			s.put(objectUID)
			s.putRing("Active", s.authority)
			objects, ring := newObjects(t, s)
			signs(t, ring)
			_, err := proveObject(t, objects, test.form)
			checkError(t, err)
			if auth.CodeOf(err) != test.code {
				t.Errorf("%v, want %s", err, test.code)
			}
		})
	}
}

func proveObject(t *testing.T, objects *kube.Objects, form svid.Type) (auth.Proof, error) {
	t.Helper()
	request := auth.ProofRequest{Form: auth.FormCertificate}
	if form == svid.JWT {
		request = auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{svidAudience}}
	}
	return objects.Prove(t.Context(), auth.Account{Subject: app(t), UID: objectUID}, request)
}

// TestAuthorities checks that Prove accepts a certificate chain only if it is signed by an
// authority of the ring. This authority must be neither revoked nor removed.
func TestAuthorities(t *testing.T) {
	s := newSPIFFEServer(t)
	_, _, other := s.newAuthority("Active")
	lying := map[string]any{"id": other["id"], "certificate": s.authority["certificate"], "state": "Active"}
	s.put(objectUID)
	s.putRing("Active", s.authority)
	objects, ring := newObjects(t, s)
	for name, test := range map[string]struct {
		authorities []map[string]any
		good        bool
	}{
		"the active one":             {[]map[string]any{s.authority}, true},
		"one that retires":           {[]map[string]any{in(s.authority, "Retiring"), other}, true},
		"one that comes":             {[]map[string]any{in(s.authority, "Published"), other}, true},
		"one that is revoked":        {[]map[string]any{in(s.authority, "Revoked"), other}, false},
		"one that was removed":       {[]map[string]any{in(s.authority, "Removed"), other}, false},
		"another":                    {[]map[string]any{other}, false},
		"one under another's digest": {[]map[string]any{lying}, false},
	} {
		authorityIs := func(id string) func() bool {
			return func() bool { signers, err := ring.Signers(); return err == nil && signers.Authority == id }
		}
		// Empty the ring first. Otherwise authorityIs would accept the ring of the previous case,
		// if both rings have the same active authority.
		s.putRing("Active")
		waitUntil(t, "the ring is empty", authorityIs(""))
		s.putRing("Active", test.authorities...)
		var active string
		for _, a := range test.authorities {
			if a["state"] == "Active" {
				active = a["id"].(string)
			}
		}
		waitUntil(t, "the ring is known", authorityIs(active))
		_, err := proveObject(t, objects, svid.X509)
		if (err == nil) != test.good || err != nil && auth.CodeOf(err) != auth.CodeUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusedSVIDs(t *testing.T) {
	s := newSPIFFEServer(t)
	s.put(objectUID)
	s.putRing("Active", s.authority)
	objects, ring := newObjects(t, s)
	signs(t, ring)
	account := auth.Account{Subject: app(t), UID: objectUID}
	other, err := auth.Object("ImageRepository", "tenant-a", "app")
	must.Succeed(t, err)
	for name, test := range map[string]struct {
		account auth.Account
		request auth.ProofRequest
		code    auth.Code
	}{
		"another UID":     {auth.Account{Subject: app(t), UID: "former"}, auth.ProofRequest{Form: auth.FormCertificate}, auth.CodeSubjectReplaced},
		"no UID":          {auth.Account{Subject: app(t)}, auth.ProofRequest{Form: auth.FormCertificate}, auth.CodeOptionUnsupported},
		"another kind":    {auth.Account{Subject: other, UID: objectUID}, auth.ProofRequest{Form: auth.FormCertificate}, auth.CodeSubjectInvalid},
		"a token":         {account, auth.ProofRequest{Form: auth.FormToken}, auth.CodeOptionUnsupported},
		"no audience":     {account, auth.ProofRequest{Form: auth.FormJWT}, auth.CodeAudienceRefused},
		"wrong audience":  {account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"other"}}, auth.CodeAudienceRefused},
		"a second object": {account, auth.ProofRequest{Form: auth.FormCertificate, ContextObject: auth.ObjectReference{Name: "x"}}, auth.CodeOptionUnsupported},
	} {
		_, err := objects.Prove(t.Context(), test.account, test.request)
		checkError(t, err)
		if auth.CodeOf(err) != test.code {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
	resource := toolkitGroup.WithResource("ocirepositories").GroupResource()
	for fix, respond := range map[string]func(w http.ResponseWriter){
		"spiffe.trustDomain": func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) },
		`grant "create" on ocirepositories/svid of token.lanyard.dev in namespace tenant-a`: func(w http.ResponseWriter) {
			refuse(w, apierrors.NewForbidden(resource, "app", errors.New("no rule")))
		},
		"read the log of Lanyard's token server": func(w http.ResponseWriter) { refuse(w, apierrors.NewServiceUnavailable("no key may sign")) },
		"kubectl get apiservice v1alpha1.token.lanyard.dev": func(w http.ResponseWriter) {
			http.Error(w, "service unavailable", http.StatusServiceUnavailable) // kube-aggregator's answer if the token server is not available
		},
	} {
		s.intercept = func(w http.ResponseWriter) bool { respond(w); return true }
		_, err := proveObject(t, objects, svid.JWT)
		checkError(t, err)
		if typed, _ := errors.AsType[*auth.Error](err); typed == nil || !strings.Contains(typed.Fix, fix) {
			t.Errorf("%v, want the fix %q", err, fix)
		}
	}

	s.put(objectUID, func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{"example.com/keep"})
		o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	})
	if _, err := objects.Read(t.Context(), app(t)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an object that is being deleted: %v", err)
	}
}

// TestTrustDomainSwitchedOff: without a trust domain, the error says which value of the Helm chart
// to set, even if the ring of a former trust domain still exists.
func TestTrustDomainSwitchedOff(t *testing.T) {
	s := newSPIFFEServer(t)
	s.putRing("Active", s.authority)
	_, ring := newObjects(t, s)
	signs(t, ring)
	s.putRingOf("", "", "Retiring", in(s.authority, "Retiring"))
	waitUntil(t, "the ring has no trust domain", func() bool {
		_, err := ring.Signers()
		return auth.CodeOf(err) == auth.CodeNotGranted && strings.Contains(err.Error(), "spiffe.trustDomain of the Helm chart (--spiffe-trust-domain ")
	})
}

// TestObjectChanges checks which changes subscribers are notified of. They must be notified when
// issued SVIDs become invalid. They must also be notified when the trust domain's KeyRing can sign
// other SVIDs than before, for example with its first active key. A rotation, which replaces the
// signer, must not notify them: the next request gets an SVID of the new signer anyway.
func TestObjectChanges(t *testing.T) {
	s := newSPIFFEServer(t)
	_, _, next := s.newAuthority("Published")
	s.put(objectUID)
	objects, ring := newObjects(t, s)
	waitUntil(t, "the object is known", func() bool { _, err := objects.Lookup(t.Context(), app(t)); return err == nil })
	waitUntil(t, "there is no ring", func() bool {
		_, err := ring.Signers()
		return auth.CodeOf(err) == auth.CodeNotGranted && strings.Contains(err.Error(), "--spiffe-trust-domain")
	})
	told := make(chan auth.Subject, 10)
	objects.Subscribe(func(subject auth.Subject) { told <- subject })
	for _, step := range []struct {
		name   string
		do     func()
		silent bool
	}{
		{"a ring without a trust domain", func() { s.putRingOf("", "", "Pending") }, true},
		{"a trust domain", func() { s.putRing("Pending", in(s.authority, "Pending")) }, false},
		{"the first key", func() { s.putRing("Active", in(s.authority, "Pending")) }, false},
		{"the first authority", func() { s.putRing("Active", s.authority) }, false},
		{"a successor", func() { s.putRing("Active", s.authority, next) }, true},
		{"rotation", func() { s.putRing("Active", in(s.authority, "Retiring"), in(next, "Active")) }, true},
		{"the end of an authority", func() { s.putRing("Active", in(s.authority, "Removed"), in(next, "Active")) }, true},
		{"spec and labels", func() {
			s.put(objectUID, func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{"a": "b"})
				o.SetGeneration(2)
			})
		}, true},
		{"another issuer", func() { s.putRingOf("example.com", "https://other.example.com", "Active", in(next, "Active")) }, false},
		{"another trust domain", func() { s.putRingOf("example.org", "https://other.example.com", "Active", in(next, "Active")) }, false},
		{"revocation of an authority", func() {
			s.putRingOf("example.org", "https://other.example.com", "Active", in(next, "Revoked"))
		}, false},
		{"revocation of a key", func() { s.putRingOf("example.org", "https://other.example.com", "Revoked", in(next, "Revoked")) }, false},
		{"another ring", func() {
			other := s.rings.empty()
			other.SetNamespace(spiffeRing.Namespace)
			other.SetName("issuer")
			s.rings.put(other)
		}, true},
		{"a trust domain that is none", func() { s.putRingOf("exa mple", "", "Revoked") }, false},
		{"the ring", func() { s.rings.remove(spiffeRing.Namespace, spiffeRing.Name) }, true},
		{"the object's end", func() { s.objects.remove("tenant-a", "app") }, false},
		{"its return", func() { s.put("uid-2") }, false},
	} {
		step.do()
		select {
		case subject := <-told:
			if step.silent || subject != app(t) {
				t.Errorf("%s: %s is told", step.name, subject)
			}
		case <-time.After(map[bool]time.Duration{true: 100 * time.Millisecond, false: 10 * time.Second}[step.silent]):
			if !step.silent {
				t.Fatalf("%s: nobody is told", step.name)
			}
		}
	}
}

func TestObjectOptions(t *testing.T) {
	for name, options := range map[string]kube.ObjectOptions{
		"a kind without SVIDs": {Kind: "Bucket"}, "no kind": {}, "no ring": {Kind: "OCIRepository"},
		"no informers": {Kind: "OCIRepository", Ring: &kube.SPIFFERing{}}, "a broker without audiences": {Kind: "OCIRepository", Broker: &fakeBroker{}},
	} {
		if _, err := kube.NewObjects(t.Context(), options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// fakeBroker records the last request, and answers with a JWT.
type fakeBroker struct {
	account auth.Account
	request auth.ProofRequest
	calls   int
}

func (f *fakeBroker) Prove(_ context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	f.account, f.request = account, request
	f.calls++
	return &auth.JWT{Token: auth.NewSecret("from the broker"), ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// TestObjectsWithBroker: with a broker, Prove needs no ring and does not ask the token server. A
// request to the token server would fail the test.
func TestObjectsWithBroker(t *testing.T) {
	s := newSPIFFEServer(t)
	c, err := cluster.New(&rest.Config{Host: s.URL, QPS: -1}, func(o *cluster.Options) { o.MapperProvider = objectMapper })
	must.Succeed(t, err)
	broker := &fakeBroker{}
	objects, err := kube.ObjectsFromManager(t.Context(), c, kube.ObjectOptions{Kind: "OCIRepository", Broker: broker, APIAudiences: []string{apiAudience}})
	must.Succeed(t, err)
	account := auth.Account{Subject: app(t), UID: objectUID}
	request := auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{svidAudience}}
	proof, err := objects.Prove(t.Context(), account, request)
	if err != nil || proof.(*auth.JWT).Token.Reveal() != "from the broker" || broker.account.UID != objectUID || !slices.Equal(broker.request.Audiences, request.Audiences) {
		t.Errorf("%v, %+v", err, broker)
	}
	if _, err := objects.Prove(t.Context(), account, auth.ProofRequest{Form: auth.FormCertificate}); err != nil || broker.request.Form != auth.FormCertificate {
		t.Errorf("a certificate: %v", err)
	}
	asked := broker.calls
	for name, tt := range map[string]struct {
		account auth.Account
		request auth.ProofRequest
		code    auth.Code
	}{
		"an audience of the API server": {account, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{svidAudience, apiAudience}}, auth.CodeAudienceRefused},
		"no audience":                   {account, auth.ProofRequest{Form: auth.FormJWT}, auth.CodeAudienceRefused},
		"another form":                  {account, auth.ProofRequest{Form: auth.FormToken}, auth.CodeOptionUnsupported},
		"no UID":                        {auth.Account{Subject: app(t)}, request, auth.CodeOptionUnsupported},
	} {
		if _, err := objects.Prove(t.Context(), tt.account, tt.request); auth.CodeOf(err) != tt.code || broker.calls != asked {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
	}
}
