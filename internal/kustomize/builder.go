package kustomize

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// Builder builds manifests in confined child processes.
type Builder struct {
	pool   *sandbox.Pool
	limits Limits
}

// NewBuilder returns a builder whose children come from a pool. The children must have the method of a
// [Server] as [Function].
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
	// DataKeys returns the data keys of encrypted files, by the files' names. It is called once, if
	// the build uses encrypted files. Nil: encrypted files are refused, or stay as they are.
	DataKeys func(ctx context.Context, files []masterkey.File) (map[string][]byte, error)
}

// Result is what a build made.
type Result struct {
	// Objects are the objects in kustomize's order.
	Objects []*unstructured.Unstructured
	// Unencrypted names the first Secrets of which no value was encrypted, such as "Secret a/b".
	// UnencryptedCount is the number of all such Secrets. Both are empty without DataKeys.
	Unencrypted      []string
	UnencryptedCount int
}

// Build builds an archive. It takes memory for the objects from the account of ctx ([reserve.Take]).
// An error is an [*Error] if the input is the cause; otherwise it is an error of request.DataKeys, of
// [sandbox.Pool.Do] or of [reserve.Take].
//
// With encrypted files, Build asks two children: the first finds the files, and the second gets their
// data keys. No child waits for a key service, because children are few.
func (b *Builder) Build(ctx context.Context, request Request) (Result, error) {
	h := header{Spec: request.Spec, Limits: b.limits}
	if request.DataKeys != nil {
		h.Decrypt = &decryption{}
	}
	a, err := b.ask(ctx, request, h)
	if err != nil {
		return Result{}, err
	}
	if len(a.missing) > 0 {
		if request.DataKeys == nil {
			return Result{}, badAnswer(errors.New("the child asks for data keys, and nothing is decrypted"))
		}
		if h.Decrypt.DataKeys, err = request.DataKeys(ctx, a.missing); err != nil {
			return Result{}, err
		}
		request.Secret = true
		if a, err = b.ask(ctx, request, h); err != nil {
			return Result{}, err
		}
		if len(a.missing) > 0 {
			return Result{}, badAnswer(errors.New("the child asks for data keys again"))
		}
	}
	return Result{Objects: a.objects, Unencrypted: a.report.Unencrypted, UnencryptedCount: a.report.UnencryptedCount}, nil
}

// ask sends a request to a child, and reads its answer.
func (b *Builder) ask(ctx context.Context, request Request, h header) (a answer, err error) {
	parts, err := encodeRequest(h, request.Archive)
	if err != nil {
		return a, err
	}
	err = b.pool.Do(ctx, sandbox.Request{Tenant: request.Tenant, Function: Function, Parts: parts, Alone: request.Secret}, func(content []byte) (err error) {
		// The objects stay in memory until the caller has applied them.
		if err := reserve.Take(ctx, reserve.Cost(len(content), reserve.Values(content))); err != nil {
			return err
		}
		if a, err = decodeAnswer(content, b.limits); err != nil {
			return badAnswer(err)
		}
		return nil
	})
	failure, ended := errors.AsType[*sandbox.Error](err)
	switch {
	case a.failure != nil && err == nil:
		return answer{}, a.failure
	case ended && failure.OfInput():
		return answer{}, &Error{Reason: ReasonTooLarge, Message: "the build was ended: " + failure.Err.Error(), Fix: failure.Fix}
	case err != nil:
		return answer{}, err
	}
	return a, nil
}

// badAnswer is the error for an answer that an honest child never gives.
func badAnswer(err error) *sandbox.Error {
	return &sandbox.Error{
		Reason: sandbox.ReasonCrash, Err: fmt.Errorf("the build gave no valid answer: %w", err),
		Fix: "report this artifact to the developers of Lanyard",
	}
}
