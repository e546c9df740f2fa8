package keyring

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth/svid"
)

// Plan is the next step of a ring. If Changed is true, the step only writes Status, and a later
// step makes keys. So a change of state is written even if keys cannot be made.
type Plan struct {
	// Status is the ring's new status. It is written if Changed is true, or after keys or
	// certificates have been made.
	Status v1alpha1.KeyRingStatus
	// Changed is true if Status differs from the ring's status.
	Changed bool
	// Missing are the roles that need a new key, one entry per key. The caller first makes the
	// keys, and then adds them to Status by AddKey or AddAuthority. So the ring never lists a key
	// without a private half.
	Missing []Role
	// Import is true if the CA in [Observation].Import must become an authority. The caller makes a
	// key, and this CA signs an intermediate for it. Then the caller passes the authority to
	// AddAuthority.
	Import bool
	// Renew is the ID of the imported authority that needs a new intermediate; empty for no
	// authority. The CA signs the intermediate. The caller passes the authority with the new
	// intermediate to Renewed.
	Renew string
}

// Makes reports whether keys or certificates must be made.
func (p *Plan) Makes() bool { return len(p.Missing) > 0 || p.Import || p.Renew != "" }

// AddKey adds a key that was just made.
func (p *Plan) AddKey(key Key, now time.Time) error {
	entry, err := key.Entry()
	if err != nil {
		return err
	}
	entry.CreatedAt = stamp(now)
	p.Status.Keys = append(p.Status.Keys, entry)
	return nil
}

// AddAuthority adds an authority that was just made or imported.
func (p *Plan) AddAuthority(a Authority, now time.Time) {
	entry := a.Entry()
	entry.CreatedAt = stamp(now)
	p.Status.Authorities = append(p.Status.Authorities, entry)
}

// Renewed writes an authority's new intermediate into the plan's status.
func (p *Plan) Renewed(a Authority) {
	for i := range p.Status.Authorities {
		if entry := &p.Status.Authorities[i]; entry.ID == a.ID && entry.KID == a.Key.ID {
			entry.Intermediate = svid.EncodeCertificate(a.Intermediate)
		}
	}
}

// Revocation returns a plan that only revokes keys and activates their successors. It needs only
// Held and Revision of the observation, so that a revocation waits for nothing else. Conditions
// stay as they are.
func Revocation(ring *v1alpha1.KeyRing, o Observation, p Policy, now time.Time) Plan {
	t := turn{spec: &ring.Spec, status: ring.Status.DeepCopy(), observed: o, policy: p, now: now}
	t.revoke()
	if equality.Semantic.DeepEqual(&ring.Status, t.status) {
		return Plan{Status: *t.status}
	}
	// Check now whether the ring was restored from a backup. This plan increments status.revision.
	// After that, the next step might no longer see that the status is old.
	t.noticeHistory()
	return t.plan(ring)
}

// Next returns the next step of a ring. It reads no clock and does no I/O. If the observation stays
// the same, the status stops changing after a few steps.
//
// Every step carries out revocations. All other changes happen only if the clocks of the token
// server and the API server agree. Foreign keys (see foreignKeys) stop only rotation: the ring
// still makes and publishes new keys, and removes expired keys.
func Next(ring *v1alpha1.KeyRing, o Observation, p Policy, now time.Time) Plan {
	t := turn{spec: &ring.Spec, status: ring.Status.DeepCopy(), observed: o, policy: p, now: now}
	t.revoke()
	if t.clocksAgree() {
		t.noticeHistory()
		t.observe()
		if t.foreignKeys() == nil {
			t.rotate()
		}
		t.expire()
	}
	t.status.ObservedGeneration = ring.Generation
	t.status.Issuer, t.status.TrustDomain = p.Issuer, p.TrustDomain.Name()
	t.status.PublishDelay = metav1.Duration{Duration: p.PublishDelay}
	t.report()
	plan := t.plan(ring)
	if t.clocksAgree() {
		plan.Missing = t.missing()
		plan.Import, plan.Renew = t.imports(), t.renews()
	}
	if plan.Makes() && !plan.Changed {
		plan.Status.Revision++
	}
	return plan
}

// plan returns a Plan with the new status. Next then adds what must be made.
func (t *turn) plan(ring *v1alpha1.KeyRing) Plan {
	changed := !equality.Semantic.DeepEqual(&ring.Status, t.status)
	if changed {
		t.status.Revision++
	}
	return Plan{Status: *t.status, Changed: changed}
}

