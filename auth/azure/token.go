package azure

import (
	"fmt"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
)

// Token is an access token of Microsoft Entra for one resource. It hides its secret from every fmt
// verb, from JSON and from logs.
type Token struct {
	// Secret is the bearer token (RFC 6750).
	Secret auth.Secret
	// ExpiresAt is the time when the token expires, UTC. Source: expires_in of the token response
	// (RFC 6749 §5.1).
	ExpiresAt time.Time
}

// GetDuration implements [auth.Token].
func (t Token) GetDuration() time.Duration { return time.Until(t.ExpiresAt) }

// Bearer implements [auth.BearerToken].
func (t Token) Bearer() auth.Secret { return t.Secret }

// String returns only the time when the token expires, and no secret.
func (t Token) String() string {
	return "[Azure token until " + t.ExpiresAt.UTC().Format(time.RFC3339) + "]"
}

// Format prints String for every verb.
func (t Token) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(t.String())) }

// MarshalText returns String, so that JSON, YAML and structured logs hide the secret too.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
