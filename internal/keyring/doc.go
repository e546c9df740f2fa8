// Package keyring has the public side of key rings: the keys of an issuer, their states, and the
// rules by which a key changes its state. It has no private keys: package sign has them, and signs.
//
// A ring is the status of a KeyRing object. For each role, a ring has one key that signs, and its
// successor. The successor is published before it signs. A role is a JWT algorithm or X.509. A key
// for X.509 has a certificate and is called an authority. Keys and authorities have these states:
//
//	          seen in the public      the delay has passed,        replaced by        all that it
//	          document                and a rotation is due        its successor      signed expired
//	Pending ───────────────▶ Published ─────────────────▶ Active ───────────▶ Retiring ─────────▶ Removed
//	   ▲                         │
//	   └── not there any more ───┘            from every state: ──▶ Revoked
//
// Next decides all changes of state. It is a pure function of the object, the observation, the
// policy and the time. Package sign carries out the plans of Next. It first makes the missing
// private halves. Then it writes the status by one compare-and-swap on the object's
// resourceVersion. If a process dies in between, the next process continues from the last status
// that was written.
//
// The discovery server reads a ring with Parse and publishes the keys that Ring.Public returns.
// Controllers drop a token or a certificate if Ring.Accepts returns false for the ID of its key.
// The commands "lanyard keys" change a ring's spec with Rotate, Confirm and Revoke.
package keyring
