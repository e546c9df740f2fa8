package kube_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	apiAudience = "https://kubernetes.default.svc.cluster.local"
	selfUser    = "system:serviceaccount:lanyard-system:lanyard-controller"
)

// apiServer implements the part of the Kubernetes API that package kube needs. Any other request
// fails the test.
type apiServer struct {
	*httptest.Server
	t *testing.T

	accounts *feed[*metav1.PartialObjectMetadata]

	mu      sync.Mutex
	journal []string // "METHOD path" of every request except watches
	bodies  []string // bodies of TokenRequests, in JSON

	// Tests set the fields below before the first request.
	user       authenticationv1.UserInfo
	ignoresUID bool                                              // like API servers before 1.34
	tamper     func(claims map[string]any)                       // changes the claims of a token
	intercept  func(w http.ResponseWriter, r *http.Request) bool // answers in place of the server
	minting    func()                                            // runs when a TokenRequest arrives
	limiter    flowcontrol.RateLimiter                           // for clients; may be nil
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{
		t: t, user: authenticationv1.UserInfo{Username: selfUser, UID: "self-uid"},
		accounts: newFeed(func() *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
		}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/serviceaccounts", s.listOrWatch)
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/serviceaccounts/{name}", s.get)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", s.token)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", s.review)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("unexpected request %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			s.mu.Lock()
			s.journal = append(s.journal, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
		}
		if s.intercept == nil || !s.intercept(w, r) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	s.put("lanyard-system", "lanyard-controller", "self-uid", nil)
	return s
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, RateLimiter: s.limiter}
}

func (s *apiServer) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.journal)
}

// put creates or changes an account. Every account has a label and managed fields, which package
// kube does not need.
func (s *apiServer) put(namespace, name, uid string, annotations map[string]string, change ...func(*metav1.PartialObjectMetadata)) {
	object := s.accounts.empty()
	object.ObjectMeta = metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid), Annotations: maps.Clone(annotations),
		Labels:        map[string]string{"app": "x"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply"}},
	}
	for _, f := range change {
		f(object)
	}
	s.accounts.put(object)
}

func (s *apiServer) remove(namespace, name string) { s.accounts.remove(namespace, name) }

func (s *apiServer) listOrWatch(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		s.t.Errorf("whole ServiceAccounts are asked for: Accept %q", r.Header.Get("Accept"))
	}
	s.accounts.ServeHTTP(w, r)
}

func (s *apiServer) get(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		s.t.Errorf("a whole ServiceAccount is asked for: Accept %q", r.Header.Get("Accept"))
	}
	object, ok := s.accounts.get(r.PathValue("namespace"), r.PathValue("name"))
	if !ok {
		refuse(w, errors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, r.PathValue("name")))
		return
	}
	answer(w, http.StatusOK, object)
}

// token answers a TokenRequest. Source: k8s.io/kubernetes
// pkg/registry/core/serviceaccount/storage/token.go.
func (s *apiServer) token(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request := &authenticationv1.TokenRequest{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, request); err != nil {
		s.t.Errorf("TokenRequest cannot be decoded: %v", err)
	}
	asJSON, _ := json.Marshal(request)
	s.mu.Lock()
	s.bodies = append(s.bodies, string(asJSON))
	s.mu.Unlock()
	if s.minting != nil {
		s.minting()
	}
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	account, ok := s.accounts.get(namespace, name)
	switch {
	case !ok:
		refuse(w, errors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, name))
		return
	case request.UID != "" && request.UID != account.UID && !s.ignoresUID:
		refuse(w, errors.NewConflict(schema.GroupResource{Group: "authentication.k8s.io", Resource: "TokenRequest"}, name, fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.UID)))
		return
	case *request.Spec.ExpirationSeconds < 600:
		refuse(w, errors.NewInvalid(schema.GroupKind{Group: "authentication.k8s.io", Kind: "TokenRequest"}, "", nil))
		return
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = []string{apiAudience, "k3s"}
	}
	now := time.Now()
	claims := map[string]any{
		"iss": "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE",
		"sub": "system:serviceaccount:" + namespace + ":" + name,
		"aud": request.Spec.Audiences,
		"iat": now.Unix(),
		"exp": now.Unix() + *request.Spec.ExpirationSeconds,
		"kubernetes.io": map[string]any{
			"namespace":      namespace,
			"serviceaccount": map[string]any{"name": name, "uid": account.UID},
		},
	}
	if s.tamper != nil {
		s.tamper(claims)
	}
	request.Status.Token = jwt(claims)
	request.Status.ExpirationTimestamp = metav1.NewTime(now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
	request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
	answer(w, http.StatusCreated, request)
}

func (s *apiServer) review(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusCreated, authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
		Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: s.user},
	})
}

// jwt returns a token in compact form. No test verifies its signature.
func jwt(claims any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(payload) + "." + signature
}

const signature = "c2VjcmV0LXNpZ25hdHVyZQ"
