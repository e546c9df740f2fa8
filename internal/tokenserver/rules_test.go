package tokenserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// newRights returns Rights for two programs. The function allow decides what these programs may do.
func newRights(allow func(*authorizationv1.SubjectAccessReviewSpec) (bool, error)) Rights {
	clientset := kubefake.NewClientset()
	clientset.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		var err error
		review.Status.Allowed, err = allow(&review.Spec)
		return true, review, err
	})
	return Rights{
		Reviews: clientset.AuthorizationV1().SubjectAccessReviews(), Namespace: "lanyard-system", Guarded: []string{"kube-system"},
		Accounts: []string{"lanyard-controller", "lanyard-discovery"}, Log: slog.New(slog.DiscardHandler),
	}
}

func TestRights(t *testing.T) {
	if err := newRights(func(*authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil }).Check(t.Context()); err != nil {
		t.Errorf("programs without rights: %v", err)
	}
	for _, want := range append(inNamespace("lanyard-system",
		"get secrets", "list secrets", "watch secrets", "create secrets", "update secrets", "patch secrets", "deletecollection secrets",
		"create serviceaccounts/token", "impersonate serviceaccounts",
		"create pods", "patch pods/ephemeralcontainers", "create pods/exec", "create pods/attach", "get pods/exec", "get pods/attach",
		"create deployments", "patch deployments", "update statefulsets", "create daemonsets", "create replicasets", "create replicationcontrollers",
		"create jobs", "patch cronjobs", "update keyrings/status", "patch keyrings/status", "bind roles", "bind clusterroles", "escalate roles",
	), append(inNamespace("kube-system", "create serviceaccounts/token", "impersonate serviceaccounts"),
		"impersonate users in the cluster", "impersonate groups in the cluster", "impersonate uids in the cluster", "impersonate userextras in the cluster",
	)...) {
		rights := newRights(func(asked *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			a := asked.ResourceAttributes
			what := right{a.Namespace, a.Verb, a.Group, a.Resource, a.Subresource}.String()
			return what == want && asked.User == "system:serviceaccount:lanyard-system:lanyard-discovery" &&
				strings.Contains(strings.Join(asked.Groups, " "), "system:serviceaccounts:lanyard-system"), nil
		})
		err := rights.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), "lanyard-discovery may "+want+":") || strings.Contains(err.Error(), "lanyard-controller may") {
			t.Errorf("%s: %v", want, err)
		}
		var log buffer
		rights.Accepted, rights.Log = true, slog.New(slog.NewTextHandler(&log, nil))
		if err := rights.Check(t.Context()); err != nil || !strings.Contains(log.String(), want) {
			t.Errorf("%s, which is accepted: %v, and the log is %s", want, err, &log)
		}
	}
	silent := newRights(func(*authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, errors.New("no answer") })
	for _, accepted := range []bool{false, true} {
		silent.Accepted = accepted
		if err := silent.Check(t.Context()); err == nil {
			t.Error("a question without an answer is taken for a no")
		}
	}
}

// inNamespace returns the texts of rights in a namespace.
func inNamespace(namespace string, rights ...string) []string {
	for i := range rights {
		rights[i] += " in namespace " + namespace
	}
	return rights
}

// slowReviews answers every question after a second.
type slowReviews struct {
	typedauthorizationv1.SubjectAccessReviewInterface
}

func (slowReviews) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	time.Sleep(time.Second)
	return review, nil
}

// TestRightsAreAskedSideBySide checks that [Rights.Check] asks several questions at once. So Check
// is fast, which matters because a new replica makes no token before Check has returned.
func TestRightsAreAskedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		rights := Rights{Reviews: slowReviews{}, Guarded: []string{"kube-system", "lanyard-identities"}, Accounts: []string{"lanyard-controller", "lanyard-discovery", "lanyard-identity-controller"}}
		if err := rights.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("the check takes %s when each answer takes a second", took)
		}
	})
}

// apiServer starts a fake API server that publishes an issuer's documents, and returns a client.
// The keys of documents are URL paths.
func apiServer(t *testing.T, documents map[string]string) rest.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, ok := documents[r.URL.Path]
		if !ok {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(document))
	}))
	t.Cleanup(server.Close)
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	return clientset.Discovery().RESTClient()
}

