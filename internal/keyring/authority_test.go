//go:build !concurrent

// These tests start no goroutine, so the race detector would only slow them down.

package keyring

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	lanyardmeta "github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth/svid"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// trust simulates a ring of authorities. The ring's public bundle is always reachable. The method
// [trust.step] calls [Next], and carries out the returned [Plan] as the rotator does.
type trust struct {
	t       *testing.T
	ring    *v1alpha1.KeyRing
	policy  Policy
	o       Observation
	now     time.Time
	ca      *ecdsa.PrivateKey // private key of the imported CA
	secret  *x509.Certificate // certificate of the CA in the Secret; nil without a CA
	seen    map[string]time.Time
	foreign []string // IDs in the bundle that are not the ring's
}

func newTrust(t *testing.T) *trust {
	t.Helper()
	domain, err := svid.ParseTrustDomain("example.com")
	must.Succeed(t, err)
	return &trust{
		t: t, ring: &v1alpha1.KeyRing{}, now: today(), seen: map[string]time.Time{},
		policy: Policy{TrustDomain: domain, PublishDelay: day, RotationPeriod: 90 * day, MaxLife: svid.Lifetime},
	}
}

func (w *trust) key() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(w.t, err)
	return key
}

// hold records that the store has the private half of an authority's key.
func (w *trust) hold(a Authority, err error) Authority {
	w.t.Helper()
	must.Succeed(w.t, err)
	w.o.Held = append(w.o.Held, a.Key.ID)
	return a
}

// issue makes a new CA that can be imported, as cert-manager does.
func (w *trust) issue(life time.Duration) {
	w.t.Helper()
	w.ca = w.key()
	w.reissue(life)
}

// reissue makes a new certificate for the CA's current key, as cert-manager does with
// rotationPolicy: Never.
func (w *trust) reissue(life time.Duration) {
	w.t.Helper()
	w.policy.Import = true
	var err error
	if w.secret, err = svid.NewAuthority(w.policy.TrustDomain, w.ca, life, w.now); err != nil {
		w.t.Fatal(err)
	}
}

func (w *trust) certificate(c *x509.Certificate, err error) *x509.Certificate {
	w.t.Helper()
	must.Succeed(w.t, err)
	return c
}

// step observes the ring, and carries out one plan.
func (w *trust) step() Plan {
	w.t.Helper()
	w.o.Document = &Document{KIDs: slices.Clone(w.foreign)}
	for _, a := range w.ring.Status.Authorities {
		if Public(a.State) {
			w.o.Document.KIDs = append(w.o.Document.KIDs, a.ID)
			if w.seen[a.ID].IsZero() {
				w.seen[a.ID] = w.now
			}
		}
	}
	w.o.Revision = w.ring.Status.Revision
	if w.policy.Import && w.secret != nil {
		key, err := Thumbprint(w.secret.PublicKey)
		must.Succeed(w.t, err)
		w.o.Import = &Import{ID: svid.AuthorityID(w.secret), Key: key, NotAfter: w.secret.NotAfter}
	}
	plan := Next(w.ring, w.o, w.policy, w.now)
	done := plan
	for range plan.Missing {
		key := w.key()
		plan.AddAuthority(w.hold(NewAuthority(w.certificate(svid.NewAuthority(w.policy.TrustDomain, key, w.policy.AuthorityLife(), w.now)), nil)), w.now)
	}
	if plan.Import {
		plan.AddAuthority(w.hold(w.adopted(w.key().Public())), w.now)
	}
	if plan.Renew != "" {
		entry, _ := Find(&plan.Status, plan.Renew)
		former, err := ParseAuthority(entry.Authority)
		must.Succeed(w.t, err)
		renewed, err := w.adopted(former.Intermediate.PublicKey)
		must.Succeed(w.t, err)
		plan.Renewed(renewed)
	}
	w.ring.Status = plan.Status
	return done
}

func (w *trust) adopted(public any) (Authority, error) {
	return NewAuthority(w.secret, w.certificate(svid.NewIntermediate(w.policy.TrustDomain, w.secret, w.ca, public, w.policy.IntermediateLife(), w.now)))
}

