package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Limits on tokens and on the documents of an issuer.
const (
	maxToken    = 20000     // bytes; AWS STS's limit on WebIdentityToken
	maxDocument = 512 << 10 // bytes of a discovery document or key set
	maxKeys     = 200
)

// Reasons to refuse a token. An error from [Verifier.Verify] wraps exactly one of them.
var (
	// ErrMalformed: the token is not a JWT, or its claims or its algorithm are not allowed.
	ErrMalformed = errors.New("not an acceptable JWT")
	// ErrUnreachable: the issuer's documents could not be fetched.
	ErrUnreachable = errors.New("issuer unreachable")
	// ErrIssuer: the issuer's documents name another issuer, or are invalid.
	ErrIssuer = errors.New("issuer's documents do not fit")
	// ErrKey: the issuer does not have exactly one key with the token's key ID and algorithm.
	ErrKey = errors.New("no such key at the issuer")
	// ErrSignature: the key with the token's key ID did not sign the token.
	ErrSignature = errors.New("signature does not verify")
	// ErrExpired: the claim exp is in the past.
	ErrExpired = errors.New("token has expired")
	// ErrNotYetValid: the claim nbf or iat is in the future.
	ErrNotYetValid = errors.New("token is not valid yet")
)

// algorithms returns the algorithms that the clouds accept. Symmetric algorithms and "none" must
// never be in the list.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}
}

// Token has the contents of a JWT. They are unverified until [Verifier.Verify] returns no error for
// the Token.
type Token struct {
	// Issuer, Subject and AuthorizedParty are the claims iss, sub and azp.
	Issuer, Subject, AuthorizedParty string
	// Audience is the claim aud. A single string becomes a list with one element.
	Audience []string
	// Expiry, NotBefore and IssuedAt are exp, nbf and iat; zero if absent.
	Expiry, NotBefore, IssuedAt time.Time
	// Claims holds all claims as encoding/json decodes them.
	Claims map[string]any
	// Algorithm is the JWS algorithm of the signature, such as "RS256". Source: RFC 7518 §3.1.
	Algorithm string

	signed *jwt.JSONWebToken
}

// Read parses a JWT without verifying it. The error wraps [ErrMalformed] and does not contain the
// token.
func Read(raw string) (Token, error) {
	if len(raw) > maxToken {
		return Token{}, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, maxToken)
	}
	signed, err := jwt.ParseSigned(raw, algorithms())
	if err != nil {
		return Token{}, fmt.Errorf("%w: it has no compact signature by one of %v", ErrMalformed, algorithms())
	}
	var std jwt.Claims
	var azp struct {
		AuthorizedParty string `json:"azp"`
	}
	all := map[string]any{}
	if err := signed.UnsafeClaimsWithoutVerification(&std, &azp, &all); err != nil {
		return Token{}, fmt.Errorf("%w: its claims have the wrong types", ErrMalformed)
	}
	t := Token{
		Issuer: std.Issuer, Subject: std.Subject, AuthorizedParty: azp.AuthorizedParty, Audience: std.Audience, Claims: all, signed: signed,
	}
	if len(signed.Headers) == 1 {
		t.Algorithm = signed.Headers[0].Algorithm
	}
	for _, d := range []struct {
		from *jwt.NumericDate
		to   *time.Time
	}{{std.Expiry, &t.Expiry}, {std.NotBefore, &t.NotBefore}, {std.IssuedAt, &t.IssuedAt}} {
		if d.from != nil {
			*d.to = d.from.Time().UTC()
		}
	}
	switch {
	case t.Issuer == "" || t.Subject == "" || len(t.Audience) == 0:
		return Token{}, fmt.Errorf("%w: iss, sub and aud are required", ErrMalformed)
	case t.Expiry.IsZero():
		return Token{}, fmt.Errorf("%w: exp is required", ErrMalformed)
	}
	return t, nil
}

// Verifier checks tokens against their issuer's published keys, which it fetches anew for every
// token.
type Verifier struct {
	// Client fetches the issuers' documents. It is required, and must not follow redirects. Either
	// it or the context of each call must have a timeout.
	Client *http.Client
	// Leeway is the allowed difference between the issuer's clock and the local one, in both
	// directions. Zero allows no difference.
	Leeway time.Duration
}

// issuerTimeout limits the time to fetch one document of an issuer.
const issuerTimeout = 10 * time.Second

