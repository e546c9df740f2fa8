// Package issuer determines the subject, audiences, life and claims of the tokens of Lanyard's own
// issuer. It signs nothing and does no I/O. The token server uses the package for each token. The
// identity controller uses the package to report errors before a token is requested.
package issuer
