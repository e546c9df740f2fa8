package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	tokenv1 "github.com/lanyard-dev/lanyard/api/token/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// trustDomain is the SPIFFE trust domain of the attacked cluster. spiffeIssuer is the issuer of
	// the trust domain's tokens.
	trustDomain, spiffeIssuer = "attacked.example.com", "https://spiffe.lanyard.example"
	// lentNamespace is the only namespace to which the controller lends its own identity.
	// listedRegistry is the only host that gets the controller's token.
	lentNamespace, listedRegistry = "lent", "registry.company.example.com"
)

// thieving is a registry that stores each bearer token it receives, and refuses all requests.
type thieving struct {
	mu     sync.Mutex // guards stolen
	stolen map[string]bool
}

// newThieving serves a thieving registry at a host until the test ends.
func newThieving(t *testing.T, host string) *thieving {
	t.Helper()
	r := &thieving{stolen: map[string]bool{}}
	must(t, "serve "+host, world.Cloud().Handle(host, r))
	t.Cleanup(func() { _ = world.Cloud().Handle(host, nil) })
	return r
}

// ServeHTTP implements [http.Handler].
func (r *thieving) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stolen[token] = true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.WriteHeader(http.StatusUnauthorized)
}

// tokens returns the stolen tokens, each with its claims.
func (r *thieving) tokens(t *testing.T) map[string]jwt.Claims {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]jwt.Claims{}
	for token := range r.stolen {
		parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
		must(t, "read a token", err)
		var claims jwt.Claims
		must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
		all[token] = claims
	}
	return all
}

// proving returns an OCIRepository of the tenant with a credential of the given kind. The subject
// is the name of a ServiceAccount or a WorkloadIdentity. It is empty if the credential needs
// neither of them.
func (tn *tenant) proving(name, kind, subject, host string, audiences ...string) *v1alpha1.OCIRepository {
	o := tn.repository(name, host+"/app")
	o.Spec.Credential = &v1alpha1.Credential{Type: kind, Audiences: audiences}
	if kind == v1alpha1.CredentialWorkloadIdentityToken {
		o.Spec.WorkloadIdentityName = subject
	} else {
		o.Spec.ServiceAccountName = subject
	}
	return o
}

// identityFor creates a WorkloadIdentity with audiences that the tenant chooses. Its target system
// is not a cloud, so objects may use the identity's token itself as their credential.
func (tn *tenant) identityFor(name string, audiences ...string) {
	create(tn.t, &identityv1.WorkloadIdentity{ObjectMeta: tn.meta(name), Spec: identityv1.WorkloadIdentitySpec{
		Audiences: audiences, SubjectFormat: identityv1.SubjectFormatName, TargetSystem: identityv1.TargetSystem{Type: "registry"},
	}})
}

// nameAudiences acts as a tenant with a registry of its own. The tenant wants the controller to
// send this registry a token that the cluster or a cloud accepts. The tenant also has a role at
// AWS. The role trusts all subjects of the tenant: its ServiceAccount, its WorkloadIdentities and
// its OCIRepositories. So AWS refuses a stolen token only if the token has the wrong audience.
func nameAudiences(tn *tenant) {
	t := tn.t
	host := tn.host("audiences")
	registry := newThieving(t, host)
	account := "system:serviceaccount:" + tn.namespace + ":" + puller
	role := tn.trustedRole(account, "lanyard.dev:workloadidentity:"+tn.namespace+":*", "spiffe://"+trustDomain+"/ocirepositories/"+tn.namespace+"/*")
	if status := assumeRole(t, role, accountToken(t, tn.namespace, puller, authenticationv1.TokenRequestSpec{Audiences: []string{stsAudience}})); status != http.StatusOK {
		t.Fatalf("the role does not trust the tenant: HTTP %d: this tests nothing", status)
	}
	types := map[string]string{v1alpha1.CredentialServiceAccountToken: puller, v1alpha1.CredentialSpiffeJWT: "", v1alpha1.CredentialWorkloadIdentityToken: "opening"}
	var opening []client.Object
	open := []string{
		local.Issuer, stsAudience, "https://" + stsAudience, "STS.AmazonAWS.com", stsAudience + "/", stsAudience + ":443", stsAudience + ".cn",
		"sts." + local.Region + ".amazonaws.com", "api://AzureADTokenExchange", "API://azureadtokenexchange", "sts.googleapis.com",
		"https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"//IAM.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q", "my-org-project.svc.id.goog",
	}
	tn.identityFor("opening", append(open, host)...)
	for i, audience := range open {
		for kind, subject := range types {
			name := fmt.Sprint("opening-", strings.ToLower(kind), "-", i)
			opening = append(opening, tn.proving(name, kind, subject, host, audience), tn.proving(name+"-second", kind, subject, host, host, audience))
		}
	}
	tn.refused(t, opening, []string{host}, "AudienceRefused")

	harmless := []string{"", host, stsAudience + ".evil.example", "x" + stsAudience, "kubernetes"}
	tn.identityFor("harmless", append([]string{"oci://" + host + "/app"}, harmless[1:]...)...)
	types[v1alpha1.CredentialWorkloadIdentityToken] = "harmless"
	for i, audience := range harmless {
		for kind, subject := range types {
			o := tn.proving(fmt.Sprint("harmless-", strings.ToLower(kind), "-", i), kind, subject, host)
			if audience != "" {
				o.Spec.Credential.Audiences = []string{audience}
			}
			create(t, o)
			await(t, o, "the refusal", func() error { return wantf(condition(o).Reason == "RegistryRefused", "%+v", condition(o)) })
		}
	}
	stolen := registry.tokens(t)
	if len(stolen) < len(harmless)*len(types) {
		t.Errorf("the registry got %d tokens: this tests nothing", len(stolen))
	}
	for token, claims := range stolen {
		tn.tried++
		stranger := callAs(t, tn.namespace, puller, nil)
		stranger.bearer = token
		if status, _ := stranger.do(http.MethodGet, "/api", "", ""); status != http.StatusUnauthorized {
			t.Errorf("a token for %q opens the cluster: HTTP %d", claims.Audience, status)
		}
		if status := assumeRole(t, role, token); status == http.StatusOK {
			t.Errorf("a token for %q opens AWS", claims.Audience)
		}
	}
}

