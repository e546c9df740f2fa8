// Package binding keeps a fresh credential of one identity in the Secret of each
// WorkloadIdentityBinding.
//
//	binding ──▶ identity ──▶ is what lies in the Secret still right? ──▶ status
//	                                  └─no─▶ credential ──▶ Secret ───────▲
//
// The controller neither lists nor watches Secrets. It reads the Secret of a binding every few
// minutes. If somebody has edited, deleted or restored the Secret, the controller repairs it. A
// digest in the binding's status shows whether the Secret, or an input of the credential, has
// changed. The Secret shows when the credential expires, and which key signed a token. So a restart
// of the controller loses nothing.
//
// Whoever reads the Secret has the credential. So each binding gets its own credential, and no
// credential comes from a cache. At AWS, the name of a session contains the name of the binding.
package binding
