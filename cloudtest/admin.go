package cloudtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// maxAdminBody bounds a request to the admin API, in bytes.
const maxAdminBody = 4 << 20

// JournalPage is the admin API's answer about the journal.
type JournalPage struct {
	// Dropped is the number of calls that the journal dropped to make room.
	Dropped uint64 `json:"dropped"`
	// Last is the Seq of the newest call, whatever the filter.
	Last uint64 `json:"last"`
	// Totals are the exact counts of all calls, whatever the filter.
	Totals []journal.Total `json:"totals"`
	// Calls are the kept calls that the filter selects, oldest first.
	Calls []journal.Call `json:"calls"`
}

type faultsPage struct {
	Faults []fault.Fault `json:"faults"`
}

type faultID struct {
	ID string `json:"id"`
}

type adminError struct {
	Error string `json:"error"`
	// Field is the field that a [setting.Error] names; empty for other errors.
	Field string `json:"field,omitempty"`
}

// adminHandler serves the admin API for a proxy that listens on address.
func (c *Cloud) adminHandler(address string) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range c.adminRoutes() {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A web page in a browser must not change the cloud. The page can send two kinds of
		// requests to loopback. One kind has the page's host name in the header Host: this check
		// refuses it. The other kind has a content type other than JSON: readAdmin refuses it.
		if r.Host != address {
			writeAdmin(w, http.StatusForbidden, adminError{Error: "the admin API answers to " + address + " only"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// adminFunc answers a request to the admin API. Its result becomes the JSON of the answer.
type adminFunc func(r *http.Request) (any, error)

// adminRoutes returns the handlers of the admin API by their [http.ServeMux] patterns. The package
// comment lists the routes.
func (c *Cloud) adminRoutes() map[string]http.Handler {
	routes := map[string]http.Handler{"GET /ca.pem": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(c.authority.pem)
	})}
	for pattern, f := range map[string]adminFunc{
		"GET /journal":        c.journalPage,
		"DELETE /journal":     func(*http.Request) (any, error) { c.journal.Reset(); return struct{}{}, nil },
		"GET /faults":         func(*http.Request) (any, error) { return faultsPage{c.faults.List()}, nil },
		"POST /faults":        withBody(func(f fault.Fault) (any, error) { id, err := c.faults.Add(f); return faultID{id}, err }),
		"DELETE /faults":      func(*http.Request) (any, error) { c.faults.Clear(); return struct{}{}, nil },
		"DELETE /faults/{id}": func(r *http.Request) (any, error) { return struct{}{}, c.removeFault(r.PathValue("id")) },
		"PUT /quotas":         withBody(func(q []fault.Quota) (any, error) { return struct{}{}, c.faults.SetQuotas(q) }),
		"PUT /issuers":        withBody(func(s oidc.Static) (any, error) { return struct{}{}, c.PutIssuer(s) }),
		"GET /env":            func(r *http.Request) (any, error) { return c.Env(r.URL.Query().Get("ca")), nil },
	} {
		routes[pattern] = f
	}
	for _, p := range c.parts {
		for pattern, apply := range p.changes {
			routes[pattern] = adminFunc(func(r *http.Request) (any, error) { return struct{}{}, apply(r) })
		}
	}
	return routes
}

// ServeHTTP writes the result of f, or the error of f with the name of the invalid field.
func (f adminFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := f(r)
	if err == nil {
		writeAdmin(w, http.StatusOK, answer)
		return
	}
	status, refused := http.StatusBadRequest, adminError{Error: err.Error()}
	if errors.Is(err, setting.ErrNotFound) {
		status = http.StatusNotFound
	}
	if e, ok := errors.AsType[*setting.Error](err); ok {
		refused.Field = e.Field
	}
	writeAdmin(w, status, refused)
}

func (c *Cloud) journalPage(r *http.Request) (any, error) {
	f, err := journal.ParseFilter(r.URL.Query())
	if err != nil {
		return nil, fmt.Errorf("cloudtest: %w", err)
	}
	return JournalPage{
		Dropped: c.journal.Dropped(), Last: c.journal.Last(),
		Totals: c.journal.Totals(), Calls: append([]journal.Call{}, c.journal.Calls(f)...),
	}, nil
}

func (c *Cloud) removeFault(id string) error {
	if !c.faults.Remove(id) {
		return setting.NotFound("fault", id)
	}
	return nil
}

// withBody returns an adminFunc that decodes the request's body for f.
func withBody[T any](f func(T) (any, error)) adminFunc {
	return func(r *http.Request) (any, error) {
		var body T
		if err := readAdmin(r, &body); err != nil {
			return nil, err
		}
		return f(body)
	}
}

// readAdmin decodes a request's JSON body as [decodeStrict] does.
func readAdmin(r *http.Request, into any) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return errors.New("cloudtest: Content-Type must be application/json")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
	if err != nil {
		return fmt.Errorf("cloudtest: read the request: %w", err)
	}
	if len(body) > maxAdminBody {
		return fmt.Errorf("cloudtest: the request is longer than %d bytes", maxAdminBody)
	}
	if err := decodeStrict(body, into); err != nil {
		return fmt.Errorf("cloudtest: %w", err)
	}
	return nil
}

func writeAdmin(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
