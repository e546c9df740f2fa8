package auth

import "unique"

// IssuanceTerms are what decides a token that Lanyard itself issues, besides its subject and its
// audiences.
type IssuanceTerms struct {
	// CADigest identifies the certificate authority that signs a certificate: another authority,
	// another certificate. It is the SHA-256 of the authority's certificate in hex.
	CADigest string
	// Signer is the ID of the key that signs a JWT of Lanyard's own: another key, another token. For
	// an SVID from a SPIFFE broker it is the broker's address.
	Signer string
	// CredentialType is the type of a credential that is itself the proof, where a subject can have
	// several: a JWT and a certificate.
	CredentialType string
	// TrustDomain is the SPIFFE trust domain of the subject.
	TrustDomain string
	// Issuer is the claim iss of a JWT-SVID.
	Issuer string
	// ContextObject is the object that the token is used for, if the token says so.
	ContextObject ObjectReference
}

// Issuance stands for [IssuanceTerms] in a [Key]. Two Issuances are equal exactly when their terms
// are equal. An Issuance has the size of a pointer: every call copies and compares a key, and the
// keys of most tokens have no terms. The zero Issuance has zero terms.
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