// trustedRole creates a role at AWS that trusts three subjects, whatever their audience: a subject
// of the cluster's issuer, one of Lanyard's issuer and one of the SPIFFE issuer.
func (tn *tenant) trustedRole(account, identity, object string) (arn string) {
	t := tn.t
	for _, issuer := range []string{local.TokenIssuer, spiffeIssuer} {
		must(t, "trust an issuer at AWS", world.Cloud().AWS().PutOIDCProvider(local.Account, cloudaws.OIDCProvider{URL: issuer, ClientIDs: []string{stsAudience}}))
	}
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, cloudaws.Role{Name: tn.namespace, TrustPolicy: policyOf(
		trustStatement(local.Issuer, account), trustStatement(local.TokenIssuer, identity), trustStatement(spiffeIssuer, object))}))
	return roleOf(tn.namespace)
}

// borrowController acts as a tenant that wants the controller's own token. The controller lends its
// identity only to lentNamespace, and sends the token only to listedRegistry. The tenant has
// lentNamespace and a second namespace. It must not get the token, even if
//
//   - an object in the second namespace refers to listedRegistry;
//   - objects in lentNamespace refer to other hosts; or
//   - listedRegistry redirects the controller to the tenant's host.
func borrowController(tn *tenant) {
	t := tn.t
	const kind = v1alpha1.CredentialServiceAccountToken
	listed := newThieving(t, listedRegistry)
	lent := newTenant(t, lentNamespace)
	defer func() {
		tn.tried += lent.tried
		for _, leak := range lent.leaks() {
			t.Errorf("granted: %s", leak)
		}
	}()

	tn.refused(t, []client.Object{tn.proving("not-lent", kind, "", listedRegistry, listedRegistry)}, []string{listedRegistry}, "NotGranted")
	own := lent.host("registry")
	lent.serve(t, own, http.NotFound)
	var all []client.Object
	var hosts []string
	for i, host := range []string{
		own, listedRegistry + ".evil.example", "x" + listedRegistry, listedRegistry + ":8443", strings.Replace(listedRegistry, ".", "-", 1), "evil." + listedRegistry,
	} {
		for j, audiences := range [][]string{nil, {listedRegistry}, {own}} {
			all = append(all, lent.proving(fmt.Sprint("elsewhere-", i, "-", j), kind, "", host, audiences...))
		}
		hosts = append(hosts, host)
	}
	lent.refused(t, all, hosts, "NotGranted")
	lent.refused(t, []client.Object{
		lent.proving("opens-the-cluster", kind, "", listedRegistry, local.Issuer), lent.proving("opens-aws", kind, "", listedRegistry, stsAudience),
	}, []string{listedRegistry}, "AudienceRefused")

	may := lent.proving("may", kind, "", listedRegistry, listedRegistry)
	create(t, may)
	await(t, may, "the refusal", func() error { return wantf(condition(may).Reason == "RegistryRefused", "%+v", condition(may)) })
	stolen := listed.tokens(t)
	for _, claims := range stolen {
		if claims.Subject != "system:serviceaccount:"+local.Namespace+":"+controllerAccount || len(claims.Audience) != 1 || claims.Audience[0] != listedRegistry {
			t.Errorf("the listed registry got a token of %s for %q", claims.Subject, claims.Audience)
		}
	}
	if len(stolen) == 0 {
		t.Error("the listed registry got no token: this tests nothing")
	}

	must(t, "redirect", world.Cloud().Handle(listedRegistry, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			listed.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, "https://"+own+r.URL.Path, http.StatusTemporaryRedirect)
	})))
	after := world.Cloud().Journal().Last()
	redirected := lent.proving("redirected", kind, "", listedRegistry, listedRegistry)
	create(t, redirected)
	await(t, redirected, "the failure", func() error {
		return wantf(condition(redirected).Status == metav1.ConditionFalse, "%+v", condition(redirected))
	})
	tn.tried++
	if len(world.Cloud().Journal().Calls(journal.Filter{Host: own, After: after})) == 0 {
		t.Error("the controller did not follow the redirect: this tests nothing")
	}
}

