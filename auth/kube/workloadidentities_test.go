package kube_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/kube"
)

const identityUID = "0a4f5c2e-9b1d-4a57-8d22-6f6f0f7a4a11"

var (
	identityGroup = schema.GroupVersion{Group: "identity.lanyard.dev", Version: "v1alpha1"}
	tokenGroup    = schema.GroupVersion{Group: "token.lanyard.dev", Version: "v1alpha1"}
	issuerRing    = types.NamespacedName{Namespace: "lanyard-system", Name: "issuer"}
)

// issuerServer is an API server with the API groups of Lanyard's issuer. A request for any other
// group fails the test.
type issuerServer struct {
	*httptest.Server
	identities, rings *feed[*unstructured.Unstructured]

	mu     sync.Mutex
	bodies []string // request bodies of the token requests
	kid    string   // the kid of the signing key

	// Tests set the fields below before the first request.
	tamper    func(header, claims map[string]any)
	intercept func(w http.ResponseWriter, r *http.Request) bool
	others    http.Handler // answers requests for other API groups
}

func newIssuerServer(t *testing.T) *issuerServer {
	t.Helper()
	kind := func(name string) func() *unstructured.Unstructured {
		return func() *unstructured.Unstructured {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(identityGroup.WithKind(name))
			return object
		}
	}
	s := &issuerServer{identities: newFeed(kind("WorkloadIdentity")), rings: newFeed(kind("KeyRing")), kid: "key-1"}
	mux := http.NewServeMux()
	const base = "/apis/identity.lanyard.dev/v1alpha1/"
	mux.Handle("GET "+base+"workloadidentities", s.identities)
	mux.Handle("GET "+base+"namespaces/lanyard-system/keyrings", s.rings)
	mux.HandleFunc("GET "+base+"namespaces/{namespace}/workloadidentities/{name}", s.get)
	mux.HandleFunc("POST /apis/token.lanyard.dev/v1alpha1/namespaces/{namespace}/workloadidentities/{name}/token", s.token)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if s.others != nil {
			s.others.ServeHTTP(w, r)
			return
		}
		t.Errorf("unexpected request %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.intercept == nil || r.URL.Query().Get("watch") != "" || !s.intercept(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// put creates or changes tenant A's identity.
func (s *issuerServer) put(uid string, generation int64, target string, config map[string]any, change ...func(*unstructured.Unstructured)) {
	identity := s.identities.empty()
	identity.SetNamespace("tenant-a")
	identity.SetName("puller")
	identity.SetUID(types.UID(uid))
	identity.SetGeneration(generation)
	identity.SetLabels(map[string]string{"app": "x"})
	identity.Object["spec"] = map[string]any{
		"audiences":    []any{stsAWS},
		"targetSystem": map[string]any{"type": target, "providerConfig": config},
	}
	for _, f := range change {
		f(identity)
	}
	s.identities.put(identity)
}

// putRing writes the issuer's ring. The arguments alternate: a kid, then its state.
func (s *issuerServer) putRing(pairs ...string) {
	ring := s.rings.empty()
	ring.SetNamespace(issuerRing.Namespace)
	ring.SetName(issuerRing.Name)
	ring.SetUID("ring-uid")
	var keys []any
	for pair := range slices.Chunk(pairs, 2) {
		keys = append(keys, map[string]any{"kid": pair[0], "state": pair[1], "algorithm": "RS256"})
	}
	ring.Object["status"] = map[string]any{"keys": keys}
	s.rings.put(ring)
}

func (s *issuerServer) get(w http.ResponseWriter, r *http.Request) {
	if identity, ok := s.identities.get(r.PathValue("namespace"), r.PathValue("name")); ok {
		answer(w, http.StatusOK, identity)
		return
	}
	refuse(w, apierrors.NewNotFound(identityGroup.WithResource("workloadidentities").GroupResource(), r.PathValue("name")))
}

// token answers token requests as internal/tokenserver does.
func (s *issuerServer) token(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Audiences         []string `json:"audiences"`
			ExpirationSeconds int64    `json:"expirationSeconds"`
			ContextObject     any      `json:"contextObject"`
		} `json:"spec"`
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, string(body))
	kid := s.kid
	s.mu.Unlock()
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	identity, ok := s.identities.get(namespace, name)
	resource := identityGroup.WithResource("workloadidentities").GroupResource()
	switch {
	case !ok:
		refuse(w, apierrors.NewNotFound(resource, name))
		return
	case request.UID != identity.GetUID():
		refuse(w, apierrors.NewConflict(resource, name, errors.New("the WorkloadIdentity has another UID than metadata.uid")))
		return
	}
	now := time.Now()
	header := map[string]any{"alg": "RS256", "kid": kid, "typ": "JWT"}
	about := map[string]any{"workloadIdentity": map[string]any{"namespace": namespace, "name": name, "uid": string(identity.GetUID())}}
	if request.Spec.ContextObject != nil {
		about["context"] = request.Spec.ContextObject
	}
	claims := map[string]any{
		"iss": "https://issuer.example.com",
		"sub": "lanyard.dev:workloadidentity:" + namespace + ":" + name + ":" + string(identity.GetUID()),
		"aud": request.Spec.Audiences, "iat": now.Unix(), "exp": now.Unix() + request.Spec.ExpirationSeconds,
		"lanyard.dev": about,
	}
	if s.tamper != nil {
		s.tamper(header, claims)
	}
	request.Status = map[string]any{"token": encode(header) + "." + encode(claims) + "." + signature}
	answer(w, http.StatusCreated, request)
}

