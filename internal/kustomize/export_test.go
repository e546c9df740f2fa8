package kustomize

import (
	"context"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
)

// BuildHere builds in this process, for tests.
func BuildHere(ctx context.Context, archive []byte, spec Spec, limits Limits) ([][]byte, error) {
	made, err := build(ctx, archive, spec, nil, nil, limits)
	return made.objects, err
}

// Decrypted is what a build of encrypted files made.
type Decrypted struct {
	Objects     [][]byte
	Missing     []masterkey.File
	Unencrypted []string
}

// DecryptHere builds in this process, with the data keys of encrypted files.
func DecryptHere(ctx context.Context, archive []byte, spec Spec, dataKeys map[string][]byte, limits Limits) (Decrypted, error) {
	made, err := build(ctx, archive, spec, &decryption{DataKeys: dataKeys}, sopsfile.Open, limits)
	return Decrypted{made.objects, made.missing, made.report.Unencrypted}, err
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
	a, err := decodeAnswer(answer, limits)
	return len(a.objects), a.failure, err
}