// svid requests an SVID of an object.
func (c *caller) svid(o *v1alpha1.OCIRepository, spec tokenv1.SVIDRequestSpec, headers ...string) (svid tokenv1.SVIDRequestStatus, status int, answer string) {
	c.t.Helper()
	status, answer = c.do(http.MethodPost, svidPath(o), "application/json", svidRequest(c.t, spec), headers...)
	var request tokenv1.SVIDRequest
	if status == http.StatusCreated {
		must(c.t, "read an SVID", json.Unmarshal([]byte(answer), &request))
	}
	return request.Status, status, answer
}

func svidPath(o *v1alpha1.OCIRepository) string {
	return "/apis/" + tokenv1.Group + "/v1alpha1/namespaces/" + o.Namespace + "/ocirepositories/" + o.Name + "/svid"
}

func svidRequest(t *testing.T, spec tokenv1.SVIDRequestSpec) string {
	t.Helper()
	body, err := json.Marshal(&tokenv1.SVIDRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: tokenv1.GroupVersion().String(), Kind: tokenv1.SVIDRequestKind}, Spec: spec,
	})
	must(t, "write a request", err)
	return string(body)
}

// victim creates an object in the victim's namespace. The object's credential is a SPIFFE JWT. The
// object is suspended, so that the controller does nothing.
func victim(t *testing.T) *v1alpha1.OCIRepository {
	t.Helper()
	o := (&tenant{namespace: victimNamespace}).proving("proving", v1alpha1.CredentialSpiffeJWT, "", "registry.example.com", "registry.example.com")
	o.Spec.Suspend = true
	lender{t}.make(o)
	return o
}