func TestClusterIssuer(t *testing.T) {
	const discovery, jwks = "/.well-known/openid-configuration", "/openid/v1/jwks"
	ring := client.ObjectKey{Namespace: "lanyard-system", Name: keyring.IssuerRing}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	key, err := keyring.NewKey(private.Public())
	must.Succeed(t, err)
	entry, err := key.Entry()
	must.Succeed(t, err)
	entry.State = identityv1.KeyPublished
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "another-name"}}})
	must.Succeed(t, err)
	own := &identityv1.KeyRing{
		ObjectMeta: metav1.ObjectMeta{Namespace: ring.Namespace, Name: ring.Name},
		Status:     identityv1.KeyRingStatus{Keys: []identityv1.RingKey{entry}},
	}
	const other = `{"issuer":"https://cluster.example.com"}`
	for name, c := range map[string]struct {
		documents map[string]string
		objects   []client.Object
		says      string
	}{
		"another issuer":           {documents: map[string]string{discovery: other, jwks: `{"keys":[]}`}, objects: []client.Object{own}},
		"another issuer, no ring":  {documents: map[string]string{discovery: other, jwks: string(set)}},
		"the same issuer":          {documents: map[string]string{discovery: `{"issuer":"https://issuer.example.com"}`, jwks: `{"keys":[]}`}, says: "choose another URL"},
		"a key of the ring":        {documents: map[string]string{discovery: other, jwks: string(set)}, objects: []client.Object{own}, says: "revoke the key"},
		"no issuer":                {documents: map[string]string{discovery: `{}`, jwks: `{"keys":[]}`}, says: "--service-account-issuer"},
		"a document that is hid":   {documents: map[string]string{jwks: `{"keys":[]}`}, says: "system:service-account-issuer-discovery"},
		"keys that are hid":        {documents: map[string]string{discovery: other}, says: "system:service-account-issuer-discovery"},
		"keys that cannot be read": {documents: map[string]string{discovery: other, jwks: `[]`}, says: jwks},
	} {
		check := ClusterIssuer{Documents: apiServer(t, c.documents), Issuer: "https://issuer.example.com", Ring: ring, Client: newClient(t, c.objects...)}
		err := check.Check(t.Context())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
}

func TestPrecondition(t *testing.T) {
	result := errors.New("other programs can read Secrets")
	p := NewPrecondition("rights", "the keys may be known", func(context.Context) error { return result })
	metric := func() float64 { return testutil.ToFloat64(p.Metric()) }
	r := newRigWith(t, func(c *Config) { c.Preconditions = []*Precondition{p} }, banana())
	alice := r.minter(t)
	refused := func(when string) {
		t.Helper()
		got := alice.mint(t, `{}`)
		if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "" || !strings.Contains(got.body, "the keys may be known") || strings.Contains(got.body, "Secrets") {
			t.Errorf("%s: %d, Retry-After %q, %s; want 503 with the reason and without its details", when, got.code, got.header.Get("Retry-After"), got.body)
		}
		if metric() != 0 || len(r.signer.claims) > 0 {
			t.Errorf("%s: the metric is %v, and %d tokens are made", when, metric(), len(r.signer.claims))
		}
	}
	if refused("before the check"); p.Checked(nil) == nil {
		t.Error("a replica gets requests before the first check")
	}
	if err := p.Step(t.Context()); !errors.Is(err, result) || p.Checked(nil) != nil {
		t.Errorf("the check fails: %v, %v", err, p.Checked(nil))
	}
	refused("the check fails")
	// The API server sends this request before it deletes a namespace, and an error would block the
	// deletion. So the answer must be 200, even while the check of the Precondition p fails.
	if list := alice.do(t, http.MethodGet, "/apis/token.lanyard.dev/v1alpha1", ""); list.code != http.StatusOK {
		t.Errorf("the API is not available: %d, %s", list.code, list.body)
	}
	if n := testutil.ToFloat64(r.metrics.refusals.WithLabelValues("ServiceUnavailable")); n != 2 {
		t.Errorf("%v refusals are counted", n)
	}
	result = nil
	if err := p.Step(t.Context()); err != nil || metric() != 1 {
		t.Errorf("the check is good: %v, %v", err, metric())
	}
	alice.mint(t, `{}`).request(t)
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		start := time.Now()
		var log buffer
		var steps []time.Duration
		Every(ctx, time.Hour, func(context.Context) error {
			if steps = append(steps, time.Since(start)); len(steps) == 1 {
				return errors.New("not yet")
			}
			return nil
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if len(steps) != 3 || steps[0] != 0 || steps[1] != retryInterval || steps[2] != time.Hour+retryInterval || strings.Count(log.String(), "not yet") != 1 {
			t.Errorf("the steps are at %v, and the log is %s", steps, &log)
		}
	})
}

