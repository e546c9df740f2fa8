package kustomize

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A request is the length of the header in four bytes, the header in JSON, and the archive.

// header is the first part of a request.
type header struct {
	Spec   Spec   `json:"spec"`
	Limits Limits `json:"limits"`
}

// An answer is a byte, and then: for 0, each object's length in four bytes and the object in JSON; for
// 1, an Error in JSON.
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

// Function is the name of [Serve] in sandbox.Functions.
const Function = "build"

// Serve answers a request of a [Builder] in a child.
func Serve(ctx context.Context, request []byte) (answer []byte) {
	var objects [][]byte
	h, archive, err := decodeRequest(request)
	if err == nil {
		objects, err = build(ctx, archive, h.Spec, h.Limits)
	}
	if err != nil {
		failure, ok := errors.AsType[*Error](err)
		if !ok {
			failure = invalid("", err.Error(), "report this input to the developers of Lanyard")
		}
		return encodeError(failure)
	}
	answer = []byte{answerObjects}
	for _, object := range objects {
		answer = binary.BigEndian.AppendUint32(answer, uint32(len(object))) //nolint:gosec // at most Limits.ObjectBytes
		answer = append(answer, object...)
	}
	return answer
}

// decodeAnswer reads an answer. Hostile input may have taken over the child, so decodeAnswer trusts
// nothing, and counts before it decodes. The failure is the child's error. The error err is for an
// answer that an honest child never gives. It contains nothing of the answer.
func decodeAnswer(answer []byte, limits Limits) (objects []*unstructured.Unstructured, failure *Error, err error) {
	if len(answer) == 0 {
		return nil, nil, errors.New("the answer is empty")
	}
	content := answer[1:]
	switch answer[0] {
	case answerError:
		failure, err = decodeError(content)
		return nil, failure, err
	case answerObjects:
	default:
		return nil, nil, errors.New("the answer is neither objects nor an error")
	}
	count := counter{limits: limits}
	for len(content) > 0 {
		if len(content) < 4 || int64(binary.BigEndian.Uint32(content)) > int64(len(content)-4) {
			return nil, nil, errors.New("the answer ends too early")
		}
		end := 4 + int(binary.BigEndian.Uint32(content))
		text := content[4:end]
		content = content[end:]
		if exceeds := count.add(text); exceeds != nil {
			return nil, nil, errors.New(exceeds.Message)
		}
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON(text) != nil || object.GetName() == "" || object.GetAPIVersion() == "" {
			return nil, nil, fmt.Errorf("object %d is no object of Kubernetes", count.objects)
		}
		objects = append(objects, object)
	}
	return objects, nil, nil
}

// maxErrorBytes bounds the JSON of an error.
const maxErrorBytes = 16 << 10

// decodeError reads the error of a child.
func decodeError(content []byte) (*Error, error) {
	failure := &Error{}
	if len(content) > maxErrorBytes || json.Unmarshal(content, failure) != nil {
		return nil, errors.New("the answer has no error")
	}
	if !slices.Contains([]Reason{ReasonRefused, ReasonInvalid, ReasonSubstitution, ReasonTooLarge}, failure.Reason) || failure.Message == "" {
		return nil, errors.New("the answer has no reason or no message")
	}
	failure.Place, failure.Message, failure.Fix = clip(failure.Place), clip(failure.Message), clip(failure.Fix)
	return failure, nil
}

func encodeError(failure *Error) []byte {
	content, err := json.Marshal(failure)
	if err != nil {
		content = []byte("{}") // cannot happen: an Error has only texts
	}
	return append([]byte{answerError}, content...)
}
