package attack

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// spokesNamespace is the namespace with the accounts of the spokes. Spokes are clusters that
	// request tokens from the issuer of this cluster, their hub.
	spokesNamespace = "lanyard-spokes"
	// hostileSpoke and victimSpoke are two spokes. The identities of victimSpoke are in the
	// namespace with its name.
	hostileSpoke, victimSpoke = "spoke-hostile", "spoke-victim"
)

// actAsSpoke acts as a thief with the credential that hostileSpoke has at its hub. The thief must
// get no tokens of victimSpoke's identities. The claims of tokens of hostileSpoke's identity must
// not name victimSpoke or an object of victimSpoke.
func actAsSpoke(tn *tenant) {
	t := tn.t
	for _, name := range []string{spokesNamespace, victimSpoke} {
		createNamespace(t, name)
		t.Cleanup(func() {
			_ = objects.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		})
	}
	grantSpoke(t, hostileSpoke, tn.namespace)
	grantSpoke(t, victimSpoke, victimSpoke)
	const audience = "https://receiver.example.com"
	victim := &tenant{t: t, namespace: victimSpoke}
	tn.identity(audience)
	victim.identity(audience)
	use := victim.repository("use", tn.host("registry")+"/app")
	use.Spec.Suspend, use.Spec.Provider, use.Spec.WorkloadIdentityName = true, v1alpha1.ProviderAWS, victimIdentity
	create(t, use)

	me, other := callAs(t, spokesNamespace, hostileSpoke, nil), callAs(t, spokesNamespace, victimSpoke, nil)
	wantCluster(t, me, tn.namespace, hostileSpoke)
	wantCluster(t, other, victimSpoke, victimSpoke)
	tn.mintAsSpoke(me, use)
	tn.reachAsSpoke(me)

	// Only accounts in spokesNamespace are spokes, even if an account elsewhere has a spoke's name.
	create(t, &corev1.ServiceAccount{ObjectMeta: tn.meta(victimSpoke)})
	tn.allowTo(victimSpoke, minting())
	tn.tried++
	wantCluster(t, callAs(t, tn.namespace, victimSpoke, nil), tn.namespace, "demo")
}

// mintAsSpoke requests tokens of the victim's identity. It also requests tokens of the tenant's
// identity, with the victim's object in the field contextObject.
func (tn *tenant) mintAsSpoke(me *caller, use *v1alpha1.OCIRepository) {
	t := tn.t
	account := "system:serviceaccount:" + spokesNamespace + ":" + victimSpoke
	for _, headers := range [][]string{
		nil,
		{"Impersonate-User", account},
		{"Impersonate-User", "system:admin", "Impersonate-Group", "system:masters"},
		{"X-Remote-User", account},
		{"Connection", "Authorization, X-Remote-User", "X-Remote-User", account},
	} {
		for _, spec := range []string{`{}`, `{"expirationSeconds":600}`, `{"cluster":{"id":"` + victimSpoke + `"}}`} {
			tn.tried++
			if token, status, answer := me.mint(victimSpoke, victimIdentity, spec, headers...); status < http.StatusBadRequest || token != "" {
				t.Errorf("a token of the other spoke's identity, with %s and %q: HTTP %d %s", spec, headers, status, answer)
			}
		}
	}
	for _, namespace := range []string{victimSpoke, tn.namespace} {
		tn.tried++
		token, status, answer := me.mint(tn.namespace, victimIdentity, fmt.Sprintf(
			`{"contextObject":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":"OCIRepository","namespace":%q,"name":%q,"uid":%q}}`, namespace, use.Name, use.UID))
		if token != "" || status < http.StatusBadRequest {
			t.Errorf("a token for the other spoke's object in %s: HTTP %d %s", namespace, status, answer)
		}
	}
	// Whatever the spoke requests, its own token contains its own name.
	for _, spec := range []string{`{"cluster":{"id":"` + victimSpoke + `"}}`, `{"audiences":["https://receiver.example.com"],"spoke":"` + victimSpoke + `"}`} {
		tn.tried++
		if token, _, _ := me.mint(tn.namespace, victimIdentity, spec); token != "" && clusterOf(t, token) != hostileSpoke {
			t.Errorf("with %s, a token names the cluster %q", spec, clusterOf(t, token))
		}
	}
}

