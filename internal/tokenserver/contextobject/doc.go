// Package contextobject decides whether a token may be used for an object (spec.contextObject of a
// TokenRequest), and makes the claims about the object. An object counts only if the caller may get
// it, and if the object itself leads to the WorkloadIdentity. Administrators configure both per
// kind, as CEL expressions ([Load]); Lanyard's own kinds are built in.
package contextobject