func encode(part any) string {
	data, err := json.Marshal(part)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func puller(t *testing.T) auth.Subject {
	t.Helper()
	subject, err := auth.WorkloadIdentity("tenant-a", "puller")
	must.Succeed(t, err)
	return subject
}

// newIdentities makes a WorkloadIdentities for the API server s, and waits until it is in sync.
func newIdentities(t *testing.T, s *issuerServer) (*kube.WorkloadIdentities, cluster.Cluster) {
	t.Helper()
	c := newCluster(t, &rest.Config{Host: s.URL, QPS: -1}, kube.WorkloadIdentitiesByObject(issuerRing))
	identities, err := kube.WorkloadIdentitiesFromManager(t.Context(), c, kube.WorkloadIdentityOptions{KeyRing: issuerRing})
	must.Succeed(t, err)
	startCluster(t, c)
	return identities, c
}

// attributes returns the account's attributes without the target's type.
func attributes(account auth.Account) map[string]string {
	rest := maps.Clone(account.Attributes)
	delete(rest, "targetSystem.type")
	return rest
}

// knows makes the test wait until Lookup returns these attributes for tenant A's identity. If want
// is nil, the test waits until Lookup does not find the identity.
func knows(t *testing.T, identities *kube.WorkloadIdentities, want map[string]string) {
	t.Helper()
	waitUntil(t, "the identity is as it should be", func() bool {
		account, err := identities.Lookup(t.Context(), puller(t))
		if want == nil {
			return auth.CodeOf(err) == auth.CodeSubjectNotFound
		}
		return err == nil && maps.Equal(attributes(account), want)
	})
}

// prove waits until the issuer's KeyRing is in memory, and then asks for a proof of the
// WorkloadIdentity puller.
func prove(t *testing.T, identities *kube.WorkloadIdentities, request auth.ProofRequest) (auth.Proof, error) {
	t.Helper()
	var proof auth.Proof
	var err error
	waitUntil(t, "the ring is known", func() bool {
		proof, err = identities.Prove(t.Context(), auth.Account{Subject: puller(t), UID: identityUID}, request)
		return err == nil || !strings.Contains(err.Error(), "not known yet")
	})
	return proof, err
}

func forSTS() auth.ProofRequest {
	return auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{stsAWS}}
}

const userAnnotation = "lanyard.dev/registry-username"

