package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Registries are the registries that sources name.
type Registries struct {
	// Access is how they are reached. Required.
	Access *source.Access
	// Limits bound what is read of them; zero fields stand for package oci's defaults.
	Limits oci.Limits
}

// Ask connects to the repository as the call's identity and has work use the connection. Who that is stands in the status, even
// if the registry refuses. work runs a second time when the registry has ended a minted credential early.
func (r Registries) Ask(
	ctx context.Context, call source.Call, status *meta.Status, repository oci.Repository, work func(context.Context, *oci.Client) error,
) error {
	conn, err := r.Access.Connect(ctx, call, repository.Host())
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := r.credential(ctx, call, conn, repository, 0)
	if err != nil {
		if !auth.IsTemporary(err) {
			status.Identity = nil // it was refused
		}
		return err
	}
	attempt := func() error {
		status.Identity = c.identity
		err := conn.Explain(r.attempt(ctx, call, conn, repository, c, work))
		if err != nil && c.identity != nil {
			err = fmt.Errorf("as %s: %w", c.name(), err)
		}
		return err
	}
	err = attempt()
	if oci.CodeOf(err) == oci.CodeUnauthorized && conn.Bound() {
		// The registry may have ended the credential early. One that lives longer than this one is another.
		if c, err = r.credential(ctx, call, conn, repository, source.Another(c.token)); err != nil {
			return err
		}
		err = attempt()
	}
	return err
}

func (r Registries) attempt(
	ctx context.Context, call source.Call, conn *source.Connection, repository oci.Repository, c credential, work func(context.Context, *oci.Client) error,
) error {
	client, err := oci.Connect(ctx, repository, oci.Options{
		Auth: c.login, Transport: wire{conn}, Insecure: call.Identity.Insecure, Limits: r.Limits,
	})
	if err != nil {
		return err
	}
	return work(ctx, client)
}

// wire tells the registry's client what a detour is: an answer that the registry must not give.
type wire struct{ conn *source.Connection }

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.conn.RoundTrip(req)
	if detour, ok := errors.AsType[*source.DetourError](err); ok {
		return nil, &oci.Error{Code: oci.CodeProtocol, Host: detour.Host, Err: detour}
	}
	return resp, err
}
