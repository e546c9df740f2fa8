package gcp

import (
	"reflect"
	"time"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Remembered is how many identities the provider remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// RetryMetadata sets how long a failure to learn the cluster is remembered.
func RetryMetadata(p *Provider, after time.Duration) { p.metadata.retry = after }

// What returns the codes of a service's refusal, as error texts show them.
func What(body []byte) string { return parseProblem(body).what() }

// ParseToken reads the response to a token exchange. The parameter asked is the time when the
// request was sent.
func ParseToken(body []byte, asked time.Time) (*Token, error) { return parseToken(body, asked) }

// ParseAccountToken reads a response of generateAccessToken. The parameter asked is the time when
// the request was sent.
func ParseAccountToken(body []byte, asked time.Time) (*Token, error) {
	return parseAccountToken(body, asked)
}

// Identity parses a subject's statement into its canonical form, and parses this form again. It
// returns both canonical forms, and whether both results are the same.
func Identity(account, provider string, flux bool) (said, read string, same bool, err error) {
	universe := endpoint.GCPUniverses()[0]
	a, err := parseStatement(statement{account: account, provider: provider, flux: flux}, universe)
	if err != nil {
		return "", "", false, err
	}
	b, err := parseIdentity(a.text, universe)
	return a.text, b.text, reflect.DeepEqual(a, b), err
}
