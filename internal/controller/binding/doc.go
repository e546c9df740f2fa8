// Package binding keeps a fresh credential of one identity in the Secret of each
// WorkloadIdentityBinding.
//
//	binding ──▶ identity ──▶ is what lies in the Secret still right? ──▶ status
//	                                  └─no─▶ credential ──▶ Secret ───────▲
//
// The controller neither lists nor watches Secrets. It reads the Secret of a binding every few
// minutes, and decides from the content whether the Secret needs a new credential. A digest shows
// whether the Secret or an input of the credential has changed. A token contains its expiry time
// and the ID of its signing key. So nothing is lost when the controller restarts, and an edited,
// deleted or restored Secret is repaired.
//
// Each binding gets its own credential, without a cache, because the credential leaves the process.
// The name of a session at AWS contains the name of the binding.
package binding
