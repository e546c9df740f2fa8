package keyring

import (
	"fmt"
	"slices"
	"time"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

// Rotate requests a rotation of the ring: it writes the time into spec.rotate. The caller must then
// update the object, with its resourceVersion.
func Rotate(ring *v1alpha1.KeyRing, now time.Time) {
	ring.Spec.Rotate = now.UTC().Format(time.RFC3339)
}

// Confirm records in the ring's spec that verifiers can read the key in the public document. With
// skipDelay, the key may sign at once. Confirm fails for a key that is neither Pending nor
// Published.
func Confirm(ring *v1alpha1.KeyRing, id string, skipDelay bool) error {
	entry, err := entryOf(ring, id)
	if err != nil {
		return err
	}
	if !entry.Waiting() {
		return fmt.Errorf("%s %s is %s: only keys that are Pending or Published can be confirmed", entry.Role.noun(), id, entry.State)
	}
	// Drop confirmations that are of no more use: the key is not in the ring, or no longer waits.
	ring.Spec.Confirm = slices.DeleteFunc(ring.Spec.Confirm, func(c v1alpha1.KeyConfirmation) bool {
		e, found := Find(&ring.Status, c.KID)
		return c.KID == id || !found || !e.Waiting()
	})
	ring.Spec.Confirm = append(ring.Spec.Confirm, v1alpha1.KeyConfirmation{KID: id, SkipDelay: skipDelay})
	return nil
}

// Revoke requests the revocation of a key. It fails for an ID that the ring does not have.
func Revoke(ring *v1alpha1.KeyRing, id string) error {
	if _, err := entryOf(ring, id); err != nil {
		return err
	}
	ring.Spec.Revoke = slices.DeleteFunc(ring.Spec.Revoke, func(other string) bool {
		_, found := Find(&ring.Status, other)
		return !found
	})
	if !slices.Contains(ring.Spec.Revoke, id) {
		ring.Spec.Revoke = append(ring.Spec.Revoke, id)
	}
	return nil
}

// Consequences are the effects of the revocation of one key. They are known before the revocation.
type Consequences struct {
	// Key is the key, or the authority, that is revoked.
	Key Entry
	// ValidUntil is the latest time at which a token or certificate of the key can expire. It is
	// zero if the key never signed, or if all its tokens and certificates have expired.
	ValidUntil time.Time
	// Successor is the ID of the key that signs at once in place of the revoked key. It is empty if
	// the revoked key does not sign. It is also empty if no published key can replace the revoked
	// key. Then nothing is signed for the role until a new key is seen in the public document.
	Successor string
	// SuccessorCached reports whether the successor was published at least one publish delay ago.
	// If so, verifiers have the successor even if they cache the document.
	SuccessorCached bool
	// Outage is true if nothing can be signed for the role for a while.
	Outage bool
}

// ConsequencesOf returns the effects of the revocation of a key. It fails for an ID that the ring
// does not have.
func ConsequencesOf(ring *v1alpha1.KeyRing, id string, now time.Time) (Consequences, error) {
	key, err := entryOf(ring, id)
	if err != nil {
		return Consequences{}, err
	}
	c := Consequences{Key: key}
	switch key.State {
	case v1alpha1.KeyActive:
		c.ValidUntil = now.Add(key.MaxLife.Duration)
		c.Outage = true
		for _, e := range Entries(&ring.Status) {
			// An authority with the same key is revoked too.
			sameKey := key.Authority != nil && certifiedKey(e) == certifiedKey(key)
			if e.Role == key.Role && e.State == v1alpha1.KeyPublished && !slices.Contains(ring.Spec.Revoke, e.ID) && !sameKey {
				c.Successor, c.Outage = e.ID, false
				c.SuccessorCached = !now.Before(e.PublishedAt.Add(ring.Status.PublishDelay.Duration))
				break
			}
		}
	case v1alpha1.KeyRetiring:
		c.ValidUntil = removableAt(key)
	default: // the key never signed, or all that it signed has expired
	}
	return c, nil
}

// Lines returns the consequences as sentences for people.
func (c Consequences) Lines() []string {
	if c.Key.Role == X509 {
		return c.authorityLines()
	}
	lines := []string{fmt.Sprintf("Key %s (%s, %s) leaves the public document and never signs again.", c.Key.ID, c.Key.Role, c.Key.State)}
	if !c.ValidUntil.IsZero() {
		lines = append(lines,
			fmt.Sprintf("Every token that it signed is refused, though valid until %s at the latest.",
				c.ValidUntil.UTC().Format(time.RFC3339)),
			"Lanyard's controllers drop these tokens and get new ones within seconds. Holders of other tokens must ask for new ones: CI jobs, files that \"lanyard token\" wrote.",
			"Sessions that a cloud has issued for such a token live on until they expire: revoke them at the cloud.")
	}
	switch {
	case c.Outage:
		lines = append(lines, "No published key can replace it: no token is issued until a new key is seen in the public document.")
	case c.Successor != "" && !c.SuccessorCached:
		lines = append(lines, fmt.Sprintf("Key %s signs at once. Verifiers that cached the document before it was published refuse its tokens until they read the document again.", c.Successor))
	case c.Successor != "":
		lines = append(lines, fmt.Sprintf("Key %s signs at once. Verifiers know it already.", c.Successor))
	}
	return append(lines,
		"A verifier that cached the revoked key accepts it until it reads the document again. Restart verifiers that read it only for a kid they do not know: kube-apiserver, and programs with go-oidc.",
		"A new key, which no verifier has cached, becomes active as soon as it has been published for the delay. Such verifiers then read the document again too.",
		"Documents in a bucket: run \"lanyard discovery export\" and upload them now.",
		"Add the kid to --revoked-kids, so that no backup of the cluster brings the key back.")
}

// authorityLines returns the sentences of [Consequences.Lines] for the revocation of an authority.
func (c Consequences) authorityLines() []string {
	lines := []string{
		fmt.Sprintf("Authority %s (%s) leaves the public SPIFFE bundle, and nothing is signed under it again.", c.Key.ID, c.Key.State),
	}
	if c.Key.imported() {
		lines = append(lines,
			"So does every other certificate of the CA's key: the Secret of --spiffe-secret-name needs a CA with a new key.")
	}
	if !c.ValidUntil.IsZero() {
		lines = append(lines,
			fmt.Sprintf(
				"Its certificates are valid until %s at the latest. Lanyard's controllers drop theirs and get new ones within seconds.",
				c.ValidUntil.UTC().Format(time.RFC3339)))
	}
	switch {
	case c.Outage:
		lines = append(lines,
			"No published authority can replace it: no certificate is issued until a new authority is seen in the bundle.")
	case c.Successor != "" && !c.SuccessorCached:
		lines = append(lines,
			fmt.Sprintf("Authority %s signs at once. Verifiers that do not have it yet refuse its certificates.", c.Successor))
	case c.Successor != "":
		lines = append(lines, fmt.Sprintf("Authority %s signs at once. Verifiers know it already.", c.Successor))
	}
	return append(lines,
		"A verifier accepts certificates of the revoked authority until you take its CA out there: no verifier asks whether a CA is revoked.",
		"Documents in a bucket: run \"lanyard discovery export\" and upload them now.",
		fmt.Sprintf(
			"Add the ID of the CA's key, %s, to --revoked-kids: then neither a backup of the cluster nor a new certificate brings the key back.",
			certifiedKey(c.Key)))
}

// entryOf returns the key or authority with an ID, or an error that says where IDs are shown.
func entryOf(ring *v1alpha1.KeyRing, id string) (Entry, error) {
	entry, found := Find(&ring.Status, id)
	if !found {
		return Entry{}, fmt.Errorf("the key ring %s has no key %q: \"lanyard keys list\" shows the kids", ring.Name, id)
	}
	return entry, nil
}
