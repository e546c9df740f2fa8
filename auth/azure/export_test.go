package azure

import (
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// Remembered is how many identities the provider remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// EntraToken reads a token answer of Microsoft Entra.
func EntraToken(body []byte, asked time.Time) (*Token, error) { return entraToken(body, asked) }

// RegistryAnswer reads a token answer of a registry.
func RegistryAnswer(body []byte, field string, asked time.Time) (*Token, error) {
	return registryAnswer(body, field, asked)
}

// Refusal is the failure that an answer of Microsoft Entra comes to.
func Refusal(status int, body []byte) error {
	f, _ := entraFailure(remote.Answer{Status: status, Body: body}, "Microsoft Entra")
	return f.Error(auth.StageExchange, "token")
}
