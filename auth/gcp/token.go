package gcp

import (
	"fmt"
	"time"

	"golang.org/x/oauth2"

	"github.com/lanyard-dev/lanyard/auth"
)

// Token is an access token of Google Cloud. It hides its secret from every fmt verb, from JSON and
// from logs.
type Token struct {
	// Secret is the bearer token (RFC 6750).
	Secret auth.Secret
	// ExpiresAt is the time when the token expires, UTC. Source: expires_in of the Security Token
	// Service, expireTime of IAM Credentials.
	ExpiresAt time.Time
}

// GetDuration implements [auth.Token].
func (t Token) GetDuration() time.Duration { return time.Until(t.ExpiresAt) }

// Bearer implements [auth.BearerToken].
func (t Token) Bearer() auth.Secret { return t.Secret }

// OAuth2 returns the token in the form that Google's clients take. Unlike the Token, the result
// shows its secret when it is printed.
func (t Token) OAuth2() *oauth2.Token {
	return &oauth2.Token{AccessToken: t.Secret.Reveal(), TokenType: tokenType, Expiry: t.ExpiresAt}
}

// String returns the time when the token expires, and never its secret.
func (t Token) String() string {
	return "[Google Cloud token until " + t.ExpiresAt.UTC().Format(time.RFC3339) + "]"
}

// Format writes the text of String for every verb.
func (t Token) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(t.String())) }

// MarshalText returns the text of String, so that JSON, YAML and structured logs hide the secret
// too.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