// NewVerifier makes a verifier that fetches the documents of issuers through transport, which must
// reach only hosts of the local cloud.
func NewVerifier(transport http.RoundTripper, leeway time.Duration) *Verifier {
	return &Verifier{
		Client: &http.Client{
			Transport:     transport,
			Timeout:       issuerTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Leeway: leeway,
	}
}

// Verify fetches the documents of t's issuer, and checks that:
//   - the discovery document names the same issuer
//   - one of the issuer's keys signed t
//   - t is valid at the given time
//
// The caller must check that t has the expected issuer, subject and audience. The error wraps one
// of this package's errors.
func (v *Verifier) Verify(ctx context.Context, t Token, now time.Time) error {
	if t.signed == nil {
		return fmt.Errorf("%w: it was not read by Read", ErrMalformed)
	}
	keys, err := v.keys(ctx, t.Issuer)
	if err != nil {
		return err
	}
	return v.VerifyWith(KeySet{set: *keys}, t, now)
}

// KeySet is an issuer's public keys. The zero value has no keys.
type KeySet struct{ set jose.JSONWebKeySet }

// ParseKeys parses an issuer's JSON Web Key Set. An empty set or a private key is an error. Source:
// RFC 7517 §5.
func ParseKeys(jwks []byte) (KeySet, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &set); err != nil {
		return KeySet{}, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	if len(set.Keys) == 0 || len(set.Keys) > maxKeys {
		return KeySet{}, fmt.Errorf("the key set has %d keys, 1 to %d are allowed", len(set.Keys), maxKeys)
	}
	for n, k := range set.Keys {
		if !k.IsPublic() {
			return KeySet{}, fmt.Errorf("keys[%d]: give public keys only", n)
		}
	}
	return KeySet{set: set}, nil
}

// VerifyWith is [Verifier.Verify] with keys that the caller has. It fetches no documents.
func (v *Verifier) VerifyWith(keys KeySet, t Token, now time.Time) error {
	if err := t.checkSignature(&keys.set); err != nil {
		return err
	}
	return t.CheckTime(now, v.Leeway)
}

// checkSignature checks that one of the given keys signed t.
func (t Token) checkSignature(keys *jose.JSONWebKeySet) error {
	if t.signed == nil {
		return fmt.Errorf("%w: it was not read by Read", ErrMalformed)
	}
	if len(t.signed.Headers) != 1 || t.signed.Headers[0].KeyID == "" {
		return fmt.Errorf("%w: the token names no key ID", ErrKey)
	}
	header := t.signed.Headers[0]
	var candidates []jose.JSONWebKey
	for _, k := range keys.Key(header.KeyID) {
		if k.IsPublic() && (k.Use == "" || k.Use == "sig") && (k.Algorithm == "" || k.Algorithm == header.Algorithm) {
			candidates = append(candidates, k)
		}
	}
	if len(candidates) != 1 {
		return fmt.Errorf("%w: %d keys fit the token's key ID", ErrKey, len(candidates))
	}
	var verified map[string]any
	if err := t.signed.Claims(candidates[0].Key, &verified); err != nil {
		return ErrSignature
	}
	return nil
}

// CheckTime checks that t is valid at the given time, with leeway in both directions. The error
// wraps [ErrExpired] or [ErrNotYetValid].
func (t Token) CheckTime(now time.Time, leeway time.Duration) error {
	switch {
	case !now.Before(t.Expiry.Add(leeway)):
		return fmt.Errorf("%w at %s, now is %s", ErrExpired, t.Expiry.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !t.NotBefore.IsZero() && now.Before(t.NotBefore.Add(-leeway)):
		return fmt.Errorf("%w: not before %s, now is %s", ErrNotYetValid, t.NotBefore.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !t.IssuedAt.IsZero() && now.Before(t.IssuedAt.Add(-leeway)):
		return fmt.Errorf("%w: issued at %s, now is %s", ErrNotYetValid, t.IssuedAt.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// keys fetches the issuer's discovery document and then its keys. Source: OpenID Connect Discovery
// 1.0 §4.
func (v *Verifier) keys(ctx context.Context, issuer string) (*jose.JSONWebKeySet, error) {
	if _, err := ParseURL(issuer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIssuer, err)
	}
	var discovery struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := v.get(ctx, documentURL(issuer, discoveryPath), &discovery); err != nil {
		return nil, err
	}
	if discovery.Issuer != issuer {
		return nil, fmt.Errorf("%w: the discovery document of %q names the issuer %q", ErrIssuer, issuer, discovery.Issuer)
	}
	if !strings.HasPrefix(discovery.JWKSURI, "https://") {
		return nil, fmt.Errorf("%w: jwks_uri %q is not https", ErrIssuer, discovery.JWKSURI)
	}
	var keys jose.JSONWebKeySet
	if err := v.get(ctx, discovery.JWKSURI, &keys); err != nil {
		return nil, err
	}
	if len(keys.Keys) == 0 || len(keys.Keys) > maxKeys {
		return nil, fmt.Errorf("%w: its key set has %d keys, 1 to %d are allowed", ErrIssuer, len(keys.Keys), maxKeys)
	}
	return &keys, nil
}

func (v *Verifier) get(ctx context.Context, from string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIssuer, err)
	}
	res, err := v.Client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		kind := ErrIssuer
		if res.StatusCode >= http.StatusInternalServerError {
			kind = ErrUnreachable
		}
		return fmt.Errorf("%w: GET %s: HTTP %d", kind, from, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: GET %s: %w", ErrUnreachable, from, err)
	case len(body) > maxDocument:
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrIssuer, from, maxDocument)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %s is not the JSON it should be", ErrIssuer, from)
	}
	return nil
}
