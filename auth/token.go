package auth

import (
	"time"
)

// Token is a credential that expires. Callers assert its concrete type. It is
// [*RegistryCredentials] if the call names an image repository. Otherwise it is the provider's own
// type, such as *aws.Token.
type Token interface {
	// GetDuration returns how long the token is valid from now on; zero or less if it has expired.
	GetDuration() time.Duration
}

// BearerToken is a [Token] that is sent unchanged in the header Authorization (RFC 6750, section
// 2.1). A cloud's access token works at all services of the cloud: show it only to the service that
// the call is for. A token with keys that sign requests, such as *aws.Token, is not a BearerToken.
type BearerToken interface {
	Token
	// Bearer returns the text that follows the scheme in the header Authorization.
	Bearer() Secret
}

// RegistryCredentials are a user and a password for a container registry, for HTTP Basic (RFC
// 7617).
type RegistryCredentials struct {
	// Username is the user's name. It is not secret.
	Username string
	// Password is the short-lived secret.
	Password Secret
	// ExpiresAt is when the password expires, in UTC, according to the service that issued it.
	ExpiresAt time.Time
}

// GetDuration implements [Token].
func (r *RegistryCredentials) GetDuration() time.Duration { return time.Until(r.ExpiresAt) }

// Secret is a string that is never printed, whether by fmt, in JSON or in a log. Only
// [Secret.Reveal] returns the string. The zero Secret is empty. Secrets are not comparable, so that
// no secret becomes a map key.
type Secret struct {
	// A closure hides the string even where fmt reaches unexported fields by reflection and ignores
	// String.
	reveal func() string
}

// NewSecret makes a Secret of s.
func NewSecret(s string) Secret { return Secret{reveal: func() string { return s }} }

// Reveal returns the string.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether the string is empty.
func (s Secret) IsZero() bool { return s.reveal == nil || s.reveal() == "" }

// String returns "[secret]".
func (Secret) String() string { return "[secret]" }

// GoString returns "[secret]".
func (Secret) GoString() string { return "[secret]" }

// MarshalText returns "[secret]", so that JSON, YAML and structured logs hide the string too.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }
