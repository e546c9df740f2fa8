// Package lease reports an early expiry of tokens to SDKs, so that the SDKs soon ask again.
package lease

import "time"

// Most is how long an SDK may keep a token. The clouds' clients keep a token until it expires,
// often for an hour. In this hour the token's grant may be withdrawn, its account deleted or its
// role changed. The next call of GetToken notices such a change, so SDKs must call again soon.
const Most = time.Minute

// Until returns the expiry that an SDK sees, given the time when the token really expires. The
// result is at most [Most] from now.
func Until(end time.Time) time.Time {
	if soon := time.Now().Add(Most); end.After(soon) {
		return soon.In(end.Location())
	}
	return end
}
