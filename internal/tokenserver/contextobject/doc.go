// Package contextobject decides whether a token may be used for an object (spec.contextObject of a
// TokenRequest), and makes the claims about the object. Two conditions must hold: the caller has
// the right to get the object, and the object itself refers to the WorkloadIdentity, directly or
// through other objects. Administrators configure this relation and the claims per kind, as CEL
// expressions ([Load]); Lanyard's own kinds are built in.
package contextobject