func TestWorkloadIdentityAttributes(t *testing.T) {
	long := strings.Repeat("x", kube.MaxProviderConfig+1)
	for name, test := range map[string]struct {
		target      string
		config      map[string]any
		annotations map[string]string
		want        map[string]string
		fails       string
	}{
		"aws":            {target: "aws", config: map[string]any{"iamRoleARN": roleA, "kind": "x"}, want: map[string]string{"iamRoleARN": roleA}},
		"azure":          {target: "azure", config: map[string]any{"clientID": "c", "tenantID": "t", "subscriptionID": "s"}, want: map[string]string{"clientID": "c", "tenantID": "t"}},
		"gcp":            {target: "gcp", config: map[string]any{"workloadIdentityProvider": "p", "serviceAccountEmail": "e", "projectID": "x"}, want: map[string]string{"workloadIdentityProvider": "p", "serviceAccountEmail": "e"}},
		"empty":          {target: "aws", config: map[string]any{"iamRoleARN": ""}, want: map[string]string{"iamRoleARN": ""}},
		"another system": {target: "vault", config: map[string]any{"iamRoleARN": roleA}, want: map[string]string{}},
		"no field of it": {target: "gcp", config: map[string]any{"iamRoleARN": roleA}, want: map[string]string{}},
		"no config":      {target: "aws", want: map[string]string{}},
		"user name":      {target: "registry", annotations: map[string]string{userAnnotation: "robot", "note": "x"}, want: map[string]string{userAnnotation: "robot"}},
		"user name and role": {
			target: "aws", config: map[string]any{"iamRoleARN": roleA}, annotations: map[string]string{userAnnotation: "robot"},
			want: map[string]string{userAnnotation: "robot", "iamRoleARN": roleA},
		},
		"user name too long": {
			target: "registry", annotations: map[string]string{userAnnotation: long}, fails: "annotation " + userAnnotation + " of WorkloadIdentity tenant-a/puller",
		},
		"too long":  {target: "aws", config: map[string]any{"iamRoleARN": long}, fails: "providerConfig.iamRoleARN of WorkloadIdentity tenant-a/puller"},
		"no string": {target: "azure", config: map[string]any{"clientID": "c", "tenantID": []any{"t"}}, fails: "providerConfig.tenantID of WorkloadIdentity tenant-a/puller"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newIssuerServer(t)
			s.put(identityUID, 1, test.target, test.config, func(o *unstructured.Unstructured) { o.SetAnnotations(test.annotations) })
			identities, _ := newIdentities(t, s)
			for from, ask := range map[string]func(context.Context, auth.Subject) (auth.Account, error){"memory": identities.Lookup, "live": identities.Read} {
				var account auth.Account
				var err error
				waitUntil(t, "the identity is known", func() bool {
					account, err = ask(t.Context(), puller(t))
					return auth.CodeOf(err) != auth.CodeSubjectNotFound
				})
				if test.fails != "" {
					checkError(t, err)
					if auth.CodeOf(err) != auth.CodeIdentityInvalid || !strings.Contains(err.Error(), test.fails) || account.UID != "" {
						t.Errorf("%s: %+v, %v", from, account, err)
					}
					continue
				}
				if err != nil || account.Subject != puller(t) || account.UID != identityUID || !maps.Equal(attributes(account), test.want) ||
					account.Attributes["targetSystem.type"] != test.target {
					t.Errorf("%s: %+v, %v, want %q", from, account, err, test.want)
				}
			}
		})
	}
}

