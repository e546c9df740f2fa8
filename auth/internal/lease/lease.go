// Package lease says to SDKs when tokens end: soon, so that they ask again.
package lease

import "time"

// Most is how long an SDK may keep a token. Clients of the clouds keep one until it ends, which would be an hour beyond the grant that
// was withdrawn, the account that was deleted or the role that was changed; a cache that is asked again knows of all these.
const Most = time.Minute

// Until is when an SDK is to ask again for a token that ends then.
func Until(end time.Time) time.Time {
	if soon := time.Now().Add(Most); end.After(soon) {
		return soon.In(end.Location())
	}
	return end
}
