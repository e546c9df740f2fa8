package kustomize

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/internal/encryptedfile"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// A request is the length of the header in four bytes, the header in JSON, and the archive.

// header is the first part of a request.
type header struct {
	Spec   Spec   `json:"spec"`
	Limits Limits `json:"limits"`
	// Decrypt is nil if encrypted files stay as they are.
	Decrypt *decryption `json:"decrypt,omitempty"`
}

// An answer is a byte, and then:
//   - for 0: the report in JSON and the objects in JSON, each after its length in four bytes
//   - for 1: an Error in JSON
//   - for 2: the encrypted files whose data keys are missing, in JSON
const (
	answerObjects = 0
	answerError   = 1
	answerMissing = 2
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

// Function is the name of [Server.Serve] in sandbox.Functions.
const Function = "build"

// Open parses an encrypted file. The label is the file's name in [encryptedfile.File.MasterKeys]. The
// name says which format the file may have had. An error is an [*encryptedfile.Error].
type Open func(label, name string, content []byte) (encryptedfile.File, error)

// Server is the side of the child.
type Server struct {
	// Open parses encrypted files. If Open is nil, encrypted files are refused.
	Open Open
}

// Serve answers a request of a [Builder] in a child.
func (s Server) Serve(ctx context.Context, request []byte) (answer []byte) {
	var made result
	h, archive, err := decodeRequest(request)
	if err == nil {
		made, err = build(ctx, archive, h.Spec, h.Decrypt, s.Open, h.Limits)
	}
	if err != nil {
		failure, ok := errors.AsType[*Error](err)
		if !ok {
			failure = invalid("", err.Error(), "report this input to the developers of Lanyard")
		}
		return encodeError(failure)
	}
	if len(made.missing) > 0 {
		return append([]byte{answerMissing}, mustEncode(made.missing)...)
	}
	answer = []byte{answerObjects}
	for _, part := range append([][]byte{mustEncode(made.report)}, made.objects...) {
		answer = binary.BigEndian.AppendUint32(answer, uint32(len(part))) //nolint:gosec // at most Limits.ObjectBytes
		answer = append(answer, part...)
	}
	return answer
}

// mustEncode returns a value as JSON. The value has only texts, numbers and lists, so this cannot
// fail.
func mustEncode(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		return []byte("{}")
	}
	return content
}

// answer is what a child said.
type answer struct {
	objects []*unstructured.Unstructured
	report  report
	missing []masterkey.File
	failure *Error
}

// decodeAnswer reads an answer. Hostile input may have taken over the child, so decodeAnswer trusts
// nothing, and counts before it decodes. The error is for an answer that an honest child never gives.
// It contains nothing of the answer.
func decodeAnswer(content []byte, limits Limits) (a answer, err error) {
	if len(content) == 0 {
		return a, errors.New("the answer is empty")
	}
	switch rest := content[1:]; content[0] {
	case answerError:
		a.failure, err = decodeError(rest)
	case answerMissing:
		a.missing, err = decodeMissing(rest)
	case answerObjects:
		a.objects, a.report, err = decodeObjects(rest, limits)
	default:
		err = errors.New("the answer is neither objects nor an error")
	}
	return a, err
}

// decodeObjects reads the report and the objects of a child.
func decodeObjects(content []byte, limits Limits) (objects []*unstructured.Unstructured, r report, err error) {
	text, content, err := cutPart(content)
	if err != nil {
		return nil, r, err
	}
	if r, err = decodeReport(text); err != nil {
		return nil, r, err
	}
	count := counter{limits: limits}
	for len(content) > 0 {
		if text, content, err = cutPart(content); err != nil {
			return nil, r, err
		}
		if exceeds := count.add(text); exceeds != nil {
			return nil, r, errors.New(exceeds.Message)
		}
		object := &unstructured.Unstructured{}
		if object.UnmarshalJSON(text) != nil || object.GetName() == "" || object.GetAPIVersion() == "" {
			return nil, r, fmt.Errorf("object %d is no object of Kubernetes", count.objects)
		}
		objects = append(objects, object)
	}
	return objects, r, nil
}

// cutPart returns the first part of an answer, and the rest.
func cutPart(content []byte) (part, rest []byte, err error) {
	if len(content) < 4 || int64(binary.BigEndian.Uint32(content)) > int64(len(content)-4) {
		return nil, nil, errors.New("the answer ends too early")
	}
	end := 4 + int(binary.BigEndian.Uint32(content))
	return content[4:end], content[end:], nil
}

const (
	// maxMissing bounds the JSON of the encrypted files, in bytes. A post-quantum key of age needs
	// 5 KB.
	maxMissing = 8 << 20
	// maxUnencrypted is how many Secrets a report names.
	maxUnencrypted = 3
)

// decodeReport reads the report of a child.
func decodeReport(content []byte) (r report, err error) {
	if len(content) > maxErrorBytes || json.Unmarshal(content, &r) != nil || len(r.Unencrypted) > maxUnencrypted {
		return report{}, errors.New("the answer has no report")
	}
	for i, name := range r.Unencrypted {
		r.Unencrypted[i] = clip(name)
	}
	return r, nil
}

// decodeMissing reads the encrypted files whose data keys a child asks for.
func decodeMissing(content []byte) (files []masterkey.File, err error) {
	if len(content) > maxMissing || json.Unmarshal(content, &files) != nil || len(files) == 0 || len(files) > maxEncryptedFiles {
		return nil, errors.New("the answer has no encrypted files, or too many")
	}
	seen := map[string]bool{}
	for i := range files {
		if err := files[i].Check(); err != nil {
			return nil, fmt.Errorf("encrypted file %d: %w", i, err)
		}
		if seen[files[i].Name] {
			return nil, fmt.Errorf("encrypted file %d has the name of another one", i)
		}
		seen[files[i].Name] = true
	}
	return files, nil
}

// maxErrorBytes bounds the JSON of an error.
const maxErrorBytes = 16 << 10

// decodeError reads the error of a child.
func decodeError(content []byte) (*Error, error) {
	failure := &Error{}
	if len(content) > maxErrorBytes || json.Unmarshal(content, failure) != nil {
		return nil, errors.New("the answer has no error")
	}
	if !slices.Contains([]Reason{ReasonRefused, ReasonInvalid, ReasonSubstitution, ReasonDecryption, ReasonTooLarge}, failure.Reason) || failure.Message == "" {
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
