// Package lease decides when SDKs are told that a token ends: soon, so that they ask again.
package lease

import "time"

// Most is how long an SDK may keep a token. The clouds' clients keep a token until it ends, which could be an hour after its grant was
// withdrawn, its account deleted or its role changed. A cache that is asked again knows about all of these.
const Most = time.Minute

// Until is when an SDK should ask again for a token that ends at end.
func Until(end time.Time) time.Time {
	if soon := time.Now().Add(Most); end.After(soon) {
		return soon.In(end.Location())
	}
	return end
}
