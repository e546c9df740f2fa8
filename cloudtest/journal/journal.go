// Package journal records the calls that the local cloud received.
//
// Every request is one [Call]: its caller, service, operation, requested identity, and verdict.
// Tests count the calls ("a hundred objects made one STS call"). [Call.Reason] tells people which
// condition failed. A real cloud does not say that.
//
// A journal keeps the newest calls in a ring and counts all calls in [Journal.Totals]. It holds
// names and verdicts only. Tokens, keys, signatures, passwords and bodies never enter it.
package journal

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultSize is the number of calls that a journal keeps by default.
const DefaultSize = 16384

// maxField is the maximum length of a field of a [Call] in bytes. Longer values are cut, because
// callers choose them.
const maxField = 2048

// Values of [Call.Service] that belong to no cloud. The names of the clouds' services, such as
// "sts" and "ecr", are in the clouds' packages.
const (
	// ServiceProxy is for calls that reached no service, such as refused connections and failed
	// TLS handshakes.
	ServiceProxy = "proxy"
	// ServiceHandler is a host with a registered handler, such as an issuer or a data plane.
	ServiceHandler = "handler"
)

// Call is one request and its verdict. A field is empty if it does not apply to the request.
type Call struct {
	// Seq is the call's number in its journal. Numbers begin at 1 and have no gaps.
	Seq uint64 `json:"seq"`
	// Time is when the request arrived, UTC.
	Time time.Time `json:"time"`
	// Host is the host name that the client asked for, without port.
	Host string `json:"host"`
	// Service is the service that answered, such as "sts", "entra" or "gcs". Each cloud's package
	// has constants for its services. Other values are [ServiceHandler] and [ServiceProxy].
	Service string `json:"service"`
	// Operation is the service's name for the requested operation ("AssumeRoleWithWebIdentity",
	// "ecr:BatchGetImage"). If the service does not have the operation, Operation is empty. So
	// callers cannot add invented names to the journal.
	Operation string `json:"operation,omitempty"`
	// Principal is the cloud's name for the caller. It is set after the caller's credential was
	// verified. Its form depends on the cloud:
	//   - AWS and Alibaba Cloud: an ARN
	//   - Azure: <client ID>@<tenant ID>
	//   - Google Cloud: a member of IAM bindings
	Principal string `json:"principal,omitempty"`
	// Role is the identity that the caller asks for, as the caller sent it:
	//   - AWS and Alibaba Cloud: a role's ARN
	//   - Azure: a client ID
	//   - Google Cloud: a service account
	Role string `json:"role,omitempty"`
	// Session is the session name that the caller chose for Role.
	Session string `json:"session,omitempty"`
	// Issuer is the issuer in the caller's token; it was verified only if the call was granted.
	Issuer string `json:"issuer,omitempty"`
	// Subject is the subject in the caller's token; it was verified only if the call was granted.
	Subject string `json:"subject,omitempty"`
	// Audience is the audience in the caller's token. Several audiences are separated by commas.
	Audience string `json:"audience,omitempty"`
	// Resource is the resource that was asked for: a repository's ARN, or a path.
	Resource string `json:"resource,omitempty"`
	// Code is the cloud's error code, empty if the call was granted.
	Code string `json:"code,omitempty"`
	// Reason says why the call was refused, in more detail than the answer to the caller does.
	Reason string `json:"reason,omitempty"`
	// Status is the HTTP status that was sent, 0 if the connection was closed without an answer.
	Status int `json:"status"`
	// Fault is the ID of the injected fault that decided the answer.
	Fault string `json:"fault,omitempty"`
}

// Granted reports whether the call succeeded: without an error code, and with status 2xx or 3xx.
func (c Call) Granted() bool { return c.Code == "" && c.Status >= 200 && c.Status < 400 }

