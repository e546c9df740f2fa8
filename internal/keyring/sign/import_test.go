package sign

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const caSecret = "spiffe-ca"

func trustDomain() spiffeid.TrustDomain {
	return spiffeid.RequireTrustDomainFromString("example.com")
}

func object() spiffeid.ID {
	return spiffeid.RequireFromString("spiffe://example.com/ocirepositories/production/my-app")
}

// trusting returns a rotator for the ring of a trust domain without an issuer. If imports is true,
// the rotator imports the CA from a Secret.
func (w *world) trusting(imports bool) *Rotator {
	w.policy.Issuer, w.policy.Algorithms, w.policy.TrustDomain, w.policy.Import = "", nil, trustDomain(), imports
	w.policy.MaxLife = svid.Lifetime
	r := w.rotator(w.api)
	r.Probe = func(ctx context.Context) (*keyring.Document, error) {
		document := &keyring.Document{}
		ring, err := w.object(w.api).read(ctx)
		if err != nil {
			return nil, err
		}
		parsed, err := keyring.Parse(&ring.Status)
		for _, a := range parsed.PublicAuthorities() {
			document.KIDs = append(document.KIDs, a.ID)
		}
		return document, err
	}
	r.Import = ImportFrom(w.api, client.ObjectKey{Namespace: namespace, Name: caSecret}, trustDomain())
	return r
}

// issueCA writes a new CA into the Secret, as cert-manager does, and returns its certificate.
func (w *world) issueCA(life time.Duration) *x509.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(w.t, err)
	ca, err := svid.NewAuthority(trustDomain(), key, life, time.Now())
	must.Succeed(w.t, err)
	// Unlike the CA that NewAuthority makes, this CA may sign intermediates, like a CA of
	// cert-manager.
	template := *ca
	template.MaxPathLen, template.MaxPathLenZero, template.URIs = -1, false, nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	must.Succeed(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(w.t, err)
	w.putCA(corev1.SecretTypeTLS, map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	})
	parsed, err := x509.ParseCertificate(der)
	must.Succeed(w.t, err)
	return parsed
}

// putCA deletes the CA's Secret, and makes it anew with the given data.
func (w *world) putCA(form corev1.SecretType, data map[string][]byte) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: caSecret}, Type: form, Data: data}
	if err := w.api.Delete(w.t.Context(), secret.DeepCopy()); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	must.Succeed(w.t, w.api.Create(w.t.Context(), secret))
}

// authorities returns the states of the ring's authorities as text.
func (w *world) authorities() string {
	w.t.Helper()
	var states []string
	for _, a := range w.ring().Status.Authorities {
		states = append(states, string(a.State))
	}
	return strings.Join(states, ", ")
}

// leafKey returns the public half of a new key. Its private half is not needed.
func leafKey(t *testing.T) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return &key.PublicKey
}

// mustChain returns a new chain that s has signed for the public key. It checks the chain as
// clients do.
func mustChain(t *testing.T, s *Signer, public *ecdsa.PublicKey) []*x509.Certificate {
	t.Helper()
	made, err := s.Certificate(object(), public)
	must.Succeed(t, err)
	chain, err := svid.ParseChain(made.Chain())
	must.Succeed(t, err)
	must.Succeed(t, svid.CheckChain(chain, object(), public, time.Now()))
	return chain
}

// trusts reports whether a verifier that trusts these authorities accepts the chain.
func trusts(chain []*x509.Certificate, authorities ...*x509.Certificate) bool {
	_, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(trustDomain(), authorities), x509svid.WithTime(time.Now()))
	return err == nil
}

// TestOwnAuthority simulates the life of the ring's own CAs. A verifier that reads the bundle once
// per publish delay must accept all certificates until they expire.
func TestOwnAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.PublishDelay, w.policy.RotationPeriod = 2*time.Hour, 6*time.Hour
		rotator, signer, public := w.trusting(false), w.signer(w.api), leafKey(t)
		if _, err := signer.Certificate(object(), public); !errors.Is(err, ErrStale) {
			t.Errorf("before the ring was read: %v", err)
		}
		w.settle(rotator)
		type issued struct {
			chain   []*x509.Certificate
			expires time.Time
		}
		var live []issued
		var known []*x509.Certificate
		var readAt time.Time
		seen := map[string]bool{}
		for range 30 * 6 { // steps of ten minutes
			w.settle(rotator)
			if time.Since(readAt) >= w.policy.PublishDelay {
				readAt, known = time.Now(), nil
				parsed, err := keyring.Parse(&w.ring().Status)
				must.Succeed(t, err)
				for _, a := range parsed.PublicAuthorities() {
					known = append(known, a.Certificate)
				}
			}
			must.Succeed(t, signer.Refresh(t.Context()))
			chain := mustChain(t, signer, public)
			seen[string(chain[0].AuthorityKeyId)] = true
			live = append(live, issued{chain, chain[0].NotAfter})
			live = slices.DeleteFunc(live, func(i issued) bool { return !time.Now().Before(i.expires) })
			for _, i := range live {
				if !trusts(i.chain, known...) {
					t.Fatalf("%v: a verifier that read the bundle %v ago refuses a certificate; the ring: %s", time.Now(), time.Since(readAt), w.authorities())
				}
			}
			time.Sleep(10 * time.Minute)
		}
		if len(seen) < 4 {
			t.Errorf("%d authorities have signed", len(seen))
		}
		secrets := &corev1.SecretList{}
		if err := w.api.List(t.Context(), secrets); err != nil || len(secrets.Items) > 3 {
			t.Errorf("%d private keys are left, %v", len(secrets.Items), err)
		}
	})
}

