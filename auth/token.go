package auth

import (
	"time"
)

// Token is a credential with an end. Every provider has a concrete type of its own, which callers assert:
// [*RegistryCredentials] when an image repository was asked for, *aws.Token and so on otherwise.
type Token interface {
	// GetDuration is how long the token is valid from now on; zero or less when it has expired.
	GetDuration() time.Duration
}

// RegistryCredentials authenticate at a container registry with HTTP Basic (RFC 7617).
type RegistryCredentials struct {
	// Username is not secret.
	Username string
	// Password is the short-lived secret.
	Password Secret
	// ExpiresAt is when the registry stops accepting the password, UTC; source: the registry's token answer.
	ExpiresAt time.Time
}

// GetDuration implements [Token].
func (r *RegistryCredentials) GetDuration() time.Duration { return time.Until(r.ExpiresAt) }

// Secret is a string that does not print: not with any fmt verb, in JSON, or in a log. Only [Secret.Reveal] gives it out.
// The zero Secret is empty. Secrets are not comparable, so that none becomes a map key.
type Secret struct {
	// A closure stays hidden even where fmt reaches unexported fields by reflection and ignores String.
	reveal func() string
}

// NewSecret hides s.
func NewSecret(s string) Secret { return Secret{reveal: func() string { return s }} }

// Reveal is the secret itself.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.reveal == nil || s.reveal() == "" }

// String is always the same word.
func (Secret) String() string { return "[secret]" }

// GoString is always the same word.
func (Secret) GoString() string { return "[secret]" }

// MarshalText is always the same word, so that JSON, YAML and structured logs hide it too.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }
