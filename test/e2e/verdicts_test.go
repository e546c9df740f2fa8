package e2e

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	keysign "github.com/lanyard-dev/lanyard/internal/keyring/sign"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Audiences of tokens of Lanyard's own issuer, besides the clouds' audiences.
const (
	clusterAudience = "https://verdicts.example.com"
	vaultAudience   = "vault.example.com"
	apacheAudience  = "apache.example.com"
	wrongAudience   = "https://elsewhere.example.com" // no receiver in the tests has this audience
)

// federated is a WorkloadIdentity with the names of the cloud identities that trust it.
type federated struct {
	*identityv1.WorkloadIdentity

	subject     string
	role        string // ARN, at AWS
	application string // client ID, at Azure
	account     string // email of a service account, at Google
	aliyunRole  string // ARN, at Alibaba Cloud
}

// federate creates a WorkloadIdentity in a tenant's namespace, and makes each cloud trust it.
func federate(t *testing.T, w *issuerWorld, tn *tenant) federated {
	t.Helper()
	w.putNamespace(t, tn.namespace)
	identity := w.newIdentity(t, tn.namespace, "app",
		stsAudience, azureAudience, "https:"+poolOf(ownIssuer), aliyunAudience, clusterAudience, vaultAudience, apacheAudience, wrongAudience)
	f := federated{WorkloadIdentity: identity, subject: issuer.Subject(identity), role: tn.role, application: string(identity.UID)}
	must(t, "trust the identity at AWS", world.Cloud().AWS().PutTrustPolicy(local.Account, tn.namespace, trustIn(ownIssuer, f.subject)))
	must(t, "make an application", world.Cloud().Azure().PutApplication(local.AzureTenant, azure.Application{
		ClientID:             f.application,
		FederatedCredentials: []azure.FederatedCredential{{Name: tn.namespace, Issuer: ownIssuer, Subject: f.subject}},
	}))
	f.account = tn.namespace + "@" + googleProject + ".iam.gserviceaccount.com"
	must(t, "make a service account", world.Cloud().GCP().PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email:    f.account,
		Bindings: []gcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{principalOf(ownIssuer, f.subject)}}},
	}))
	f.aliyunRole = atAliyun(t, tn.namespace, ownIssuer, f.subject)
	return f
}

// poolID returns the ID of an issuer's pool at Google: the first label of its host.
func poolID(issuer string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(issuer, "https://"), ".")
	return id
}

// poolOf returns the resource name of an issuer's provider at Google. With the prefix "https:",
// this name is the audience of the issuer's tokens for Google.
func poolOf(issuer string) string {
	return "//iam.googleapis.com/projects/987654321098/locations/global/workloadIdentityPools/" + poolID(issuer) + "/providers/lanyard"
}

// principalOf returns the principal of an issuer's subject, for Google's policies.
func principalOf(issuer, subject string) string {
	return googleIAM + poolID(issuer) + "/subject/" + subject
}

// trustIssuer registers an issuer at AWS, Google and Alibaba Cloud.
func trustIssuer(t *testing.T, issuer string) {
	t.Helper()
	must(t, "trust the issuer at AWS", world.Cloud().AWS().PutOIDCProvider(local.Account, aws.OIDCProvider{URL: issuer, ClientIDs: []string{stsAudience}}))
	must(t, "trust the issuer at Google", world.Cloud().GCP().PutPool(googleProject, gcp.Pool{ID: poolID(issuer), Providers: []gcp.Provider{{
		ID: "lanyard", IssuerURI: issuer, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
	}}}))
	trustAtAliyun(t, issuer)
}

// verifier verifies tokens of one audience.
type verifier struct {
	name, audience string
	width          int // width of the verifier's column in the table
	judge          func(token string) verdict
	// takes has the kinds of bad tokens that the verifier accepts, each with the reason.
	takes map[string]string
	// speaks is true if the golden file also has the verifier's messages, because they say more
	// than its codes.
	speaks bool
}

