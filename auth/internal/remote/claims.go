package remote

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
)

// maxClaim bounds a claim in an error, in bytes. Every sub claim is shorter. The longest is that of
// a WorkloadIdentity: it has two names and a UID.
const maxClaim = 512

// Claims are those claims of a proof that error texts contain.
type Claims struct {
	Issuer  string `json:"iss"`
	Subject string `json:"sub"`
}

// ClaimsOf reads the claims of our own proof, without verifying it. The claims are empty if the
// proof is not a JWT.
func ClaimsOf(proof *auth.JWT) Claims {
	var c Claims
	if !Payload(proof.Token.Reveal(), &c) {
		return Claims{}
	}
	return c
}

// Shown returns the claims in printable form, for errors that tell people what to trust. A missing
// sub claim is replaced by the proof's subject.
func (c Claims) Shown(subject auth.Subject) Claims {
	return Claims{
		Issuer:  cmp.Or(Printable(c.Issuer, maxClaim), "<issuer>"),
		Subject: cmp.Or(Printable(c.Subject, maxClaim), subject.String()),
	}
}

// Payload reads the claims of a JWT (RFC 7519) without verifying the JWT. It reports whether the
// claims could be decoded.
func Payload(token string, claims any) bool {
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, ok := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	return ok && err == nil && json.Unmarshal(data, claims) == nil
}
