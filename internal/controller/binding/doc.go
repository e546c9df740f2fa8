// Package binding keeps a fresh credential of one identity in the Secret of each
// WorkloadIdentityBinding.
//
//	binding ──▶ identity ──▶ is what lies in the Secret still right? ──▶ status
//	                                  └─no─▶ credential ──▶ Secret ───────▲
//
// No Secret is listed or watched. The Secret of a binding is read every few minutes, and what lies
// in it decides. A digest says whether anybody has changed the Secret, or anything has changed that
// the credential was made of. The token says when it ends and which key has signed it. So nothing
// is lost when the controller restarts, and an edited, deleted or restored Secret is mended.
//
// A credential leaves the process, so none is shared: each is got for its binding alone, without a
// cache, and the name of a session at AWS has the name of the binding.
package binding
