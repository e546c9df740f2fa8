package gcp

import (
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Remembered is how many claims the provider remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// RetryMetadata sets how long a failure to ask about the cluster stands.
func RetryMetadata(p *Provider, after time.Duration) { p.metadata.retry = after }

// What is what of a service's refusal gets into an error.
func What(body []byte) string { return parseProblem(body).what() }

// ParseToken and ParseAccountToken read answers to questions that were put at started.
func ParseToken(body []byte, started time.Time) (*Token, error) { return parseToken(body, started) }

// ParseAccountToken is generateAccessToken's answer.
func ParseAccountToken(body []byte, started time.Time) (*Token, error) {
	return parseAccountToken(body, started)
}

// Identity is the canonical form of what a subject says, and that of the identity which a key with it leads to.
func Identity(account, provider string) (said, read string, same bool, err error) {
	universe := endpoint.GCPUniverses()[0]
	a, err := parseClaim(claim{account: account, provider: provider}, universe)
	if err != nil {
		return "", "", false, err
	}
	b, err := parseIdentity(a.text, universe)
	return a.text, b.text, a == b, err
}