// settle makes steps until nothing changes.
func (w *trust) settle() {
	w.t.Helper()
	for range 10 {
		if plan := w.step(); !plan.Changed && !plan.Makes() {
			return
		}
	}
	w.t.Fatal("the ring does not come to rest")
}

// pass lets time pass in steps of an hour. At each step, the active authority must be valid for at
// least another svid.Lifetime. Each authority except the first must be in the bundle for the
// publish delay before it signs. This delay is not checked if the spec revokes keys.
func (w *trust) pass(d time.Duration) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Hour)
		w.settle()
		active := w.active()
		if active == nil {
			w.t.Fatalf("%v: nobody signs: %s", w.now, w.states())
		}
		a, err := ParseAuthority(active)
		if err != nil || a.NotAfter().Before(w.now.Add(svid.Lifetime)) {
			w.t.Fatalf("%v: the active authority ends at %v: %v", w.now, a.NotAfter(), err)
		}
		if first := w.ring.Status.Authorities[0]; active.ActivatedAt.Sub(w.seen[active.ID]) < w.policy.PublishDelay && active.ID != first.ID && w.ring.Spec.Revoke == nil {
			w.t.Fatalf("%v: an authority signs after %v in the bundle", w.now, active.ActivatedAt.Sub(w.seen[active.ID]))
		}
	}
}

func (w *trust) active() *v1alpha1.Authority {
	i := slices.IndexFunc(w.ring.Status.Authorities, func(a v1alpha1.Authority) bool { return a.State == v1alpha1.KeyActive })
	if i < 0 {
		return nil
	}
	return &w.ring.Status.Authorities[i]
}

