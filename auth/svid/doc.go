// Package svid has the rules of SPIFFE for the identity documents (SVIDs) of Kubernetes objects. An
// object proves itself: its SPIFFE ID comes from its kind, namespace and name, and from nothing
// that it could choose.
//
// The package is pure: it reads no clock and calls nobody. A program that mints hands in the time
// and any [crypto.Signer], such as a key of a ring or of a key management service. A program that
// receives an SVID checks it by the functions that begin with Check, before it uses the SVID.
//
// Sources are SPIFFE's texts SPIFFE-ID, JWT-SVID and X509-SVID, at
// https://github.com/spiffe/spiffe/tree/main/standards.
package svid
