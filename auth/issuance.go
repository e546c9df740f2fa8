package auth

import "unique"

// IssuanceTerms are the inputs that decide a token that Lanyard itself issues. The token's subject
// and audiences are inputs too, but no terms.
type IssuanceTerms struct {
	// CADigest is the SHA-256, in hex, of the certificate authority's own certificate. Another
	// authority would issue another certificate to the subject.
	CADigest string
	// Signer is the ID of the key that signs Lanyard's own JWT. With another key, another JWT is
	// issued. For an SVID from a SPIFFE broker, Signer is the broker's address.
	Signer string
	// CredentialType is the type of a credential that is itself the proof. It is set if a subject
	// can have both a JWT and a certificate.
	CredentialType string
	// TrustDomain is the SPIFFE trust domain of the subject.
	TrustDomain string
	// Issuer is the claim iss of a JWT-SVID.
	Issuer string
	// ContextObject is the object that the token is used for. It is zero if the token does not name
	// the object.
	ContextObject ObjectReference
}

// Issuance is a comparable handle for [IssuanceTerms] in a [Key]. Two Issuances are equal exactly
// when their terms are equal. An Issuance has the size of a pointer, because every call copies and
// compares a key, and most keys have no terms. The zero Issuance has zero terms.
type Issuance struct {
	handle unique.Handle[IssuanceTerms]
}

// NewIssuance makes the handle of terms.
func NewIssuance(terms IssuanceTerms) Issuance {
	if terms == (IssuanceTerms{}) {
		return Issuance{}
	}
	return Issuance{unique.Make(terms)}
}

// Terms returns the terms that the handle was made of.
func (i Issuance) Terms() IssuanceTerms {
	if i == (Issuance{}) {
		return IssuanceTerms{}
	}
	return i.handle.Value()
}
