package tokenserver

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestToken(t *testing.T) {
	r := newRig(t, banana())
	before := time.Now()
	got := r.minter(t).mint(t, `{"audiences":["team-foo"],"expirationSeconds":1200}`).request(t)

	identity := banana()
	if got.Status.Token != stubToken || got.Name != "banana" || got.Namespace != "tenant-a" || got.UID != identity.UID || got.Kind != "TokenRequest" {
		t.Errorf("the answer is %+v", got)
	}
	if len(got.ManagedFields) > 0 {
		t.Error("the answer has managedFields, although nothing is stored")
	}
	claims := r.signer.claims[0]
	if claims.Subject != "lanyard.dev:workloadidentity:tenant-a:banana:"+string(identity.UID) || claims.Lanyard.Cluster.ID != "prod" || claims.Lanyard.Context != nil ||
		len(claims.Audiences) != 1 || claims.Audiences[0] != "team-foo" {
		t.Errorf("the claims are %+v", claims)
	}
	if life := claims.ExpiresAt - claims.IssuedAt; life != 1200 || claims.IssuedAt < before.Unix() {
		t.Errorf("a token lives for %d seconds, want 1200", life)
	}
	if !r.signer.expires.Equal(time.Unix(claims.ExpiresAt, 0)) || !got.Status.ExpirationTimestamp.Equal(&metav1.Time{Time: r.signer.expires}) {
		t.Errorf("exp is %d, the signer was told %s, and the status %s", claims.ExpiresAt, r.signer.expires, got.Status.ExpirationTimestamp)
	}
	if n := testutil.ToFloat64(r.metrics.tokens.WithLabelValues("tenant-a", "banana")); n != 1 {
		t.Errorf("%v tokens are counted", n)
	}
	if audit := r.audit.String(); !strings.Contains(audit, `"token.lanyard.dev/jti":"`+claims.ID+`"`) || strings.Contains(audit, stubToken) {
		t.Errorf("the audit log must have the jti %s and no token:\n%s", claims.ID, audit)
	}
	if log := r.log.String() + libraries.String(); strings.Contains(log, "SHOULD NOT HAPPEN") || strings.Contains(log, stubToken) {
		t.Errorf("the log is:\n%s", log)
	}
	if r.minter(t).mint(t, `{}`).request(t); r.signer.claims[1].ID == claims.ID || claims.ID == "" {
		t.Errorf("two tokens have the jti %q", claims.ID)
	}
	r.metrics.forget("tenant-a", "banana")
	if n := testutil.CollectAndCount(r.metrics, "lanyard_tokens_minted_total"); n != 0 {
		t.Error("a deleted identity still has a metric")
	}
}

// TestSpoke checks that the token server derives the claim lanyard.dev.cluster from the caller's
// account, and from nothing else.
func TestSpoke(t *testing.T) {
	r := newRig(t, banana())
	r.spoke(t, "eu-1").mint(t, `{}`).request(t)
	if got := r.signer.claims[0].Lanyard.Cluster; got == nil || got.ID != "eu-1" {
		t.Errorf("the claim cluster is %+v", got)
	}
	for _, account := range []string{"prod", "EU", ""} {
		if got := r.spoke(t, account).mint(t, `{}`); got.code != http.StatusForbidden || len(r.signer.claims) != 1 {
			t.Errorf("the account %q: %d %s", account, got.code, got.body)
		}
	}
}

