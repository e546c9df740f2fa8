package kustomize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// Builder builds manifests in confined child processes.
type Builder struct {
	pool   *sandbox.Pool
	limits Limits
}

// NewBuilder returns a builder whose children come from a pool. The children must call [Serve].
func NewBuilder(pool *sandbox.Pool, limits Limits) *Builder {
	return &Builder{pool: pool, limits: limits}
}

// Request is a build.
type Request struct {
	// Tenant is the namespace of the object for which is built.
	Tenant string
	// Archive is a tar archive, plain or gzip.
	Archive []byte
	// Spec says what to build.
	Spec Spec
	// Secret says that the archive or the spec has content that no other build of the same tenant
	// may see. Then the build gets a process of its own.
	Secret bool
}

// Build returns the objects of an archive, in kustomize's order. An error is an [*Error] if the
// input is the cause; otherwise it is an error of [sandbox.Pool.Do].
func (b *Builder) Build(ctx context.Context, request Request) ([]*unstructured.Unstructured, error) {
	parts, err := encodeRequest(header{Spec: request.Spec, Limits: b.limits}, request.Archive)
	if err != nil {
		return nil, err
	}
	answer, err := b.pool.Do(ctx, sandbox.Request{Tenant: request.Tenant, Parts: parts, Alone: request.Secret})
	var failure *sandbox.Error
	switch {
	case errors.As(err, &failure) && failure.Reason != sandbox.ReasonUnavailable && failure.Reason != sandbox.ReasonCrash:
		return nil, &Error{Reason: ReasonTooLarge, Message: "the build was ended: " + failure.Err.Error(), Fix: failure.Fix}
	case err != nil:
		return nil, err
	}
	return b.decode(answer)
}

// decode reads an answer. Hostile input may have taken over the child, so decode trusts nothing.
func (b *Builder) decode(answer []byte) ([]*unstructured.Unstructured, error) {
	if len(answer) == 0 || answer[0] != answerObjects && answer[0] != answerError {
		return nil, badAnswer(errors.New("the answer is neither objects nor an error"))
	}
	content := answer[1:]
	if answer[0] == answerError {
		failure := &Error{}
		if err := json.Unmarshal(content, failure); err != nil || failure.Message == "" {
			return nil, badAnswer(errors.Join(err, errors.New("the answer has no message")))
		}
		failure.Place, failure.Message, failure.Fix = clip(failure.Place), clip(failure.Message), clip(failure.Fix)
		return nil, failure
	}
	var list []json.RawMessage
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, badAnswer(err)
	}
	if len(list) > b.limits.Objects {
		return nil, badAnswer(fmt.Errorf("the answer has %d objects", len(list)))
	}
	objects := make([]*unstructured.Unstructured, len(list))
	for i, object := range list {
		objects[i] = &unstructured.Unstructured{}
		if err := objects[i].UnmarshalJSON(object); err != nil {
			return nil, badAnswer(err)
		}
		if objects[i].GetName() == "" || objects[i].GetAPIVersion() == "" {
			return nil, badAnswer(errors.New("an object has no name or no apiVersion"))
		}
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
