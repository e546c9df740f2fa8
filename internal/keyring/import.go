package keyring

import (
	"time"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// margin is how much longer than the publish delay an authority must be able to sign, so that its
// successor can take over in time: the life of what it signs, and time to look again.
const margin = 2 * time.Hour

// maxAuthorities is the bound of the schema.
const maxAuthorities = 16

// Import is the CA in the Secret that authorities are imported from.
type Import struct {
	// ID is the ID of the authority; empty if Problem is set.
	ID string
	// Key is the thumbprint of the CA's public key. A renewed certificate may have the same key.
	Key string
	// NotAfter is when the CA expires, UTC.
	NotAfter time.Time
	// Problem says why the CA cannot be used, and what to do, for people. It is the same as long as
	// the Secret is. Empty for none.
	Problem string
}

// IntermediateLife is how long an intermediate of an imported authority is valid. After half of
// this it is signed again. So if the Secret gets another CA, the ring signs on by the former until
// the new one was published for the delay.
func (p Policy) IntermediateLife() time.Duration { return 2 * (p.PublishDelay + margin) }

// AuthorityLife is how long an authority that the ring makes is valid. It waits for one rotation
// period as the successor, signs for another, and the third leaves time for people to help.
func (p Policy) AuthorityLife() time.Duration { return 3*p.RotationPeriod + 2*(p.PublishDelay+margin) }

// imports reports whether the observed CA is to become an authority.
func (t *turn) imports() bool {
	i := t.observed.Import
	if !t.policy.Import || i == nil || i.Problem != "" || len(t.status.Authorities) >= maxAuthorities {
		return false
	}
	_, known := Find(t.status, i.ID)
	return !known && !t.keyRevoked(i.Key)
}

// keyRevoked reports whether an authority with this key was revoked, or the key itself. Whoever has
// a revoked key can sign under each certificate of it, so that a new certificate must not bring the
// key back.
func (t *turn) keyRevoked(key string) bool {
	if key == "" { // of a certificate that cannot be read
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

// renews returns the ID of the authority whose intermediate is to be signed again; empty for none.
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

// fits reports whether an entry comes from where the policy wants it: an authority is imported, or
// made here.
func (t *turn) fits(e Entry) bool { return e.Authority == nil || e.imported() == t.policy.Import }

// superseded reports whether an imported authority that waits is needless: an older one waits,
// which takes over earlier, and the Secret has a newer one already. So a Secret that changes faster
// than the publish delay does not fill the ring.
func (t *turn) superseded(e Entry) bool {
	i := t.observed.Import
	if !e.imported() || i == nil || i.ID == "" || e.ID == i.ID {
		return false
	}
	oldest := t.find(X509, Entry.Waiting)
	return oldest.ID != e.ID
}

// ending reports whether an authority cannot sign for much longer than its successor needs.
func (t *turn) ending(e Entry) bool {
	return e.Authority != nil && !e.imported() && t.notAfter(e).Before(t.now.Add(t.policy.PublishDelay+margin))
}

// ended reports whether an authority cannot sign any more.
func (t *turn) ended(e Entry) bool { return e.Authority != nil && !t.now.Before(t.notAfter(e)) }

// notAfter returns when an authority can sign no more: the past if it cannot be read.
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
		return &finding{v1alpha1.ReasonImportFailed, "the CA of --spiffe-secret-name changes faster than the publish delay: renew it less often"}
	case t.keyRevoked(i.Key):
		return &finding{v1alpha1.ReasonImportFailed, "the key of the CA of --spiffe-secret-name is revoked: put a CA with a new key into the Secret (with cert-manager, privateKey.rotationPolicy: Always)"}
	case known && (e.State == v1alpha1.KeyRemoved || e.State == v1alpha1.KeyRetiring):
		return &finding{v1alpha1.ReasonImportFailed, "the CA of --spiffe-secret-name is " + string(e.State) + " in the ring: put a new CA into the Secret"}
	}
	return nil
}
