package azure

import (
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// Remembered returns the number of identities that the provider has parsed and remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// ParseToken reads a token response of Microsoft Entra.
func ParseToken(body []byte, asked time.Time) (*Token, error) { return parseToken(body, asked) }

// ParseRegistryToken reads a token response of a registry.
func ParseRegistryToken(body []byte, field string, asked time.Time) (*Token, error) {
	return parseRegistryToken(body, field, asked)
}

// Refusal returns the error for an answer of Microsoft Entra.
func Refusal(status int, body []byte) error {
	f, _ := entraFailure(remote.Answer{Status: status, Body: body}, "Microsoft Entra")
	return f.Error(auth.StageExchange, "token")
}
