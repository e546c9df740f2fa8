package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// identityNamespace and identityName identify proposedIdentity. proposedAccount and
	// proposedRole identify its AWS role.
	identityNamespace, identityName = "garden-local", "banana-testing"
	proposedAccount, proposedRole   = "112233445566", "gardener-dev"
)

// proposedIdentity is the example WorkloadIdentity of Gardener's proposal GEP-26, moved to
// Lanyard's API group.
const proposedIdentity = `
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentity
metadata:
  name: banana-testing
  namespace: garden-local
spec:
  audiences:
  - team-foo
  duration: 48h
  targetSystem:
    type: aws
    providerConfig:
      apiVersion: aws.authentication.gardener.cloud/v1alpha1
      kind: Config
      iamRoleARN: arn:aws:iam::112233445566:role/gardener-dev
`

// tokensAreRequested creates the WorkloadIdentity in proposedIdentity, and requests tokens of it.
// It checks what a token says, and that only authorized callers get tokens. The cluster's own API
// server must refuse such a token.
func tokensAreRequested(t *testing.T, w *issuerWorld) {
	t.Helper()
	identity := &v1alpha1.WorkloadIdentity{}
	must(t, "read the identity", yaml.UnmarshalStrict([]byte(proposedIdentity), identity))
	must(t, "make the identity", w.people.Create(t.Context(), identity))
	token, err := requestToken(t.Context(), w.Cluster, "")
	must(t, "request a token", err)
	t.Run("claims", func(t *testing.T) { wantProposedClaims(t, w.ring(t), identity, token) })
	t.Run("kubectl", func(t *testing.T) { kubectlMints(t, w.Cluster) })
	t.Run("only who may", func(t *testing.T) { onlyWhoMay(t, w.Cluster) })
	t.Run("forged headers", func(t *testing.T) { forgedHeaders(t, w.Cluster, w.tokenServer) })
	t.Run("the cluster refuses the token", func(t *testing.T) {
		if user, err := whoIs(t.Context(), w.Cluster, token); !apierrors.IsUnauthorized(err) {
			t.Errorf("the API server takes a token of our issuer for %q: %v", user, err)
		}
	})
}

// requestToken requests a token of proposedIdentity. The caller is the given user, or the
// administrator if user is empty.
func requestToken(ctx context.Context, cluster *local.Cluster, user string) (string, error) {
	config := cluster.Config()
	config.Impersonate.UserName = user
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	return requestFor(ctx, typed.CoreV1().RESTClient(), proposed(), `{}`)
}

// proposed returns the namespace and the name of proposedIdentity.
func proposed() client.ObjectKey {
	return client.ObjectKey{Namespace: identityNamespace, Name: identityName}
}

func tokenPath(identity client.ObjectKey) string {
	return "/apis/token.lanyard.dev/v1alpha1/namespaces/" + identity.Namespace + "/workloadidentities/" + identity.Name + "/token"
}

func tokenRequest(spec string) string {
	return `{"apiVersion":"token.lanyard.dev/v1alpha1","kind":"TokenRequest","spec":` + spec + `}`
}

func readToken(answer []byte) (string, error) {
	request := &unstructured.Unstructured{}
	if err := request.UnmarshalJSON(answer); err != nil {
		return "", err
	}
	token, _, err := unstructured.NestedString(request.Object, "status", "token")
	return token, err
}

