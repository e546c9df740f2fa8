package keyring

import (
	"errors"
	"slices"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// IssuerRing is the name of the KeyRing of the issuer that signs tokens for WorkloadIdentities.
const IssuerRing = v1alpha1.IssuerKeyRing

// SPIFFERing is the name of the KeyRing of the SPIFFE trust domain.
const SPIFFERing = v1alpha1.SPIFFEKeyRing

// Ring has the checked keys and authorities of a KeyRing's status. Its zero value is empty, so that
// [Ring.Accepts] returns false for every ID.
type Ring struct {
	keys        []RingKey
	authorities []RingAuthority
}

// RingKey is a Key with its entry in a ring.
type RingKey struct {
	Key
	// Entry is the entry of the status. It must not be changed.
	Entry *v1alpha1.RingKey
}

// RingAuthority is an Authority with its entry in a ring.
type RingAuthority struct {
	Authority

	// Entry is the entry of the status. It must not be changed.
	Entry *v1alpha1.Authority
}

// Parse checks the keys and authorities of a ring. It omits:
//   - a key whose kid is not the thumbprint of its public half
//   - a key whose entry has another algorithm
//   - an authority whose certificates do not fit its entry
//
// The error names each omitted entry. The Ring has all other entries, and may be used despite the
// error.
func Parse(status *v1alpha1.KeyRingStatus) (Ring, error) {
	var (
		ring Ring
		errs []error
	)
	for i := range status.Keys {
		key, err := parseKey(&status.Keys[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ring.keys = append(ring.keys, RingKey{Key: key, Entry: &status.Keys[i]})
	}
	for i := range status.Authorities {
		authority, err := ParseAuthority(&status.Authorities[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ring.authorities = append(ring.authorities, RingAuthority{Authority: authority, Entry: &status.Authorities[i]})
	}
	return ring, errors.Join(errs...)
}

// Public returns the keys that the public document must have, in the order in which they were made.
// If there are no keys, discovery answers 503 instead of an empty document. A verifier would cache
// the empty document and trust nothing.
func (r Ring) Public() []Key {
	var keys []Key
	for _, k := range r.keys {
		if Public(k.Entry.State) {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// PublicAuthorities returns the authorities that the public SPIFFE bundle must have, in the order
// in which they joined the ring.
func (r Ring) PublicAuthorities() []Authority {
	var authorities []Authority
	for _, a := range r.authorities {
		if Public(a.Entry.State) {
			authorities = append(authorities, a.Authority)
		}
	}
	return authorities
}

// ActiveAuthority returns the authority that signs.
func (r Ring) ActiveAuthority() (active RingAuthority, found bool) {
	for _, a := range r.authorities {
		if a.Entry.State == v1alpha1.KeyActive {
			return a, true
		}
	}
	return RingAuthority{}, false
}

// ActiveKeys returns the keys that sign, at most one for each algorithm.
func (r Ring) ActiveKeys() []RingKey {
	var keys []RingKey
	for _, k := range r.keys {
		if k.Entry.State == v1alpha1.KeyActive {
			keys = append(keys, k)
		}
	}
	return keys
}

// Accepts reports whether tokens of the key with this kid may be used. For the ID of an authority,
// it reports whether certificates of this authority may be used. It is false if the ring has
// revoked or removed the key or authority, or does not have it.
func (r Ring) Accepts(id string) bool {
	return slices.ContainsFunc(r.keys, func(k RingKey) bool { return k.ID == id && Public(k.Entry.State) }) ||
		slices.ContainsFunc(r.authorities, func(a RingAuthority) bool { return a.ID == id && Public(a.Entry.State) })
}

// Public reports whether the public document has the keys that are in this state.
func Public(state v1alpha1.KeyState) bool {
	switch state {
	case v1alpha1.KeyPending, v1alpha1.KeyPublished, v1alpha1.KeyActive, v1alpha1.KeyRetiring:
		return true
	default: // Removed, Revoked, and states of later versions
		return false
	}
}