// Filter selects calls. Its zero value selects all calls. Every text field that is set must equal
// the call's field of the same name.
type Filter struct {
	Host, Service, Operation, Principal, Role, Session, Subject, Resource, Code string
	// After selects calls whose Seq is greater than this number.
	After uint64
	// Verdict selects granted or refused calls.
	Verdict Verdict
}

// Verdict selects calls by their outcome in a [Filter].
type Verdict string

const (
	// Any selects every call.
	Any Verdict = ""
	// Granted selects calls for which [Call.Granted] holds.
	Granted Verdict = "granted"
	// Refused selects calls for which [Call.Granted] does not hold.
	Refused Verdict = "refused"
)

// Match reports whether f selects c.
func (f Filter) Match(c Call) bool {
	for _, field := range f.fields() {
		if *field.value != "" && *field.value != field.of(c) {
			return false
		}
	}
	verdict := f.Verdict == Any || (f.Verdict == Granted && c.Granted()) || (f.Verdict == Refused && !c.Granted())
	return verdict && c.Seq > f.After
}

type filterField struct {
	name  string
	value *string
	of    func(Call) string
}

// fields lists the text fields of f. Match, Query and ParseFilter use this list, so that each of
// them handles every field.
func (f *Filter) fields() []filterField {
	return []filterField{
		{"host", &f.Host, func(c Call) string { return c.Host }},
		{"service", &f.Service, func(c Call) string { return c.Service }},
		{"operation", &f.Operation, func(c Call) string { return c.Operation }},
		{"principal", &f.Principal, func(c Call) string { return c.Principal }},
		{"role", &f.Role, func(c Call) string { return c.Role }},
		{"session", &f.Session, func(c Call) string { return c.Session }},
		{"subject", &f.Subject, func(c Call) string { return c.Subject }},
		{"resource", &f.Resource, func(c Call) string { return c.Resource }},
		{"code", &f.Code, func(c Call) string { return c.Code }},
	}
}

// Query writes f as URL query parameters, which [ParseFilter] reads. Fields that are not set are
// left out.
func (f Filter) Query() url.Values {
	q := url.Values{}
	for _, field := range f.fields() {
		if *field.value != "" {
			q.Set(field.name, *field.value)
		}
	}
	if f.After != 0 {
		q.Set("after", strconv.FormatUint(f.After, 10))
	}
	if f.Verdict != Any {
		q.Set("verdict", string(f.Verdict))
	}
	return q
}

// FilterError says why [ParseFilter] refused a query parameter.
type FilterError struct {
	// Parameter is the parameter's name.
	Parameter string
	// Fix says what is allowed.
	Fix string
}

// Error returns the parameter and the fix.
func (e *FilterError) Error() string {
	return "journal filter: " + strconv.Quote(e.Parameter) + ": " + e.Fix
}

// ParseFilter reads a filter from URL query parameters. It returns a [*FilterError] for an unknown
// or repeated parameter. If the parameter were ignored, the filter would select too many calls.
func ParseFilter(q url.Values) (Filter, error) {
	var f Filter
	byName := map[string]*string{}
	names := make([]string, 0, 11)
	for _, field := range f.fields() {
		byName[field.name] = field.value
		names = append(names, field.name)
	}
	names = append(names, "after", "verdict")
	for name, values := range q {
		if len(values) != 1 {
			return Filter{}, &FilterError{Parameter: name, Fix: "give it once"}
		}
		value := values[0]
		switch {
		case byName[name] != nil:
			*byName[name] = value
		case name == "after":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return Filter{}, &FilterError{Parameter: name, Fix: "give the seq of a call, a decimal number"}
			}
			f.After = n
		case name == "verdict":
			f.Verdict = Verdict(value)
			if !slices.Contains([]Verdict{Any, Granted, Refused}, f.Verdict) {
				return Filter{}, &FilterError{Parameter: name, Fix: "give granted or refused"}
			}
		default:
			return Filter{}, &FilterError{Parameter: name, Fix: "known parameters are " + strings.Join(names, ", ")}
		}
	}
	return f, nil
}

