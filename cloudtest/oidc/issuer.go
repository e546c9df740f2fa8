package oidc

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Paths of an issuer's documents, below the issuer URL.
const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/keys"
)

// Algorithm is the JWS algorithm of an [Issuer]'s keys. Source: RFC 7518 §3.1.
type Algorithm string

// Algorithms that issuers of the local cloud sign with.
const (
	RS256 Algorithm = "RS256"
	ES256 Algorithm = "ES256"
)

// Claims are the claims of a token to be minted. A claim whose value is nil is left out.
type Claims map[string]any

type signingKey struct {
	private crypto.Signer
	id      string
}

// Issuer is an OIDC issuer for tests. It mints good and bad tokens, and is the [http.Handler] that
// serves its discovery document and keys. It is safe for concurrent use.
type Issuer struct {
	url       *url.URL
	algorithm Algorithm

	mu   sync.Mutex
	keys []signingKey // the newest last; all are published
}

// NewIssuer makes an issuer with one new key. The URL must be valid for [ParseURL].
func NewIssuer(issuer string, algorithm Algorithm) (*Issuer, error) {
	u, err := ParseURL(issuer)
	if err != nil {
		return nil, err
	}
	key, err := newKey(algorithm)
	if err != nil {
		return nil, err
	}
	return &Issuer{url: u, algorithm: algorithm, keys: []signingKey{key}}, nil
}

func newKey(algorithm Algorithm) (signingKey, error) {
	var private crypto.Signer
	var err error
	switch algorithm {
	case RS256:
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return signingKey{}, fmt.Errorf("oidc: algorithm %q: use RS256 or ES256", algorithm)
	}
	if err != nil {
		return signingKey{}, fmt.Errorf("oidc: generate key: %w", err)
	}
	thumbprint, err := (&jose.JSONWebKey{Key: private.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return signingKey{}, fmt.Errorf("oidc: key ID: %w", err)
	}
	return signingKey{private: private, id: base64.RawURLEncoding.EncodeToString(thumbprint)}, nil
}

// URL returns the issuer URL, which is the claim iss.
func (i *Issuer) URL() string { return i.url.String() }

// Host returns the host at which the issuer serves its documents.
func (i *Issuer) Host() string { return i.url.Host }

// Rotate adds a new key, which signs from now on. If retire is set, it removes the older keys.
func (i *Issuer) Rotate(retire bool) error {
	key, err := newKey(i.algorithm)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if retire {
		i.keys = nil
	}
	i.keys = append(i.keys, key)
	return nil
}

// Mint signs a token with the newest key. It sets iss to the issuer, iat and nbf to now, and exp to
// an hour later. The given claims override these values.
func (i *Issuer) Mint(claims Claims) (string, error) {
	return i.sign(i.newest(), claims)
}

func (i *Issuer) newest() signingKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Forge signs a token with a key that was never published. The token has the key ID of the newest
// published key. It differs from a token of [Issuer.Mint] in the signature only.
func (i *Issuer) Forge(claims Claims) (string, error) {
	key, err := newKey(i.algorithm)
	if err != nil {
		return "", err
	}
	key.id = i.newest().id
	return i.sign(key, claims)
}

// MintUnsigned makes a token with the algorithm "none" and an empty signature. Source: RFC 7519
// §6.1.
func (i *Issuer) MintUnsigned(claims Claims) (string, error) {
	body, err := json.Marshal(i.complete(claims))
	if err != nil {
		return "", fmt.Errorf("oidc: claims: %w", err)
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + enc.EncodeToString(body) + ".", nil
}

func (i *Issuer) complete(claims Claims) Claims {
	now := time.Now()
	all := Claims{"iss": i.URL(), "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func (i *Issuer) sign(key signingKey, claims Claims) (string, error) {
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.SignatureAlgorithm(i.algorithm), Key: jose.JSONWebKey{Key: key.private, KeyID: key.id}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("oidc: signer: %w", err)
	}
	raw, err := jwt.Signed(signer).Claims(map[string]any(i.complete(claims))).Serialize()
	if err != nil {
		return "", fmt.Errorf("oidc: sign: %w", err)
	}
	return raw, nil
}

func (i *Issuer) keySet() *jose.JSONWebKeySet {
	i.mu.Lock()
	defer i.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(i.algorithm), Use: "sig"})
	}
	return &set
}

// CheckSignature checks that one of the issuer's published keys signed t. Services use it for the
// tokens that they issued themselves. The caller must check issuer and time. The error wraps
// [ErrKey], [ErrSignature] or [ErrMalformed].
func (i *Issuer) CheckSignature(t Token) error { return t.checkSignature(i.keySet()) }

// JWKS returns the issuer's published keys as a JSON Web Key Set.
func (i *Issuer) JWKS() []byte { return wire.Must(json.Marshal(i.keySet())) }

// ServeHTTP serves the discovery document and the keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serveDocuments(w, r, i.url, i.JWKS())
}

// Static describes an issuer with fixed public keys. A configuration file can contain such issuers.
// The local cloud does not have their private keys.
type Static struct {
	// URL is the issuer, see [ParseURL].
	URL string `json:"url"`
	// JWKS is the issuer's public key set. Source: RFC 7517 §5.
	JWKS json.RawMessage `json:"jwks"`
}

// Handler serves the issuer's documents. The error is a [*setting.Error].
func (s Static) Handler() (http.Handler, error) {
	u, err := ParseURL(s.URL)
	if err != nil {
		return nil, setting.In("url", err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(s.JWKS, &set); err != nil {
		return nil, setting.In("jwks", err)
	}
	if len(set.Keys) == 0 {
		return nil, setting.Invalid("jwks", "give at least one key")
	}
	for n, k := range set.Keys {
		if !k.IsPublic() {
			return nil, setting.Invalid("jwks."+setting.At("keys", n), "give public keys only")
		}
	}
	body, err := json.Marshal(set)
	if err != nil {
		return nil, setting.In("jwks", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveDocuments(w, r, u, body) }), nil
}

func serveDocuments(w http.ResponseWriter, r *http.Request, issuer *url.URL, jwks []byte) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case documentURL(issuer.Path, discoveryPath):
		writeJSON(w, discoveryDocument(issuer.String()))
	case documentURL(issuer.Path, keysPath):
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(jwks)
	default:
		http.NotFound(w, r)
	}
}

func discoveryDocument(issuer string) map[string]any {
	return map[string]any{
		"issuer":                                issuer,
		"jwks_uri":                              documentURL(issuer, keysPath),
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256", "ES256"},
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
