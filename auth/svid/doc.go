// Package svid implements SPIFFE's rules for the identity documents (SVIDs) of Kubernetes objects.
// The subject of an SVID is the object itself. Its SPIFFE ID comes only from its kind, namespace
// and name, and from nothing that the object could choose.
//
// The package reads no clock and makes no calls. A program that mints SVIDs passes the time and any
// [crypto.Signer], such as a key of a ring or of a key management service. A program that requests
// an SVID from Lanyard's token server must check it with [CheckJWT] or [CheckChain] before use.
//
// Sources are SPIFFE's texts SPIFFE-ID, JWT-SVID and X509-SVID, at
// https://github.com/spiffe/spiffe/tree/main/standards.
package svid
