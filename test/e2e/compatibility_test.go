package e2e

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// Kinds of credentials to present to a service. The service should refuse all except the first.
const (
	shownOwn      = "its own"
	shownOther    = "another tenant's"
	shownReceiver = "other audience"
	shownExpired  = "expired"
	shownForged   = "forged"
	shownIssuer   = "other issuer"
	shownNone     = "none"
)

// kindsOfCredentials returns the columns of the table that TestCredentialMatrix writes into the
// README: the kinds of credentials.
func kindsOfCredentials() []string {
	return []string{shownOwn, shownOther, shownReceiver, shownExpired, shownForged, shownIssuer, shownNone}
}

// judgement is a row of the table that TestCredentialMatrix writes into the README: a service's
// answers to good and bad credentials of one type.
type judgement struct {
	service, credential string
	answers             map[string]string // by the kind of the credential
	// takes has the kinds of credentials that the service accepts although it should not.
	takes []string
}

// letIn is the answer of a service that accepts a credential.
const letIn = "yes"

// TestCredentialMatrix presents each type of credential, good and bad, to services of other
// projects. It compares their answers with the table in the README. With -update it writes the
// table into the README.
func TestCredentialMatrix(t *testing.T) {
	beside(t, lane2)
	w := startMatrix(t)
	var all []judgement
	tokens := w.tokens(t)
	users := make([]string, 0, len(tokens))
	for _, of := range tokens {
		user := of.credential + ":" + of.subject
		awaitTrust(t, of.mint(t, productionNamespace, clusterAudience), user)
		users = append(users, user)
	}
	grantReading(t, world, users...)
	for _, of := range tokens {
		all = append(all, w.judgeTokens(t, of)...)
	}
	all = append(all, w.judgeCertificates(t)...)
	for _, j := range all {
		for _, kind := range kindsOfCredentials() {
			answer := j.answers[kind]
			if (answer == letIn) != (kind == shownOwn || slices.Contains(j.takes, kind)) {
				t.Errorf("%s says %q to %s, %s", j.service, answer, j.credential, kind)
			}
		}
	}
	compareTable(t, matrixTable(all))
}

// compareTable compares the table with that in the README. With -update it writes the table into
// the README.
func compareTable(t *testing.T, table string) {
	t.Helper()
	const first, last = "<!-- The table is written by TestCredentialMatrix. -->\n", "<!-- The end of the table. -->\n"
	path := filepath.Join("..", "..", "README.md")
	page, err := os.ReadFile(path)
	must(t, "read the page", err)
	before, rest, ok := bytes.Cut(page, []byte(first))
	was, after, also := bytes.Cut(rest, []byte(last))
	switch {
	case !ok || !also:
		t.Fatalf("%s lacks %q or %q", path, first, last)
	case string(was) == table:
	case *update:
		must(t, "write the page", os.WriteFile(path, slices.Concat(before, []byte(first+table+last), after), 0o644))
	default:
		t.Errorf("%s differs (go test -update writes it):\n--- want\n%s--- got\n%s", path, was, table)
	}
}

// matrixTable formats judgements as a table. Credentials that get the same answers from a service
// share a row.
func matrixTable(all []judgement) string {
	var out strings.Builder
	out.WriteString("| service | credential | " + strings.Join(kindsOfCredentials(), " | ") + " |\n|---|---|" + strings.Repeat("---|", len(kindsOfCredentials())) + "\n")
	names := map[string][]string{}
	var rows []string
	for _, j := range all {
		cells := make([]string, 0, len(j.answers))
		for _, kind := range kindsOfCredentials() {
			cells = append(cells, j.answers[kind])
		}
		row := "| " + j.service + " | %s | " + strings.Join(cells, " | ") + " |\n"
		if names[row] = append(names[row], "`"+j.credential+"`"); len(names[row]) == 1 {
			rows = append(rows, row)
		}
	}
	service := func(row string) string { name, _, _ := strings.Cut(row, "%"); return name }
	slices.SortStableFunc(rows, func(a, b string) int { return strings.Compare(service(a), service(b)) })
	for _, row := range rows {
		fmt.Fprintf(&out, row, strings.Join(names[row], ", "))
	}
	return out.String()
}

// matrixWorld is a cluster with all issuers, and no controller.
type matrixWorld struct {
	*spiffeWorld

	own   *issuerWorld
	typed kubernetes.Interface
}

// matrixApp is the name of the repositories in [TestCredentialMatrix], and of the ServiceAccounts,
// WorkloadIdentities and OCIRepositories that get tokens.
const matrixApp = "app"

