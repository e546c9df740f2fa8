package keyring

import (
	"slices"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// Role is the purpose of a key: to sign JWTs with one algorithm, or to sign X.509-SVIDs. A ring has
// at most one active key for each role.
type Role string

// X509 is the role of an authority, which signs X.509-SVIDs. A key that signs JWTs has the name of
// its algorithm as its role, such as RS256.
const X509 Role = "X.509"

// Entry is a key or an authority of a ring, with its state.
type Entry struct {
	// ID is the kid of a key, or the SHA-256 digest of an authority's certificate.
	ID string
	// KID is the kid of the private key with which the entry signs. For a key, KID and ID are
	// equal. For an imported authority, KID is the kid of the intermediate's key.
	KID string
	// Role is the purpose of the entry.
	Role Role
	// KeyLife is the entry's state. It points into the status, so a change of it changes the
	// status.
	*v1alpha1.KeyLife
	// Authority is nil for a key.
	Authority *v1alpha1.Authority
}

// Entries returns the keys of a ring, and then its authorities. The entries point into the status.
func Entries(status *v1alpha1.KeyRingStatus) []Entry {
	entries := make([]Entry, 0, len(status.Keys)+len(status.Authorities))
	for i := range status.Keys {
		k := &status.Keys[i]
		entries = append(entries, Entry{ID: k.KID, KID: k.KID, Role: Role(k.Algorithm), KeyLife: &k.KeyLife})
	}
	for i := range status.Authorities {
		a := &status.Authorities[i]
		entries = append(entries, Entry{ID: a.ID, KID: a.KID, Role: X509, KeyLife: &a.KeyLife, Authority: a})
	}
	return entries
}

// Find returns the entry with an ID.
func Find(status *v1alpha1.KeyRingStatus, id string) (entry Entry, found bool) {
	for _, e := range Entries(status) {
		if e.ID == id {
			return e, true
		}
	}
	return Entry{}, false
}

// Waiting reports whether an entry is Pending or Published, so has not signed yet.
func (e Entry) Waiting() bool {
	return e.State == v1alpha1.KeyPending || e.State == v1alpha1.KeyPublished
}

// imported reports whether an entry is an authority that came from a Secret.
func (e Entry) imported() bool { return e.Authority != nil && e.Authority.Imported }

// noun returns the word for an entry of the role in messages.
func (r Role) noun() string {
	if r == X509 {
		return "authority"
	}
	return "key"
}

// document returns the name of the document that publishes entries of the role, for texts that
// people read.
func (r Role) document() string {
	if r == X509 {
		return "public SPIFFE bundle"
	}
	return "public document"
}

// deleteEntries drops the keys and authorities for which the function match returns true.
func deleteEntries(status *v1alpha1.KeyRingStatus, match func(Entry) bool) {
	gone := map[string]bool{}
	for _, e := range Entries(status) {
		gone[e.ID] = match(e)
	}
	status.Keys = slices.DeleteFunc(status.Keys, func(k v1alpha1.RingKey) bool { return gone[k.KID] })
	status.Authorities = slices.DeleteFunc(status.Authorities, func(a v1alpha1.Authority) bool { return gone[a.ID] })
}
