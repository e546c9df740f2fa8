// Package keyring has the public side of key rings: which keys an issuer has, in which states, and
// when a key moves to its next state. It knows no private key and signs nothing; package sign does.
//
// A ring is the status of a KeyRing object. For each role it has one key that signs, and one that
// succeeds it and is published already. A role is an algorithm of JWTs, or X.509. A key of X.509
// has a certificate and is called an authority. A key or an authority lives like this:
//
//	          seen in the public      the delay has passed,        replaced by        all that it
//	          document                and a rotation is due        its successor      signed expired
//	Pending ───────────────▶ Published ─────────────────▶ Active ───────────▶ Retiring ─────────▶ Removed
//	   ▲                         │
//	   └── not there any more ───┘            from every state: ──▶ Revoked
//
// Next decides all of this. It is a pure function of the object, of what was observed, and of the
// time. Package sign carries out what Next decides: first it makes the private halves that are
// missing, then it writes the status by one compare-and-swap on the object's resourceVersion. If a
// process dies in between, the next one starts at the state that was written last.
//
// Discovery reads a ring by Parse and publishes Ring.Public. Controllers drop what was signed by a
// key unless Ring.Accepts its kid. The commands "lanyard keys" change a ring's spec by Rotate,
// Confirm and Revoke.
package keyring
