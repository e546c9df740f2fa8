package aws

import "github.com/lanyard-dev/lanyard/auth"

// Remembered returns the number of roles that the provider has parsed and remembers.
func Remembered(p *Provider) int { return p.roles.Len() }

// SessionName returns the session name of a subject.
func SessionName(subject auth.Subject) string { return sessionName(subject) }

// Clean returns the part of a service's message that an error may contain.
func Clean(message string, secrets ...auth.Secret) string { return clean(message, secrets) }

// SessionRequestOf returns the session that an account requests.
func SessionRequestOf(account auth.Account) (SessionRequest, error) { return sessionRequestOf(account) }
