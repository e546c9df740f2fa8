package keyring

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// Bounds that a ring's safety rests on.
const (
	// MaxViewAge is how old a signer's view of the ring may be. An older view signs nothing.
	MaxViewAge = time.Minute
	// MaxSkew is how far a clock may be from the API server's. With a larger difference, nothing
	// changes that depends on time.
	MaxSkew = time.Minute
	// removalSlack passes between the end of the last token's life and the removal of its key: a
	// signer may have seen the rotation late, and two clocks may differ.
	removalSlack = MaxViewAge + 2*MaxSkew
)

// Policy is how the keys of a ring are kept. The token server's flags set it.
type Policy struct {
	// Issuer is the issuer whose keys these are, an https URL. Required, unless the ring has no keys
	// but only authorities.
	Issuer string
	// Algorithms are those that the ring has keys for. Keys of other algorithms retire. Required with
	// Issuer.
	Algorithms []v1alpha1.Algorithm
	// TrustDomain is the SPIFFE trust domain that the ring has authorities for; zero for none.
	TrustDomain spiffeid.TrustDomain
	// Import: authorities come from Observation.Import. Otherwise the ring makes them.
	Import bool
	// PublishDelay is how long a key is in the public document before it signs. It must be longer
	// than any verifier caches the document. Default of the token server: 24 hours.
	PublishDelay time.Duration
	// RotationPeriod is how long a key is active. At least twice PublishDelay.
	RotationPeriod time.Duration
	// MaxLife is the longest time that anything signed by the ring is valid.
	MaxLife time.Duration
	// Revoked are kids that are revoked whatever the ring says, so that a backup of the cluster
	// cannot bring them back.
	Revoked []string
}

// Validate returns an error that names the fields which do not make sense.
func (p Policy) Validate() error {
	var errs []error
	if p.Issuer == "" && p.TrustDomain.IsZero() {
		errs = append(errs, errors.New("keyring: Policy.Issuer or Policy.TrustDomain is required"))
	}
	if (len(p.Algorithms) == 0) != (p.Issuer == "") {
		errs = append(errs, errors.New("keyring: Policy.Algorithms needs at least one algorithm with an Issuer, and none without"))
	}
	if p.Import && p.TrustDomain.IsZero() {
		errs = append(errs, errors.New("keyring: Policy.Import needs a TrustDomain"))
	}
	known := []v1alpha1.Algorithm{v1alpha1.RS256, v1alpha1.ES256, v1alpha1.ES384}
	for _, a := range p.Algorithms {
		if !slices.Contains(known, a) {
			errs = append(errs, fmt.Errorf("keyring: Policy.Algorithms: %q is not RS256, ES256 or ES384", a))
		}
	}
	if p.PublishDelay <= 0 {
		errs = append(errs, errors.New("keyring: Policy.PublishDelay must be more than 0"))
	}
	if p.RotationPeriod < 2*p.PublishDelay {
		errs = append(errs, fmt.Errorf("keyring: Policy.RotationPeriod must be at least twice PublishDelay, %v", 2*p.PublishDelay))
	}
	if p.MaxLife <= 0 {
		errs = append(errs, errors.New("keyring: Policy.MaxLife must be more than 0"))
	}
	if len(errs) == 0 {
		errs = append(errs, p.checkSize())
	}
	return errors.Join(errs...)
}

// What a ring that rotates by schedule may have of keys and of authorities. The schema allows 64
// and 16: a quarter is for rotations that people ask for, and for revoked keys.
const (
	plannedKeys        = 48
	plannedAuthorities = 12
)

// checkSize returns an error if the ring would become full: then no key could follow another.
func (p Policy) checkSize() error {
	periods := func(d time.Duration) int { return int((d + p.RotationPeriod - 1) / p.RotationPeriod) }
	expires := p.MaxLife + removalSlack
	// One signs and one waits. Others retire, and are then remembered until no cache has them.
	each := 2 + periods(expires) + periods(p.PublishDelay+expires)
	if each*len(p.Algorithms) <= plannedKeys && (p.TrustDomain.IsZero() || each <= plannedAuthorities) {
		return nil
	}
	return fmt.Errorf("keyring: Policy.RotationPeriod %v is too short for a MaxLife of %v: the ring would need %d keys for each algorithm; rotate less often",
		p.RotationPeriod, p.MaxLife, each)
}

// Off reports whether the ring is switched off: it has neither issuer nor trust domain. Its keys
// sign no more, and leave the ring when all that they have signed has expired.
func (p Policy) Off() bool { return p.Issuer == "" && p.TrustDomain.IsZero() }

// roles returns what the ring signs.
func (p Policy) roles() []Role {
	roles := make([]Role, 0, len(p.Algorithms)+1)
	for _, a := range p.Algorithms {
		roles = append(roles, Role(a))
	}
	if !p.TrustDomain.IsZero() {
		roles = append(roles, X509)
	}
	return roles
}

// Observation is what Next must know of the world besides the object.
type Observation struct {
	// Held are the kids of the keys whose private half we have.
	Held []string
	// EarlierKeys says that an earlier installation had published other keys: there are private
	// halves of a KeyRing of another UID, or identities whose tokens such a ring has signed.
	EarlierKeys bool
	// Document is the public document, read just now. It is nil if DocumentErr is set, or if the
	// token server was not told where the document is: then people confirm keys.
	Document *Document
	// DocumentErr says why the document could not be read.
	DocumentErr error
	// Import is the CA in the Secret that authorities are imported from. It is nil without such a
	// Secret, or if the Secret could not be read this time.
	Import *Import
	// Skew is how far the local clock is ahead of the API server's, negative if it is behind.
	Skew time.Duration
	// Revision is the highest status.revision of this object's name that the process has seen.
	Revision int64
}

// Document is what the public document has, as verifiers see it.
type Document struct {
	// KIDs are the keys whose kid is their thumbprint, and the IDs of authorities.
	KIDs []string
	// Partial are the keys that some verifiers see and others do not, because only one of two
	// documents has them.
	Partial []string
	// Invalid are the kids of all other keys, which cannot be ours.
	Invalid []string
}

// has reports whether the document has the key. It is false without a document.
func (d *Document) has(kid string) bool { return d != nil && slices.Contains(d.KIDs, kid) }
