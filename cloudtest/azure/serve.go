package azure

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// maxForm bounds a form that is posted to a token service, in bytes.
const maxForm = 256 << 10

// ServeCall answers a request to a host that [Cloud.Owns] and fills in what the journal is to say about it, before it writes the answer. Recording the
// call is the caller's. It panics with [http.ErrAbortHandler] to drop the connection when a fault says so.
func (c *Cloud) ServeCall(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	ep, ok := c.parseHost(strings.ToLower(call.Host))
	if !ok {
		call.Code, call.Reason = "UnknownHost", "not a host of Azure"
		http.Error(w, call.Reason, http.StatusMisdirectedRequest)
		return
	}
	if ep.service == ServiceRegistry && !ep.data && strings.HasPrefix(r.URL.Path, "/oauth2/") {
		ep.service = ServiceRegistryTokens
	}
	call.Service = ep.service
	switch {
	case ep.service == ServiceEntra:
		c.serveEntra(w, r, ep.environment, call)
	case ep.service == ServiceRegistryTokens:
		c.serveRegistryTokens(w, r, ep.registry, call)
	case ep.service == ServiceBlob:
		c.serveBlob(w, r, ep.account, call)
	case ep.data:
		c.serveData(w, r, ep.registry, call)
	default:
		c.serveRegistry(w, r, ep.registry, call)
	}
}

// begin applies the faults that hit the call. It returns the service's time, and false if the answer was given.
func (c *Cloud) begin(ctx context.Context, w http.ResponseWriter, p protocol, call *journal.Call) (time.Time, bool) {
	return c.faults.Begin(ctx, w, call, faulty{p})
}

// faulty is a protocol in the eyes of package fault.
type faulty struct{ protocol }

// Fail implements [fault.Protocol].
func (f faulty) Fail(w http.ResponseWriter, call *journal.Call, kind fault.Kind) {
	f.refuse(w, call, f.faulted(kind).because("an injected fault"))
}

// Broken implements [fault.Protocol].
func (f faulty) Broken() (contentType, body string) { return f.broken() }

// errForm is a posted form that cannot be read in one way only.
var errForm = errors.New("the form cannot be read")

// readForm reads a form that was posted. A parameter that stands twice is an error that names it, except for those in repeated.
func readForm(w http.ResponseWriter, r *http.Request, repeated ...string) (url.Values, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/x-www-form-urlencoded" {
		return url.Values{}, nil // as if nothing had been sent: what is missing is then named
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
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