// TestRequests has the cases of Gardener's tokenrequest_test.go that apply, and cases of identities
// that get no token.
func TestRequests(t *testing.T) {
	terminating := banana()
	terminating.Name, terminating.Finalizers = "terminating", []string{"example.com/wait"}
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	opens := banana()
	opens.Name, opens.Spec.Audiences = "opens", []string{"https://kubernetes.default.svc"}
	r := newRig(t, banana(), terminating, opens)
	alice := r.minter(t)
	const object = `{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","namespace":"garden-foo","name":"banana","uid":"54d09554-6a68-4f46-a23a-e3592385d820"}`
	change := func(old, changed string) string {
		if !strings.Contains(object, old) {
			t.Fatalf("the object has no %s", old)
		}
		return `{"spec":{"contextObject":` + strings.Replace(object, old, changed, 1) + `}}`
	}
	for name, c := range map[string]struct {
		identity string // "banana" if empty
		body     string
		code     int
		says     string
	}{
		"nothing":                      {body: `{}`, code: 201},
		"another name":                 {body: `{"metadata":{"name":"apple"}}`, code: 400, says: "metadata.name"},
		"another namespace":            {body: `{"metadata":{"namespace":"tenant-b"}}`, code: 400, says: "namespace"},
		"the name of the URL":          {body: `{"metadata":{"name":"banana","namespace":"tenant-a"}}`, code: 201},
		"no JSON":                      {body: `{`, code: 400},
		"another kind":                 {body: `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"Status"}`, code: 400},
		"an unknown identity":          {identity: "apple", body: `{}`, code: 404, says: "workloadidentities.identity.lanyard.dev"},
		"a terminating identity":       {identity: "terminating", body: `{}`, code: 409, says: "being deleted"},
		"the identity's UID":           {body: `{"metadata":{"uid":"` + string(banana().UID) + `"}}`, code: 201},
		"another UID":                  {body: `{"metadata":{"uid":"0"}}`, code: 409, says: "another UID"},
		"an audience of the API":       {identity: "opens", body: `{}`, code: 422, says: "may open the cluster"},
		"12 hours":                     {body: `{"spec":{"expirationSeconds":43200}}`, code: 201},
		"the minimum":                  {body: `{"spec":{"expirationSeconds":600}}`, code: 201},
		"2^32 seconds":                 {body: `{"spec":{"expirationSeconds":4294967296}}`, code: 201},
		"more than 2^32 seconds":       {body: `{"spec":{"expirationSeconds":4294967297}}`, code: 201},
		"below the minimum":            {body: `{"spec":{"expirationSeconds":599}}`, code: 422, says: "spec.expirationSeconds"},
		"a negative life":              {body: `{"spec":{"expirationSeconds":-1}}`, code: 422, says: "spec.expirationSeconds"},
		"an audience of another":       {body: `{"spec":{"audiences":["team-baz"]}}`, code: 422, says: "spec.audiences[0]"},
		"an audience twice":            {body: `{"spec":{"audiences":["team-foo","team-foo"]}}`, code: 422, says: "spec.audiences[1]"},
		"an empty audience":            {body: `{"spec":{"audiences":[""]}}`, code: 422, says: "spec.audiences[0]"},
		"an object":                    {body: `{"spec":{"contextObject":` + object + `}}`, code: 201},
		"an object of the cluster":     {body: change(`"namespace":"garden-foo",`, ``), code: 201},
		"an object of the core":        {body: change(`core.gardener.cloud/v1beta1`, `v1`), code: 201},
		"no apiVersion":                {body: change(`"apiVersion":"core.gardener.cloud/v1beta1",`, ``), code: 422, says: "spec.contextObject.apiVersion: Required"},
		"a long apiVersion":            {body: change(`core.gardener.cloud/v1beta1`, `a/b/c`), code: 422, says: "spec.contextObject.apiVersion: Invalid"},
		"an apiVersion with no group":  {body: change(`core.gardener.cloud/v1beta1`, `/v1`), code: 422, says: "spec.contextObject.apiVersion: Invalid"},
		"an apiVersion that climbs":    {body: change(`core.gardener.cloud/v1beta1`, `../v1`), code: 422, says: "spec.contextObject.apiVersion: Invalid"},
		"no kind":                      {body: change(`"kind":"Shoot",`, ``), code: 422, says: "spec.contextObject.kind: Required"},
		"a kind with a hyphen":         {body: change(`Shoot`, `Foo-Bar`), code: 201}, // a CRD may have such a kind; stubContexts accepts every kind
		"a kind with another sign":     {body: change(`Shoot`, `Foo/Bar`), code: 422, says: "spec.contextObject.kind: Invalid"},
		"an empty namespace":           {body: change(`garden-foo`, ``), code: 201},
		"a namespace in capitals":      {body: change(`garden-foo`, `Default`), code: 422, says: "spec.contextObject.namespace: Invalid"},
		"no name":                      {body: change(`"name":"banana",`, ``), code: 422, says: "spec.contextObject.name: Required"},
		"a name that climbs":           {body: change(`"name":"banana"`, `"name":"../x"`), code: 422, says: "spec.contextObject.name: Invalid"},
		"a name that is long":          {body: change(`"name":"banana"`, `"name":"`+strings.Repeat("a", 254)+`"`), code: 422, says: "spec.contextObject.name: Invalid"},
		"no uid":                       {body: change(`,"uid":"54d09554-6a68-4f46-a23a-e3592385d820"`, ``), code: 422, says: "spec.contextObject.uid: Required"},
		"a status that a request sets": {body: `{"status":{"token":"mine"}}`, code: 201, says: stubToken},
	} {
		identity := c.identity
		if identity == "" {
			identity = "banana"
		}
		minted := len(r.signer.claims)
		got := alice.do(t, http.MethodPost, tokenPath(identity), c.body)
		if got.code != c.code || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %d, %s; want %d and %q", name, got.code, got.body, c.code, c.says)
		}
		if made := len(r.signer.claims) - minted; (made == 1) != (c.code == http.StatusCreated) {
			t.Errorf("%s: the answer is %d, and %d tokens are made", name, got.code, made)
		}
	}
	for reason, want := range map[metav1.StatusReason]float64{metav1.StatusReasonNotFound: 1, metav1.StatusReasonConflict: 2} {
		if n := testutil.ToFloat64(r.metrics.refusals.WithLabelValues(string(reason))); n != want {
			t.Errorf("%v refusals are counted for %s, want %v", n, reason, want)
		}
	}
	if log := r.log.String(); strings.Contains(log, "a token could not be made") {
		t.Errorf("faults of callers are in the log:\n%s", log)
	}
}

