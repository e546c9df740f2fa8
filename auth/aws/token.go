package aws

import (
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/auth"
)

// Token is a session of AWS. It hides its secrets from every fmt verb, from JSON and from logs.
type Token struct {
	// AccessKeyID is the ID of the key. It is hidden too, because it reveals the account.
	AccessKeyID auth.Secret
	// SecretAccessKey is the secret key that signs requests.
	SecretAccessKey auth.Secret
	// SessionToken is sent with every request; empty if the keys do not belong to a session.
	SessionToken auth.Secret
	// ExpiresAt is the end of the session, UTC. Source: Credentials.Expiration of the AWS STS API
	// reference.
	ExpiresAt time.Time
	// ARN is the identity of the session. Source: AssumedRoleUser.Arn and GetCallerIdentity of the
	// AWS STS API reference. Empty if AWS STS did not return an ARN.
	ARN string
	// AccountID is the account of ARN, twelve digits; empty without ARN.
	AccountID string
}

// StaticToken makes a token of keys that do not expire. The token itself expires after an hour, so
// that the keys are read again. The session token is empty for the keys of a user.
func StaticToken(accessKeyID, secretAccessKey, sessionToken auth.Secret) *Token {
	return &Token{
		AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, SessionToken: sessionToken,
		ExpiresAt: time.Now().Add(staticLifetime).UTC(),
	}
}

// staticLifetime is the lifetime of a token whose keys have no expiration. When it ends, the keys
// are read again.
const staticLifetime = time.Hour

// GetDuration implements [auth.Token].
func (t Token) GetDuration() time.Duration { return time.Until(t.ExpiresAt) }

// Credentials returns the token as credentials of the AWS SDK. Printing them shows their secrets.
func (t Token) Credentials() awssdk.Credentials {
	return awssdk.Credentials{
		AccessKeyID:     t.AccessKeyID.Reveal(),
		SecretAccessKey: t.SecretAccessKey.Reveal(),
		SessionToken:    t.SessionToken.Reveal(),
		Source:          "lanyard",
		CanExpire:       true,
		Expires:         t.ExpiresAt,
		AccountID:       t.AccountID,
	}
}

// String returns only the time when the session ends, and no secret.
func (t Token) String() string {
	return "[AWS session until " + t.ExpiresAt.UTC().Format(time.RFC3339) + "]"
}

// Format prints String for every verb.
func (t Token) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(t.String())) }

// MarshalText returns String, so that JSON, YAML and structured logs hide the secrets too.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