// wantProposedClaims verifies a token with the KeyRing's public keys. The token must have the
// claims that Gardener's proposal GEP-26 describes, under Lanyard's names, and the cluster's ID.
func wantProposedClaims(t *testing.T, ring *v1alpha1.KeyRing, identity *v1alpha1.WorkloadIdentity, token string) {
	t.Helper()
	public, err := keyring.Parse(&ring.Status)
	must(t, "read the keys", err)
	var set jose.JSONWebKeySet
	for _, key := range public.Public() {
		set.Keys = append(set.Keys, key.JWK())
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read the token", err)
	var claims struct {
		jwt.Claims
		Lanyard map[string]any `json:"lanyard.dev"`
	}
	must(t, "check the token", parsed.Claims(set, &claims))
	must(t, "check the claims", claims.Validate(jwt.Expected{
		Issuer: ownIssuer, Subject: fmt.Sprintf("lanyard.dev:workloadidentity:%s:%s:%s", identityNamespace, identityName, identity.UID),
		AnyAudience: jwt.Audience{"team-foo"}, Time: time.Now(),
	}))
	if life := claims.Expiry.Time().Sub(claims.IssuedAt.Time()); life != 48*time.Hour || claims.ID == "" {
		t.Errorf("the token lives %s, and its jti is %q", life, claims.ID)
	}
	want := fmt.Sprint(map[string]any{
		"workloadIdentity": map[string]any{"name": identityName, "namespace": identityNamespace, "uid": string(identity.UID)},
		"cluster":          map[string]any{"id": "prod"},
	})
	if got := fmt.Sprint(claims.Lanyard); got != want {
		t.Errorf("the claim lanyard.dev is %s, want %s", got, want)
	}
}

// kubectlMints requests a token with kubectl, as docs/tokens.md says.
func kubectlMints(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	command := cluster.Kubectl(t.Context(), "create", "--raw", tokenPath(proposed()), "-f", "-")
	command.Stdin = strings.NewReader(tokenRequest(`{"expirationSeconds":600}`))
	answer, err := command.Output()
	must(t, "request a token with kubectl", err)
	if token, err := readToken(answer); err != nil || strings.Count(token, ".") != 2 {
		t.Errorf("kubectl got %s: %v", answer, err)
	}
}

// onlyWhoMay tests callers with different rights. Only the caller with the right to create tokens
// gets a token.
func onlyWhoMay(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	for _, c := range []struct {
		user  string
		rules []rbacv1.PolicyRule
		mints bool
	}{
		{user: "nobody"},
		{user: "writer", rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		{user: "parent", rules: []rbacv1.PolicyRule{{APIGroups: []string{"token.lanyard.dev"}, Resources: []string{"workloadidentities"}, Verbs: []string{"*"}}}},
		{user: "reader", rules: []rbacv1.PolicyRule{{APIGroups: []string{"token.lanyard.dev"}, Resources: []string{"workloadidentities/token"}, Verbs: []string{"get"}}}},
		{user: "other", rules: []rbacv1.PolicyRule{{APIGroups: []string{"token.lanyard.dev"}, Resources: []string{"workloadidentities/token"}, Verbs: []string{"create"}, ResourceNames: []string{"apple"}}}},
		{user: "minter", mints: true, rules: []rbacv1.PolicyRule{{APIGroups: []string{"token.lanyard.dev"}, Resources: []string{"workloadidentities/token"}, Verbs: []string{"create"}, ResourceNames: []string{identityName}}}},
	} {
		meta := metav1.ObjectMeta{Namespace: identityNamespace, Name: c.user}
		must(t, "make a role", cluster.Client().Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: c.rules}))
		must(t, "bind a role", cluster.Client().Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: c.user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: c.user}},
		}))
		if c.mints {
			eventually(t, c.user+" gets a token", func(ctx context.Context) error {
				_, err := requestToken(ctx, cluster, c.user)
				return err
			})
		} else if _, err := requestToken(t.Context(), cluster, c.user); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v; want 403", c.user, err)
		}
	}
}

// forgedHeaders asserts that the token server's own port refuses requests with forged headers. The
// headers name an administrator as the caller, in the form that the API server uses. But the client
// has no certificate, or a certificate from a wrong CA. So the token server must refuse the TLS
// handshake.
func forgedHeaders(t *testing.T, cluster *local.Cluster, server *local.Program) {
	t.Helper()
	ours := newAuthority(t)
	certificate, key := ours.issue(t, "front-proxy-client")
	own, err := tls.X509KeyPair(certificate, key)
	must(t, "read a certificate", err)
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a certificate of our own": {own}} {
		config := servingConfig(t, cluster)
		config.Certificates = certificates
		transport := &http.Transport{TLSClientConfig: config}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https"+strings.TrimPrefix(server.URL("api"), "http")+tokenPath(proposed()), strings.NewReader(tokenRequest(`{}`)))
		must(t, "make a request", err)
		request.Header = http.Header{"Content-Type": {"application/json"}, "X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}}
		answer, err := transport.RoundTrip(request)
		if err == nil {
			t.Errorf("%s: forged headers get %s", name, answer.Status)
			_ = answer.Body.Close()
		} else if !strings.Contains(err.Error(), "remote error: tls: ") {
			t.Errorf("%s: %v; want a refused handshake", name, err)
		}
		transport.CloseIdleConnections()
	}
}

// servingConfig returns a TLS configuration that trusts the CA in the token server's APIService, as
// the API server does.
func servingConfig(t *testing.T, cluster *local.Cluster) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caBundle(t, cluster))
	return &tls.Config{RootCAs: roots, ServerName: "lanyard-token-server." + local.Namespace + ".svc", MinVersion: tls.VersionTLS12}
}