// stealSVIDs acts as a tenant that may do everything except request SVIDs. Later an administrator
// lets it request SVIDs in its own namespace, by mistake. The tenant wants SVIDs of other tenants'
// objects. It also wants SVIDs that its own object may not have: with more audiences, or of another
// type.
func stealSVIDs(tn *tenant) {
	t := tn.t
	tn.allow(append(everything(), minting())...)
	theirs := victim(t)
	mine := tn.proving(theirs.Name, v1alpha1.CredentialSpiffeJWT, "", "registry.example.com", "registry.example.com")
	mine.Spec.Suspend = true
	create(t, mine)
	me := callAs(t, tn.namespace, puller, nil)
	of := func(uid types.UID) tokenv1.SVIDRequestSpec {
		return tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: uid}
	}
	for _, o := range []*v1alpha1.OCIRepository{mine, theirs} {
		for _, headers := range [][]string{nil, {"X-Remote-User", "system:serviceaccount:" + local.Namespace + ":" + controllerAccount}, {"Impersonate-User", "system:admin"}} {
			tn.tried++
			if svid, status, answer := me.svid(o, of(o.UID), headers...); status != http.StatusForbidden || svid.Token != "" {
				t.Errorf("an SVID of %s/%s with the headers %q: HTTP %d %s", o.Namespace, o.Name, headers, status, answer)
			}
		}
		for _, try := range []struct{ method, path string }{
			{http.MethodPost, svidPath(o) + "?dryRun=All"},
			{http.MethodPut, svidPath(o)},
			{http.MethodGet, svidPath(o)},
			{http.MethodPost, strings.TrimSuffix(svidPath(o), "/svid")},
		} {
			tn.tried++
			if status, answer := me.do(try.method, try.path, "application/json", svidRequest(t, of(o.UID))); status < http.StatusBadRequest {
				t.Errorf("%s %s: HTTP %d %s", try.method, try.path, status, answer)
			}
		}
	}

	patch(t, &rbacv1.Role{ObjectMeta: tn.meta("owner-" + puller)}, func(r *rbacv1.Role) { r.Rules = append(r.Rules, askingForSVIDs()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll(ctx, t, "an SVID of its own object, without which this tests nothing", func() error {
		svid, status, answer := me.svid(mine, of(mine.UID))
		return wantf(svid.SPIFFEID == "spiffe://"+trustDomain+"/ocirepositories/"+tn.namespace+"/"+mine.Name, "HTTP %d %s", status, answer)
	})
	wider, other := of(mine.UID), of(mine.UID)
	wider.Audiences, other.Type = []string{"registry.example.com", stsAudience}, tokenv1.SpiffeCertificate
	traversal := mine.DeepCopy()
	traversal.Name = "..%2f..%2f" + victimNamespace + "%2focirepositories%2f" + theirs.Name
	for name, tt := range map[string]struct {
		of   *v1alpha1.OCIRepository
		spec tokenv1.SVIDRequestSpec
	}{
		"the victim's object": {theirs, of(theirs.UID)}, "the victim's UID": {mine, of(theirs.UID)}, "more audiences": {mine, wider},
		"another type": {mine, other}, "a path": {traversal, of(theirs.UID)}, "no UID": {mine, of("")},
	} {
		tn.tried++
		if svid, status, answer := me.svid(tt.of, tt.spec); status < http.StatusBadRequest || svid.Token != "" || svid.CertificateChain != "" {
			t.Errorf("%s: HTTP %d %s", name, status, answer)
		}
	}
}

// askingForSVIDs returns a rule that permits requests for the SVIDs of OCIRepositories. None of the
// chart's roles for people has this rule.
func askingForSVIDs() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{tokenv1.Group}, Resources: []string{"ocirepositories/svid"}, Verbs: []string{"create"}}
}

// stealControllerSVIDs acts as a thief with the credential of lanyard-controller. Like the
// controller, the thief can get a JWT-SVID and a certificate of each tenant that the controller
// acts for. The audit log must have an entry for the JWT-SVID. The thief must get no SVIDs in
// namespaces where the controller does not act. The thief must not be able to forge SVIDs.
func stealControllerSVIDs(tn *tenant) {
	t := tn.t
	mine := tn.proving("jwt", v1alpha1.CredentialSpiffeJWT, "", "registry.example.com", "registry.example.com")
	shown := tn.proving("certificate", v1alpha1.CredentialSpiffeCertificate, "", "registry.example.com")
	mine.Spec.Suspend, shown.Spec.Suspend = true, true
	create(t, mine)
	create(t, shown)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: "stolen-" + tn.namespace}, Spec: corev1.PodSpec{
		ServiceAccountName: controllerAccount, Containers: []corev1.Container{{Name: "controller", Image: "none"}},
	}}
	create(t, pod)
	thief := callAs(t, local.Namespace, controllerAccount, pod)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, "write a key", err)
	token, status, answer := thief.svid(mine, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: mine.UID})
	certificate, _, more := thief.svid(shown, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeCertificate, UID: shown.UID, PublicKey: public})
	if token.Token == "" || certificate.CertificateChain == "" {
		t.Fatalf("SVIDs of a tenant: HTTP %d %s, %s: this tests nothing", status, answer, more)
	}
	wantAudited(t, token.Token)
	tn.forgeOffline(thief, key, token.Token, certificate.CertificateChain)

	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tn.namespace + "-foreign"}}
	create(t, foreign)
	t.Cleanup(func() { _ = objects.Delete(t.Context(), foreign) })
	elsewhere := mine.DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: foreign.Name, Name: mine.Name}
	create(t, elsewhere)
	defer func() { must(t, "remove an object", objects.Delete(t.Context(), elsewhere)) }()
	tn.tried++
	if _, status, answer := thief.svid(elsewhere, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: elsewhere.UID}); status != http.StatusForbidden {
		t.Errorf("an SVID where the controller does not act: HTTP %d %s", status, answer)
	}
	const ring = "/apis/identity.lanyard.dev/v1alpha1/namespaces/" + local.Namespace + "/keyrings/" + identityv1.SPIFFEKeyRing
	for _, try := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/v1/namespaces/" + local.Namespace + "/secrets", ""},
		{http.MethodPatch, ring, `{"spec":{"rotate":"now"}}`},
		{http.MethodPatch, ring + "/status", `{"status":{"authorities":[]}}`},
	} {
		tn.tried++
		if status, answer := thief.do(try.method, try.path, "application/merge-patch+json", try.body); status != http.StatusForbidden {
			t.Errorf("%s %s: HTTP %d %s", try.method, try.path, status, answer)
		}
	}

	must(t, "withdraw the grant", objects.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: tn.meta(tenantRole)}))
	tn.svidsEnd(thief, mine, http.StatusForbidden)
	must(t, "delete the Pod", objects.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	tn.svidsEnd(thief, mine, http.StatusUnauthorized)
}