// verdicts presents tokens of Lanyard's own issuer to other projects' services and to the local
// cloud. The cluster's own API server must accept none of these tokens.
func verdicts(t *testing.T, w *issuerWorld) {
	t.Helper()
	begin := time.Now()
	trustIssuer(t, ownIssuer)
	a, b := federate(t, w, newTenant(t, "verdict-a")), federate(t, w, newTenant(t, "verdict-b"))
	lend(t, principalOf(ownIssuer, a.subject))

	awaitTrust(t, w.token(t, a, clusterAudience), "lanyard:"+a.subject)
	grantReading(t, world, "lanyard:"+a.subject)
	grantReading(t, w.Cluster, a.subject)
	minio := startMinIO(t, minioConfig{claim: "sub", audience: stsAudience, issuer: ownIssuer})
	minio.putPolicy(t, a.subject, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:ListAllMyBuckets"],"Resource":["arn:aws:s3:::*"]}]}`)
	vault := startVault(t, ownIssuer, vaultAudience, a.subject)
	apache := startApache(t, ownIssuer, apacheAudience, a.subject)
	t.Logf("the verifiers took %s to start", time.Since(begin).Round(time.Millisecond))

	verifiers := []verifier{
		{name: "its own API server", audience: clusterAudience, width: 19, judge: func(token string) verdict { return readAs(t, w.Cluster, token) }},
		{name: "kube-apiserver", audience: clusterAudience, width: 17, judge: func(token string) verdict { return readAs(t, world, token) }},
		{
			name: "Vault", audience: vaultAudience, width: 9, judge: func(token string) verdict { return vault.login(t, token) }, speaks: true,
			takes: map[string]string{"endless": "it has an end of its own, 150 s after iat"},
		},
		{
			name: "Apache", audience: apacheAudience, width: 9, judge: func(token string) verdict {
				status, _ := call(t, direct, http.MethodGet, apache, "", nil, token)
				return verdict{status: status}
			}, takes: map[string]string{"endless": "exp is optional", "not yet valid": "nbf is not looked at"},
		},
		{
			name: "MinIO", audience: stsAudience, width: 27, judge: func(token string) verdict { return assume(t, direct, minio.url, a.role, token) },
			takes: minioTakes, speaks: true,
		},
		{name: "AWS STS", audience: stsAudience, width: 27, judge: func(token string) verdict { return assume(t, cloudClient(), stsURL, a.role, token) }},
		{name: "Microsoft Entra", audience: azureAudience, width: 18, judge: func(token string) verdict {
			_, v := entraToken(t, a.application, token)
			return v
		}},
		{name: "Google, as a service account", audience: "https:" + poolOf(ownIssuer), width: 30, judge: func(token string) verdict {
			exchanged, v := googleExchange(t, poolOf(ownIssuer), token)
			if v.granted() {
				_, v = impersonate(t, a.account, exchanged)
			}
			return v
		}},
		{name: "Google, as itself", audience: "https:" + poolOf(ownIssuer), width: 20, judge: func(token string) verdict {
			exchanged, v := googleExchange(t, poolOf(ownIssuer), token)
			if v.granted() {
				v = listBucket(t, e2eBucket, exchanged)
			}
			return v
		}},
		{name: "Alibaba Cloud", audience: aliyunAudience, width: 52, judge: func(token string) verdict { return aliyunAssume(t, ownIssuer, a.aliyunRole, token) }},
	}
	t.Run("table", func(t *testing.T) { judgeAll(t, w, a, b, verifiers) })
	t.Run("clients", func(t *testing.T) { ownClients(t, w, a, b) })
	t.Run("delivered", func(t *testing.T) { deliveredFiles(t, w, a, b) })
}

// judgeAll presents each kind of token to each verifier, and compares the table of verdicts with a
// golden file.
func judgeAll(t *testing.T, w *issuerWorld, a, b federated, verifiers []verifier) {
	t.Helper()
	foreign := newKey(t)
	foreignID, err := keyring.NewKey(foreign.Public())
	must(t, "name a key", err)
	names := strings.NewReplacer(b.subject, "<tenant B's subject>", foreignID.ID, "<kid>")
	var table, words, line strings.Builder
	fmt.Fprintf(&line, "%-19s", "token")
	for _, v := range verifiers {
		fmt.Fprintf(&line, "%-*s", v.width+2, v.name)
	}
	table.WriteString(strings.TrimSpace(line.String()) + "\n")
	for _, row := range ownTokens(t, w, a, b, foreign) {
		line.Reset()
		fmt.Fprintf(&line, "%-19s", row.name)
		for n, v := range verifiers {
			says := v.judge(row.token(v.audience))
			cell := "granted"
			if !says.granted() {
				cell = strings.TrimSpace(fmt.Sprintf("%d %s", says.status, says.code))
			}
			fmt.Fprintf(&line, "%-*s", v.width+2, cell)
			if want := n > 0 && (row.name == "good" || v.takes[row.name] != ""); says.granted() != want {
				t.Errorf("%s: %s says %s: %s", row.name, v.name, says, says.message)
			}
			if v.speaks && row.name != "good" {
				said := says.message
				if says.granted() {
					said = "(granted: " + v.takes[row.name] + ")"
				}
				fmt.Fprintf(&words, "%-19s%-8s%s\n", row.name, v.name, names.Replace(said))
			}
		}
		table.WriteString(strings.TrimSpace(line.String()) + "\n")
	}
	golden(t, "testdata/issuer-matrix.golden", table.String()+"\nWords:\n"+words.String())
}

// tokenKind is a kind of token. The function token makes a token of this kind for an audience.
type tokenKind struct {
	name  string
	token func(audience string) string
}

// ownTokens returns a good token of identity A, and bad ones. Some of the bad tokens are signed
// with the foreign key, which is not the issuer's.
func ownTokens(t *testing.T, w *issuerWorld, a, b federated, foreign *rsa.PrivateKey) []tokenKind {
	t.Helper()
	good := func(audience string) string { return w.token(t, a, audience) }
	active := activeKey(t, w)
	foreignID, err := keyring.NewKey(foreign.Public())
	must(t, "name a key", err)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	// resign copies a good token with changed claims and signs it with the issuer's key, because
	// the token server issues no bad tokens.
	resign := func(audience string, replace map[string]any) string { return sign(t, good(audience), active, replace) }
	return []tokenKind{
		{"good", good},
		{"other tenant", func(audience string) string { return w.token(t, b, audience) }},
		{"wrong audience", func(string) string { return good(wrongAudience) }},
		{"expired", func(audience string) string {
			return resign(audience, map[string]any{"exp": in(-time.Hour), "iat": in(-2 * time.Hour), "nbf": in(-2 * time.Hour)})
		}},
		{"not yet valid", func(audience string) string {
			return resign(audience, map[string]any{"exp": in(time.Hour), "iat": in(10 * time.Minute), "nbf": in(10 * time.Minute)})
		}},
		{"endless", func(audience string) string { return resign(audience, map[string]any{"exp": nil}) }},
		{"wrong issuer", func(audience string) string {
			return resign(audience, map[string]any{"iss": "https://elsewhere.example.com"})
		}},
		{"forged", func(audience string) string { return sign(t, good(audience), foreign, nil) }},
		{"unknown key", func(audience string) string {
			return signAs(t, claimsOf(t, good(audience)), jose.RS256, jose.JSONWebKey{Key: foreign, KeyID: foreignID.ID})
		}},
		{"changed claim", func(audience string) string {
			parts, others := strings.Split(good(audience), "."), strings.Split(resign(audience, map[string]any{"jti": "another"}), ".")
			return strings.Join([]string{parts[0], others[1], parts[2]}, ".")
		}},
		{"public key as HMAC", func(audience string) string {
			der, err := x509.MarshalPKIXPublicKey(active.Public())
			must(t, "encode the public key", err)
			secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
			return signAs(t, claimsOf(t, good(audience)), jose.HS256, jose.JSONWebKey{Key: secret, KeyID: kidOf(w.ring(t), identityv1.KeyActive)})
		}},
		{"algorithm none", func(audience string) string { return unsigned(t, good(audience)) }},
		{"none", func(string) string { return "" }},
	}
}

// activeKey returns the private half of the active key. It reads the key in the release's Secrets.
func activeKey(t *testing.T, w *issuerWorld) *rsa.PrivateKey {
	t.Helper()
	key, ok := openKey(t, w.people, keyring.IssuerRing, kidOf(w.ring(t), identityv1.KeyActive)).(*rsa.PrivateKey)
	if !ok {
		t.Fatal("the key is not RSA")
	}
	return key
}

// openKey returns the private half of a key in a ring.
func openKey(t *testing.T, people client.Client, ring, kid string) crypto.Signer {
	t.Helper()
	private, err := keysign.NewSecrets(keysign.Object{Client: people, Namespace: local.Namespace, Name: ring}).Open(t.Context(), kid)
	must(t, "read the private key", err)
	return private
}

// claimsOf returns a token's claims.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	claims := map[string]any{}
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	return claims
}

