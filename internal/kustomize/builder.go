package kustomize

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// Builder builds manifests in confined child processes.
type Builder struct {
	pool   *sandbox.Pool
	limits Limits
}

// NewBuilder returns a builder whose children come from a pool. The children must have [Serve] as [Function].
func NewBuilder(pool *sandbox.Pool, limits Limits) *Builder {
	return &Builder{pool: pool, limits: limits}
}

// Request is a build.
type Request struct {
	// Tenant is the namespace of the object that asks for the build.
	Tenant string
	// Archive is a tar archive, plain or gzip.
	Archive []byte
	// Spec says what to build.
	Spec Spec
	// Secret says that the archive or the spec has content that no other build of the same tenant
	// may see. Then the build gets a process of its own.
	Secret bool
}

// Build returns the objects of an archive, in kustomize's order. It takes memory for the objects from
// the account of ctx ([reserve.Take]). An error is an [*Error] if the input is the cause; otherwise
// it is an error of [sandbox.Pool.Do] or of [reserve.Take].
func (b *Builder) Build(ctx context.Context, request Request) (objects []*unstructured.Unstructured, err error) {
	parts, err := encodeRequest(header{Spec: request.Spec, Limits: b.limits}, request.Archive)
	if err != nil {
		return nil, err
	}
	var refused *Error
	err = b.pool.Do(ctx, sandbox.Request{Tenant: request.Tenant, Function: Function, Parts: parts, Alone: request.Secret}, func(answer []byte) (err error) {
		// The objects stay in memory until the caller has applied them.
		if err := reserve.Take(ctx, reserve.Cost(len(answer), reserve.Values(answer))); err != nil {
			return err
		}
		if objects, refused, err = decodeAnswer(answer, b.limits); err != nil {
			return badAnswer(err)
		}
		return nil
	})
	failure, ended := errors.AsType[*sandbox.Error](err)
	switch {
	case refused != nil && err == nil:
		return nil, refused
	case ended && failure.OfInput():
		return nil, &Error{Reason: ReasonTooLarge, Message: "the build was ended: " + failure.Err.Error(), Fix: failure.Fix}
	case err != nil:
		return nil, err
	}
	return objects, nil
}

// badAnswer is the error for an answer that an honest child never gives.
func badAnswer(err error) *sandbox.Error {
	return &sandbox.Error{
		Reason: sandbox.ReasonCrash, Err: fmt.Errorf("the build gave no valid answer: %w", err),
		Fix: "report this artifact to the developers of Lanyard",
	}
}
