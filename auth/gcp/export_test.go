package gcp

import (
	"reflect"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Remembered returns the number of identities that the provider remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// RetryMetadata sets how long the provider waits after a failed attempt to identify its cluster.
func RetryMetadata(p *Provider, after time.Duration) { p.metadata.retry = after }

// What returns the codes of a service's refusal, as error texts show them.
func What(body []byte) string { return parseProblem(body).what() }

// ParseToken reads the response to a token exchange. The token's lifetime counts from the time when
// the request was sent.
func ParseToken(body []byte, asked time.Time) (*Token, error) { return parseToken(body, asked) }

// ParseAccountToken reads a response of generateAccessToken.
func ParseAccountToken(body []byte, asked time.Time) (*Token, error) {
	return parseAccountToken(body, asked)
}

// Identity parses the values of a subject's annotations, and then parses the canonical form of the
// result. It returns both canonical forms, and whether the two parsed identities are equal.
func Identity(account, provider string, flux bool) (said, read string, same bool, err error) {
	universe := endpoint.GCPUniverses()[0]
	a, err := parseStatement(statement{account: account, provider: provider, flux: flux}, universe)
	if err != nil {
		return "", "", false, err
	}
	b, err := parseIdentity(a.text, universe)
	return a.text, b.text, reflect.DeepEqual(a, b), err
}
