package kustomize

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// A request is the length of the header in four bytes, the header in JSON, and the archive.

// header is the first part of a request.
type header struct {
	Spec   Spec   `json:"spec"`
	Limits Limits `json:"limits"`
}

// An answer is a byte: 0, and then a JSON list of objects; or 1, and then an Error in JSON.
const (
	answerObjects = 0
	answerError   = 1
)

// encodeRequest returns the parts of a request.
func encodeRequest(h header, archive []byte) ([][]byte, error) {
	content, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return [][]byte{binary.BigEndian.AppendUint32(nil, uint32(len(content))), content, archive}, nil //nolint:gosec // the spec is an object of the API server, of at most a few MiB
}

// decodeRequest is the inverse of encodeRequest.
func decodeRequest(request []byte) (h header, archive []byte, err error) {
	if len(request) < 4 {
		return h, nil, errors.New("the request is too short")
	}
	length, rest := uint64(binary.BigEndian.Uint32(request)), request[4:]
	if length > uint64(len(rest)) {
		return h, nil, errors.New("the request is too short")
	}
	err = json.Unmarshal(rest[:length], &h)
	return h, rest[length:], err
}

// Serve answers a request of a [Builder]. It is the function that a child passes to sandbox.Serve.
func Serve(ctx context.Context, request []byte) (answer []byte) {
	h, archive, err := decodeRequest(request)
	if err != nil {
		return encodeError(invalid("", err.Error(), ""))
	}
	objects, err := build(ctx, archive, h.Spec, h.Limits)
	if err != nil {
		var failure *Error
		if !errors.As(err, &failure) {
			failure = invalid("", err.Error(), "")
		}
		return encodeError(failure)
	}
	answer = []byte{answerObjects, '['}
	for i, object := range objects {
		if i > 0 {
			answer = append(answer, ',')
		}
		answer = append(answer, object...)
	}
	return append(answer, ']')
}

func encodeError(failure *Error) []byte {
	content, err := json.Marshal(failure)
	if err != nil {
		content = []byte("{}") // cannot happen: an Error has only texts
	}
	return append([]byte{answerError}, content...)
}