// TestImportedAuthority replaces the CA and its key, as cert-manager does. The second CA must not
// sign before it has been published for the delay.
func TestImportedAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.PublishDelay, w.policy.RotationPeriod = 24*time.Hour, 48*time.Hour
		rotator, signer, public := w.trusting(true), w.signer(w.api), leafKey(t)
		first := w.issueCA(90 * 24 * time.Hour)
		w.settle(rotator)
		must.Succeed(t, signer.Refresh(t.Context()))
		chain := mustChain(t, signer, public)
		if len(chain) != 2 || !trusts(chain, first) {
			t.Fatalf("the chain has %d certificates", len(chain))
		}
		secret := w.readCA()
		second := w.issueCA(90 * 24 * time.Hour) // the first CA's key is gone
		for range 23 {
			w.settle(rotator)
			time.Sleep(time.Hour)
		}
		must.Succeed(t, signer.Refresh(t.Context()))
		if chain := mustChain(t, signer, public); !trusts(chain, first) || trusts(chain, second) {
			t.Error("before the delay has passed, the second CA signs")
		}
		time.Sleep(2 * time.Hour)
		w.settle(rotator)
		must.Succeed(t, signer.Refresh(t.Context()))
		if chain := mustChain(t, signer, public); trusts(chain, first) || !trusts(chain, second) {
			t.Error("after the delay, the first CA signs")
		}
		time.Sleep(2 * time.Hour)
		w.settle(rotator)
		if got := w.authorities(); got != "Removed, Active" {
			t.Errorf("in the end: %s", got)
		}
		if now := w.readCA(); secret.ResourceVersion == "" || now.Name != caSecret || now.Labels != nil || now.Annotations != nil {
			t.Error("the Secret was written")
		}
	})
}

func (w *world) readCA() *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	must.Succeed(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: caSecret}, secret))
	return secret
}

// TestSwitchedOff removes the trust domain from the policy. The ring's status then has no trust
// domain, and the ring signs nothing. Its certificates stay valid until they expire. Then its keys
// and Secrets are deleted.
func TestSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		on, signer, public := w.trusting(false), w.signer(w.api), leafKey(t)
		off := w.rotator(w.api)
		off.Policy.TrustDomain, off.Probe = spiffeid.TrustDomain{}, nil
		if !off.Retire(t.Context()) || w.ring().Name != "" {
			t.Fatal("a ring that never was is made, or retires for ever")
		}
		w.settle(on)
		must.Succeed(t, signer.Refresh(t.Context()))
		chain := mustChain(t, signer, public)
		if changed, err := off.Step(t.Context()); err != nil || !changed {
			t.Fatal(changed, err)
		}
		ring := w.ring()
		if ring.Status.TrustDomain != "" || meta.IsStatusConditionTrue(ring.Status.Conditions, "Ready") {
			t.Errorf("switched off: %+v", ring.Status)
		}
		if got := w.authorities(); got != "Retiring, Removed" {
			t.Errorf("switched off: %s", got)
		}
		if err := signer.Refresh(t.Context()); err == nil {
			if _, err := signer.Certificate(object(), public); err == nil {
				t.Error("a ring that is switched off signs")
			}
		}
		if left := time.Until(chain[0].NotAfter); left <= 0 {
			t.Fatal("the certificate expires too early for the test")
		}
		began := time.Now()
		if !off.Retire(t.Context()) || time.Since(began) < svid.Lifetime {
			t.Errorf("the ring is empty after %v", time.Since(began))
		}
		secrets := &corev1.SecretList{}
		if err := w.api.List(t.Context(), secrets); err != nil || len(secrets.Items) > 0 || w.authorities() != "" {
			t.Errorf("left are %d private keys, and %q: %v", len(secrets.Items), w.authorities(), err)
		}
		w.settle(on)
		if got := w.authorities(); got != "Active, Published" {
			t.Errorf("switched on again: %s", got)
		}
	})
}