func signAs(t *testing.T, claims map[string]any, algorithm jose.SignatureAlgorithm, key jose.JSONWebKey) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key.Key}, (&jose.SignerOptions{}).WithHeader("kid", key.KeyID))
	must(t, "make a signer", err)
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(t, "sign a token", err)
	return signed
}

// unsigned returns a copy of a token with the algorithm "none" and without signature. Source: RFC
// 7519 §6.1.
func unsigned(t *testing.T, token string) string {
	t.Helper()
	kid, err := kidOfToken(token)
	must(t, "read a token", err)
	header := fmt.Appendf(nil, `{"alg":"none","typ":"JWT","kid":%q}`, kid)
	return base64.RawURLEncoding.EncodeToString(header) + "." + strings.Split(token, ".")[1] + "."
}

// grantReading lets users of a cluster read the ConfigMaps of the namespace default.
func grantReading(t *testing.T, cluster *local.Cluster, users ...string) {
	t.Helper()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	name := metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, GenerateName: "e2e-reader-"}
	role, err := typed.RbacV1().Roles(name.Namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	must(t, "make a role", err)
	binding := &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	bound, err := typed.RbacV1().RoleBindings(name.Namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, "bind a role", err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, "remove a role", typed.RbacV1().Roles(name.Namespace).Delete(ctx, role.Name, metav1.DeleteOptions{}))
		must(t, "remove a role binding", typed.RbacV1().RoleBindings(name.Namespace).Delete(ctx, bound.Name, metav1.DeleteOptions{}))
	})
}