// TestIdentityIsReadLive checks that an identity is read from the API server if memory has no
// identity of this name, or only one with another UID.
func TestIdentityIsReadLive(t *testing.T) {
	former := banana()
	former.UID = "former"
	live := newClient(t, banana())
	for name, c := range map[string]struct {
		memory client.Client
		uid    string
		want   string
	}{
		"memory has it":              {memory: newClient(t, former), want: "former"},
		"memory has the UID":         {memory: newClient(t, former), uid: "former", want: "former"},
		"memory has its predecessor": {memory: newClient(t, former), uid: string(banana().UID), want: string(banana().UID)},
		"memory does not have it":    {memory: newClient(t), want: string(banana().UID)},
	} {
		got, err := CachedIdentities{Memory: c.memory, Live: live}.Get(t.Context(), "tenant-a", "banana", types.UID(c.uid))
		if err != nil || string(got.UID) != c.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
	if _, err := (CachedIdentities{Memory: live, Live: live}).Get(t.Context(), "tenant-b", "banana", ""); !apierrors.IsNotFound(err) {
		t.Errorf("another namespace: %v", err)
	}
}

func TestMetricsOfDeletedIdentities(t *testing.T) {
	scheme := newClient(t).Scheme()
	informers := &informertest.FakeInformers{Scheme: scheme}
	metrics := NewMetrics(slog.New(slog.DiscardHandler))
	must.Succeed(t, ForgetDeleted(t.Context(), informers, metrics))
	metrics.minted(banana())
	informer, err := informers.FakeInformerFor(t.Context(), &identityv1.WorkloadIdentity{})
	must.Succeed(t, err)
	informer.Delete(banana())
	if n := testutil.CollectAndCount(metrics, "lanyard_tokens_minted_total"); n != 0 {
		t.Error("a deleted identity has a metric")
	}
}

// TestFollowRing checks that each channel gets a value after a change of the ring, even if its
// receiver is busy.
func TestFollowRing(t *testing.T) {
	informers := &informertest.FakeInformers{Scheme: newClient(t).Scheme()}
	busy, idle := make(chan struct{}, 1), make(chan struct{}, 1)
	name := client.ObjectKey{Namespace: "lanyard-system", Name: keyring.IssuerRing}
	must.Succeed(t, FollowRing(t.Context(), informers, name, busy, idle))
	informer, err := informers.FakeInformerFor(t.Context(), &identityv1.KeyRing{})
	must.Succeed(t, err)
	ring := &identityv1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	another := &identityv1.KeyRing{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name.Name}}
	informer.Add(another)
	if len(busy) != 0 {
		t.Error("a change of another ring is told")
	}
	informer.Add(ring)
	<-idle
	informer.Update(ring, ring)
	if len(busy) != 1 || len(idle) != 1 {
		t.Errorf("%d and %d changes are told, want 1 and 1", len(busy), len(idle))
	}
}

func TestOpenAudit(t *testing.T) {
	if backend, err := OpenAudit("", nil); backend != nil || err != nil {
		t.Errorf("no log: %v, %v", backend, err)
	}
	if _, err := OpenAudit(t.TempDir()+"/audit.log", nil); err != nil {
		t.Error(err)
	}
	if _, err := OpenAudit(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "--audit-log-path") {
		t.Errorf("a folder: %v", err)
	}
}
