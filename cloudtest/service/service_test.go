package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// protocol returns a Protocol that writes a refusal's message as plain text. It replaces the error
// code "old" with "new".
func protocol() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			if e.Code == "old" {
				e.Code = "new"
			}
			r.Reply.Set("X-Code", e.Code)
			return service.Whole(e.Status, "text/plain", []byte(e.Message))
		},
		Failure: service.Refuse(500, "failure", "F"), Unavailable: service.Refuse(503, "unavailable", "U"), Throttled: service.Refuse(429, "throttled", "T"),
		Broken: service.Whole(200, "text/plain", []byte("brok")),
	}
}

// outcome holds the answer to a request, and the call that the journal recorded.
type outcome struct {
	Status int
	Body   string
	Header http.Header
	Call   journal.Call
}

// serve answers one request with a handler, while the given faults are in force.
func serve(t *testing.T, handle service.Handler, faults ...fault.Fault) outcome {
	t.Helper()
	s := &service.Server{Faults: &fault.Set{}, Journal: journal.New(1)}
	for _, f := range faults {
		if _, err := s.Faults.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }() // net/http recovers from a handler's panic too
		s.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://Host.example:443/", strings.NewReader("four")),
			func(r *service.Request) (service.Protocol, service.Handler) {
				r.Call.Service, r.Call.Operation = "test", "Do"
				return protocol(), handle
			})
	}()
	calls := s.Journal.Calls(journal.Filter{})
	if len(calls) != 1 {
		t.Fatalf("the journal has %+v", calls)
	}
	return outcome{w.Code, w.Body.String(), w.Header(), calls[0]}
}

func TestServe(t *testing.T) {
	grant := func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Call.Principal = "caller"
		return service.Whole(201, "text/plain", []byte("granted")), nil
	}
	call := func(principal, code, reason string, status int, fault string) journal.Call {
		return journal.Call{
			Host: "host.example", Service: "test", Operation: "Do", Principal: principal, Code: code, Reason: reason, Status: status, Fault: fault,
		}
	}
	for name, tt := range map[string]struct {
		handle service.Handler
		faults []fault.Fault
		body   string
		call   journal.Call
	}{
		"granted": {handle: grant, body: "granted", call: call("caller", "", "", 201, "")},
		"empty": {
			handle: func(*service.Request) (service.Answer, *service.Refusal) { return service.Empty(204), nil },
			call:   call("", "", "", 204, ""),
		},
		"refused": {handle: service.Refuse(403, "code", "no").Handle, body: "no", call: call("", "code", "no", 403, "")},
		"refused for a reason, under the protocol's code": {
			handle: service.Refuse(403, "old", "no").Because("why").Handle, body: "no", call: call("", "new", "why", 403, ""),
		},
		"refused by the answer": {
			handle: func(*service.Request) (service.Answer, *service.Refusal) {
				return func(http.ResponseWriter) *service.Refusal { return service.Refuse(404, "late", "no") }, nil
			},
			body: "no", call: call("", "late", "no", 404, ""),
		},
		"a fault before a refusal": {
			handle: service.Refuse(403, "code", "no").Handle, faults: []fault.Fault{{ID: "f", Kind: fault.Unavailable}},
			body: "U", call: call("", "unavailable", "an injected fault", 503, "f"),
		},
		"a fault of another operation": {handle: grant, faults: []fault.Fault{{Kind: fault.Throttle, Operation: "Other"}}, body: "granted", call: call("caller", "", "", 201, "")},
		"cut off": {
			handle: grant, faults: []fault.Fault{{ID: "f", Kind: fault.Malformed}},
			body: "brok", call: call("", "Malformed", "an injected fault cut the answer off", 200, "f"),
		},
		"dropped": {
			handle: grant, faults: []fault.Fault{{ID: "f", Kind: fault.Drop}},
			call: call("", "Dropped", "an injected fault closed the connection", 0, "f"),
		},
		"a panic": {
			handle: func(*service.Request) (service.Answer, *service.Refusal) { panic("x") },
			call:   call("", "Dropped", "the handler gave up", 0, ""),
		},
		"a body that is too long": {
			handle: func(r *service.Request) (service.Answer, *service.Refusal) {
				if _, err := r.ReadBody(3); err != nil {
					return nil, service.Refuse(413, "long", "too long")
				}
				return grant(r)
			},
			body: "too long", call: call("", "long", "too long", 413, ""),
		},
		"no data plane": {
			handle: func(r *service.Request) (service.Answer, *service.Refusal) { return r.Forward(nil, r.Request, nil) },
			body:   "U", call: call("", "unavailable", "no data plane was handed in for the service test", 503, ""),
		},
	} {
		got := serve(t, tt.handle, tt.faults...)
		if got.Body != tt.body || (tt.call.Status != 0 && got.Status != tt.call.Status) {
			t.Errorf("%s: HTTP %d %q", name, got.Status, got.Body)
		}
		if diff := cmp.Diff(tt.call, got.Call, cmpopts.IgnoreFields(journal.Call{}, "Seq", "Time")); diff != "" {
			t.Errorf("%s: journal (-want +got):\n%s", name, diff)
		}
	}
}

