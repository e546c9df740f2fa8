package svid

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // for crypto.SHA256
	_ "crypto/sha512" // for crypto.SHA384
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// The validity of SVIDs.
const (
	// Lifetime is how long an SVID is valid after its issue, unless its authority expires earlier.
	Lifetime = time.Hour
	// Backdate is how far the start of an SVID's validity lies before its issue, for verifiers
	// whose clock is behind.
	Backdate = time.Minute
)

// Bounds of audiences. An audience becomes part of a token, which must fit into a header.
const (
	maxAudiences = 16
	// maxAudience is more than 255 bytes, the limit for an entry of spec.credential.audiences.
	// Without such an entry, the audience is the object's address, such as spec.url, which may be
	// longer.
	maxAudience = 1024 // bytes
)

// Claims are the claims of a JWT-SVID. Their JSON is the payload of the JWT-SVID. Source: JWT-SVID
// §3, RFC 7519 §4.1.
type Claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"` // the SPIFFE ID
	Audiences []string `json:"aud"` // always a list
	ExpiresAt int64    `json:"exp"` // seconds since 1970, UTC
	NotBefore int64    `json:"nbf"` // seconds since 1970, UTC
	IssuedAt  int64    `json:"iat"` // seconds since 1970, UTC
	ID        string   `json:"jti"`
}

// NewClaims returns the claims of a JWT-SVID that is issued now. The issuer is the URL where
// verifiers find the key. The jti must differ from that of every other token. Without an audience
// (JWT-SVID §3.2), or with an invalid audience, NewClaims fails.
func NewClaims(issuer string, id spiffeid.ID, audiences []string, jti string, now time.Time) (Claims, error) {
	if id.Path() == "" {
		return Claims{}, errors.New("a JWT-SVID needs a SPIFFE ID with a path")
	}
	if err := CheckAudiences(audiences); err != nil {
		return Claims{}, err
	}
	return Claims{
		Issuer: issuer, Subject: id.String(), Audiences: audiences, ID: jti,
		ExpiresAt: now.Add(Lifetime).Unix(), NotBefore: now.Add(-Backdate).Unix(), IssuedAt: now.Unix(),
	}, nil
}

// CheckAudiences returns an error that says why a JWT-SVID cannot have these audiences. The list
// must not be empty or too long, and must have no duplicates. An audience must not be empty or too
// long. It must have only printable ASCII characters and no space.
func CheckAudiences(audiences []string) error {
	if len(audiences) == 0 {
		return errors.New("a JWT-SVID needs an audience")
	}
	if len(audiences) > maxAudiences {
		return fmt.Errorf("a JWT-SVID has at most %d audiences, not %d", maxAudiences, len(audiences))
	}
	for i, audience := range audiences {
		switch {
		case audience == "":
			return errors.New("an audience must not be empty")
		case len(audience) > maxAudience:
			return fmt.Errorf("an audience has at most %d characters, not %d", maxAudience, len(audience))
		case strings.ContainsFunc(audience, func(r rune) bool { return r <= ' ' || r > '~' }):
			return fmt.Errorf("the audience %.80q must have only printable ASCII characters and no space", audience)
		case slices.Contains(audiences[:i], audience):
			return fmt.Errorf("the audience %.80q is there twice", audience)
		}
	}
	return nil
}

// SignJWT returns a signed token with the claims, in compact form; source: RFC 7515 §3.1. Its
// header has only the members alg, kid and typ; source: JWT-SVID §2. The algorithm depends on the
// key:
//
//   - RS256 for RSA of at least 2048 bits
//   - ES256 for P-256
//   - ES384 for P-384
//
// Other keys are an error: JWT-SVID §2.1 does not allow EdDSA.
func SignJWT(claims any, kid string, key crypto.Signer) (string, error) {
	alg, err := algorithmOf(key.Public())
	if err != nil {
		return "", err
	}
	quoted, err := json.Marshal(kid)
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode the claims: %w", err)
	}
	encoding := base64.RawURLEncoding
	header := []byte(`{"alg":"` + alg.name + `","kid":` + string(quoted) + `,"typ":"JWT"}`)
	token := make([]byte, 0, encoding.EncodedLen(len(header))+encoding.EncodedLen(len(payload))+2+encoding.EncodedLen(alg.length))
	token = append(encoding.AppendEncode(token, header), '.')
	token = encoding.AppendEncode(token, payload)
	signature, err := alg.sign(key, token)
	if err != nil {
		return "", err
	}
	return string(encoding.AppendEncode(append(token, '.'), signature)), nil
}