func startMatrix(t *testing.T) *matrixWorld {
	t.Helper()
	cluster := startCluster(t, "matrix", "", nil)
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	w := &matrixWorld{
		spiffeWorld: &spiffeWorld{Cluster: cluster, people: cluster.Client(), company: newAuthority(t), mutual: freeAddress(t), guarded: freeAddress(t)},
		own:         &issuerWorld{Cluster: cluster, people: cluster.Client(), api: typed.CoreV1().RESTClient()}, typed: typed,
	}
	for _, name := range []string{productionNamespace, stagingNamespace} {
		w.own.putNamespace(t, name)
		must(t, "make a ServiceAccount", w.people.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: matrixApp}}))
	}
	values := loudest()
	maps.Copy(values, map[string]any{
		"spiffe": map[string]any{"trustDomain": trustDomain, "issuer": matrixSPIFFEIssuer},
		"issuer": map[string]any{
			"url": matrixIssuer, "clusterID": "prod",
			"keys": map[string]any{"publishDelay": publishDelay.String(), "algorithms": []any{string(identityv1.RS256)}},
		},
		"rbac": map[string]any{"tenantNamespaces": []any{productionNamespace, stagingNamespace}},
	})
	must(t, "install the chart", w.InstallChart(t.Context(), values))
	must(t, "start the programs", w.StartPrograms(t.Context(), []local.ProgramOptions{
		{Workload: discoveryServer, Binary: daemon(discoveryServer)}, {Workload: tokenServer, Binary: daemon(tokenServer)},
	}, func(*local.Program) {}))
	w.readBundle(t, matrixSPIFFEIssuer)
	w.own.awaitRing(t, "a key", func(ring *identityv1.KeyRing) error {
		return wantf(kidOf(ring, identityv1.KeyActive) != "", "the ring is %+v", ring.Status)
	})
	return w
}

// The issuers of the cluster "matrix": for ServiceAccounts, WorkloadIdentities and SVIDs.
const (
	clusterIssuer      = "https://oidc.matrix.example.com/id"
	matrixIssuer       = "https://issuer.matrix.example.com"
	matrixSPIFFEIssuer = "https://spiffe.matrix.example.com"
)

// issued describes tokens of one type.
type issued struct {
	credential   string
	issuer, jwks string
	subject      string // subject of the tenant in productionNamespace
	mint         func(t *testing.T, namespace, audience string) string
	key          *rsa.PrivateKey // signs the tokens
}

// tokens returns all types of tokens. productionNamespace and stagingNamespace can get tokens of
// each type.
func (w *matrixWorld) tokens(t *testing.T) []issued {
	t.Helper()
	audiences := []string{vaultAudience, clusterAudience, wrongAudience}
	for _, credential := range []string{v1alpha1.CredentialServiceAccountToken, v1alpha1.CredentialWorkloadIdentityToken, v1alpha1.CredentialSpiffeJWT} {
		audiences = append(audiences, matrixHost(credential))
	}
	identities, apps := map[string]*identityv1.WorkloadIdentity{}, map[string]*v1alpha1.OCIRepository{}
	for _, namespace := range []string{productionNamespace, stagingNamespace} {
		identities[namespace] = w.own.newIdentity(t, namespace, matrixApp, audiences...)
		apps[namespace] = w.newObject(t, namespace, matrixApp, "oci://"+matrixHost(v1alpha1.CredentialSpiffeJWT)+"/"+matrixApp,
			v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeJWT, Audiences: audiences})
	}
	key, ok := openKey(t, w.people, identityv1.SPIFFEKeyRing, w.signing(t).kid).(*rsa.PrivateKey)
	if !ok {
		t.Fatal("the key of SVIDs is not RSA")
	}
	return []issued{
		{
			credential: v1alpha1.CredentialServiceAccountToken, issuer: clusterIssuer, jwks: clusterIssuer + "/keys", key: readKey(t, w.Cluster),
			subject: "system:serviceaccount:" + productionNamespace + ":" + matrixApp,
			mint: func(t *testing.T, namespace, audience string) string {
				t.Helper()
				return tokenOf(t, w.typed, namespace, matrixApp, audience)
			},
		},
		{
			credential: v1alpha1.CredentialWorkloadIdentityToken, issuer: matrixIssuer, jwks: matrixIssuer + "/jwks", key: activeKey(t, w.own),
			subject: issuer.Subject(identities[productionNamespace]),
			mint: func(t *testing.T, namespace, audience string) string {
				t.Helper()
				return w.own.token(t, identities[namespace], audience)
			},
		},
		{
			credential: v1alpha1.CredentialSpiffeJWT, issuer: matrixSPIFFEIssuer, jwks: matrixSPIFFEIssuer + "/jwks", key: key, subject: id(productionNamespace, matrixApp),
			mint: func(t *testing.T, namespace, audience string) string {
				t.Helper()
				answer, err := w.request(t.Context(), controllerUser, apps[namespace],
					tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: apps[namespace].UID, Audiences: []string{audience}})
				must(t, "get an SVID", err)
				return answer.Status.Token
			},
		},
	}
}

// matrixHost returns the host of the registry for a type of token.
func matrixHost(credential string) string {
	return strings.ToLower(credential) + ".registry.example.com"
}

