package keyring

import (
	"time"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// margin plus the publish delay is the time that a new authority needs to take over. The margin
// covers the life of an X.509-SVID, and delays between the steps of the ring.
const margin = 2 * time.Hour

// maxAuthorities is the maximum number of authorities that the schema of KeyRing allows.
const maxAuthorities = 16

// Import is the CA in the Secret from which authorities are imported.
type Import struct {
	// ID is the SHA-256 digest of the CA's certificate, like [Authority].ID. It is empty if Problem
	// is set.
	ID string
	// Key is the thumbprint of the CA's public key. A renewed certificate may have the same key.
	Key string
	// NotAfter is when the CA expires, UTC.
	NotAfter time.Time
	// Problem tells people why the CA cannot be used, and what to do. The text stays the same while
	// the Secret stays the same. It is empty for a CA that can be used.
	Problem string
}

// IntermediateLife is how long an intermediate of an imported authority is valid, unless the CA
// expires earlier. After half of this time, the imported CA signs a new intermediate. So while the
// Secret has this CA, the last intermediate is valid for at least half of IntermediateLife more.
//
// This matters when a new CA replaces the imported CA in the Secret: the old CA then signs no more
// intermediates. Its last intermediate remains in use until verifiers know the new CA. Half of
// IntermediateLife is enough for this, because it is longer than PublishDelay.
func (p Policy) IntermediateLife() time.Duration { return 2 * (p.PublishDelay + margin) }

// AuthorityLife is how long an authority that the ring makes is valid. The authority waits as the
// successor for one rotation period, and signs for a second period. If a rotation fails, people
// have a third period to repair it. After that, there is still time to publish the next authority.
func (p Policy) AuthorityLife() time.Duration { return 3*p.RotationPeriod + 2*(p.PublishDelay+margin) }

// imports reports whether the observed CA must become an authority.
func (t *turn) imports() bool {
	i := t.observed.Import
	if !t.policy.Import || i == nil || i.Problem != "" || len(t.status.Authorities) >= maxAuthorities {
		return false
	}
	_, known := Find(t.status, i.ID)
	return !known && !t.keyRevoked(i.Key)
}

// keyRevoked reports whether the key with this thumbprint, or an authority with this key, was
// revoked. Whoever has a revoked key can sign under each certificate of the key. So a new
// certificate must not bring the key back.
func (t *turn) keyRevoked(key string) bool {
	if key == "" { // the certificate could not be parsed
		return false
	}
	return t.revokes(key) || t.find(X509, func(e Entry) bool {
		return e.State == v1alpha1.KeyRevoked && certifiedKey(e) == key
	}) != nil
}

// blocks reports whether a revoked authority must stay in the ring, so that its key is not
// forgotten while the Secret may still have it.
func (t *turn) blocks(e Entry) bool {
	if e.State != v1alpha1.KeyRevoked || !e.imported() || !t.policy.Import {
		return false
	}
	i := t.observed.Import
	return i == nil || i.Problem != "" || i.Key == certifiedKey(e)
}

// renews returns the ID of the authority whose intermediate the CA must sign again; empty for none.
func (t *turn) renews() string {
	i := t.observed.Import
	if !t.policy.Import || i == nil || i.Problem != "" {
		return ""
	}
	e, known := Find(t.status, i.ID)
	if !known || !e.Waiting() && e.State != v1alpha1.KeyActive {
		return ""
	}
	ends := t.notAfter(e)
	if !ends.Before(t.now.Add(t.policy.IntermediateLife()/2)) || !ends.Before(i.NotAfter) {
		return ""
	}
	return e.ID
}

// fits reports whether an authority has the origin that the policy wants: imported, or made by the
// ring. A JWT key always fits.
func (t *turn) fits(e Entry) bool { return e.Authority == nil || e.imported() == t.policy.Import }

// superseded reports whether the waiting entry e may be dropped. This is so if all of the following
// hold:
//   - e is an imported authority
//   - the Secret now has a usable CA, which is not that of e
//   - an older authority waits too
//
// Dropping e keeps the ring small if the Secret changes faster than the publish delay.
func (t *turn) superseded(e Entry) bool {
	i := t.observed.Import
	if !e.imported() || i == nil || i.ID == "" || e.ID == i.ID {
		return false
	}
	oldest := t.find(X509, Entry.Waiting)
	return oldest.ID != e.ID
}

// ending reports whether an authority that the ring made expires within the publish delay plus
// margin.
func (t *turn) ending(e Entry) bool {
	return e.Authority != nil && !e.imported() && t.notAfter(e).Before(t.now.Add(t.policy.PublishDelay+margin))
}

// ended reports whether an authority has expired.
func (t *turn) ended(e Entry) bool { return e.Authority != nil && !t.now.Before(t.notAfter(e)) }

// notAfter returns the time at which an authority expires, or the zero time if the authority cannot
// be parsed.
func (t *turn) notAfter(e Entry) time.Time {
	a, err := ParseAuthority(e.Authority)
	if err != nil {
		return time.Time{}
	}
	return a.NotAfter()
}

// importProblem returns why the CA of the Secret does not become an authority, or nil.
func (t *turn) importProblem() *finding {
	i := t.observed.Import
	if !t.policy.Import || i == nil {
		return nil
	}
	if i.Problem != "" {
		return &finding{v1alpha1.ReasonImportFailed, i.Problem}
	}
	e, known := Find(t.status, i.ID)
	switch {
	case !known && !t.keyRevoked(i.Key) && len(t.status.Authorities) >= maxAuthorities:
		return &finding{
			v1alpha1.ReasonImportFailed, "the CA of --spiffe-secret-name changes faster than the publish delay: renew it less often",
		}
	case t.keyRevoked(i.Key):
		return &finding{v1alpha1.ReasonImportFailed, "the key of the CA of --spiffe-secret-name is revoked: put a CA with a new key into the Secret (with cert-manager, privateKey.rotationPolicy: Always)"}
	case known && (e.State == v1alpha1.KeyRemoved || e.State == v1alpha1.KeyRetiring):
		return &finding{
			v1alpha1.ReasonImportFailed,
			"the CA of --spiffe-secret-name is " + string(e.State) + " in the ring: put a new CA into the Secret",
		}
	}
	return nil
}