func TestOnlyCreate(t *testing.T) {
	r := newRig(t, banana())
	alice := r.minter(t)
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, tokenPath("banana"), http.StatusMethodNotAllowed},
		{http.MethodPut, tokenPath("banana"), http.StatusMethodNotAllowed},
		{http.MethodGet, strings.TrimSuffix(tokenPath("banana"), "/token"), http.StatusNotFound},
		{http.MethodPost, tokenPath("banana") + "?fieldValidation=Strict", http.StatusBadRequest},
		{http.MethodGet, "/metrics", http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", http.StatusNotFound},
	} {
		if got := alice.do(t, c.method, c.path, `{"spec":{"unknown":1}}`); got.code != c.code {
			t.Errorf("%s %s: %d, %s; want %d", c.method, c.path, got.code, got.body, c.code)
		}
	}
	list := alice.do(t, http.MethodGet, "/apis/token.lanyard.dev/v1alpha1", "")
	if !strings.Contains(list.body, `"name":"workloadidentities/token"`) || !strings.Contains(list.body, `"verbs":["create"]`) {
		t.Errorf("the group has %s", list.body)
	}
	if described := alice.do(t, http.MethodGet, "/openapi/v3/apis/token.lanyard.dev/v1alpha1", ""); !strings.Contains(described.body, "dev.lanyard.token.v1alpha1.TokenRequestSpec") {
		t.Errorf("the kinds are not described: %d", described.code)
	}
}

func TestDryRunMakesNoToken(t *testing.T) {
	r := newRig(t, banana())
	alice := r.minter(t)
	path := tokenPath("banana") + "?dryRun=All"
	got := alice.do(t, http.MethodPost, path, `{}`).request(t)
	if got.Status.Token != "" || len(r.signer.claims) > 0 || testutil.CollectAndCount(r.metrics) > 0 || strings.Contains(r.audit.String(), AuditID) {
		t.Errorf("a dry run makes a token: %+v", got)
	}
	if got := alice.do(t, http.MethodPost, path, `{"spec":{"expirationSeconds":1}}`); got.code != http.StatusUnprocessableEntity {
		t.Errorf("a dry run accepts what is refused: %d", got.code)
	}
}

func TestSignerCannotSign(t *testing.T) {
	r := newRig(t, banana())
	r.signer.err = errors.New("the ring has secrets")
	got := r.minter(t).mint(t, `{}`)
	if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || strings.Contains(got.body, "secrets") {
		t.Errorf("%d, Retry-After %q, %s; want 503 without the cause", got.code, got.header.Get("Retry-After"), got.body)
	}
	if !strings.Contains(r.log.String(), "the ring has secrets") {
		t.Error("the cause is not in the log")
	}
	if n := testutil.ToFloat64(r.metrics.refusals.WithLabelValues("ServiceUnavailable")); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}
}

func TestKeyBoundsLife(t *testing.T) {
	r := newRig(t, banana())
	r.signer.max = 20 * time.Minute
	r.minter(t).mint(t, `{"expirationSeconds":3600}`).request(t)
	if claims := r.signer.claims[0]; claims.ExpiresAt-claims.IssuedAt != 1200 {
		t.Errorf("a token lives for %d seconds, longer than its key is published", claims.ExpiresAt-claims.IssuedAt)
	}
}

func TestContexts(t *testing.T) {
	r := newRig(t, banana())
	const spec = `{"contextObject":{"apiVersion":"v1","kind":"ConfigMap","name":"crystal","uid":"1"}}`
	r.minter(t).mint(t, spec).request(t)
	if claims := r.signer.claims[0]; claims.Lanyard.Context == nil || claims.Lanyard.Context.Name != "crystal" || claims.Further["shoot"] != "crystal" {
		t.Errorf("the claims are %+v", claims)
	}
	if who := r.contexts.caller; who.GetName() != "alice" || who.GetGroups()[0] != "minters" || who.GetExtra()["team"][0] != "a" {
		t.Errorf("the context is checked for %+v", who)
	}
	r.contexts.err = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "crystal", errors.New("no relation"))
	if got := r.minter(t).mint(t, spec); got.code != http.StatusForbidden {
		t.Errorf("%d, %s; want 403", got.code, got.body)
	}
	r.contexts.err = errors.New("no status")
	if got := r.minter(t).mint(t, spec); got.code != http.StatusInternalServerError {
		t.Errorf("%d, %s; want 500", got.code, got.body)
	}
	if n := testutil.ToFloat64(r.metrics.refusals.WithLabelValues("InternalError")); n != 1 {
		t.Errorf("%v internal errors are counted", n)
	}
}
