package registry

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/api/meta"
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

// Ask connects to the repository as the call's identity and has work use the connection, with the promises of [source.Use].
func (r Registries) Ask(
	ctx context.Context, call source.Call, status *meta.Status, repository oci.Repository, work func(context.Context, *oci.Client) error,
) error {
	conn, err := r.Access.Connect(ctx, call, repository.Host())
	if err != nil {
		return err
	}
	defer conn.Close()
	return source.Use(r.Access, conn, status,
		func(minRemaining time.Duration) (credential, error) {
			return r.credential(ctx, call, conn, repository, minRemaining)
		},
		func(c credential) error {
			client, err := oci.Connect(ctx, repository, oci.Options{
				Auth: c.basic, Transport: wire{conn}, Insecure: call.Identity.Insecure, Limits: r.Limits,
			})
			if err != nil {
				return err
			}
			return work(ctx, client)
		},
		func(err error) bool { return oci.CodeOf(err) == oci.CodeUnauthorized })
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