// TestWorkloadIdentitiesInMemoryAreBounded checks that the memory for an identity is bounded,
// whatever a tenant writes into it.
func TestWorkloadIdentitiesInMemoryAreBounded(t *testing.T) {
	s := newIssuerServer(t)
	huge := strings.Repeat("x", 500<<10)
	s.put(identityUID, 1, "azure", map[string]any{"clientID": huge, "tenantID": map[string]any{huge: huge}, "more": huge}, func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"note": huge, userAnnotation: huge})
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: huge}})
		o.Object["status"] = map[string]any{"sub": huge}
	})
	_, c := newIdentities(t, s)
	kept := s.identities.empty()
	must.Succeed(t, c.GetCache().Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "puller"}, kept))
	data, err := json.Marshal(kept)
	if err != nil || len(data) > 3*kube.MaxProviderConfig+1024 {
		t.Errorf("memory keeps %d bytes, %v", len(data), err)
	}
}

// TestWorkloadIdentityChanges checks that subscribers are notified of every change that affects
// tokens, and of no other change.
func TestWorkloadIdentityChanges(t *testing.T) {
	s := newIssuerServer(t)
	a, b := map[string]any{"iamRoleARN": roleA}, map[string]any{"iamRoleARN": roleB}
	s.put(identityUID, 1, "aws", a)
	s.putRing("key-1", "Active", "key-2", "Published")
	identities, _ := newIdentities(t, s)
	knows(t, identities, map[string]string{"iamRoleARN": roleA})
	if _, err := prove(t, identities, forSTS()); err != nil {
		t.Fatal(err)
	}
	told := make(chan auth.Subject, 10)
	identities.Subscribe(func(subject auth.Subject) { told <- subject })
	for _, step := range []struct {
		name   string
		do     func()
		silent bool
	}{
		{"labels and status", func() {
			s.put(identityUID, 1, "aws", a, func(o *unstructured.Unstructured) {
				o.SetLabels(nil)
				o.Object["status"] = map[string]any{"sub": "x"}
			})
		}, true},
		{"the config", func() { s.put(identityUID, 2, "aws", b) }, false},
		{"the audiences", func() {
			s.put(identityUID, 3, "aws", b, func(o *unstructured.Unstructured) {
				_ = unstructured.SetNestedSlice(o.Object, []any{"other"}, "spec", "audiences")
			})
		}, false},
		{"too much config", func() { s.put(identityUID, 4, "aws", map[string]any{"iamRoleARN": true}) }, false},
		{"good again", func() { s.put(identityUID, 5, "aws", a) }, false},
		{"a new key, and rotation", func() { s.putRing("key-1", "Retiring", "key-2", "Active", "key-3", "Pending") }, true},
		{"the end of a key", func() { s.putRing("key-1", "Removed", "key-2", "Active", "key-3", "Published") }, true},
		{"the end of its entry", func() { s.putRing("key-2", "Active", "key-3", "Published") }, true},
		{"a key that the document lost", func() { s.putRing("key-2", "Active", "key-3", "Pending") }, true},
		{"another ring of the namespace", func() {
			other := s.rings.empty()
			other.SetNamespace(issuerRing.Namespace)
			other.SetName("spiffe")
			s.rings.put(other)
			s.rings.remove(issuerRing.Namespace, "spiffe")
		}, true},
		{"revocation", func() { s.putRing("key-2", "Revoked", "key-3", "Active") }, false},
		{"a key that is gone", func() { s.putRing("key-2", "Revoked", "key-4", "Active") }, false},
		{"a state of tomorrow", func() { s.putRing("key-2", "Revoked", "key-4", "Suspected", "key-5", "Active") }, false},
		{"the ring", func() { s.rings.remove(issuerRing.Namespace, issuerRing.Name) }, false},
		{"a new ring", func() { s.putRing("key-6", "Active") }, true},
		{"its end", func() { s.identities.remove("tenant-a", "puller") }, false},
		{"its return", func() { s.put("uid-2", 1, "aws", a) }, false},
	} {
		step.do()
		select {
		case subject := <-told:
			if step.silent || subject != puller(t) {
				t.Errorf("%s: %s is told", step.name, subject)
			}
		case <-time.After(map[bool]time.Duration{true: 100 * time.Millisecond, false: 10 * time.Second}[step.silent]):
			if !step.silent {
				t.Fatalf("%s: nobody is told", step.name)
			}
		}
	}
}

