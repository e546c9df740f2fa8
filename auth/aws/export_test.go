package aws

import "github.com/lanyard-dev/lanyard/auth"

// Remembered is how many roles the provider remembers.
func Remembered(p *Provider) int { return p.roles.Len() }

// SessionName is the session name of a subject.
func SessionName(subject auth.Subject) string { return sessionName(subject) }

// Clean is what of a service's message gets into an error.
func Clean(message string, secrets ...auth.Secret) string { return clean(message, secrets) }

// SessionRequestOf is what an account asks for.
func SessionRequestOf(account auth.Account) (SessionRequest, error) { return sessionRequestOf(account) }
