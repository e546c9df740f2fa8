package auth

import "unique"

// IssuanceTerms are the part of a [Key] that is specific to tokens issued by Lanyard itself or by a
// SPIFFE broker.
type IssuanceTerms struct {
	// CADigest is the SHA-256, in hex, of the certificate of the authority that signs an
	// X.509-SVID. After a change of authority, the next call gets a new SVID.
	CADigest string
	// Signer is the ID of the key that signs a JWT-SVID. After a change of key, the next call gets
	// a new SVID. For an SVID from a SPIFFE broker, Signer is the broker's address.
	Signer string
	// CredentialType distinguishes a subject's JWT-SVID from its X.509-SVID. For other tokens it is
	// empty.
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
// when their terms are equal. An Issuance is as small as a pointer, because every call copies and
// compares keys. The zero Issuance stands for the zero IssuanceTerms.
type Issuance struct {
	handle unique.Handle[IssuanceTerms]
}

// NewIssuance returns the Issuance that stands for the terms in a [Key].
func NewIssuance(terms IssuanceTerms) Issuance {
	if terms == (IssuanceTerms{}) {
		return Issuance{}
	}
	return Issuance{unique.Make(terms)}
}

// Terms returns the terms that [NewIssuance] was called with.
func (i Issuance) Terms() IssuanceTerms {
	if i == (Issuance{}) {
		return IssuanceTerms{}
	}
	return i.handle.Value()
}
