package azure

import (
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// maxForm bounds a form that is posted to a token service, in bytes.
const maxForm = 256 << 10

const jsonType = "application/json; charset=utf-8"

func writeJSON(status int, body any) service.Answer {
	return service.Whole(status, jsonType, wire.Must(json.Marshal(body)))
}

// errForm is a posted form that cannot be read in one way only.
var errForm = errors.New("the form cannot be read")

// readForm reads a form that was posted. A parameter that is given twice is an error that names it,
// except for those in repeated.
func readForm(r *service.Request, repeated ...string) (url.Values, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/x-www-form-urlencoded" {
		return url.Values{}, nil // as if nothing had been sent: what is missing is then named
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

// twiceError is a parameter that stands twice.
type twiceError struct{ name string }

func (e *twiceError) Error() string {
	return "the parameter " + strings.ToValidUTF8(e.name, "?") + " stands there twice"
}