// svidsEnd requests an SVID of an object until the answer has the wanted HTTP status.
func (tn *tenant) svidsEnd(thief *caller, o *v1alpha1.OCIRepository, want int) {
	tn.tried++
	for deadline := time.Now().Add(patience); ; pause(tn.t, pollEvery) {
		_, status, answer := thief.svid(o, tokenv1.SVIDRequestSpec{Type: tokenv1.SpiffeJWT, UID: o.UID})
		switch {
		case status == want:
			return
		case time.Now().After(deadline):
			tn.t.Errorf("the thief still gets SVIDs: HTTP %d %s", status, answer)
			return
		}
	}
}

// forgeOffline forges SVIDs of the victim. It uses a stolen certificate with its key, and a stolen
// JWT-SVID. SPIFFE's library must refuse the forged SVIDs. If the thief may read the KeyRing, it
// must find no private key there.
func (tn *tenant) forgeOffline(thief *caller, key *ecdsa.PrivateKey, token, chain string) {
	t := tn.t
	stolen := spiffeid.RequireFromString("spiffe://" + trustDomain + "/ocirepositories/" + victimNamespace + "/proving")
	bundle := readBundle(t)
	genuine, err := x509svid.Parse([]byte(chain), encodeKey(t, key))
	must(t, "read a certificate", err)
	if _, _, err := x509svid.Verify(genuine.Certificates, bundle); err != nil {
		t.Fatalf("the stolen certificate is not accepted: %v: this tests nothing", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{stolen.URL()},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, genuine.Certificates[0], key.Public(), key)
	must(t, "forge a certificate", err)
	forged, err := x509.ParseCertificate(der)
	must(t, "read a certificate", err)
	tn.tried++
	if id, _, err := x509svid.Verify(append([]*x509.Certificate{forged}, genuine.Certificates...), bundle); err == nil {
		t.Errorf("a certificate that an SVID has signed is accepted as %s", id)
	}

	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read a token", err)
	var claims map[string]any
	must(t, "read a token's claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	claims["sub"] = stolen.String()
	for name, options := range map[string]*jose.SignerOptions{"under the ring's kid": {}, "with a key of its own": {EmbedJWK: true}} {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: parsed.Headers[0].KeyID}}, options)
		must(t, "make a signer", err)
		forged, err := jwt.Signed(signer).Claims(claims).Serialize()
		must(t, "forge a token", err)
		tn.tried++
		if made, err := jwtsvid.ParseAndValidate(forged, bundle, []string{"registry.example.com"}); err == nil {
			t.Errorf("a forged token %s is accepted as %s", name, made.ID)
		}
	}
	status, ring := thief.do(http.MethodGet, "/apis/identity.lanyard.dev/v1alpha1/namespaces/"+local.Namespace+"/keyrings/"+identityv1.SPIFFEKeyRing, "", "")
	tn.tried++
	if strings.Contains(ring, "PRIVATE KEY") || strings.Contains(ring, `"d":`) || status == http.StatusOK && !strings.Contains(ring, "BEGIN CERTIFICATE") {
		t.Errorf("the ring tells more than public halves: HTTP %d", status)
	}
}

func encodeKey(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, "write a key", err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// readBundle fetches the trust domain's public bundle.
func readBundle(t *testing.T) *spiffebundle.Bundle {
	t.Helper()
	c := &http.Client{Transport: world.Cloud().Transport(), Timeout: patience}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, spiffeIssuer+"/bundle", http.NoBody)
	must(t, "make a request", err)
	res, err := c.Do(req)
	must(t, "read the bundle", err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	must(t, "read the bundle", err)
	bundle, err := spiffebundle.Parse(spiffeid.RequireTrustDomainFromString(trustDomain), data)
	must(t, "read the bundle", err)
	return bundle
}
