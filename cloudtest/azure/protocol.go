package azure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxForm is the maximum size of a form for a token service, in bytes.
const maxForm = 256 << 10

const jsonType = "application/json; charset=utf-8"

func writeJSON(status int, body any) service.Answer {
	return service.Whole(status, jsonType, wire.Must(json.Marshal(body)))
}

// maxManagementBody is the maximum size of JSON for a management service, in bytes.
const maxManagementBody = 1 << 20

// readJSON decodes the body, which must be one JSON value with known fields only.
func readJSON(r *service.Request, into any) error {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return errors.New("the content type is not application/json")
	}
	body, err := r.ReadBody(maxManagementBody)
	if err != nil {
		return errors.New("the body cannot be read")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err // unwrapped: encoding/json's error names the field
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end of the JSON value")
	}
	return nil
}

// errForm is the error for a form or a query that cannot be parsed.
var errForm = errors.New("the form cannot be read")

// readForm reads a posted form. It returns a [*twiceError] if a parameter is given twice, unless
// the caller allows the parameter to be repeated.
func readForm(r *service.Request, repeated ...string) (url.Values, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/x-www-form-urlencoded" {
		return url.Values{}, nil // the caller of readForm then reports the missing parameters
	}
	body, err := r.ReadBody(maxForm)
	if err != nil {
		return nil, errForm
	}
	return readValues(string(body), repeated...)
}

func readValues(encoded string, repeated ...string) (url.Values, error) {
	values, err := url.ParseQuery(encoded)
	if err != nil {
		return nil, errForm
	}
	for name, v := range values {
		if len(v) > 1 && !slices.Contains(repeated, name) {
			return nil, &twiceError{name: name}
		}
	}
	return values, nil
}

// twiceError is the error for a parameter that is given twice.
type twiceError struct{ name string }

func (e *twiceError) Error() string {
	return "the parameter " + strings.ToValidUTF8(e.name, "?") + " stands there twice"
}
