package keyring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/lanyard-dev/lanyard/auth/svid"
)

// Bounds for documents that are read from the public URL. If this URL is wrong, a stranger may have
// written the documents.
const (
	documentTimeout = 10 * time.Second
	maxDocument     = 256 << 10 // bytes
	maxStrangers    = 8         // maximum number of kids in Document.Invalid
	maxStranger     = 64        // maximum bytes of a kid in Document.Invalid
)

// ParseDocument parses a JSON Web Key Set; source: RFC 7517 §5. Document.Invalid gets the kids of
// these keys:
//   - keys that are malformed
//   - keys that are not public
//   - keys whose kid is not their thumbprint
func ParseDocument(data []byte) (*Document, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the public document is not a JSON Web Key Set")
	}
	var doc Document
	for _, raw := range set.Keys {
		if kid, ours := documentKey(raw); ours {
			doc.KIDs = append(doc.KIDs, kid)
		} else if len(doc.Invalid) < maxStrangers {
			doc.Invalid = append(doc.Invalid, kid[:min(len(kid), maxStranger)])
		}
	}
	return &doc, nil
}

// documentKey returns the kid of a key in a JSON Web Key Set. The result ours is true if a ring
// could have this key: the key is public, and its kid is its thumbprint.
func documentKey(raw json.RawMessage) (kid string, ours bool) {
	var named struct {
		KID string `json:"kid"`
	}
	var jwk jose.JSONWebKey
	if json.Unmarshal(raw, &named) != nil || json.Unmarshal(raw, &jwk) != nil || !jwk.IsPublic() {
		return named.KID, false
	}
	thumbprint, err := Thumbprint(jwk.Key)
	if err != nil || thumbprint != jwk.KeyID {
		return named.KID, false
	}
	return jwk.KeyID, true
}

// A Probe reads the public document as verifiers do. Its errors contain no text that a server has
// sent.
type Probe func(ctx context.Context) (*Document, error)

// NewProbe returns a Probe that reads the JSON Web Key Set of an issuer. The Probe first reads the
// discovery document at url/.well-known/openid-configuration, which must name the issuer. Then it
// reads the key set that the document's jwks_uri names; source: OpenID Connect Discovery 1.0 §4.
//
// The parameters url and issuer must be equal if the token server can reach the issuer's URL.
// Otherwise, url must be the URL of a mirror with the same paths.
//
// The jwks_uri must be below the issuer's URL. A redirect must not lead to another scheme or host.
// Otherwise, a stranger could decide which keys count as published.
func NewProbe(client *http.Client, url, issuer string) Probe {
	client, url = atOneHost(client), strings.TrimSuffix(url, "/")
	return func(ctx context.Context) (*Document, error) {
		ctx, cancel := context.WithTimeout(ctx, documentTimeout)
		defer cancel()
		data, err := get(ctx, client, url+"/.well-known/openid-configuration")
		if err != nil {
			return nil, err
		}
		var config struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		if err := json.Unmarshal(data, &config); err != nil {
			return nil, errors.New("the discovery document is not JSON")
		}
		if config.Issuer != issuer {
			return nil, errors.New("the discovery document names another issuer")
		}
		path, below := strings.CutPrefix(config.JWKSURI, issuer+"/")
		if !below {
			return nil, errors.New("the jwks_uri of the discovery document is not below the issuer's URL: publish the documents as \"lanyard discovery export\" writes them")
		}
		data, err = get(ctx, client, url+"/"+path)
		if err != nil {
			return nil, err
		}
		return ParseDocument(data)
	}
}

// errElsewhere says that a public document redirects to another host or scheme.
var errElsewhere = errors.New(
	"read a public document: the answer redirects to another host or scheme: serve the document at the URL itself")

// maxRedirects is net/http's default.
const maxRedirects = 10

// atOneHost returns a client that follows redirects only within the scheme and host of the request.
func atOneHost(client *http.Client) *http.Client {
	stays := *client
	stays.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if first := via[0].URL; len(via) >= maxRedirects || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
			return errElsewhere
		}
		return nil
	}
	return &stays
}

// BundlePath is the path of the SPIFFE bundle below the URL of the SPIFFE issuer.
const BundlePath = "/bundle"

// The values of the member "use" of a key in a SPIFFE bundle. Source: SPIFFE Trust Domain and
// Bundle §4.2.2.
const (
	UseX509 = "x509-svid"
	UseJWT  = "jwt-svid"
)

// NewSPIFFEProbe returns a Probe that reads the public documents of a trust domain. Like NewProbe,
// it reads the issuer's JSON Web Key Set. It also reads the SPIFFE bundle. A key counts as
// published if both documents have it. An authority counts as published if the bundle has it.
func NewSPIFFEProbe(client *http.Client, url, issuer string) Probe {
	keySet := NewProbe(client, url, issuer)
	client = atOneHost(client)
	return func(ctx context.Context) (*Document, error) {
		keys, err := keySet(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, documentTimeout)
		defer cancel()
		data, err := get(ctx, client, strings.TrimSuffix(url, "/")+BundlePath)
		if err != nil {
			return nil, err
		}
		return parseBundle(data, keys)
	}
}

// parseBundle parses a SPIFFE bundle, and combines it with the Document of the key set. Source:
// SPIFFE Trust Domain and Bundle §4.
func parseBundle(data []byte, keys *Document) (*Document, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil || set.Keys == nil {
		return nil, errors.New("the SPIFFE bundle is not a JSON Web Key Set")
	}
	both := &Document{Invalid: keys.Invalid}
	var inBundle []string
	for _, raw := range set.Keys {
		if id, ours := bundleAuthority(raw); ours {
			both.KIDs = append(both.KIDs, id)
		} else if kid, ours := documentKey(raw); ours {
			inBundle = append(inBundle, kid)
		} else if len(both.Invalid) < maxStrangers {
			both.Invalid = append(both.Invalid, kid[:min(len(kid), maxStranger)])
		}
	}
	for _, kid := range keys.KIDs {
		if slices.Contains(inBundle, kid) {
			both.KIDs = append(both.KIDs, kid)
		} else {
			both.Partial = append(both.Partial, kid)
		}
	}
	for _, kid := range inBundle {
		if !slices.Contains(keys.KIDs, kid) {
			both.Partial = append(both.Partial, kid)
		}
	}
	return both, nil
}

// bundleAuthority reports whether an entry of a SPIFFE bundle is an authority, and returns the
// authority's ID.
func bundleAuthority(raw json.RawMessage) (id string, ours bool) {
	var jwk jose.JSONWebKey
	if json.Unmarshal(raw, &jwk) != nil || jwk.Use != UseX509 || len(jwk.Certificates) != 1 {
		return "", false
	}
	return svid.AuthorityID(jwk.Certificates[0]), true
}

// get returns the document at a URL. It fails if the document has more than maxDocument bytes.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, errors.New("the address of a public document is not a URL")
	}
	resp, err := client.Do(req)
	if errors.Is(err, errElsewhere) {
		return nil, errElsewhere // err itself would quote a URL that the server chose
	}
	if err != nil {
		return nil, fmt.Errorf("read a public document: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read a public document: HTTP status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read a public document: %w", err)
	}
	if len(data) > maxDocument {
		return nil, fmt.Errorf("a public document has more than %d bytes", maxDocument)
	}
	return data, nil
}