// turn calculates one step of a ring. Its methods change the field status.
type turn struct {
	spec     *v1alpha1.KeyRingSpec
	status   *v1alpha1.KeyRingStatus
	observed Observation
	policy   Policy
	now      time.Time
}

// entries returns the keys and authorities of the changed status.
func (t *turn) entries() []Entry { return Entries(t.status) }

// revoke revokes the keys that the spec or the policy lists. Several authorities can have the same
// key. If one of them is revoked, revoke also revokes the others. If a revoked key was active, its
// successor signs from now on, although verifiers may not have the successor yet.
func (t *turn) revoke() {
	if len(t.spec.Revoke)+len(t.policy.Revoked) > 0 {
		for _, e := range t.entries() {
			if t.revokes(e.ID) || t.revokes(certifiedKey(e)) {
				t.revokeEntry(e)
			}
		}
	}
	if t.hasRevoked(X509) {
		for _, e := range t.entries() {
			if e.Authority != nil && t.keyRevoked(certifiedKey(e)) {
				t.revokeEntry(e)
			}
		}
	}
	for _, r := range t.policy.roles() {
		if t.active(r) == nil && t.hasRevoked(r) {
			t.activate(t.find(r, t.published))
		}
	}
}

func (t *turn) revokeEntry(e Entry) {
	if e.State == v1alpha1.KeyRevoked {
		return
	}
	t.end(e, v1alpha1.KeyRevoked)
	t.taint(e.Role)
}

// revokes reports whether the spec or the policy lists an ID as revoked. The ID may be the
// thumbprint of an authority's key.
func (t *turn) revokes(id string) bool {
	return id != "" && (slices.Contains(t.spec.Revoke, id) || slices.Contains(t.policy.Revoked, id))
}

// taint marks the keys that verifiers may have cached together with a revoked key. Verifiers drop
// the revoked key when they read the document again. A verifier reads it again when it meets a key
// that is not in its cache. A marked key may already be in the cache. Then it has no such effect.
// The ring therefore replaces the marked keys with new keys.
//
// Authorities are not marked. An unknown authority does not make verifiers read the bundle again,
// so new authorities would not help.
func (t *turn) taint(r Role) {
	if r == X509 {
		return
	}
	for _, e := range t.entries() {
		if e.Role == r && (e.Waiting() || e.State == v1alpha1.KeyActive) {
			e.Tainted = true
		}
	}
}

// noticeHistory finds out whether the KeyRing was restored from a backup. It also finds out whether
// the issuer or the trust domain has changed. In these cases, verifiers may have cached a document
// that lacks the published keys. So these keys become pending, and their publish delay begins anew.
func (t *turn) noticeHistory() {
	restored := t.observed.Revision > t.status.Revision
	if restored {
		t.status.Revision = t.observed.Revision // later steps must not detect this restore again
	}
	moved := t.status.Issuer != "" && t.status.Issuer != t.policy.Issuer
	renamed := t.status.TrustDomain != "" && t.status.TrustDomain != t.policy.TrustDomain.Name()
	for _, e := range t.entries() {
		switch {
		case renamed && e.Role == X509: // the certificate is for the former trust domain
			t.abandon(e)
		case (restored || moved || renamed) && e.State == v1alpha1.KeyPublished:
			e.State, e.PublishedAt = v1alpha1.KeyPending, nil
		}
	}
	if len(t.everActive()) == 0 && (restored || moved || t.observed.EarlierKeys || len(t.strangersInDocument()) > 0) {
		t.status.OtherKeysSeen = true
	}
}

// abandon stops a key from signing. Everything that the key has signed stays valid.
func (t *turn) abandon(e Entry) {
	switch {
	case e.State == v1alpha1.KeyActive:
		e.State, e.RetiredAt = v1alpha1.KeyRetiring, new(stamp(t.now))
	case e.Waiting():
		t.end(e, v1alpha1.KeyRemoved)
	}
}

// observe moves keys to Published if verifiers can see them, and back to Pending if they cannot.
func (t *turn) observe() {
	for _, e := range t.entries() {
		seen := t.seen(e)
		switch {
		case e.State == v1alpha1.KeyPending && seen:
			// Round the time up, so that the delay does not begin before the key was seen.
			e.State, e.PublishedAt = v1alpha1.KeyPublished, new(stamp(t.now.Add(time.Second-1)))
		case e.State == v1alpha1.KeyPublished && !seen && t.observed.Document != nil:
			e.State, e.PublishedAt = v1alpha1.KeyPending, nil
		}
	}
}