// readAs lists the ConfigMaps of the namespace default with a token.
func readAs(t *testing.T, cluster *local.Cluster, token string) verdict {
	t.Helper()
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cluster.Config()))
	must(t, "make a client", err)
	defer client.CloseIdleConnections()
	status, body := call(t, client, http.MethodGet, cluster.Config().Host+"/api/v1/namespaces/default/configmaps", "", nil, token)
	var answer metav1.Status
	must(t, "read the API server's answer", json.Unmarshal(body, &answer))
	return verdict{status: status, code: string(answer.Reason), message: answer.Message}
}

// ownClients makes the clouds' own clients exchange tokens that `lanyard token` wrote to files.
func ownClients(t *testing.T, w *issuerWorld, a, b federated) {
	t.Helper()
	file := func(audience string) string {
		path := filepath.Join(t.TempDir(), "token")
		if out, err := w.command(t, "token", "workloadidentity/"+a.Name, "-n", a.Namespace, "--audience", audience, "-o", path); err != nil {
			t.Fatalf("lanyard token: %v\n%s", err, out)
		}
		return path
	}
	forAWS, forAzure, forGoogle := file(stsAudience), file(azureAudience), file("https:"+poolOf(ownIssuer))
	t.Run("aws", func(t *testing.T) {
		t.Parallel()
		out, errs, err := awsIdentity(t, forAWS, a.role)
		if want := "arn:aws:sts::" + local.Account + ":assumed-role/" + a.Namespace + "/awscli"; err != nil || out != want {
			t.Errorf("with tenant A's role: %q, %v; want %q\n%s", out, err, want, errs)
		}
		out, errs, err = awsIdentity(t, forAWS, b.role)
		if err == nil || !strings.Contains(errs, "AccessDenied") {
			t.Errorf("with tenant B's role: %q, %v; want AccessDenied\n%s", out, err, errs)
		}
	})
	for _, tt := range []struct {
		name, file string
		client     nodeClient
		code       string // error code of the refusal; empty if the client gets a token
	}{
		{"azure/own application", forAzure, atAzure(a.application), ""},
		{"azure/other tenant's application", forAzure, atAzure(b.application), "AADSTS700213"},
		{"google/own service account", forGoogle, atGoogle(poolOf(ownIssuer), a.account), ""},
		{"google/itself", forGoogle, atGoogle(poolOf(ownIssuer), ""), ""},
		{"google/other tenant's service account", forGoogle, atGoogle(poolOf(ownIssuer), b.account), "PERMISSION_DENIED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.client.check(t, tt.file, tt.code)
		})
	}
}