// TestBadSecret asserts that a condition says why a Secret has no usable CA, and that the active
// authority still signs.
func TestBadSecret(t *testing.T) {
	other := newWorld(t)
	other.issueCA(time.Hour)
	good := other.readCA()
	for what, c := range map[string]struct {
		form corev1.SecretType
		data map[string][]byte
		says string
	}{
		"missing":      {"", nil, "does not exist"},
		"wrong type":   {corev1.SecretTypeOpaque, good.Data, "has the type Opaque: it must be kubernetes.io/tls"},
		"no key":       {corev1.SecretTypeTLS, map[string][]byte{"tls.crt": good.Data["tls.crt"], "tls.key": nil}, "tls.key"},
		"no CA":        {corev1.SecretTypeTLS, map[string][]byte{"tls.crt": nil, "tls.key": good.Data["tls.key"]}, "tls.crt is missing"},
		"not readable": {corev1.SecretTypeTLS, map[string][]byte{"tls.crt": []byte("x"), "tls.key": good.Data["tls.key"]}, "tls.crt"},
	} {
		w := newWorld(t)
		w.policy.PublishDelay, w.policy.RotationPeriod = 24*time.Hour, 48*time.Hour
		rotator, signer := w.trusting(true), w.signer(w.api)
		put := func() {
			if c.form != "" {
				w.putCA(c.form, c.data)
				return
			}
			if err := w.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: caSecret}}); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
		put()
		w.settle(rotator)
		expect := func(condition string, status metav1.ConditionStatus) {
			t.Helper()
			got := meta.FindStatusCondition(w.ring().Status.Conditions, condition)
			if got == nil || got.Status != status || status == metav1.ConditionFalse && (got.Reason != v1alpha1.ReasonImportFailed || !strings.Contains(got.Message, c.says) || !strings.Contains(got.Message, caSecret)) {
				t.Errorf("%s: %+v, want %s and %q", what, got, status, c.says)
			}
		}
		expect("Ready", metav1.ConditionFalse)
		w.issueCA(90 * 24 * time.Hour)
		w.settle(rotator)
		expect("Ready", metav1.ConditionTrue)
		put()
		w.settle(rotator)
		expect("Ready", metav1.ConditionTrue)
		expect(v1alpha1.ConditionCanRotate, metav1.ConditionFalse)
		must.Succeed(t, signer.Refresh(t.Context()))
		mustChain(t, signer, leafKey(t))
	}
}

// TestImportThatPasses asserts that ImportFrom returns an error if an answer of the API server is
// lost. If the API server forbids the read, ImportFrom must return a CA with a Problem.
func TestImportThatPasses(t *testing.T) {
	w := newWorld(t)
	read := func(err error) (*CA, error) {
		c := interceptor.NewClient(w.api, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		}})
		return ImportFrom(c, client.ObjectKey{Namespace: namespace, Name: caSecret}, trustDomain())(t.Context())
	}
	if ca, err := read(errNoAnswer); err == nil || ca != nil {
		t.Errorf("no answer: %v, %v", ca, err)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, caSecret, errors.New("no"))
	if ca, err := read(forbidden); err != nil || !strings.Contains(ca.Problem, "spiffe.secretName") {
		t.Errorf("forbidden: %v, %v", ca, err)
	}
}

// TestCADoesNotPrint asserts that no format prints the CA's key.
func TestCADoesNotPrint(t *testing.T) {
	w := newWorld(t)
	w.issueCA(time.Hour)
	ca, err := ImportFrom(w.api, client.ObjectKey{Namespace: namespace, Name: caSecret}, trustDomain())(t.Context())
	if err != nil || ca.Problem != "" {
		t.Fatal(ca, err)
	}
	want := "CA " + svid.AuthorityID(ca.certificate)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, ca); got != want {
			t.Errorf("%s: %s", format, got)
		}
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "ca", ca)
	if !strings.Contains(log.String(), want) {
		t.Error(log.String())
	}
}

// TestCertificateStopsWithView asserts that a signer with an old view signs no certificate, and
// that a revoked authority signs no certificate.
func TestCertificateStopsWithView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rotator, signer, public := w.trusting(false), w.signer(w.api), leafKey(t)
		w.settle(rotator)
		must.Succeed(t, signer.Refresh(t.Context()))
		mustChain(t, signer, public)
		time.Sleep(keyring.MaxViewAge + time.Second)
		if _, err := signer.Certificate(object(), public); !errors.Is(err, ErrStale) {
			t.Errorf("an old view: %v", err)
		}
		must.Succeed(t, signer.Refresh(t.Context()))
		former := mustChain(t, signer, public)
		w.change(func(r *v1alpha1.KeyRing) {
			must.Succeed(t, keyring.Revoke(r, r.Status.Authorities[0].ID))
		})
		w.settle(rotator)
		must.Succeed(t, signer.Refresh(t.Context()))
		if chain := mustChain(t, signer, public); string(chain[0].AuthorityKeyId) == string(former[0].AuthorityKeyId) {
			t.Error("a revoked authority signs")
		}
	})
}