// reachAsSpoke sends requests for which hostileSpoke has no permission. The API server must forbid
// all of them.
func (tn *tenant) reachAsSpoke(me *caller) {
	t := tn.t
	const identities = "/apis/identity.lanyard.dev/v1alpha1"
	bind := func(role string) string {
		return `{"metadata":{"name":"more"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"` + role +
			`"},"subjects":[{"kind":"ServiceAccount","namespace":"` + spokesNamespace + `","name":"` + hostileSpoke + `"}]}`
	}
	roles := func(namespace string) string { return "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace }
	for _, try := range []struct{ method, path, body string }{
		{http.MethodGet, identities + "/namespaces/" + victimSpoke + "/workloadidentities", ""},
		{http.MethodGet, identities + "/namespaces/" + victimSpoke + "/workloadidentities/" + victimIdentity, ""},
		{http.MethodGet, identities + "/workloadidentities", ""},
		{http.MethodGet, identities + "/workloadidentities?watch=true", ""},
		{http.MethodPost, identities + "/namespaces/" + tn.namespace + "/workloadidentities", `{"metadata":{"name":"more"}}`},
		{http.MethodPatch, identities + "/namespaces/" + victimSpoke + "/workloadidentities/" + victimIdentity, `{"spec":{"audiences":["evil"]}}`},
		{http.MethodPatch, identities + "/namespaces/" + local.Namespace + "/keyrings/" + keyring.IssuerRing, `{"spec":{"rotate":"now"}}`},
		{http.MethodPost, "/api/v1/namespaces/" + spokesNamespace + "/serviceaccounts/" + victimSpoke + "/token", `{}`},
		{http.MethodPost, "/api/v1/namespaces/" + spokesNamespace + "/serviceaccounts/" + hostileSpoke + "/token", `{}`},
		{http.MethodPost, "/api/v1/namespaces/" + spokesNamespace + "/serviceaccounts", `{"metadata":{"name":"more"}}`},
		{http.MethodPost, "/api/v1/namespaces/" + spokesNamespace + "/pods", `{"metadata":{"name":"more"},"spec":{"serviceAccountName":"` + victimSpoke + `","containers":[{"name":"a","image":"a"}]}}`},
		{http.MethodGet, "/api/v1/namespaces/" + spokesNamespace + "/secrets", ""},
		{http.MethodGet, "/api/v1/namespaces/" + tn.namespace + "/secrets", ""},
		{http.MethodGet, "/api/v1/namespaces/" + local.Namespace + "/secrets", ""},
		{http.MethodPost, roles(victimSpoke) + "/rolebindings", bind("lanyard-spoke-" + victimSpoke)},
		{http.MethodPost, roles(tn.namespace) + "/rolebindings", bind("lanyard-spoke-" + hostileSpoke)},
		{http.MethodPatch, roles(tn.namespace) + "/roles/lanyard-spoke-" + hostileSpoke, `{"rules":[]}`},
	} {
		tn.tried++
		contentType := "application/json"
		if try.method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		if status, answer := me.do(try.method, try.path, contentType, try.body); status != http.StatusForbidden {
			t.Errorf("%s %s: HTTP %d %s", try.method, try.path, status, answer)
		}
	}
}

// grantSpoke applies the output of `lanyard hub grant` for a spoke and a namespace. The objects are
// deleted when the test ends.
func grantSpoke(t *testing.T, spoke, namespace string) {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), binary("lanyard"), "hub", "grant", spoke, "--namespace", namespace).Output()
	must(t, "lanyard hub grant", err)
	for manifest := range strings.SplitSeq(string(printed), "---\n") {
		o := &unstructured.Unstructured{}
		must(t, "read what it prints", yaml.Unmarshal([]byte(manifest), &o.Object))
		if len(o.Object) > 0 {
			lender{t}.make(o)
		}
	}
}

// wantCluster waits until a caller gets a token, and asserts that the token's claims name the
// wanted cluster.
func wantCluster(t *testing.T, c *caller, namespace, want string) {
	t.Helper()
	if got := clusterOf(t, c.awaitToken(namespace, `{}`)); got != want {
		t.Fatalf("the token names the cluster %q; want %q", got, want)
	}
}

// clusterOf returns the cluster in a token's claims.
func clusterOf(t *testing.T, token string) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	var claims struct {
		Lanyard struct {
			Cluster struct {
				ID string `json:"id"`
			} `json:"cluster"`
		} `json:"lanyard.dev"`
	}
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	return claims.Lanyard.Cluster.ID
}