func TestWorkloadIdentityProof(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", nil)
	s.putRing("key-1", "Active")
	identities, _ := newIdentities(t, s)
	if _, err := prove(t, identities, forSTS()); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.bodies = nil
	s.mu.Unlock()
	before := time.Now()
	for life, request := range map[time.Duration]auth.ProofRequest{
		auth.ProofLifetime: forSTS(),
		time.Hour:          {Form: auth.FormJWT, Audiences: []string{stsAWS}, Lifetime: time.Hour},
	} {
		proof, err := prove(t, identities, request)
		must.Succeed(t, err)
		token := proof.(*auth.JWT)
		if got := token.ExpiresAt.Sub(before); got < life-time.Second || got > life+10*time.Second || !strings.HasSuffix(token.Token.Reveal(), signature) {
			t.Errorf("the proof lives %s, want %s", got, life)
		}
	}
	slices.Sort(s.bodies)
	golden(t, "workloadidentitytokens.json", []byte(strings.Join(s.bodies, "")))
}

// TestWorkloadIdentityProofSaysWhatWasAsked checks that Prove refuses a token whose claims differ
// from the request.
func TestWorkloadIdentityProofSaysWhatWasAsked(t *testing.T) {
	in := func(claims map[string]any) map[string]any {
		return claims["lanyard.dev"].(map[string]any)["workloadIdentity"].(map[string]any)
	}
	for name, test := range map[string]struct {
		tamper func(header, claims map[string]any)
		want   auth.Code
	}{
		"as asked":        {func(_, _ map[string]any) {}, ""},
		"subject by name": {func(_, c map[string]any) { c["sub"] = "lanyard.dev:workloadidentity:tenant-a:puller" }, ""},
		"standby key":     {func(h, _ map[string]any) { h["kid"] = "standby" }, ""},
		"other subject":   {func(_, c map[string]any) { c["sub"] = "lanyard.dev:workloadidentity:tenant-b:puller:" + identityUID }, auth.CodeProofInvalid},
		"other UID in it": {func(_, c map[string]any) { c["sub"] = "lanyard.dev:workloadidentity:tenant-a:puller:uid-2" }, auth.CodeProofInvalid},
		"no subject":      {func(_, c map[string]any) { delete(c, "sub") }, auth.CodeProofInvalid},
		"other namespace": {func(_, c map[string]any) { in(c)["namespace"] = "tenant-b" }, auth.CodeProofInvalid},
		"other name":      {func(_, c map[string]any) { in(c)["name"] = "pusher" }, auth.CodeProofInvalid},
		"other UID": {func(_, c map[string]any) {
			in(c)["uid"] = "uid-2"
			c["sub"] = "lanyard.dev:workloadidentity:tenant-a:puller:uid-2"
		}, auth.CodeSubjectReplaced},
		"no claim of ours":  {func(_, c map[string]any) { delete(c, "lanyard.dev") }, auth.CodeProofInvalid},
		"other audience":    {func(_, c map[string]any) { c["aud"] = []string{"other"} }, auth.CodeProofInvalid},
		"one audience more": {func(_, c map[string]any) { c["aud"] = []string{stsAWS, "other"} }, auth.CodeProofInvalid},
		"no audience":       {func(_, c map[string]any) { c["aud"] = []string{} }, auth.CodeProofInvalid},
		"expired":           {func(_, c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }, auth.CodeProofInvalid},
		"no expiry":         {func(_, c map[string]any) { delete(c, "exp") }, auth.CodeProofInvalid},
		"no kid":            {func(h, _ map[string]any) { delete(h, "kid") }, auth.CodeProofInvalid},
		"revoked key":       {func(h, _ map[string]any) { h["kid"] = "revoked" }, auth.CodeUnavailable},
		"removed key":       {func(h, _ map[string]any) { h["kid"] = "removed" }, auth.CodeUnavailable},
		"a key of nobody":   {func(h, _ map[string]any) { h["kid"] = "forged" }, auth.CodeUnavailable},
		"a ServiceAccount's": {func(_, c map[string]any) {
			c["sub"] = "system:serviceaccount:tenant-a:puller"
			c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "serviceaccount": map[string]any{"name": "puller", "uid": identityUID}}
		}, auth.CodeProofInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := newIssuerServer(t)
			s.put(identityUID, 1, "aws", nil)
			s.putRing("key-1", "Active", "standby", "Published", "revoked", "Revoked", "removed", "Removed")
			s.tamper = test.tamper
			identities, _ := newIdentities(t, s)
			proof, err := prove(t, identities, forSTS())
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkError(t, err)
			if auth.CodeOf(err) != test.want || proof != nil {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestRevoked checks that no key counts as revoked before the ring is in memory. Otherwise a
// program would renew all tokens when it starts.
func TestRevoked(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", nil)
	before, _ := newIdentities(t, s)
	s.putRing("key-1", "Active", "old", "Retiring", "stolen", "Revoked", "removed", "Removed")
	after, _ := newIdentities(t, s)
	for kid, want := range map[string]bool{"key-1": false, "old": false, "stolen": true, "removed": true, "forged": true} {
		if before.Revoked(kid) && before.Revoked("key-1") || after.Revoked(kid) != want {
			t.Errorf("%s: %v without ring, %v with it", kid, before.Revoked(kid), after.Revoked(kid))
		}
	}
}

// TestNoProofWithoutRing checks that no token is accepted as a proof while the KeyRing is not in
// memory. Without the KeyRing, Prove cannot know whether the key that signed the token is revoked.
func TestNoProofWithoutRing(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", nil)
	identities, _ := newIdentities(t, s)
	proof, err := identities.Prove(t.Context(), auth.Account{Subject: puller(t), UID: identityUID}, forSTS())
	checkError(t, err)
	if auth.CodeOf(err) != auth.CodeUnavailable || !strings.Contains(err.Error(), "KeyRing lanyard-system/issuer") || proof != nil {
		t.Error(err)
	}
}

func TestTokenServerFailures(t *testing.T) {
	resource := identityGroup.WithResource("workloadidentities").GroupResource()
	kind := tokenGroup.WithKind("TokenRequest").GroupKind()
	status := func(err *apierrors.StatusError) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, err) }
	}
	page := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	invalid := func(path *field.Path) http.HandlerFunc {
		return status(apierrors.NewInvalid(kind, "puller", field.ErrorList{field.Invalid(path, "x", "it is wrong")}))
	}
	busy := apierrors.NewServiceUnavailable("no key may sign")
	busy.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 7}
	for name, test := range map[string]struct {
		answer     http.HandlerFunc
		want       auth.Code
		fix, says  string
		retryAfter time.Duration
	}{
		"no token server":        {answer: page(404, "404 page not found\n"), want: auth.CodeUnavailable, fix: "issuer.url"},
		"no identity":            {answer: status(apierrors.NewNotFound(resource, "puller")), want: auth.CodeSubjectNotFound, fix: "create WorkloadIdentity tenant-a/puller"},
		"another UID":            {answer: status(apierrors.NewConflict(resource, "puller", errors.New("another UID"))), want: auth.CodeSubjectReplaced},
		"no right":               {answer: status(apierrors.NewForbidden(resource, "puller", errors.New("no rule"))), want: auth.CodeProofDenied, fix: `grant "create" on workloadidentities/token of token.lanyard.dev in namespace tenant-a`},
		"audience":               {answer: invalid(field.NewPath("spec", "audiences").Index(0)), want: auth.CodeAudienceRefused, fix: "spec.audiences of WorkloadIdentity tenant-a/puller"},
		"life":                   {answer: invalid(field.NewPath("spec", "expirationSeconds")), want: auth.CodeRefused, fix: "--token-min-duration"},
		"wrong identity":         {answer: invalid(field.NewPath("metadata", "name")), want: auth.CodeIdentityInvalid, fix: "correct WorkloadIdentity tenant-a/puller"},
		"invalid without causes": {answer: status(apierrors.NewInvalid(kind, "puller", nil)), want: auth.CodeIdentityInvalid},
		"no key":                 {answer: status(busy), want: auth.CodeUnavailable, fix: "read the log of Lanyard's token server", says: "no key may sign", retryAfter: 7 * time.Second},
		"token server away":      {answer: page(503, "service unavailable\n"), want: auth.CodeUnavailable, fix: "kubectl get apiservice v1alpha1.token.lanyard.dev"},
		"not known here":         {answer: status(apierrors.NewUnauthorized("no")), want: auth.CodeUnavailable, fix: "own credentials"},
		"throttled":              {answer: status(apierrors.NewTooManyRequests("slow", 3)), want: auth.CodeThrottled, retryAfter: 3 * time.Second},
		"somebody's 422":         {answer: page(422, "<html>"), want: auth.CodeResponseInvalid},
		"no token in it": {answer: func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusCreated, map[string]any{"apiVersion": tokenGroup.String(), "kind": "TokenRequest", "status": map[string]any{"token": 1}})
		}, want: auth.CodeProofInvalid},
		"no JWT": {answer: func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusCreated, map[string]any{"apiVersion": tokenGroup.String(), "kind": "TokenRequest", "status": map[string]any{"token": signature}})
		}, want: auth.CodeProofInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := newIssuerServer(t)
			identities, _ := newIdentities(t, s)
			s.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				posted := r.Method == http.MethodPost
				if posted {
					test.answer(w, r)
				}
				return posted
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := identities.Prove(ctx, auth.Account{Subject: puller(t), UID: identityUID}, forSTS())
			checkError(t, err)
			typed, _ := errors.AsType[*auth.Error](err)
			if typed == nil || typed.Code != test.want || typed.Stage != auth.StageTokenRequest || typed.RetryAfter != test.retryAfter || !strings.Contains(typed.Fix, test.fix) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v (%s, retry after %s), want %s, %q", err, typed.Fix, typed.RetryAfter, test.want, test.fix)
			}
		})
	}
}

