package objectstore

import (
	"context"
	"errors"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
)

// CredentialError carries an error of the source of credentials through a cloud's client. The
// client's own words would only surround it.
type CredentialError struct{ Err error }

// Error is the text of the error inside.
func (e *CredentialError) Error() string { return e.Err.Error() }

// Unwrap returns the error inside.
func (e *CredentialError) Unwrap() error { return e.Err }

// Server returns the endpoint at a host[:port].
func Server(host string, caller origin.Caller) origin.Server {
	return origin.Server{Kind: origin.Endpoint, Host: host, Caller: caller}
}

// Explain turns what a cloud's client returned into what a [Storage] returns. Nothing of the
// client's own text is taken over: it may quote an answer.
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
