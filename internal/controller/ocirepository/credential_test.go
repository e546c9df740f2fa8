package ocirepository

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/bearer"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/grant"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/controller/controllertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// trust is a world whose registry accepts tokens of the cluster and SVIDs of a SPIFFE trust domain.
// It implements auth.Prover for all subjects.
type trust struct {
	*world
	*controllertest.Accounts

	domain svid.Signers
	issuer *svid.Issuer
	key    *ecdsa.PrivateKey

	mu       sync.Mutex // guards the fields below
	signs    error      // error of the SVID signers; nil if they sign
	requests []auth.ProofRequest
	takes    func(r *http.Request) bool // reports whether the registry accepts a request
	asks     string                     // the registry's challenge
	shown    []string                   // credentials that the registry has received, each once
}

func newTrust(t *testing.T) *trust {
	t.Helper()
	w := newWorld(t)
	w.tenant("tenant-a", roleA)
	name, err := svid.ParseTrustDomain("example.com")
	must.Succeed(t, err)
	tr := &trust{world: w, Accounts: w.Accounts, asks: `Bearer realm="test"`, domain: svid.Signers{TrustDomain: name, Issuer: "https://spiffe.example.com", Key: "kid", Authority: "0a"}}
	tr.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	authority, err := svid.NewAuthority(name, tr.key, time.Hour, time.Now())
	must.Succeed(t, err)
	tr.issuer, err = svid.NewIssuer(name, tr.key, authority, nil)
	must.Succeed(t, err)
	own, err := auth.ServiceAccount("lanyard-system", "lanyard-controller")
	must.Succeed(t, err)
	tr.PutSubject(own, "uid-own", nil)
	tokens, err := bearer.NewProvider(bearer.Config{Self: own, Prover: tr})
	must.Succeed(t, err)
	jwts, err := svid.NewProvider(svid.JWT, tr)
	must.Succeed(t, err)
	certificates, err := svid.NewProvider(svid.X509, tr)
	must.Succeed(t, err)
	w.Access.Accounts = tr
	w.Access.Provider = func(name string) (auth.Provider, error) {
		provider, ok := map[string]auth.Provider{
			"ServiceAccountToken": tokens, "WorkloadIdentityToken": tokens, "SpiffeJWT": jwts, "SpiffeCertificate": certificates,
		}[name]
		if !ok {
			return nil, errors.New("no provider " + name)
		}
		return provider, nil
	}
	w.registry.tamper(tr.door)
	return tr
}

// Signers implements svid.Ring.
func (tr *trust) Signers() (svid.Signers, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.domain, tr.signs
}

// Prove implements auth.Prover.
func (tr *trust) Prove(ctx context.Context, account auth.Account, request auth.ProofRequest) (auth.Proof, error) {
	tr.mu.Lock()
	tr.requests = append(tr.requests, request)
	tr.mu.Unlock()
	if request.Form != auth.FormCertificate {
		return tr.Accounts.Prove(ctx, account, request)
	}
	id, err := svid.IDOf(tr.domain.TrustDomain, account.Subject)
	if err != nil {
		return nil, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	made, err := tr.issuer.Certificate(id, &leaf.PublicKey, time.Now())
	return auth.NewCertificate([][]byte{made.DER}, leaf, made.NotAfter), err
}

// door guards the registry: it passes on a request if the function tr.takes accepts it, and
// otherwise answers 401.
func (tr *trust) door(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
	tr.mu.Lock()
	shown, takes := credentialOf(r), tr.takes(r)
	if shown != "" && !slices.Contains(tr.shown, shown) {
		tr.shown = append(tr.shown, shown)
	}
	tr.mu.Unlock()
	if takes {
		inner.ServeHTTP(w, r)
		return true
	}
	if tr.asks != "" {
		w.Header().Set("WWW-Authenticate", tr.asks)
	}
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// credentialOf returns a text that describes the credential in a request: a login, a certificate or
// a token.
func credentialOf(r *http.Request) string {
	if user, password, ok := r.BasicAuth(); ok {
		return user + " with " + password
	}
	if len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].SerialNumber.String()
	}
	return r.Header.Get("Authorization")
}

// shows returns a function that accepts requests with exactly this credential.
func shows(want string) func(*http.Request) bool {
	return func(r *http.Request) bool { return credentialOf(r) == want }
}

// holds returns a function that accepts requests with a client certificate of this SPIFFE ID.
func holds(id string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		certificates := r.TLS.PeerCertificates
		return len(certificates) > 0 && len(certificates[0].URIs) == 1 && certificates[0].URIs[0].String() == id
	}
}