// Total counts the calls with one service, operation and code since the journal began or was reset.
// It includes calls that the ring has dropped.
type Total struct {
	Service   string `json:"service"`
	Operation string `json:"operation,omitempty"`
	// Code is the error code, empty for granted calls.
	Code  string `json:"code,omitempty"`
	Count uint64 `json:"count"`
}

type totalKey struct{ service, operation, code string }

// Journal records calls. It is safe for concurrent use. Make one with [New].
type Journal struct {
	mu      sync.Mutex
	ring    []Call // at most cap(ring) calls in order of Seq, from index start on
	start   int
	last    uint64
	dropped uint64
	totals  map[totalKey]uint64
	changed chan struct{} // closed and replaced at every change
}

// New returns a journal that keeps the newest calls, up to size. A size that is not positive means
// [DefaultSize].
func New(size int) *Journal {
	if size <= 0 {
		size = DefaultSize
	}
	return &Journal{ring: make([]Call, 0, size), totals: map[totalKey]uint64{}, changed: make(chan struct{})}
}

// Record gives a call the next Seq, appends the call, and returns the Seq. Long fields are cut.
func (j *Journal) Record(c Call) uint64 {
	for _, s := range []*string{
		&c.Host, &c.Operation, &c.Principal, &c.Role, &c.Session, &c.Issuer, &c.Subject, &c.Audience, &c.Resource, &c.Reason,
	} {
		if len(*s) > maxField {
			*s = strings.ToValidUTF8((*s)[:maxField], "") + "…"
		}
	}
	c.Time = c.Time.UTC()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	c.Seq = j.last
	if len(j.ring) < cap(j.ring) {
		j.ring = append(j.ring, c)
	} else {
		j.ring[j.start] = c
		j.start = (j.start + 1) % len(j.ring)
		j.dropped++
	}
	j.totals[totalKey{c.Service, c.Operation, c.Code}]++
	close(j.changed)
	j.changed = make(chan struct{})
	return c.Seq
}

// Calls returns the kept calls that f selects, oldest first.
func (j *Journal) Calls(f Filter) []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.calls(f)
}

func (j *Journal) calls(f Filter) []Call {
	var out []Call
	for i := range j.ring {
		if c := j.ring[(j.start+i)%len(j.ring)]; f.Match(c) {
			out = append(out, c)
		}
	}
	return out
}

// Wait waits until f selects at least n calls, and returns the selected calls. If ctx ends first,
// it returns the calls so far and the context's error.
func (j *Journal) Wait(ctx context.Context, f Filter, n int) ([]Call, error) {
	for {
		j.mu.Lock()
		calls, changed := j.calls(f), j.changed
		j.mu.Unlock()
		if len(calls) >= n {
			return calls, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return calls, context.Cause(ctx)
		}
	}
}

// Totals returns the counts of all recorded calls, sorted by service, operation and code.
func (j *Journal) Totals() []Total {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Total, 0, len(j.totals))
	for k, n := range j.totals {
		out = append(out, Total{Service: k.service, Operation: k.operation, Code: k.code, Count: n})
	}
	slices.SortFunc(out, func(a, b Total) int {
		return strings.Compare(a.Service+"\x00"+a.Operation+"\x00"+a.Code, b.Service+"\x00"+b.Operation+"\x00"+b.Code)
	})
	return out
}

// Dropped returns the number of calls that the ring has dropped. While it is 0, [Journal.Calls]
// with a zero filter is complete.
func (j *Journal) Dropped() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dropped
}

// Last returns the Seq of the newest call, 0 if there is no call. Use it as [Filter.After] to
// select only later calls.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Reset forgets all calls and counts. The numbering by Seq continues.
func (j *Journal) Reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring, j.start, j.dropped = j.ring[:0], 0, 0
	clear(j.totals)
	close(j.changed)
	j.changed = make(chan struct{})
}
