package attack

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// ownSubject is the prefix of subjects in tokens of Lanyard's own issuer.
	ownSubject = "lanyard.dev:workloadidentity:"
	// victimNamespace is the namespace of the tenant whose clouds trust Lanyard's own issuer.
	// victimIdentity is the tenant's WorkloadIdentity for AWS.
	victimNamespace, victimIdentity = "tenant-c", "tenant-c-ecr"
	// stsAudience is the audience of tokens for AWS STS.
	stsAudience = "sts.amazonaws.com"
	// controllerAccount and tokenServerAccount name ServiceAccounts of the chart, and also the
	// workloads that use them.
	controllerAccount, tokenServerAccount = "lanyard-controller", "lanyard-token-server"
)

// caller sends requests to the API server with the token of a ServiceAccount.
type caller struct {
	t         *testing.T
	server    string
	client    *http.Client
	namespace string // the namespace of the ServiceAccount
	bearer    string
}

// callAs returns a caller with a ServiceAccount token, like the token in a Pod. If pod is not nil,
// the token is bound to this Pod.
func callAs(t *testing.T, namespace, account string, pod *corev1.Pod) *caller {
	t.Helper()
	var spec authenticationv1.TokenRequestSpec
	if pod != nil {
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	config := rest.AnonymousClientConfig(world.Config())
	// Use HTTP/1.1, because HTTP/2 has no header Connection. With this header, attacks ask the API
	// server to remove other headers before it forwards a request.
	config.NextProtos = []string{"http/1.1"}
	c, err := rest.HTTPClientFor(config)
	must(t, "make a client", err)
	t.Cleanup(c.CloseIdleConnections)
	return &caller{t: t, server: config.Host, client: c, namespace: namespace, bearer: accountToken(t, namespace, account, spec)}
}

// accountToken requests a ServiceAccount token from the API server.
func accountToken(t *testing.T, namespace, account string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	typed, err := kubernetes.NewForConfig(world.Config())
	must(t, "make a client", err)
	answer, err := typed.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	must(t, "get a token of the ServiceAccount", err)
	return answer.Status.Token
}

// do sends a request and returns the status and the body of its answer.
func (c *caller) do(method, path, contentType, body string, headers ...string) (status int, answer string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.server+path, strings.NewReader(body))
	must(c.t, "make a request", err)
	req.Header.Set("Authorization", "Bearer "+c.bearer)
	req.Header.Set("Content-Type", contentType)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := c.client.Do(req)
	must(c.t, "call "+path, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(c.t, "read an answer", err)
	return res.StatusCode, string(text)
}

// mint requests a token of an identity. The spec is JSON.
func (c *caller) mint(namespace, name, spec string, headers ...string) (token string, status int, answer string) {
	c.t.Helper()
	status, answer = c.do(http.MethodPost, identityPath(namespace, name)+"/token", "application/json", tokenRequest(spec), headers...)
	var request tokenv1.TokenRequest
	if status == http.StatusCreated {
		must(c.t, "read a token", json.Unmarshal([]byte(answer), &request))
	}
	return request.Status.Token, status, answer
}

// awaitToken requests tokens of the WorkloadIdentity victimIdentity in a namespace, until a request
// succeeds. The first requests can fail, because new rights of the caller take effect late. The
// parameter spec is the spec of a token request, as JSON.
func (c *caller) awaitToken(namespace, spec string) (token string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	poll(ctx, c.t, "the rights are in force", func() error {
		var status int
		var answer string
		token, status, answer = c.mint(namespace, victimIdentity, spec)
		return wantf(token != "", "HTTP %d %s", status, answer)
	})
	return token
}

// wantsToken requests a token of the WorkloadIdentity victimIdentity in the caller's namespace. The
// parameter spec is the spec of a token request, as JSON. The result is the answer's HTTP status,
// or 0 if no answer came. wantsToken never fails the test, so any goroutine may call wantsToken.
func (c *caller) wantsToken(ctx context.Context, spec string) (status int) {
	path := c.server + identityPath(c.namespace, victimIdentity) + "/token"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(tokenRequest(spec)))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+c.bearer)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body) // read the whole body, so that the client can reuse the connection
	_ = res.Body.Close()
	return res.StatusCode
}

