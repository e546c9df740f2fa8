// Package lease computes the end of a token that SDKs get: soon, so that they ask again.
package lease

import "time"

// Most is how long an SDK may keep a token. The clouds' clients keep a token until its end. This
// could be an hour after its grant was withdrawn, its account deleted or its role changed. A cache
// that is asked again knows these changes.
const Most = time.Minute

// Until returns the end that an SDK gets for a token that ends at end: at most [Most] from now.
func Until(end time.Time) time.Time {
	if soon := time.Now().Add(Most); end.After(soon) {
		return soon.In(end.Location())
	}
	return end
}
