package gcp

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxTokenLife is the longest life of an access token. Source: IAM, "Access tokens: lifetimes". The
// organization policy that allows longer lives is not supported.
const maxTokenLife = time.Hour

// Prefixes of Google's access tokens. Clients must not rely on them.
const (
	prefixFederated = "ya29.d."
	prefixAccount   = "ya29.c."
	prefixRegistry  = "AJAD5v"
)

// Scopes that the local cloud checks. Source: Google, "OAuth 2.0 Scopes for Google APIs".
const (
	scopePrefix        = "https://www.googleapis.com/auth/"
	scopeCloudPlatform = scopePrefix + "cloud-platform"
	scopeCloudReadOnly = scopePrefix + "cloud-platform.read-only"
	scopeIAM           = scopePrefix + "iam"
	scopeKMS           = scopePrefix + "cloudkms"
	scopeStorageRead   = scopePrefix + "devstorage.read_only"
	scopeStorageWrite  = scopePrefix + "devstorage.read_write"
	scopeStorageFull   = scopePrefix + "devstorage.full_control"
)

// isNoScope reports whether a text cannot be a scope: it is neither a URL nor a scope of OpenID
// Connect.
func isNoScope(scope string) bool {
	if slices.Contains([]string{"openid", "email", "profile"}, scope) {
		return false
	}
	return !strings.HasPrefix(scope, "https://") || strings.ContainsAny(scope, " \t\r\n")
}

// accessToken is the cloud's record of an issued token. It is immutable.
type accessToken struct {
	who     principal
	scopes  []string
	expires time.Time
	// registry is the host of the registry that issued the token. It is empty if no registry issued
	// the token.
	registry string
}

// issue stores a token and returns its text.
func (c *Cloud) issue(prefix string, t accessToken, now time.Time) string {
	token := prefix + randomText(192)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens.Put(token, t, t.expires, now)
	return token
}

func randomText(bytes int) string {
	return base64.RawURLEncoding.EncodeToString(wire.Random(bytes))
}

// newUniqueID returns an ID for a service account: 21 digits that begin with 1, like Google's.
func newUniqueID() string { return "1" + wire.Text("0123456789", 20) }