func identityPath(namespace, name string) string {
	return "/apis/" + tokenv1.Group + "/v1alpha1/namespaces/" + namespace + "/workloadidentities/" + name
}

func tokenRequest(spec string) string {
	return `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest","spec":` + spec + `}`
}

// allow grants rights in the tenant's namespace to the tenant's ServiceAccount.
func (tn *tenant) allow(rules ...rbacv1.PolicyRule) { tn.allowTo(puller, rules...) }

// allowTo is like allow, for another ServiceAccount of the tenant.
func (tn *tenant) allowTo(account string, rules ...rbacv1.PolicyRule) {
	name := "owner-" + account
	create(tn.t, &rbacv1.Role{ObjectMeta: tn.meta(name), Rules: rules})
	create(tn.t, &rbacv1.RoleBinding{
		ObjectMeta: tn.meta(name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tn.namespace, Name: account}},
	})
}

// identity creates a WorkloadIdentity in the tenant's namespace, with the name and the AWS role of
// the victim's WorkloadIdentity.
func (tn *tenant) identity(audiences ...string) *identityv1.WorkloadIdentity {
	o := &identityv1.WorkloadIdentity{ObjectMeta: tn.meta(victimIdentity), Spec: identityv1.WorkloadIdentitySpec{
		Audiences: audiences, SubjectFormat: identityv1.SubjectFormatName,
		TargetSystem: identityv1.TargetSystem{Type: "aws", ProviderConfig: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"iamRoleARN":%q}`, roleC)}},
	}}
	create(tn.t, o)
	return o
}

// everything returns rules that allow all verbs on all of Lanyard's kinds, but not the creation of
// tokens.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{identityv1.Group, v1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}}}
}

// minting returns a rule that allows the creation of tokens.
func minting() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{tokenv1.Group}, Resources: []string{"workloadidentities/token"}, Verbs: []string{"create"}}
}

// mintWithoutGrant acts as a tenant that may do everything with its WorkloadIdentities except
// create tokens. It requests tokens of its own identity, which looks like the victim's, and of the
// victim's identity.
func mintWithoutGrant(tn *tenant) {
	t := tn.t
	tn.allow(everything()...)
	tn.identity(stsAudience)
	me := callAs(t, tn.namespace, puller, nil)
	for _, namespace := range []string{tn.namespace, victimNamespace} {
		for _, spec := range []string{`{}`, `{"audiences":["` + stsAudience + `"],"expirationSeconds":600}`} {
			tn.tried++
			if token, status, answer := me.mint(namespace, victimIdentity, spec); status != http.StatusForbidden || token != "" {
				t.Errorf("a token of %s: HTTP %d %s", namespace, status, answer)
			}
		}
		for _, try := range []struct{ method, path, body string }{
			{http.MethodPost, identityPath(namespace, victimIdentity) + "/token?dryRun=All", tokenRequest(`{}`)},
			{http.MethodPut, identityPath(namespace, victimIdentity) + "/token", tokenRequest(`{}`)},
			{http.MethodGet, identityPath(namespace, victimIdentity) + "/token", ""},
			{http.MethodPost, strings.TrimSuffix(identityPath(namespace, ""), "/"), tokenRequest(`{}`)},
		} {
			tn.tried++
			if status, answer := me.do(try.method, try.path, "application/json", try.body); status < http.StatusBadRequest {
				t.Errorf("%s %s: HTTP %d %s", try.method, try.path, status, answer)
			}
		}
	}
	// The API server must refuse all these requests. If it accepted one of them, the tenant would
	// get tokens without a grant.
	for _, try := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/v1/namespaces/" + local.Namespace + "/secrets", ""},
		{http.MethodPatch, "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + local.Namespace + "/keyrings/" + keyring.IssuerRing, `{"spec":{"revoke":[]}}`},
		{http.MethodPatch, "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + local.Namespace + "/keyrings/" + keyring.IssuerRing + "/status", `{"status":{"keys":[]}}`},
		{http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/" + tn.namespace + "/rolebindings", `{"metadata":{"name":"more"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + tenantRole + `"},"subjects":[{"kind":"ServiceAccount","namespace":"` + tn.namespace + `","name":"` + puller + `"}]}`},
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
	// The token server computes a token's subject, so this change of the status has no effect.
	tn.tried++
	me.do(http.MethodPatch, "/apis/identity.lanyard.dev/v1alpha1/namespaces/"+tn.namespace+"/workloadidentities/"+victimIdentity+"/status",
		"application/merge-patch+json", `{"status":{"sub":"`+ownSubject+victimNamespace+":"+victimIdentity+`"}}`)
	// For the following object, the controller requests a token of the tenant's identity. The cloud
	// must refuse the token, because the token's subject is this identity and not the victim's.
	o := tn.repository("stolen", local.Account+".dkr.ecr."+local.Region+".amazonaws.com/tenant-c/app")
	o.Spec.Provider, o.Spec.WorkloadIdentityName = v1alpha1.ProviderAWS, victimIdentity
	tn.refused(t, []client.Object{o}, nil, "TrustRefused")
}

// spoofContexts acts as a tenant that may create tokens of its own identity. The tenant must get no
// token for a context object that
//
//   - is not the tenant's own;
//   - does not exist; or
//   - does not use the identity.
func spoofContexts(tn *tenant) {
	t := tn.t
	tn.allow(append(everything(), minting())...)
	tn.identity("https://receiver.example.com")
	mine, other := tn.repository("mine", tn.host("registry")+"/app"), tn.repository("other", tn.host("registry")+"/app")
	mine.Spec.Suspend, other.Spec.Suspend = true, true
	mine.Spec.Provider, mine.Spec.WorkloadIdentityName = v1alpha1.ProviderAWS, victimIdentity
	create(t, mine)
	create(t, other)
	victims := &v1alpha1.OCIRepository{}
	must(t, "read the victim's object", objects.Get(t.Context(), client.ObjectKey{Namespace: victimNamespace, Name: "tenant-c-repo"}, victims))
	me := callAs(t, tn.namespace, puller, nil)
	spec := func(kind, namespace, name, uid string) string {
		return fmt.Sprintf(`{"contextObject":{"apiVersion":"toolkit.lanyard.dev/v1alpha1","kind":%q,"namespace":%q,"name":%q,"uid":%q}}`, kind, namespace, name, uid)
	}
	own := spec("OCIRepository", tn.namespace, mine.Name, string(mine.UID))
	if token, status, answer := me.mint(tn.namespace, victimIdentity, own); token == "" {
		t.Fatalf("a token for its own object: HTTP %d %s: this tests nothing", status, answer)
	}
	answers := map[string]string{}
	for name, spoofed := range map[string]string{
		"the victim's object":            spec("OCIRepository", victimNamespace, victims.Name, string(victims.UID)),
		"the victim's name and UID here": spec("OCIRepository", tn.namespace, victims.Name, string(victims.UID)),
		"nothing":                        spec("OCIRepository", tn.namespace, "nothing", string(mine.UID)),
		"another UID":                    spec("OCIRepository", tn.namespace, mine.Name, string(victims.UID)),
		"another object's UID":           spec("OCIRepository", tn.namespace, mine.Name, string(other.UID)),
		"an object without the identity": spec("OCIRepository", tn.namespace, other.Name, string(other.UID)),
		"another kind":                   spec("Bucket", tn.namespace, mine.Name, string(mine.UID)),
		"an unknown kind":                spec("Shoot", tn.namespace, mine.Name, string(mine.UID)),
		"a path":                         spec("OCIRepository", tn.namespace, "../../"+victimNamespace+"/"+victims.Name, string(victims.UID)),
		"no namespace":                   spec("OCIRepository", "", mine.Name, string(mine.UID)),
	} {
		tn.tried++
		token, status, answer := me.mint(tn.namespace, victimIdentity, spoofed)
		if answers[name] = answer; token != "" || status != http.StatusForbidden && status != http.StatusUnprocessableEntity {
			t.Errorf("a token for %s: HTTP %d %s", name, status, answer)
		}
	}
	if answers["nothing"] != answers["another UID"] {
		t.Errorf("the answers tell what exists:\n%s\n%s", answers["nothing"], answers["another UID"])
	}
}

// crossIssuers presents tokens of the cluster's issuer where Lanyard's issuer is trusted, and vice
// versa. All these tokens must be refused.
func crossIssuers(tn *tenant) {
	t := tn.t
	tn.allow(append(everything(), minting())...)
	tn.identity(stsAudience, "https://receiver.example.com")
	me := callAs(t, tn.namespace, puller, nil)
	ours, status, answer := me.mint(tn.namespace, victimIdentity, `{"audiences":["`+stsAudience+`"]}`)
	if ours == "" {
		t.Fatalf("a token of its own identity: HTTP %d %s: this tests nothing", status, answer)
	}
	clusters := accountToken(t, tn.namespace, puller, authenticationv1.TokenRequestSpec{Audiences: []string{stsAudience}})
	for _, role := range []string{roleA, roleC} {
		for issuer, token := range map[string]string{"Lanyard's": ours, "the cluster's": clusters} {
			tn.tried++
			if status := assumeRole(t, role, token); status == http.StatusOK {
				t.Errorf("%s issuer's token is %s at AWS", issuer, role)
			}
		}
	}
	// The cluster's API server must refuse tokens of Lanyard's issuer, whatever their audience. The
	// token server must refuse a ServiceAccount token.
	for _, audience := range []string{stsAudience, "https://receiver.example.com"} {
		token, _, _ := me.mint(tn.namespace, victimIdentity, `{"audiences":["`+audience+`"]}`)
		stranger := *me
		stranger.bearer = token
		tn.tried++
		if status, answer := stranger.do(http.MethodGet, "/api/v1/namespaces/"+tn.namespace+"/serviceaccounts", "", ""); status != http.StatusUnauthorized {
			t.Errorf("a token of Lanyard's issuer at the API server: HTTP %d %s", status, answer)
		}
	}
	tn.tried++
	err := callTokenServer(t, nil, http.Header{"Authorization": {"Bearer " + me.bearer}})
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
		t.Errorf("a ServiceAccount's token at the token server: %v; want a refused handshake", err)
	}
	// No identity gets a token for the API server, whichever audience it requests.
	bad := &identityv1.WorkloadIdentity{ObjectMeta: tn.meta("opens-the-cluster"), Spec: identityv1.WorkloadIdentitySpec{
		Audiences: []string{local.Issuer}, TargetSystem: identityv1.TargetSystem{Type: "any"},
	}}
	create(t, bad)
	for name, spec := range map[string]string{bad.Name: `{}`, victimIdentity: `{"audiences":["` + local.Issuer + `"]}`} {
		tn.tried++
		if token, status, answer := me.mint(tn.namespace, name, spec); token != "" || status != http.StatusUnprocessableEntity {
			t.Errorf("a token of %s for the API server: HTTP %d %s", name, status, answer)
		}
	}
}

// forgeHeaders sends the headers with which the API server tells the token server who the caller
// is. It sends them to the token server's own port, and in requests that the API server forwards.
func forgeHeaders(tn *tenant) {
	t := tn.t
	names := http.Header{"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"all"}, "X-Remote-Uid": {"0"}}
	for who, certificate := range map[string]*tls.Certificate{"nobody": nil, "an authority of its own": selfSigned(t)} {
		tn.tried++
		if err := callTokenServer(t, certificate, names); err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("forged headers with a certificate of %s: %v; want a refused handshake", who, err)
		}
	}
	tn.identity(stsAudience)
	me := callAs(t, tn.namespace, puller, nil)
	var forged []string
	for name, values := range names {
		forged = append(forged, name, values[0])
	}
	for _, namespace := range []string{tn.namespace, victimNamespace} {
		for _, headers := range [][]string{forged, {"Impersonate-User", "system:admin", "Impersonate-Group", "system:masters"}, {"Connection", "Authorization, X-Remote-User", "X-Remote-User", "system:admin"}} {
			tn.tried++
			if token, status, answer := me.mint(namespace, victimIdentity, `{}`, headers...); status != http.StatusForbidden || token != "" {
				t.Errorf("a token of %s with the headers %q: HTTP %d %s", namespace, headers, status, answer)
			}
		}
	}
}

// stealController acts as a thief with the credential of lanyard-controller. The thief can get
// tokens of the tenants that the controller acts for, as docs/security.md says. Each token must be
// in the audit log. The thief must not be able to read signing keys, change objects or grant itself
// more rights. Deleting a tenant's RoleBinding must end the theft in this tenant's namespace.
// Deleting the Pod whose credential was stolen must end the theft everywhere.
func stealController(tn *tenant) {
	t := tn.t
	tn.identity(stsAudience)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: "stolen-" + tn.namespace}, Spec: corev1.PodSpec{
		ServiceAccountName: controllerAccount, Containers: []corev1.Container{{Name: "controller", Image: "none"}},
	}}
	create(t, pod)
	thief := callAs(t, local.Namespace, controllerAccount, pod)
	token, status, answer := thief.mint(tn.namespace, victimIdentity, `{}`)
	if token == "" {
		t.Fatalf("a token of a tenant: HTTP %d %s: this tests nothing", status, answer)
	}
	wantAudited(t, token)

	const ring = "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + local.Namespace + "/keyrings/" + keyring.IssuerRing
	for _, try := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/v1/namespaces/" + local.Namespace + "/secrets", ""},
		{http.MethodPatch, ring, `{"spec":{"rotate":"now"}}`},
		{http.MethodPatch, ring + "/status", `{"status":{"keys":[]}}`},
		{http.MethodPost, "/api/v1/namespaces/" + local.Namespace + "/serviceaccounts/" + tokenServerAccount + "/token", `{}`},
		{http.MethodPost, "/api/v1/namespaces/" + local.Namespace + "/pods", `{"metadata":{"name":"evil"},"spec":{"serviceAccountName":"` + tokenServerAccount + `","containers":[{"name":"a","image":"a"}]}}`},
		{http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"evil"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + tenantRole + `"}}`},
		{http.MethodPost, "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + tn.namespace + "/workloadidentities", `{"metadata":{"name":"evil"}}`},
		{http.MethodPatch, "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + victimNamespace + "/workloadidentities/" + victimIdentity, `{"spec":{"audiences":["evil"]}}`},
		{http.MethodPatch, "/apis/toolkit.lanyard.dev/v1alpha1/namespaces/" + victimNamespace + "/ocirepositories/tenant-c-repo", `{"spec":{"url":"oci://evil.example.com/app"}}`},
	} {
		tn.tried++
		contentType := "application/json"
		if try.method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		if status, answer := thief.do(try.method, try.path, contentType, try.body); status != http.StatusForbidden {
			t.Errorf("%s %s: HTTP %d %s", try.method, try.path, status, answer)
		}
	}

	// Without the RoleBinding, the thief gets no token in the namespace.
	must(t, "withdraw the grant", objects.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: tn.meta(tenantRole)}))
	tn.ends(thief, tn.namespace, http.StatusForbidden)
	// Without the Pod, the thief gets no token anywhere, and the API server rejects its credential.
	must(t, "delete the Pod", objects.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	tn.ends(thief, victimNamespace, http.StatusUnauthorized)
	tn.tried++
	if status, answer := thief.do(http.MethodGet, "/apis/toolkit.lanyard.dev/v1alpha1/ocirepositories", "", ""); status != http.StatusUnauthorized {
		t.Errorf("the API server knows the thief: HTTP %d %s", status, answer)
	}
}