func caBundle(t *testing.T, cluster *local.Cluster) []byte {
	t.Helper()
	var read struct {
		Spec struct {
			CABundle []byte `json:"caBundle"`
		} `json:"spec"`
	}
	data, err := cluster.Kubectl(t.Context(), "get", "apiservice", "v1alpha1.token.lanyard.dev", "-o", "json").Output()
	must(t, "read the APIService", err)
	must(t, "read the APIService", yaml.Unmarshal(data, &read))
	return read.Spec.CABundle
}

// replicasServe runs two replicas of the token server and replaces their CA. Both must serve before
// and after the replacement. Then it ends both replicas and starts one again, which must make
// tokens.
func replicasServe(t *testing.T, w *issuerWorld) {
	t.Helper()
	first := w.tokenServer
	// Once the second replica has started, the API server uses this replica.
	second := w.startReplica(t, tokenServer, "second")
	both := func(what string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			for _, server := range []*local.Program{first, second} {
				dialer := tls.Dialer{Config: servingConfig(t, w.Cluster)}
				conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(server.URL("api"), "http://"))
				if err != nil {
					return err
				}
				_ = conn.Close()
			}
			_, err := requestToken(ctx, w.Cluster, "")
			return err
		})
	}
	both("two replicas serve")

	// Replace the CA without a restart.
	before := string(caBundle(t, w.Cluster))
	must(t, "delete the authority", w.people.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: "lanyard-token-server-ca"}}))
	eventually(t, "there is a new authority", func(context.Context) error {
		return wantf(string(caBundle(t, w.Cluster)) != before, "the caBundle is the old one")
	})
	both("both replicas serve with the new authority")

	// Stop one replica, kill the other, and start one again.
	ctx, cancel := context.WithTimeout(t.Context(), stopGrace)
	defer cancel()
	must(t, "stop a replica", first.Stop(ctx))
	must(t, "kill a replica", second.Kill())
	if _, err := requestToken(t.Context(), w.Cluster, ""); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without a token server: %v; want 503", err)
	}
	w.tokenServer = w.startReplica(t, tokenServer, "third")
	eventually(t, "a replica that starts again makes tokens", func(ctx context.Context) error {
		_, err := requestToken(ctx, w.Cluster, "")
		return err
	})
}

// dangerousRights lets another program read the signing keys. The token server must then make no
// tokens. Its API must stay available, so that namespaces can still be deleted.
func dangerousRights(t *testing.T, w *issuerWorld) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: local.Namespace, Name: "dangerous"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}
	must(t, "make a role", w.people.Create(t.Context(), role))
	must(t, "bind a role", w.people.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: local.Namespace, Name: "lanyard-controller"}},
	}))
	// lanyard-controller can read the signing keys now, so the token server must make no tokens. A
	// new replica must become ready nevertheless: without a ready replica, no namespace could be
	// deleted. The replica must answer a request for a token with 503.
	w.tokenServer = w.startReplica(t, tokenServer, "fourth")
	if _, err := requestToken(t.Context(), w.Cluster, ""); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "signing keys") {
		t.Errorf("a program can read the keys: %v; want 503 with this reason", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	must(t, "make a namespace", w.people.Create(t.Context(), namespace))
	must(t, "delete a namespace", w.people.Delete(t.Context(), namespace))
	eventually(t, "a namespace is gone", func(ctx context.Context) error {
		err := w.people.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if err == nil {
			return fmt.Errorf("its status is %+v", namespace.Status)
		}
		return client.IgnoreNotFound(err)
	})
	must(t, "take the right away", w.people.Delete(t.Context(), role))
	eventually(t, "tokens are made again", func(ctx context.Context) error {
		_, err := requestToken(ctx, w.Cluster, "")
		return err
	})
}

// namespaceEnds deletes the release's namespace. The APIService must be deleted too; otherwise
// nobody could delete any namespace.
func namespaceEnds(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	must(t, "delete the namespace", cluster.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: local.Namespace}}))
	within(t, 2*time.Minute, "the namespace is gone", func(ctx context.Context) error {
		err := cluster.Client().Get(ctx, client.ObjectKey{Name: local.Namespace}, &corev1.Namespace{})
		if err == nil {
			return fmt.Errorf("it is there; the log of the token server is %s", filepath.Base(cluster.Path("fourth.log")))
		}
		return client.IgnoreNotFound(err)
	})
	if answer, err := cluster.Kubectl(t.Context(), "get", "apiservice", "v1alpha1.token.lanyard.dev").CombinedOutput(); err == nil {
		t.Errorf("the APIService is still there: %s", answer)
	}
}