// credential returns a function that makes an object use a credential of this type.
func credential(form string, edit ...func(*v1alpha1.OCIRepository)) func(*v1alpha1.OCIRepository) {
	return func(o *v1alpha1.OCIRepository) {
		o.Spec.Provider, o.Spec.ServiceAccountName = v1alpha1.ProviderGeneric, ""
		o.Spec.Credential = &v1alpha1.Credential{Type: form}
		switch form {
		case v1alpha1.CredentialServiceAccountToken:
			o.Spec.ServiceAccountName = "puller"
		case v1alpha1.CredentialWorkloadIdentityToken:
			o.Spec.WorkloadIdentityName = "puller"
		}
		for _, f := range edit {
			f(o)
		}
	}
}

const defaultAudience = "oci://" + cloudHost + "/tenant-a/app"

func TestCredentials(t *testing.T) {
	const (
		account  = "system:serviceaccount:tenant-a:puller"
		object   = "lanyard.dev:ocirepository:tenant-a:app"
		spiffeID = "spiffe://example.com/ocirepositories/tenant-a/app"
	)
	for name, test := range map[string]struct {
		form          string
		edit          func(*v1alpha1.OCIRepository)
		user          string // user name in the subject's annotation
		asks          string // challenge of the registry
		takes         func(*http.Request) bool
		subject, as   string // the wanted subject and cloudIdentity in status.identity
		contextObject string
	}{
		"account token": {
			form: "ServiceAccountToken", takes: shows("Bearer " + account + " for " + defaultAudience), subject: account,
		},
		"account token with audiences": {
			form: "ServiceAccountToken", edit: func(o *v1alpha1.OCIRepository) { o.Spec.Credential.Audiences = []string{"a", "b"} },
			takes: shows("Bearer " + account + " for a and b"), subject: account,
		},
		"account token as password": {
			form: "ServiceAccountToken", asks: `Basic realm="test"`, takes: shows("token with " + account + " for " + defaultAudience), subject: account,
		},
		"account token of a named user": {
			form: "ServiceAccountToken", user: "robot", asks: `Basic realm="test"`, takes: shows("robot with " + account + " for " + defaultAudience), subject: account, as: "robot",
		},
		"identity token": {
			form: "WorkloadIdentityToken", takes: shows("Bearer " + identityOfA + " for " + defaultAudience), subject: identityOfA, contextObject: "app",
		},
		"SPIFFE JWT": {
			form: "SpiffeJWT", takes: shows("Bearer " + object + " for " + defaultAudience), subject: object, as: spiffeID,
		},
		"SPIFFE certificate": {form: "SpiffeCertificate", takes: holds(spiffeID), subject: object, as: spiffeID},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrust(t)
			tr.takes = test.takes
			if test.asks != "" {
				tr.asks = test.asks
			}
			attributes := map[string]string{bearer.UsernameAnnotation: test.user}
			if test.user == "" {
				attributes = nil
			}
			tr.Put(t, "tenant-a", "puller", "uid-tenant-a", attributes)
			identity, err := auth.WorkloadIdentity("tenant-a", "puller")
			must.Succeed(t, err)
			tr.PutSubject(identity, "uid-wi", attributes)
			itself, err := auth.Object("OCIRepository", "tenant-a", "app")
			must.Succeed(t, err)
			tr.PutSubject(itself, "uid-tenant-a-app", nil)
			edits := []func(*v1alpha1.OCIRepository){}
			if test.edit != nil {
				edits = append(edits, test.edit)
			}
			o, _ := tr.Reconcile(tr.create("tenant-a", "app", credential(test.form, edits...)))
			if controllertest.Ready(o).Status != metav1.ConditionTrue || tr.Served(o)["hello.txt"] != "hello tenant-a" {
				t.Fatalf("%+v, shown %d credentials", controllertest.Ready(o), len(tr.shown))
			}
			if id := o.Status.Identity; id == nil || id.Subject != test.subject || id.CloudIdentity != test.as || id.Provider != v1alpha1.ProviderGeneric {
				t.Errorf("%+v", id)
			}
			asked := tr.requests[len(tr.requests)-1]
			if asked.Lifetime != time.Hour || asked.ContextObject.Name != test.contextObject || asked.ContextObject.UID != "" && asked.ContextObject.UID != "uid-tenant-a-app" {
				t.Errorf("asked for %+v", asked)
			}
			// The next reconciliation finds the credential in the cache.
			made := len(tr.requests)
			tr.Request(o, "again")
			if o, _ = tr.Reconcile(o); controllertest.Ready(o).Status != metav1.ConditionTrue || len(tr.requests) != made {
				t.Errorf("%+v, %d proofs", controllertest.Ready(o), len(tr.requests))
			}
		})
	}
}