// ends waits until the thief's requests for a token get the wanted HTTP status. The wait can be
// long, because the API server and the token server cache answers for ten seconds.
func (tn *tenant) ends(thief *caller, namespace string, want int) {
	tn.tried++
	deadline := time.Now().Add(patience)
	for {
		_, status, answer := thief.mint(namespace, victimIdentity, `{}`)
		switch {
		case status == want:
			return
		case time.Now().After(deadline):
			tn.t.Errorf("the thief still gets tokens of %s: HTTP %d %s", namespace, status, answer)
			return
		}
		pause(tn.t, pollEvery)
	}
}

// wantAudited waits until the token server's audit log has an entry with the jti of a token. The
// entry must contain the controller as the caller. The API server's audit log must have a request
// with the audit ID of this entry.
func wantAudited(t *testing.T, token string) {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	var claims jwt.Claims
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The audit log is written after the answer, so the entry may be late.
	poll(ctx, t, "the token is in the audit log", func() error {
		log, err := os.ReadFile(tokenServer.Log)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(log) {
			if claims.ID != "" && bytes.Contains(line, []byte(claims.ID)) {
				if !bytes.Contains(line, []byte("system:serviceaccount:"+local.Namespace+":"+controllerAccount)) {
					return fmt.Errorf("it does not say who got the token: %s", line)
				}
				var event struct{ AuditID string }
				if err := json.Unmarshal(line, &event); err != nil || event.AuditID == "" {
					return fmt.Errorf("the event has no ID: %s", line)
				}
				return requestAudited(event.AuditID)
			}
		}
		return fmt.Errorf("there is nothing about %s", claims.ID)
	})
}