// states returns the authorities as text: "state" or "imported state", in their order.
func (w *trust) states() string {
	var texts []string
	for _, a := range w.ring.Status.Authorities {
		text := string(a.State)
		if a.Imported {
			text = "imported " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func (w *trust) want(what, states string) {
	w.t.Helper()
	if got := w.states(); got != states {
		w.t.Errorf("%s: %s, want %s", what, got, states)
	}
}

func (w *trust) reason(condition, want string) {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.ring.Status.Conditions, condition); c == nil || c.Reason != want {
		w.t.Errorf("%s: %+v, want %s", condition, c, want)
	}
}

func TestOwnAuthorities(t *testing.T) {
	w := newTrust(t)
	w.step()
	w.want("a new ring", "Pending, Pending")
	w.settle()
	w.want("as soon as verifiers can see it, the first signs", "Active, Published")
	w.pass(90*day - 2*time.Hour)
	w.want("before the rotation", "Active, Published")
	w.pass(3 * time.Hour)
	w.want("the successor signs, and has a successor", "Retiring, Active, Published")
	w.now = w.now.Add(svid.Lifetime - time.Hour + time.Minute)
	w.settle()
	w.want("until the last certificate has expired, the former stays", "Retiring, Active, Published")
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.want("then it leaves the bundle", "Removed, Active, Published")
	w.pass(2 * day)
	w.want("and is forgotten", "Active, Published")
	w.pass(400 * day)
	w.reason(lanyardmeta.ConditionReady, lanyardmeta.ReasonSucceeded)
	w.reason(v1alpha1.ConditionCanRotate, lanyardmeta.ReasonSucceeded)
}

// TestAuthorityBeforeItsEnd asserts that both the active authority and its waiting successor are
// replaced before their certificates expire.
func TestAuthorityBeforeItsEnd(t *testing.T) {
	w := newTrust(t)
	w.settle()
	// The rotator does not run during this time.
	w.now = w.now.Add(w.policy.AuthorityLife() - day - 2*time.Hour + time.Minute)
	w.settle()
	w.want("both end too early, and verifiers know the second", "Retiring, Active, Published")
	w.pass(3 * day)
}

func TestRevokedAuthority(t *testing.T) {
	w := newTrust(t)
	w.settle()
	w.ring.Spec.Revoke = []string{w.active().ID}
	w.step()
	w.want("the successor signs at once", "Revoked, Active, Pending")
	if w.active().Tainted {
		t.Error("an authority is tainted: verifiers do not read the bundle again for an unknown one")
	}
	w.settle()
	w.pass(100 * day)
}

// TestRevokedKeyOfCA revokes the CA whose key has leaked. No other certificate of this key may be
// trusted, neither now nor later. If the policy lists the key as revoked, this must hold even for a
// new ring.
func TestRevokedKeyOfCA(t *testing.T) {
	w := newTrust(t)
	w.issue(90 * day)
	w.settle()
	first := w.active().ID
	w.reissue(91 * day)
	w.settle()
	w.want("a renewed certificate waits", "imported Active, imported Published")
	c, err := ConsequencesOf(w.ring, first, w.now)
	if err != nil || c.Successor != "" || !c.Outage {
		t.Errorf("a certificate of the same key succeeds: %+v, %v", c, err)
	}
	must.Succeed(t, Revoke(w.ring, first))
	w.settle()
	w.want("both have the leaked key", "imported Revoked, imported Revoked")
	w.reason(lanyardmeta.ConditionReady, v1alpha1.ReasonImportFailed)
	for n := range 100 { // 100 days: longer than a ring usually keeps a revoked authority
		w.now = w.now.Add(day)
		if n%10 == 0 {
			w.reissue(time.Duration(90+n) * day)
		}
		w.settle()
		if w.active() != nil || len(w.ring.Status.Authorities) > 2 {
			t.Fatalf("after %d days: %s", n, w.states())
		}
	}
	c, err = ConsequencesOf(w.ring, w.ring.Status.Authorities[0].ID, w.now)
	leaked := w.o.Import.Key
	if err != nil || !strings.Contains(strings.Join(c.Lines(), "\n"), leaked) {
		t.Errorf("the key %s is not named: %v, %v", leaked, c.Lines(), err)
	}
	former, formerCA := w.secret, w.ca
	w.issue(90 * day)
	w.settle()
	if active := w.active(); active == nil || active.ID != svid.AuthorityID(w.secret) {
		t.Errorf("a new key: %s", w.states())
	}

	restored := newTrust(t)
	restored.policy.Import, restored.policy.Revoked = true, []string{leaked}
	restored.secret, restored.ca, restored.now = former, formerCA, w.now
	restored.settle()
	restored.want("a ring that never saw the key", "")
	restored.reason(lanyardmeta.ConditionReady, v1alpha1.ReasonImportFailed)
}

// TestRevokedAuthorityOfNoKey revokes an authority whose certificate cannot be parsed. A second
// authority with such a certificate must not be revoked too, because it may have another key.
func TestRevokedAuthorityOfNoKey(t *testing.T) {
	w := newTrust(t)
	w.settle()
	for i := range w.ring.Status.Authorities {
		w.ring.Status.Authorities[i].Certificate = "damaged"
	}
	w.ring.Spec.Revoke = []string{w.active().ID}
	w.step()
	if got := w.ring.Status.Authorities[1].State; got == v1alpha1.KeyRevoked {
		t.Error("an authority of another key is revoked too")
	}
}

func TestImport(t *testing.T) {
	w := newTrust(t)
	w.policy.Import = true
	w.o.Import = &Import{Problem: "Secret lanyard-system/spiffe-ca does not exist: create it"}
	w.settle()
	w.want("without a CA", "")
	w.reason(lanyardmeta.ConditionReady, v1alpha1.ReasonImportFailed)
	w.issue(90 * day)
	w.settle()
	w.want("the first CA signs as soon as it is seen", "imported Active")
	w.reason(lanyardmeta.ConditionReady, lanyardmeta.ReasonSucceeded)
	first := *w.active()
	w.pass(20 * day) // long enough for a renewal of the intermediate
	if w.active().Intermediate == first.Intermediate || w.active().KID != first.KID || w.active().ID != first.ID {
		t.Error("the intermediate was not renewed for the same key")
	}

	w.issue(90 * day) // cert-manager overwrites the key of the first CA
	w.pass(23 * time.Hour)
	w.want("leaves come from the first until verifiers know the second", "imported Active, imported Published")
	if w.active().ID != first.ID {
		t.Error("the second signs early")
	}
	w.pass(2 * time.Hour)
	w.want("then the second signs", "imported Retiring, imported Active")
	w.pass(3 * time.Hour)
	w.want("and the first leaves the bundle", "imported Removed, imported Active")

	for range 6 { // cert-manager renews at two thirds of the life
		w.pass(60 * day)
		w.issue(90 * day)
	}
	w.pass(2 * day)
}

// TestImportOfBadSecret asserts that the active authority stays active if the Secret becomes bad.
func TestImportOfBadSecret(t *testing.T) {
	w := newTrust(t)
	w.issue(90 * day)
	w.settle()
	good := w.secret
	w.secret, w.o.Import = nil, &Import{Problem: "Secret lanyard-system/spiffe-ca has no CA that can be used: tls.key: it is missing"}
	w.pass(day)
	w.want("a bad Secret", "imported Active")
	w.reason(lanyardmeta.ConditionReady, lanyardmeta.ReasonSucceeded)
	w.reason(v1alpha1.ConditionCanRotate, v1alpha1.ReasonImportFailed)
	w.now = w.now.Add(w.policy.IntermediateLife())
	w.settle()
	w.reason(lanyardmeta.ConditionReady, v1alpha1.ReasonNoKey) // the intermediate has expired
	w.secret = good
	w.settle()
	w.want("the Secret is good again", "imported Active")
	w.reason(lanyardmeta.ConditionReady, lanyardmeta.ReasonSucceeded)
	w.ring.Spec.Revoke = []string{w.active().ID}
	w.settle()
	w.reason(v1alpha1.ConditionCanRotate, v1alpha1.ReasonImportFailed)
	w.want("a revoked CA does not come back", "imported Revoked")
	w.issue(90 * day)
	w.settle()
	w.want("another CA signs without the delay", "imported Revoked, imported Active")
}

// TestImportFasterThanDelay imports a CA that changes more often than once per publish delay. The
// CA must neither fill the ring nor prevent the next authority from signing.
func TestImportFasterThanDelay(t *testing.T) {
	w := newTrust(t)
	w.issue(90 * day)
	w.settle()
	w.now = w.now.Add(time.Hour)
	for range 60 {
		w.issue(90 * day)
		w.pass(2 * time.Hour)
		if n := len(w.ring.Status.Authorities); n > maxAuthorities {
			t.Fatalf("%d authorities", n)
		}
	}
}

func TestImportReplacesOwn(t *testing.T) {
	w := newTrust(t)
	w.settle()
	w.issue(90 * day)
	w.settle()
	w.want("own authorities sign on", "Active, Removed, imported Published")
	w.pass(25 * time.Hour)
	w.want("until verifiers know the imported one", "Retiring, imported Active")
	w.policy.Import, w.o.Import = false, nil
	w.pass(12 * time.Hour)
	if w.active() == nil || !w.active().Imported {
		t.Errorf("back: %s", w.states())
	}
	w.pass(14 * time.Hour)
	if w.active().Imported {
		t.Errorf("back: %s", w.states())
	}
}

func TestTrustDomainChanges(t *testing.T) {
	w := newTrust(t)
	w.settle()
	former := *w.active()
	domain, err := spiffeid.TrustDomainFromString("other.example")
	must.Succeed(t, err)
	w.policy.TrustDomain = domain
	w.settle()
	w.want("authorities of the former trust domain sign no more", "Retiring, Removed, Published, Published")
	if w.ring.Status.TrustDomain != "other.example" {
		t.Error("the ring does not say the new trust domain")
	}
	w.now = w.now.Add(25 * time.Hour)
	w.settle()
	if a, err := ParseAuthority(w.active()); err != nil || a.Certificate.URIs[0].String() != "spiffe://other.example" || a.ID == former.ID {
		t.Errorf("%v, %v", a, err)
	}
}

func TestForeignAuthority(t *testing.T) {
	w := newTrust(t)
	w.settle()
	w.foreign = []string{strings.Repeat("ab", 32)}
	w.now = w.now.Add(91 * day)
	w.settle()
	w.want("rotation stops", "Active, Published")
	w.reason(v1alpha1.ConditionCanRotate, v1alpha1.ReasonForeignKey)
}

// TestKeysAndAuthorities checks a policy with both an issuer and a trust domain. Its ring must get
// keys and authorities. Validate must refuse incomplete policies.
func TestKeysAndAuthorities(t *testing.T) {
	p := newTrust(t).policy
	p.Issuer, p.Algorithms = "https://spiffe.example", []v1alpha1.Algorithm{v1alpha1.RS256}
	must.Succeed(t, p.Validate())
	plan := Next(&v1alpha1.KeyRing{}, Observation{}, p, today())
	if got := fmt.Sprint(plan.Missing); got != "[RS256 RS256 X.509 X.509]" {
		t.Errorf("missing: %s", got)
	}
	for what, edit := range map[string]func(*Policy){
		"no issuer":                     func(p *Policy) { p.Issuer = "" },
		"no algorithm":                  func(p *Policy) { p.Algorithms = nil },
		"nothing":                       func(p *Policy) { *p = Policy{PublishDelay: day, RotationPeriod: 2 * day, MaxLife: 1} },
		"import without a trust domain": func(p *Policy) { p.TrustDomain, p.Import = spiffeid.TrustDomain{}, true },
	} {
		bad := p
		edit(&bad)
		if bad.Validate() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// TestWishesForAuthorities checks that Confirm, Rotate and Revoke work for authorities, as they do
// for keys.
func TestWishesForAuthorities(t *testing.T) {
	w := newTrust(t)
	w.settle()
	standby := w.ring.Status.Authorities[1].ID
	if err := Confirm(w.ring, standby, true); err != nil {
		t.Error(err)
	}
	Rotate(w.ring, w.now)
	w.settle()
	w.want("confirmed and rotated", "Retiring, Active, Published")
	c, err := ConsequencesOf(w.ring, standby, w.now)
	if err != nil || c.Successor != w.ring.Status.Authorities[2].ID || c.SuccessorCached || !c.ValidUntil.Equal(w.now.Add(time.Hour)) {
		t.Errorf("%+v, %v", c, err)
	}
	if text := strings.Join(c.Lines(), "\n"); !strings.Contains(text, "Authority "+standby) || !strings.Contains(text, "no verifier asks") {
		t.Error(text)
	}
	if err := Revoke(w.ring, standby); err != nil {
		t.Error(err)
	}
	if err := Confirm(w.ring, standby, false); err == nil {
		t.Error("an active authority is confirmed")
	}
}

// TestParseAuthorityEntry checks that an entry which does not fit its certificates is not used.
func TestParseAuthorityEntry(t *testing.T) {
	w := newTrust(t)
	w.issue(90 * day)
	w.settle()
	if ring, err := Parse(&w.ring.Status); err != nil || len(ring.PublicAuthorities()) != 1 || !ring.Accepts(w.active().ID) {
		t.Fatal(err)
	} else if a, found := ring.ActiveAuthority(); !found || a.ID != w.active().ID {
		t.Error("the active authority is not found")
	}
	other := newTrust(t)
	other.settle()
	for what, edit := range map[string]func(*v1alpha1.Authority){
		"another certificate":  func(a *v1alpha1.Authority) { a.Certificate = other.active().Certificate },
		"another intermediate": func(a *v1alpha1.Authority) { a.Intermediate = other.active().Certificate },
		"no intermediate":      func(a *v1alpha1.Authority) { a.Intermediate = "" },
		"another ID":           func(a *v1alpha1.Authority) { a.ID = other.active().ID },
		"another key":          func(a *v1alpha1.Authority) { a.KID = other.active().KID },
		"no PEM":               func(a *v1alpha1.Authority) { a.Certificate = "x" },
		"two certificates":     func(a *v1alpha1.Authority) { a.Certificate += a.Certificate },
	} {
		status := w.ring.Status.DeepCopy()
		edit(&status.Authorities[0])
		ring, err := Parse(status)
		if err == nil || len(ring.PublicAuthorities()) != 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
}
