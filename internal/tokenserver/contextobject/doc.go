// Package contextobject decides whether a token may be used for an object (spec.contextObject of a
// TokenRequest). It also makes the claims about the object. The caller must have the right to get
// the object. The object itself must refer to the WorkloadIdentity, directly or through other
// objects. Administrators configure this relation and the claims per kind, as CEL expressions
// ([Load]). Lanyard's own kinds are built in.
package contextobject
