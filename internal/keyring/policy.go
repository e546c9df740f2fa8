package keyring

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// Bounds on which the safety of a ring depends.
const (
	// MaxViewAge is the maximum age of a signer's view of the ring. With an older view, a signer
	// signs nothing.
	MaxViewAge = time.Minute
	// MaxSkew is the maximum difference between the local clock and the API server's clock. With a
	// larger difference, changes that depend on time do not happen.
	MaxSkew = time.Minute
	// removalSlack is the time between the expiry of a key's last token and the removal of the key.
	// The time is needed because a signer may see the rotation late, and two clocks may differ.
	removalSlack = MaxViewAge + 2*MaxSkew
)

// Policy has the rules for the keys of a ring. The token server's flags set the Policy.
type Policy struct {
	// Issuer is the https URL of the issuer that signs with the keys. It is required, unless the
	// ring has only authorities.
	Issuer string
	// Algorithms are the algorithms for which the ring has keys. Keys of other algorithms retire.
	// At least one algorithm is required if Issuer is set.
	Algorithms []v1alpha1.Algorithm
	// TrustDomain is the SPIFFE trust domain for which the ring has authorities; zero if it has no
	// authorities.
	TrustDomain spiffeid.TrustDomain
	// Import is true if authorities come from Observation.Import. Otherwise the ring makes them.
	Import bool
	// PublishDelay is how long a key is in the public document before it signs. It must be longer
	// than any verifier caches the document. Default of the token server: 24 hours.
	PublishDelay time.Duration
	// RotationPeriod is how long a key is active. It must be at least twice PublishDelay.
	RotationPeriod time.Duration
	// MaxLife is the longest time that anything signed by the ring is valid.
	MaxLife time.Duration
	// Revoked are the IDs of keys that are revoked even if the ring does not say so. So a backup of
	// the cluster cannot bring these keys back.
	Revoked []string
}

// Validate returns an error that names all invalid fields.
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

// The maximum numbers of keys and authorities in a ring that rotates by schedule. The schema allows
// 64 and 16. The rest is for rotations that people request, and for revoked keys.
const (
	plannedKeys        = 48
	plannedAuthorities = 12
)

// checkSize returns an error if rotations by schedule would fill the ring.
func (p Policy) checkSize() error {
	periods := func(d time.Duration) int { return int((d + p.RotationPeriod - 1) / p.RotationPeriod) }
	expires := p.MaxLife + removalSlack
	// One key signs and one key waits. Former keys retire, and then stay in the ring until no cache
	// has them.
	each := 2 + periods(expires) + periods(p.PublishDelay+expires)
	if each*len(p.Algorithms) <= plannedKeys && (p.TrustDomain.IsZero() || each <= plannedAuthorities) {
		return nil
	}
	return fmt.Errorf("keyring: Policy.RotationPeriod %v is too short for a MaxLife of %v: the ring would need %d keys for each algorithm; rotate less often",
		p.RotationPeriod, p.MaxLife, each)
}

// Off reports whether the ring is switched off: it has neither issuer nor trust domain. Its keys do
// not sign, and leave the ring when everything that they have signed has expired.
func (p Policy) Off() bool { return p.Issuer == "" && p.TrustDomain.IsZero() }

// roles returns the roles for which the ring has keys.
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

// Observation has the facts that Next needs in addition to the KeyRing object and the policy.
type Observation struct {
	// Held are the kids of the keys whose private halves the token server has stored.
	Held []string
	// EarlierKeys is true if an earlier installation had published keys of its own. The evidence is
	// one of these facts:
	//   - The store has private halves of a KeyRing with another UID.
	//   - The status of a WorkloadIdentity names this issuer and an earlier KeyRing.
	EarlierKeys bool
	// Document is the public document as read at this step. It is nil if DocumentErr is set, or if
	// the token server does not know the document's URL. Without the URL, people must confirm which
	// keys are published.
	Document *Document
	// DocumentErr says why the document could not be read.
	DocumentErr error
	// Import is the CA in the Secret from which authorities are imported. It is nil without such a
	// Secret, or if the Secret could not be read this time.
	Import *Import
	// Skew is how far the local clock is ahead of the API server's clock; negative if it is behind.
	Skew time.Duration
	// Revision is the highest status.revision that the process has seen in a KeyRing of this name.
	// A ring with a lower revision comes from a backup.
	Revision int64
}

// Document has the IDs of the keys in the public document, as verifiers see it.
type Document struct {
	// KIDs are the kids of valid keys, and the IDs of authorities. The kid of a valid key is its
	// thumbprint.
	KIDs []string
	// Partial are the kids of keys that are in only one of two documents, the key set and the
	// SPIFFE bundle. So some verifiers can read these keys, and other verifiers cannot.
	Partial []string
	// Invalid are the kids of keys that no ring can have made: the key is malformed or not public,
	// or its kid is not its thumbprint.
	Invalid []string
}

// has reports whether the document has the key. Without a document, it returns false.
func (d *Document) has(kid string) bool { return d != nil && slices.Contains(d.KIDs, kid) }