// rotate replaces each active key that is due, if its successor may sign.
func (t *turn) rotate() {
	may := t.maySign() // before the loop: activate changes the result of maySign
	for _, r := range t.policy.roles() {
		old := t.active(r)
		if !t.due(r, old) {
			continue
		}
		successor := t.find(r, may)
		if successor == nil {
			continue
		}
		if old != nil {
			t.abandon(*old)
		}
		t.activate(successor)
		t.dropTainted(r)
	}
}

// due reports whether the active key must be replaced. It returns true if there is no active key.
func (t *turn) due(r Role, active *Entry) bool {
	switch {
	case active == nil || active.Tainted || active.Rotation != t.spec.Rotate || !t.fits(*active):
		return true
	case active.imported():
		return t.find(r, func(e Entry) bool { return e.Waiting() && e.imported() }) != nil
	default:
		return t.ending(*active) || !t.now.Before(active.ActivatedAt.Add(t.policy.RotationPeriod))
	}
}

// maySign returns the condition that a key must meet to become active.
func (t *turn) maySign() func(Entry) bool {
	ever := t.everActive()
	return func(e Entry) bool {
		active := t.active(e.Role)
		if !t.published(e) || !t.seen(e) || (e.Tainted && active != nil) {
			return false
		}
		// The first JWT key and the first authority need not wait. No entry of their kind was ever
		// active, so verifiers have none in their caches.
		first := !ever[e.Role == X509] && !t.status.OtherKeysSeen
		urgent := (active == nil && t.hasRevoked(e.Role)) || (active != nil && t.ended(*active))
		return first || urgent || t.confirmation(e.ID).SkipDelay || !t.now.Before(t.readyAt(e))
	}
}

// readyAt returns the time at which a published key's publish delay is over.
func (t *turn) readyAt(e Entry) time.Time { return e.PublishedAt.Add(t.policy.PublishDelay) }

// activate makes e the active key. It does nothing if e is nil.
func (t *turn) activate(e *Entry) {
	if e == nil {
		return
	}
	e.State, e.ActivatedAt, e.Rotation = v1alpha1.KeyActive, new(stamp(t.now)), t.spec.Rotate
	e.MaxLife = metav1.Duration{Duration: t.policy.MaxLife}
}

// dropTainted removes the waiting tainted keys of a role once an untainted key of the role signs. A
// key is tainted if verifiers may have cached it together with a key that is now revoked. These
// verifiers trust the revoked key until they read the public document again. They do that when a
// token has a key that they have not cached. But they have cached the tainted key, so its tokens
// have no such effect. Therefore no tainted key may sign from now on.
func (t *turn) dropTainted(r Role) {
	if active := t.active(r); active == nil || active.Tainted {
		return
	}
	for _, e := range t.entries() {
		if e.Role == r && e.Tainted && e.Waiting() {
			t.end(e, v1alpha1.KeyRemoved)
		}
	}
}

// expire ends the keys that nobody needs any more. It retires the active key of a role that the
// policy no longer has. It removes retiring keys whose tokens and certificates have expired, and
// waiting keys that are not needed. It deletes the entry of a removed or revoked key, but
// only when no verifier can have a cached document with this key.
//
// If the policy now allows a longer life, expire raises MaxLife of the active keys. It never lowers
// MaxLife, because tokens and certificates that were signed under the former policy may live that
// long.
func (t *turn) expire() {
	for _, e := range t.entries() {
		wanted := slices.Contains(t.policy.roles(), e.Role)
		switch {
		case e.State == v1alpha1.KeyActive && wanted:
			e.MaxLife.Duration = max(e.MaxLife.Duration, t.policy.MaxLife)
		case e.State == v1alpha1.KeyRetiring && !t.now.Before(removableAt(e)):
			t.end(e, v1alpha1.KeyRemoved)
		case !wanted, e.Waiting() && (!t.fits(e) || t.ending(e) || t.superseded(e)):
			t.abandon(e)
		}
	}
	deleteEntries(t.status, func(e Entry) bool {
		return e.RemovedAt != nil && !t.now.Before(e.RemovedAt.Add(t.policy.PublishDelay+e.MaxLife.Duration+removalSlack)) &&
			!t.replacing(e) && !t.blocks(e)
	})
}

// removableAt returns the time at which a retiring key can be removed. By then, every token and
// certificate that the key signed has expired.
func removableAt(e Entry) time.Time {
	return e.RetiredAt.Add(e.MaxLife.Duration + removalSlack)
}

