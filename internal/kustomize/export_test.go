package kustomize

import "context"

// BuildHere builds in this process, for tests.
func BuildHere(ctx context.Context, archive []byte, spec Spec, limits Limits) ([][]byte, error) {
	return build(ctx, archive, spec, limits)
}

// Passes reports whether an entry of the field resources is accepted as a local path.
func Passes(entry string) bool {
	_, err := resolve("resources[0]", ".", entry, isRepository)
	return err == nil
}

// DecodeRequest is decodeRequest.
func DecodeRequest(request []byte) (Spec, []byte, error) {
	h, archive, err := decodeRequest(request)
	return h.Spec, archive, err
}

// Decode reads an answer as a builder with the given limits does.
func Decode(limits Limits, answer []byte) (objects int, failure *Error, err error) {
	list, failure, err := decodeAnswer(answer, limits)
	return len(list), failure, err
}