// requestAudited returns an error if the API server's audit log has no request to token.lanyard.dev
// with this ID.
func requestAudited(id string) error {
	log, err := os.ReadFile(world.Path("cluster", "audit.log"))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(`"auditID":"`+id+`"`)) && bytes.Contains(line, []byte("/apis/token.lanyard.dev/")) {
			return nil
		}
	}
	return fmt.Errorf("the API server's audit log has no request of token.lanyard.dev with the ID %s", id)
}

// assumeRole presents a token to AWS STS, and returns the status of the answer.
func assumeRole(t *testing.T, role, token string) int {
	t.Helper()
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role}, "RoleSessionName": {"attack"}, "WebIdentityToken": {token},
	}
	c := &http.Client{Transport: world.Cloud().Transport(), Timeout: patience}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://sts."+local.Region+".amazonaws.com/", strings.NewReader(form.Encode()))
	must(t, "make a request", err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := c.Do(req)
	must(t, "call AWS STS", err)
	must(t, "call AWS STS", res.Body.Close())
	return res.StatusCode
}

// callTokenServer requests a token of the victim's identity at the token server's own port. The
// result is nil if the server sends any HTTP answer. Otherwise, the result is the client's error.
func callTokenServer(t *testing.T, certificate *tls.Certificate, header http.Header) error {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // an attacker needs no verification
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: patience}
	defer c.CloseIdleConnections()
	address := "https" + strings.TrimPrefix(tokenServer.URL("api"), "http") + identityPath(victimNamespace, victimIdentity) + "/token"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(tokenRequest(`{}`)))
	must(t, "make a request", err)
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// selfSigned returns a self-signed client certificate with the common name of the API server's
// front proxy client.
func selfSigned(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy-client"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, "make a certificate", err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
