package aws

import (
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/auth"
)

// Token is a session at AWS. It does not print, not with any fmt verb, in JSON or in a log.
type Token struct {
	// AccessKeyID names the key. It is hidden with the rest, because it tells the account.
	AccessKeyID auth.Secret
	// SecretAccessKey signs requests.
	SecretAccessKey auth.Secret
	// SessionToken goes with every request; empty for keys that are no session's.
	SessionToken auth.Secret
	// ExpiresAt is the end of the session, UTC; source: Credentials.Expiration of the AWS STS API reference.
	ExpiresAt time.Time
}

// GetDuration implements [auth.Token].
func (t Token) GetDuration() time.Duration { return time.Until(t.ExpiresAt) }

// Credentials are what the AWS SDK signs with.
func (t Token) Credentials() awssdk.Credentials {
	return awssdk.Credentials{
		AccessKeyID:     t.AccessKeyID.Reveal(),
		SecretAccessKey: t.SecretAccessKey.Reveal(),
		SessionToken:    t.SessionToken.Reveal(),
		Source:          "lanyard",
		CanExpire:       true,
		Expires:         t.ExpiresAt,
	}
}

// String says when the session ends, and no more.
func (t Token) String() string {
	return "[AWS session until " + t.ExpiresAt.UTC().Format(time.RFC3339) + "]"
}

// Format is String for every verb.
func (t Token) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(t.String())) }

// MarshalText is String, so that JSON, YAML and structured logs hide the session too.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