// TestRefusedCredential checks a registry that refuses every credential. Within a minute, only one
// further credential may be made, although the object is reconciled again and again.
func TestRefusedCredential(t *testing.T) {
	for form, asks := range map[string]string{"ServiceAccountToken": `Bearer realm="test"`, "SpiffeJWT": "", "SpiffeCertificate": ""} {
		tr := newTrust(t)
		tr.asks = asks
		tr.takes = func(*http.Request) bool { return false }
		itself, err := auth.Object("OCIRepository", "tenant-a", "app")
		must.Succeed(t, err)
		tr.PutSubject(itself, "uid-tenant-a-app", nil)
		o := tr.create("tenant-a", "app", credential(form))
		for range 5 {
			o, _ = tr.Reconcile(o)
			if got := controllertest.Ready(o); got.Reason != meta.ReasonRegistryRefused || !strings.Contains(got.Message, "401") {
				t.Fatalf("%s: %+v", form, got)
			}
			tr.Request(o, time.Now().String())
		}
		if len(tr.requests) != 2 {
			t.Errorf("%s: %d credentials, want 2", form, len(tr.requests))
		}
	}
}

// TestControllersToken checks that the controller's own token is sent only to hosts that the
// administrator allows.
func TestControllersToken(t *testing.T) {
	tr := newTrust(t)
	tr.takes = shows("Bearer system:serviceaccount:lanyard-system:lanyard-controller for " + defaultAudience)
	nobody := credential("ServiceAccountToken", func(o *v1alpha1.OCIRepository) { o.Spec.ServiceAccountName = "" })
	tries := 0
	refused := func(says string) {
		t.Helper()
		tries++
		o, _ := tr.Reconcile(tr.create("tenant-a", fmt.Sprint("app-", tries), nobody))
		if got := controllertest.Ready(o); got.Reason != string(auth.CodeNotGranted) || !strings.Contains(got.Message, says) || controllertest.Condition(o, meta.ConditionStalled).Status != metav1.ConditionTrue {
			t.Errorf("%+v, want %s", got, says)
		}
	}
	refused("--controller-identity-namespaces")
	tr.Shared.Rules.ControllerNamespaces = grant.Namespaces{All: true}
	refused("--controller-credential-hosts")
	other, err := endpoint.ParseAllowed("other.example.com", cloudHost+":5000")
	must.Succeed(t, err)
	tr.Shared.Rules.CredentialHosts = other
	refused("--controller-credential-hosts")
	if len(tr.requests) > 0 {
		t.Errorf("%d proofs of the controller", len(tr.requests))
	}
	listed, err := endpoint.ParseAllowed(cloudHost)
	must.Succeed(t, err)
	tr.Shared.Rules.CredentialHosts = listed
	o, _ := tr.Reconcile(tr.create("tenant-a", "lent", nobody))
	if id := o.Status.Identity; controllertest.Ready(o).Status != metav1.ConditionTrue || id == nil || id.Subject != "controller" {
		t.Errorf("%+v, %+v", controllertest.Ready(o), id)
	}
}

// TestSVIDWithoutTrustDomain checks that an object without a trust domain is stalled, and recovers
// when the trust domain exists.
func TestSVIDWithoutTrustDomain(t *testing.T) {
	tr := newTrust(t)
	tr.takes = holds("spiffe://example.com/ocirepositories/tenant-a/app")
	itself, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	tr.PutSubject(itself, "uid-tenant-a-app", nil)
	tr.signs = &auth.Error{Stage: auth.StageTokenRequest, Code: auth.CodeNotGranted, Fix: "set spiffe.trustDomain", Err: errors.New("no trust domain")}
	o, _ := tr.Reconcile(tr.create("tenant-a", "app", credential("SpiffeCertificate")))
	if got := controllertest.Ready(o); got.Reason != string(auth.CodeNotGranted) || controllertest.Condition(o, meta.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("%+v", got)
	}
	tr.mu.Lock()
	tr.signs = nil
	tr.mu.Unlock()
	tr.Request(o, "1")
	if o, _ = tr.Reconcile(o); controllertest.Ready(o).Status != metav1.ConditionTrue {
		t.Errorf("%+v", controllertest.Ready(o))
	}
}

// TestSVIDWithoutFlag checks the message if a setting for SVIDs is missing. The message must name
// the flag and the value of the chart. The object must be stalled: no SVID may be requested, and no
// retry may be planned.
func TestSVIDWithoutFlag(t *testing.T) {
	for name, tt := range map[string]struct {
		form  string
		set   func(tr *trust)
		words []string
	}{
		"nobody who issues JWTs": {
			"SpiffeJWT", func(tr *trust) { tr.Shared.Rules.TokenServer = false },
			[]string{"--keyring-namespace", "--spiffe-trust-domain", "--spiffe-broker-endpoint", "spiffe.trustDomain", "spiffe.broker"},
		},
		"nobody who issues certificates": {
			"SpiffeCertificate", func(tr *trust) { tr.Shared.Rules.TokenServer = false },
			[]string{"--keyring-namespace", "--spiffe-trust-domain", "--spiffe-broker-endpoint", "spiffe.trustDomain", "spiffe.broker"},
		},
		"no issuer of JWTs": {"SpiffeJWT", func(tr *trust) { tr.domain.Issuer = "" }, []string{"--spiffe-issuer", "spiffe.issuer"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrust(t)
			itself, err := auth.Object("OCIRepository", "tenant-a", "app")
			must.Succeed(t, err)
			tr.PutSubject(itself, "uid-tenant-a-app", nil)
			tt.set(tr)
			o, result := tr.Reconcile(tr.create("tenant-a", "app", credential(tt.form)))
			got := controllertest.Ready(o)
			if got.Reason != string(auth.CodeNotGranted) || controllertest.Condition(o, meta.ConditionStalled).Status != metav1.ConditionTrue {
				t.Errorf("%+v", got)
			}
			for _, word := range tt.words {
				if !strings.Contains(got.Message, word) {
					t.Errorf("the message does not name %s: %s", word, got.Message)
				}
			}
			if len(tr.requests) > 0 || result != (reconcile.Result{}) {
				t.Errorf("%d requests for proofs, and %+v", len(tr.requests), result)
			}
		})
	}
}

// TestCertificateBesideSecret checks an object with a SPIFFE certificate and spec.certSecretRef.
// The Secret's certificate authorities must be used, and the Secret's client certificate must be
// ignored.
func TestCertificateBesideSecret(t *testing.T) {
	certificate, key := controllertest.Pair(t, "client")
	for name, test := range map[string]struct {
		data   map[string]string
		reason string
	}{
		"no authority":                    {map[string]string{"tls.crt": certificate, "tls.key": key}, meta.ReasonSecretRefused},
		"an authority of another":         {map[string]string{"ca.crt": certificate}, meta.ReasonRegistryUnreachable},
		"another's, and a certificate":    {map[string]string{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}, meta.ReasonRegistryUnreachable},
		"the registry's, and certificate": {map[string]string{"tls.crt": certificate, "tls.key": key}, meta.ReasonSucceeded},
	} {
		tr := newTrust(t)
		tr.takes = holds("spiffe://example.com/ocirepositories/tenant-a/app")
		itself, err := auth.Object("OCIRepository", "tenant-a", "app")
		must.Succeed(t, err)
		tr.PutSubject(itself, "uid-tenant-a-app", nil)
		if test.reason == meta.ReasonSucceeded {
			test.data["ca.crt"] = tr.registry.network.CA
		}
		tr.Secret("tenant-a", "certs", corev1.SecretTypeOpaque, test.data)
		o, _ := tr.Reconcile(tr.create("tenant-a", "app", credential("SpiffeCertificate", func(o *v1alpha1.OCIRepository) {
			o.Spec.CertSecretRef = &meta.LocalReference{Name: "certs"}
		})))
		if got := controllertest.Ready(o); got.Reason != test.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestCertificateRotatesDuringPull checks that a running pull continues with its connection and its
// old certificate. The next reconciliation must use the new certificate.
func TestCertificateRotatesDuringPull(t *testing.T) {
	tr := newTrust(t)
	itself, err := auth.Object("OCIRepository", "tenant-a", "app")
	must.Succeed(t, err)
	tr.PutSubject(itself, "uid-tenant-a-app", nil)
	let := holds("spiffe://example.com/ocirepositories/tenant-a/app")
	rotated := false
	tr.takes = func(r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && !rotated { // in the middle of the pull
			rotated = true
			tr.domain.Authority = "0b"
			go tr.Tell(itself)
		}
		return let(r)
	}
	o, _ := tr.Reconcile(tr.create("tenant-a", "app", credential("SpiffeCertificate")))
	if controllertest.Ready(o).Status != metav1.ConditionTrue || !rotated || len(tr.shown) != 1 {
		t.Fatalf("%+v, rotated %t, %d certificates", controllertest.Ready(o), rotated, len(tr.shown))
	}
	tr.Request(o, "1")
	if o, _ = tr.Reconcile(o); controllertest.Ready(o).Status != metav1.ConditionTrue || len(tr.shown) != 2 {
		t.Errorf("%+v, %d certificates", controllertest.Ready(o), len(tr.shown))
	}
}