// judgeTokens presents tokens of one type to all services that accept tokens.
func (w *matrixWorld) judgeTokens(t *testing.T, of issued) []judgement {
	t.Helper()
	registry := newFederatedRegistry(t, matrixHost(of.credential))
	registry.push(t, matrixApp, "latest", "the app")
	registry.protect(t, of.issuer, of.jwks, map[string]string{matrixApp: of.subject})
	vault := startVault(t, of.issuer, vaultAudience, of.subject)
	cloud := cloudClient()
	defer cloud.CloseIdleConnections()

	var all []judgement
	for _, service := range []struct {
		name, audience string
		judge          func(token string) string
	}{
		{"Apache (mod_auth_openidc) before `distribution`", registry.host, func(token string) string {
			return inWords(statusOf(t, cloud, "https://"+registry.host+"/v2/"+matrixApp+"/tags/list", token))
		}},
		{"Vault (JWT auth)", vaultAudience, func(token string) string { return inWords(vault.login(t, token).status) }},
		{"kube-apiserver (structured authentication)", clusterAudience, func(token string) string { return inWords(readAs(t, world, token).status) }},
	} {
		own := of.mint(t, productionNamespace, service.audience)
		past := time.Now().Add(-time.Hour).Unix()
		shown := map[string]string{
			shownOwn: own, shownOther: of.mint(t, stagingNamespace, service.audience), shownReceiver: of.mint(t, productionNamespace, wrongAudience),
			shownExpired: sign(t, own, of.key, map[string]any{"exp": past, "iat": past - 3600, "nbf": past - 3600}),
			shownForged:  sign(t, own, newKey(t), nil), shownIssuer: sign(t, own, of.key, map[string]any{"iss": "https://elsewhere.example.com"}), shownNone: "",
		}
		answers := map[string]string{}
		for kind, token := range shown {
			answers[kind] = service.judge(token)
		}
		all = append(all, judgement{service: service.name, credential: of.credential, answers: answers})
	}
	return all
}

// judgeCertificates presents certificates to all services that accept certificates.
func (w *matrixWorld) judgeCertificates(t *testing.T) []judgement {
	t.Helper()
	const name = "certified"
	registry := newFederatedRegistry(t, name+".registry.example.com")
	registry.push(t, matrixApp, "latest", "the app")
	w.startMutual(t)
	certificate, key, authorities := w.serverFiles(t)
	runApache(t, certificateRegistry, map[string]any{
		"TLS": w.guarded, "Certificate": certificate, "Key": key, "Authorities": authorities, "Storage": registry.serve(t),
		"Subjects": map[string]string{matrixApp: id(productionNamespace, name)},
	}, "auth_openidc", "ssl", "proxy", "proxy_http")
	messages := w.startNATS(t, name)

	own := map[string]tls.Certificate{}
	for _, namespace := range []string{productionNamespace, stagingNamespace} {
		own[namespace] = w.certificate(t, w.newObject(t, namespace, name, "oci://"+w.guarded+"/"+matrixApp, v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate}))
	}
	now := w.signing(t)
	signer := openKey(t, w.people, identityv1.SPIFFEKeyRing, now.authority.Key.ID)
	signed := func(id string, end time.Time) tls.Certificate {
		return certify(t, now.authority.Certificate, signer, id, end)
	}
	elsewhere := strings.Replace(id(productionNamespace, name), trustDomain, "elsewhere.example.com", 1)
	shown := map[string][]tls.Certificate{
		shownOwn: {own[productionNamespace]}, shownOther: {own[stagingNamespace]}, shownExpired: {signed(id(productionNamespace, name), time.Now().Add(-time.Minute))},
		shownForged: {w.foreign(t, id(productionNamespace, name))}, shownIssuer: {signed(elsewhere, time.Now().Add(time.Hour))}, shownNone: {},
	}

	var all []judgement
	for _, service := range []struct {
		name  string
		takes []string
		judge func(shown ...tls.Certificate) string
	}{
		{"Apache (mod_ssl) before `distribution`", nil, func(shown ...tls.Certificate) string {
			return inWords(statusOf(t, w.client(shown...), "https://"+w.guarded+"/v2/"+matrixApp+"/tags/list", ""))
		}},
		{"`distribution` (`clientcas`)", []string{shownOther, shownIssuer}, func(shown ...tls.Certificate) string {
			return inWords(statusOf(t, w.client(shown...), "https://"+w.mutual+"/v2/", ""))
		}},
		{"NATS (`verify_and_map`)", nil, func(shown ...tls.Certificate) string {
			return inWordsOfNATS(w.publishMessage(messages, productionNamespace, shown...))
		}},
	} {
		answers := map[string]string{shownReceiver: "–"}
		for kind, certificates := range shown {
			answers[kind] = service.judge(certificates...)
		}
		all = append(all, judgement{service: service.name, credential: v1alpha1.CredentialSpiffeCertificate, answers: answers, takes: service.takes})
	}
	return all
}

// inWords returns an answer as text for the table in the README. Status 0 means that the server
// refused the connection.
func inWords(status int) string {
	switch status {
	case http.StatusOK:
		return letIn
	case 0:
		return "TLS"
	default:
		return fmt.Sprint(status)
	}
}

// inWordsOfNATS returns an answer of NATS as text for the table in the README.
func inWordsOfNATS(err error) string {
	switch {
	case err == nil:
		return letIn
	case strings.Contains(strings.ToLower(err.Error()), "violation"):
		return "violation"
	default:
		return "TLS"
	}
}