// replacing reports whether a revoked key has no replacement yet: its role has no active key, or
// the active key is tainted.
func (t *turn) replacing(e Entry) bool {
	active := t.active(e.Role)
	return e.State == v1alpha1.KeyRevoked && slices.Contains(t.policy.roles(), e.Role) && (active == nil || active.Tainted)
}

// missing returns the roles that need new keys. Each role needs two keys: one signs, and one is its
// successor. A role that lacks both keys is in the result twice. If the policy imports authorities,
// the ring makes none, so X509 is not in the result.
func (t *turn) missing() []Role {
	var missing []Role
	for _, r := range t.policy.roles() {
		if r == X509 && t.policy.Import {
			continue
		}
		good := 0
		for _, e := range t.entries() {
			if e.Role == r && !e.Tainted && t.fits(e) && (e.Waiting() || e.State == v1alpha1.KeyActive) {
				good++
			}
		}
		for ; good < 2; good++ {
			missing = append(missing, r)
		}
	}
	return missing
}

// end takes a key out of the public document: the new state is Removed or Revoked.
func (t *turn) end(e Entry, state v1alpha1.KeyState) {
	e.State, e.RemovedAt = state, new(stamp(t.now))
}

func (t *turn) clocksAgree() bool { return t.observed.Skew.Abs() <= MaxSkew }

// published reports whether a key is published and can sign.
func (t *turn) published(e Entry) bool {
	return e.State == v1alpha1.KeyPublished && t.held(e) && t.fits(e) && !t.ended(e)
}

// held reports whether the store has the private half of a key. All kids in Observation.Held are
// thumbprints, so an entry with a wrong kid is not held.
func (t *turn) held(e Entry) bool { return slices.Contains(t.observed.Held, e.KID) }

// seen reports whether verifiers can see a key now: the observed document has the key, or a person
// has confirmed it.
func (t *turn) seen(e Entry) bool {
	return t.observed.Document.has(e.ID) || t.confirmation(e.ID).KID != ""
}

// confirmation returns the spec's confirmation of a key, or the zero value if there is none.
func (t *turn) confirmation(id string) v1alpha1.KeyConfirmation {
	for _, c := range t.spec.Confirm {
		if c.KID == id {
			return c
		}
	}
	return v1alpha1.KeyConfirmation{}
}

// find returns the oldest entry of a role that meets the condition, or nil.
func (t *turn) find(r Role, meets func(Entry) bool) *Entry {
	for _, e := range t.entries() {
		if e.Role == r && meets(e) {
			return &e
		}
	}
	return nil
}

// active returns the key that signs for the role, or nil.
func (t *turn) active(r Role) *Entry {
	return t.find(r, func(e Entry) bool { return e.State == v1alpha1.KeyActive })
}

func (t *turn) hasRevoked(r Role) bool {
	return t.find(r, func(e Entry) bool { return e.State == v1alpha1.KeyRevoked }) != nil
}

// everActive says whether an entry of the ring was ever active. result[true] is for the
// authorities, and result[false] is for the JWT keys. Entries that were deleted from the ring do
// not count.
func (t *turn) everActive() map[bool]bool {
	ever := map[bool]bool{}
	for _, e := range t.entries() {
		if e.ActivatedAt != nil {
			ever[e.Role == X509] = true
		}
	}
	return ever
}

// foreignKeys returns a sentence for each foreign key. A public key of the ring is foreign if the
// store does not have its private half. A key of the public document is foreign if it is not in the
// ring.
func (t *turn) foreignKeys() []string {
	var foreign []string
	for _, e := range t.entries() {
		if Public(e.State) && !t.held(e) {
			foreign = append(foreign, fmt.Sprintf("the ring's %s %s (%s) has no private half", e.Role.noun(), e.ID, e.State))
		}
	}
	for _, id := range t.strangersInDocument() {
		foreign = append(foreign, fmt.Sprintf("the public document has the key %q, which is not in the ring", id))
	}
	return foreign
}

// strangersInDocument returns the keys of the public document that are not in the ring. Removed and
// revoked keys of the ring are not strangers, because a cached document may still have them.
func (t *turn) strangersInDocument() []string {
	if t.observed.Document == nil {
		return nil
	}
	strangers := slices.Clone(t.observed.Document.Invalid)
	for _, id := range slices.Concat(t.observed.Document.KIDs, t.observed.Document.Partial) {
		if _, ours := Find(t.status, id); !ours {
			strangers = append(strangers, id)
		}
	}
	return strangers
}

// stamp returns a time as the API stores it: in UTC and whole seconds.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