// TestContextObject checks that a proof contains the context object of the request, and no other
// object.
func TestContextObject(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "registry", nil)
	s.putRing("key-1", "Active")
	identities, _ := newIdentities(t, s)
	request := auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{"registry.example.com"}, ContextObject: auth.ObjectReference{
		APIVersion: "toolkit.lanyard.dev/v1alpha1", Kind: "OCIRepository", Namespace: "tenant-a", Name: "app", UID: "11aa",
	}}
	if _, err := prove(t, identities, request); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	body := s.bodies[len(s.bodies)-1]
	s.mu.Unlock()
	const want = `"contextObject":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":"OCIRepository","name":"app","namespace":"tenant-a","uid":"11aa"}`
	if !strings.Contains(body, want) {
		t.Errorf("the request is %s, want %s in it", body, want)
	}

	other := newIssuerServer(t)
	other.put(identityUID, 1, "registry", nil)
	other.putRing("key-1", "Active")
	other.tamper = func(_, claims map[string]any) {
		claims["lanyard.dev"].(map[string]any)["context"] = map[string]any{"namespace": "tenant-a", "name": "app", "uid": "22bb"}
	}
	identities, _ = newIdentities(t, other)
	for _, asked := range []auth.ProofRequest{request, {Form: auth.FormJWT, Audiences: request.Audiences}} {
		if _, err := prove(t, identities, asked); auth.CodeOf(err) != auth.CodeProofInvalid {
			t.Errorf("a token for another object than %+v: %v", asked.ContextObject, err)
		}
	}
}

