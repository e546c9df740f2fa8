// Package issuer decides what the tokens of Lanyard's own issuer say: their subject, audiences,
// life and claims. It signs nothing and does no I/O. The token server uses the package for each
// token, and the identity controller uses it to tell people early what a request would be told.
package issuer
