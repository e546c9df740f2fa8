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

// JournalPage is what the admin API tells of the journal.
type JournalPage struct {
	// Dropped is the number of calls that are no longer kept.
	Dropped uint64 `json:"dropped"`
	// Last is the Seq of the newest call of all.
	Last uint64 `json:"last"`
	// Totals are exact counts, the filter apart.
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
	// Field is that of a [setting.Error].
	Field string `json:"field,omitempty"`
}

// adminHandler serves the admin API for a proxy that listens on address.
func (c *Cloud) adminHandler(address string) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range c.adminRoutes() {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page in a browser can make requests to loopback, under a name of its own or without JSON; neither may change the cloud.
		if r.Host != address {
			writeAdmin(w, http.StatusForbidden, adminError{Error: "the admin API answers to " + address + " only"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// adminRoutes are the admin API by the patterns of [http.ServeMux]. The package's documentation lists them.
func (c *Cloud) adminRoutes() map[string]http.Handler {
	routes := map[string]http.Handler{}
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		routes[pattern] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, err := f(r)
			if err != nil {
				status, refused := http.StatusBadRequest, adminError{Error: err.Error()}
				if errors.Is(err, setting.ErrNotFound) {
					status = http.StatusNotFound
				}
				if e, ok := errors.AsType[*setting.Error](err); ok {
					refused.Field = e.Field
				}
				writeAdmin(w, status, refused)
				return
			}
			writeAdmin(w, http.StatusOK, answer)
		})
	}
	handle("GET /journal", func(r *http.Request) (any, error) {
		f, err := journal.ParseFilter(r.URL.Query())
		if err != nil {
			return nil, fmt.Errorf("cloudtest: %w", err)
		}
		return JournalPage{
			Dropped: c.journal.Dropped(), Last: c.journal.Last(),
			Totals: c.journal.Totals(), Calls: append([]journal.Call{}, c.journal.Calls(f)...),
		}, nil
	})
	handle("DELETE /journal", func(*http.Request) (any, error) { c.journal.Reset(); return struct{}{}, nil })
	handle("GET /faults", func(*http.Request) (any, error) { return faultsPage{c.faults.List()}, nil })
	handle("POST /faults", withBody(func(_ *http.Request, f fault.Fault) (any, error) {
		id, err := c.faults.Add(f)
		return faultID{id}, err
	}))
	handle("DELETE /faults", func(*http.Request) (any, error) { c.faults.Clear(); return struct{}{}, nil })
	handle("DELETE /faults/{id}", func(r *http.Request) (any, error) {
		if !c.faults.Remove(r.PathValue("id")) {
			return nil, setting.NotFound("fault", r.PathValue("id"))
		}
		return struct{}{}, nil
	})
	handle("PUT /quotas", withBody(func(_ *http.Request, q []fault.Quota) (any, error) { return struct{}{}, c.faults.SetQuotas(q) }))
	handle("PUT /issuers", withBody(func(_ *http.Request, s oidc.Static) (any, error) { return struct{}{}, c.PutIssuer(s) }))
	handle("GET /env", func(r *http.Request) (any, error) { return c.Env(r.URL.Query().Get("ca")), nil })
	routes["GET /ca.pem"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(c.authority.pem)
	})
	c.handleAWS(handle)
	c.handleAzure(handle)
	c.handleGCP(handle)
	return routes
}

// withBody reads the request's JSON strictly.
func withBody[T any](f func(*http.Request, T) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || media != "application/json" {
			return nil, errors.New("cloudtest: Content-Type must be application/json")
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
		if err != nil {
			return nil, fmt.Errorf("cloudtest: read the request: %w", err)
		}
		if len(body) > maxAdminBody {
			return nil, fmt.Errorf("cloudtest: the request is longer than %d bytes", maxAdminBody)
		}
		var v T
		if err := decodeStrict(body, &v); err != nil {
			return nil, fmt.Errorf("cloudtest: %w", err)
		}
		return f(r, v)
	}
}

func writeAdmin(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