func TestReadWorkloadIdentity(t *testing.T) {
	s := newIssuerServer(t)
	s.put(identityUID, 1, "aws", nil, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/keep"}) })
	identities, _ := newIdentities(t, s)
	knows(t, identities, map[string]string{})
	s.put(identityUID, 2, "aws", nil, func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{"example.com/keep"})
		o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	})
	if _, err := identities.Read(t.Context(), puller(t)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an identity that is being deleted: %v", err)
	}
	knows(t, identities, nil)
	s.identities.remove("tenant-a", "puller")
	if _, err := identities.Read(t.Context(), puller(t)); auth.CodeOf(err) != auth.CodeSubjectNotFound {
		t.Errorf("an identity that is gone: %v", err)
	}
	s.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, apierrors.NewForbidden(identityGroup.WithResource("workloadidentities").GroupResource(), "puller", errors.New("no rule")))
		return true
	}
	_, err := identities.Read(t.Context(), puller(t))
	checkError(t, err)
	if typed, _ := errors.AsType[*auth.Error](err); typed == nil || typed.Code != auth.CodeProofDenied || !strings.Contains(typed.Fix, `grant "get" on workloadidentities.identity.lanyard.dev in namespace tenant-a`) {
		t.Error(err)
	}
}

// TestOnlyWorkloadIdentitiesAreProven checks what Prove requires. The account must belong to a
// WorkloadIdentity and have a UID. The request must ask for a JWT and name its audiences.
func TestOnlyWorkloadIdentitiesAreProven(t *testing.T) {
	s := newIssuerServer(t)
	identities, _ := newIdentities(t, s)
	if _, err := identities.Read(t.Context(), tenantA(t)); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("a ServiceAccount is read: %v", err)
	}
	for name, test := range map[string]struct {
		account auth.Account
		request auth.ProofRequest
		want    auth.Code
	}{
		"a ServiceAccount": {auth.Account{Subject: tenantA(t), UID: "uid-1"}, forSTS(), auth.CodeSubjectInvalid},
		"nobody":           {auth.Account{UID: "uid-1"}, forSTS(), auth.CodeSubjectInvalid},
		"no UID":           {auth.Account{Subject: puller(t)}, forSTS(), auth.CodeSubjectInvalid},
		"another form":     {auth.Account{Subject: puller(t), UID: "uid-1"}, auth.ProofRequest{Form: "x509", Audiences: []string{stsAWS}}, auth.CodeOptionUnsupported},
		"no audience":      {auth.Account{Subject: puller(t), UID: "uid-1"}, auth.ProofRequest{Form: auth.FormJWT}, auth.CodeAudienceRefused},
		"an empty one":     {auth.Account{Subject: puller(t), UID: "uid-1"}, auth.ProofRequest{Form: auth.FormJWT, Audiences: []string{stsAWS, ""}}, auth.CodeAudienceRefused},
	} {
		_, err := identities.Prove(t.Context(), test.account, test.request)
		checkError(t, err)
		if auth.CodeOf(err) != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if len(s.bodies) > 0 {
		t.Errorf("tokens were asked for: %q", s.bodies)
	}
}

func TestNewWorkloadIdentitiesNeedsItsOptions(t *testing.T) {
	s := newIssuerServer(t)
	_, c := newIdentities(t, s)
	good := kube.WorkloadIdentityOptions{Informers: c.GetCache(), APIReader: c.GetAPIReader(), Client: c.GetClient(), KeyRing: issuerRing}
	for want, change := range map[string]func(*kube.WorkloadIdentityOptions){
		"Informers": func(o *kube.WorkloadIdentityOptions) { o.Informers = nil },
		"APIReader": func(o *kube.WorkloadIdentityOptions) { o.APIReader = nil },
		"Client":    func(o *kube.WorkloadIdentityOptions) { o.Client = nil },
		"KeyRing":   func(o *kube.WorkloadIdentityOptions) { o.KeyRing.Name = "" },
	} {
		options := good
		change(&options)
		if _, err := kube.NewWorkloadIdentities(t.Context(), options); err == nil || !strings.Contains(err.Error(), "WorkloadIdentityOptions."+want) {
			t.Errorf("without %s: %v", want, err)
		}
	}
}
