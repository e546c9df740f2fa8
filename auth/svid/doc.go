// Package svid implements SPIFFE's rules for the identity documents (SVIDs) of Kubernetes objects.
// An object is itself the subject. Its SPIFFE ID comes only from its kind, namespace and name, and
// from nothing that the object could choose.
//
// The package reads no clock and makes no calls. A program that mints SVIDs passes the time and any
// [crypto.Signer], such as a key of a ring or of a key management service. A program that receives
// an SVID must check it before use, with the functions that begin with Check.
//
// Sources are SPIFFE's texts SPIFFE-ID, JWT-SVID and X509-SVID, at
// https://github.com/spiffe/spiffe/tree/main/standards.
package svid
