package objectstore

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// CredentialError marks an error from the source of the credentials. [Explain] finds the marked
// error in the error of a cloud's client, and drops the client's own text.
type CredentialError struct{ Err error }

// Error returns the text of the wrapped error.
func (e *CredentialError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *CredentialError) Unwrap() error { return e.Err }

// Server returns the endpoint at a host[:port].
func Server(host string, caller origin.Caller) origin.Server {
	return origin.Server{Kind: origin.Endpoint, Host: host, Caller: caller}
}

// Explain converts an error of a cloud's client to an error of a [Storage]. The client's own text
// is dropped, because it may quote an answer.
func Explain(ctx context.Context, server origin.Server, err error) error {
	if err == nil {
		return nil
	}
	if credential, ok := errors.AsType[*CredentialError](err); ok {
		return credential.Err
	}
	if origin.CodeOf(err) != "" || context.Cause(ctx) != nil {
		return server.NoAnswer(ctx, err)
	}
	return &origin.Error{
		Server: server, Code: origin.CodeProtocol, Field: "spec.endpoint", Err: errors.New("the answer cannot be understood"),
	}
}