// TestForward checks that a data plane's answer is hidden only if it is "not found". The headers of
// a hidden answer are hidden as well.
func TestForward(t *testing.T) {
	hidden := service.Refuse(403, "denied", "no")
	for name, tt := range map[string]struct {
		plane  http.HandlerFunc
		hidden *service.Refusal
		status int
		body   string
		header string // set by the data plane
	}{
		"there":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "object") }, hidden, 200, "object", "plane"},
		"created":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }, hidden, 201, "", "plane"},
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, hidden, 200, "", "plane"},
		"not there":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", 404) }, nil, 404, "gone\n", "plane"},
		"hidden":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", 404) }, hidden, 403, "no", ""},
		"hidden too": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, hidden, 403, "no", ""},
	} {
		got := serve(t, func(r *service.Request) (service.Answer, *service.Refusal) {
			r.Reply.Set("X-Cloud", "cloud")
			return r.Forward(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Plane", "plane")
				tt.plane(w, r)
			}), r.Request, tt.hidden)
		})
		if got.Status != tt.status || got.Call.Status != tt.status || got.Body != tt.body {
			t.Errorf("%s: HTTP %d %q, journal has %+v", name, got.Status, got.Body, got.Call)
		}
		if got.Header.Get("X-Plane") != tt.header || got.Header.Get("X-Cloud") != "cloud" {
			t.Errorf("%s: %v", name, got.Header)
		}
	}
}

// TestSkew checks that the handler and the caller both get the skewed time.
func TestSkew(t *testing.T) {
	var now time.Time
	got := serve(t, func(r *service.Request) (service.Answer, *service.Refusal) {
		now = r.Now
		return service.Empty(200), nil
	}, fault.Fault{Kind: fault.Skew, Skew: time.Hour})
	if ahead := time.Until(now); ahead < 59*time.Minute || ahead > time.Hour || got.Header.Get("Date") != now.UTC().Format(http.TimeFormat) {
		t.Errorf("%s ahead, the answer says %s", ahead, got.Header.Get("Date"))
	}
}

// TestWhole checks that an answer overwrites headers that were set for an earlier answer.
func TestWhole(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "1000")
	if refusal := service.Whole(http.StatusTeapot, "text/plain", []byte("short"))(w); refusal != nil {
		t.Error(refusal)
	}
	if h := w.Header(); w.Code != http.StatusTeapot || h.Get("Content-Length") != "5" || h.Get("Content-Type") != "text/plain" || w.Body.String() != "short" {
		t.Errorf("%d %v %s", w.Code, h, w.Body)
	}
}