// header is the JOSE header of a JWT-SVID.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

// algorithm is a signature algorithm; source: RFC 7518 §3.1.
type algorithm struct {
	name   string
	hash   crypto.Hash
	size   int // bytes of each number in an ECDSA signature; 0 for RSA
	length int // bytes of a signature in a token
}

func algorithmOf(public crypto.PublicKey) (algorithm, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return algorithm{}, fmt.Errorf("an RSA key must have at least %d bits, not %d", minRSABits, bits)
		}
		return algorithm{name: "RS256", hash: crypto.SHA256, length: key.Size()}, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return algorithm{name: "ES256", hash: crypto.SHA256, size: 32, length: 64}, nil
		case elliptic.P384():
			return algorithm{name: "ES384", hash: crypto.SHA384, size: 48, length: 96}, nil
		}
	}
	return algorithm{}, fmt.Errorf("a JWT-SVID cannot be signed by a key of type %T: use RSA, P-256 or P-384", public)
}

// minRSABits is the minimum length of an RSA key; source: RFC 7518 §3.3.
const minRSABits = 2048

func (a algorithm) sign(key crypto.Signer, message []byte) ([]byte, error) {
	hash := a.hash.New()
	hash.Write(message)
	signature, err := key.Sign(rand.Reader, hash.Sum(nil), a.hash)
	if err != nil || a.size == 0 {
		return signature, err
	}
	// A crypto.Signer returns the two numbers of an ECDSA signature in ASN.1. A token has them in
	// the form of RFC 7518 §3.4.
	fixed := make([]byte, a.length)
	var pair cryptobyte.String
	input := cryptobyte.String(signature)
	r, s := fixed[:a.size], fixed[a.size:]
	if !input.ReadASN1(&pair, asn1.SEQUENCE) || !input.Empty() || !readNumber(&pair, r) || !readNumber(&pair, s) || !pair.Empty() {
		return nil, errors.New("the key's signature is not an ECDSA signature")
	}
	return fixed, nil
}

// readNumber reads a positive integer into out, big-endian, with leading zeros. It fails if the
// integer is longer than out.
func readNumber(from *cryptobyte.String, out []byte) bool {
	var number []byte
	if !from.ReadASN1Integer(&number) || len(number) > len(out) {
		return false
	}
	copy(out[len(out)-len(number):], number)
	return true
}

// CheckJWT checks that a received token is the requested JWT-SVID, with this ID and these
// audiences. It also checks that the token is valid now. It returns the expiry, UTC. It does not
// verify the signature: a program that requests a token has no key to verify it, and trusts the
// server that answers.
func CheckJWT(token string, id spiffeid.ID, audiences []string, now time.Time) (expires time.Time, err error) {
	var head header
	var claims Claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !decode(parts[0], &head) || !decode(parts[1], &claims) {
		return time.Time{}, errors.New("the JWT-SVID is not a token in compact form")
	}
	expires = time.Unix(claims.ExpiresAt, 0).UTC()
	switch {
	case !slices.Contains([]string{"RS256", "ES256", "ES384"}, head.Algorithm) || head.KeyID == "" || head.Type != "JWT":
		return time.Time{}, errors.New("the JWT-SVID has another header than a JWT-SVID of Lanyard")
	case claims.Subject != id.String():
		return time.Time{}, fmt.Errorf("the JWT-SVID is not for %s", id)
	case !slices.Equal(claims.Audiences, audiences):
		return time.Time{}, errors.New("the JWT-SVID has other audiences than were asked for")
	case !now.Before(expires) || claims.ExpiresAt > now.Add(Lifetime+Backdate).Unix():
		return time.Time{}, fmt.Errorf("the JWT-SVID expires at %s, which is not within the next hour", expires.Format(time.RFC3339))
	}
	return expires, nil
}

func decode(part string, into any) bool {
	data, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(data, into) == nil
}
