// Package fault describes the faults that can be injected into the local cloud: slowness, failures,
// throttling, lost connections, a wrong clock.
//
// A [Fault] matches calls by host, service and operation. It lasts for a number of calls or until
// it is removed. A [Quota] throttles by rate. Package service calls [Set.Take] for each call, and
// answers in the protocol of the called service.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Kind is the kind of a fault.
type Kind string

const (
	// None means that the call does not fail.
	None Kind = ""
	// Latency delays the answer by the fault's Delay. Faults of every other kind may have a Delay
	// too.
	Latency Kind = "latency"
	// InternalFailure answers with the service's internal error, HTTP 500.
	InternalFailure Kind = "internal-failure"
	// Unavailable answers with the service's error for an outage, HTTP 503.
	Unavailable Kind = "unavailable"
	// Throttle answers with the service's error for a caller that sends too many requests.
	Throttle Kind = "throttle"
	// Refuse refuses connections to the host. It matches by host only.
	Refuse Kind = "refuse"
	// Drop closes the connection without an answer.
	Drop Kind = "drop"
	// Malformed answers HTTP 200 with truncated JSON, XML or HTML.
	Malformed Kind = "malformed"
	// Skew moves the service's clock by the fault's field Skew.
	Skew Kind = "skew"
)

func kinds() []Kind {
	return []Kind{Latency, InternalFailure, Unavailable, Throttle, Refuse, Drop, Malformed, Skew}
}

// Fault is one injected fault. In JSON, durations have Go's format ("1.5s", "-20m").
type Fault struct {
	// ID identifies the fault in the journal and for removal. If it is empty, [Set.Add] generates
	// an ID.
	ID string
	// Host, Service and Operation select the calls that have these values in the journal. An empty
	// field matches all calls.
	Host, Service, Operation string
	// Kind is the kind of the fault.
	Kind Kind
	// Delay is the time before the call is handled. It ends early if the caller disconnects.
	Delay time.Duration
	// Skew is added to the service's clock. It is allowed only with the Kind [Skew].
	Skew time.Duration
	// RetryAfter is how long the answer asks the caller to wait, a whole number of seconds. If it
	// is 0, the answer has no header Retry-After. It is allowed only with the Kind [Throttle] or
	// [Unavailable].
	RetryAfter time.Duration
	// Count is the number of calls after which the fault ends; 0 means that it stays until it is
	// removed.
	Count int
}

type wireFault struct {
	ID        string `json:"id,omitempty"`
	Host      string `json:"host,omitempty"`
	Service   string `json:"service,omitempty"`
	Operation string `json:"operation,omitempty"`
	Kind      Kind   `json:"kind"`
	Delay     string `json:"delay,omitempty"`
	Skew      string `json:"skew,omitempty"`
	// RetryAfter is a duration, not a number of seconds as in the header.
	RetryAfter string `json:"retryAfter,omitempty"`
	Count      int    `json:"count,omitempty"`
}

// MarshalJSON writes durations as strings.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireFault{
		ID: f.ID, Host: f.Host, Service: f.Service, Operation: f.Operation, Kind: f.Kind, Count: f.Count,
		Delay: durationText(f.Delay), Skew: durationText(f.Skew), RetryAfter: durationText(f.RetryAfter),
	})
}

// durationText returns a duration as text, or an empty text for 0.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// UnmarshalJSON reads durations from strings. An unknown field is an error.
func (f *Fault) UnmarshalJSON(data []byte) error {
	var w wireFault
	if err := decode(data, &w); err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	out := Fault{ID: w.ID, Host: w.Host, Service: w.Service, Operation: w.Operation, Kind: w.Kind, Count: w.Count}
	err := parseDurations(
		durationField{"delay", w.Delay, &out.Delay}, durationField{"skew", w.Skew, &out.Skew},
		durationField{"retryAfter", w.RetryAfter, &out.RetryAfter})
	if err != nil {
		return err
	}
	*f = out
	return nil
}

// decode decodes JSON. An unknown field is an error.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into) // the callers wrap the error
}

type durationField struct {
	name, text string
	to         *time.Duration
}

func parseDurations(fields ...durationField) error {
	for _, d := range fields {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil {
			return setting.Invalid(d.name, "give a duration such as 1.5s")
		}
		*d.to = v
	}
	return nil
}

func (f Fault) validate() error {
	switch {
	case !slices.Contains(kinds(), f.Kind):
		return setting.Invalid("kind", "give one of %v", kinds())
	case f.Delay < 0:
		return setting.Invalid("delay", "give a positive duration")
	case f.Kind == Latency && f.Delay == 0:
		return setting.Invalid("delay", "give a positive duration for kind latency")
	case (f.Kind == Skew) != (f.Skew != 0):
		return setting.Invalid("skew", "give it with kind skew, and only there")
	case f.Kind == Refuse && (f.Host == "" || f.Service != "" || f.Operation != ""):
		return setting.Invalid("host", "kind refuse matches by host only: give host, leave service and operation out")
	case !validRetryAfter(f.RetryAfter) || (f.RetryAfter != 0 && f.Kind != Throttle && f.Kind != Unavailable):
		return setting.Invalid("retryAfter", "give whole seconds, and only with kind throttle or unavailable")
	case f.Count < 0:
		return setting.Invalid("count", "give 0 or a positive number")
	}
	return nil
}

// validRetryAfter reports whether d fits the header Retry-After. Source: RFC 9110 §10.2.3,
// delay-seconds.
func validRetryAfter(d time.Duration) bool { return d >= 0 && d%time.Second == 0 }

func (f Fault) hits(host, service, operation string) bool {
	return (f.Host == "" || f.Host == host) && (f.Service == "" || f.Service == service) && (f.Operation == "" || f.Operation == operation)
}

// Quota throttles calls of a service (and operation, if set) above a rate. All callers share the
// rate.
type Quota struct {
	// Service and Operation select the calls that have these values in the journal. Service is
	// required.
	Service   string `json:"service"`
	Operation string `json:"operation,omitempty"`
	// PerSecond is the sustained rate in calls per second. Required, positive.
	PerSecond float64 `json:"perSecond"`
	// Burst is how many calls may come at once. The default is PerSecond, rounded down, but at
	// least 1.
	Burst int `json:"burst,omitempty"`
	// RetryAfter is how long the answer to a throttled call asks the caller to wait. It is a whole
	// number of seconds. If it is 0, the answer has no header Retry-After.
	RetryAfter time.Duration `json:"-"`
}

// wireQuota is the JSON form of a Quota, with the duration as text. It lacks Quota's methods, so
// encoding/json does not call them again.
type wireQuota struct {
	plainQuota

	RetryAfter string `json:"retryAfter,omitempty"`
}

type plainQuota Quota

// MarshalJSON writes the duration as a string.
func (q Quota) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireQuota{plainQuota(q), durationText(q.RetryAfter)})
}

// UnmarshalJSON reads the duration from a string. An unknown field is an error.
func (q *Quota) UnmarshalJSON(data []byte) error {
	var w wireQuota
	if err := decode(data, &w); err != nil {
		return fmt.Errorf("quota: %w", err)
	}
	out := Quota(w.plainQuota)
	if err := parseDurations(durationField{"retryAfter", w.RetryAfter, &out.RetryAfter}); err != nil {
		return err
	}
	*q = out
	return nil
}

type bucket struct {
	Quota

	tokens float64
	filled time.Time
}

// take takes one token from the bucket at the time now. It returns false if the bucket is empty.
func (b *bucket) take(now time.Time) bool {
	b.tokens = min(float64(b.Burst), b.tokens+now.Sub(b.filled).Seconds()*b.PerSecond)
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// Effect says how all faults and quotas together affect one call.
type Effect struct {
	// ID is the ID of the fault that set Kind, or "quota". It is empty if Kind is None.
	ID string
	// Kind says how the call fails; None if it does not fail. It is never Latency, Skew or Refuse.
	Kind Kind
	// Delay is the time to wait before the call is handled.
	Delay time.Duration
	// Skew is added to the service's clock.
	Skew time.Duration
	// RetryAfter is how long the answer asks the caller to wait; 0 for no header Retry-After.
	RetryAfter time.Duration
}

// RetryAfterHeader returns the value of the header Retry-After, in seconds; empty if the answer has
// no such header. Source: RFC 9110 §10.2.3.
func (e Effect) RetryAfterHeader() string {
	if e.RetryAfter <= 0 {
		return ""
	}
	return strconv.FormatInt(int64(e.RetryAfter/time.Second), 10)
}

// Wait waits for the effect's delay. If ctx ends first, it returns the context's error.
func (e Effect) Wait(ctx context.Context) error {
	if e.Delay <= 0 {
		return nil
	}
	timer := time.NewTimer(e.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Set has the faults and quotas in force. Its zero value is empty. It is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	faults  []*Fault
	buckets []*bucket
	next    int
}

// Add puts a fault in force and returns its ID. The error is a [*setting.Error].
func (s *Set) Add(f Fault) (string, error) {
	if err := f.validate(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ID == "" {
		s.next++
		f.ID = "fault-" + strconv.Itoa(s.next)
	}
	if slices.ContainsFunc(s.faults, func(other *Fault) bool { return other.ID == f.ID }) {
		return "", setting.Invalid("id", "choose an ID that is not in use")
	}
	s.faults = append(s.faults, &f)
	return f.ID, nil
}

// Remove ends a fault and says whether it was in force.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.faults)
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return f.ID == id })
	return len(s.faults) < before
}

// Clear ends all faults. Quotas stay.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// List returns the faults in force. Their Count is the number of remaining calls.
func (s *Set) List() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Fault, 0, len(s.faults))
	for _, f := range s.faults {
		out = append(out, *f)
	}
	return out
}

// SetQuotas replaces all quotas. Each quota starts with a full burst. The error is a
// [*setting.Error].
func (s *Set) SetQuotas(quotas []Quota) error {
	buckets := make([]*bucket, 0, len(quotas))
	for i, q := range quotas {
		field := setting.At("quotas", i)
		switch {
		case q.Service == "":
			return setting.Invalid(field+".service", "name the service to throttle")
		case !(q.PerSecond > 0): // written so that NaN is refused too
			return setting.Invalid(field+".perSecond", "give a positive rate")
		case !validRetryAfter(q.RetryAfter):
			return setting.Invalid(field+".retryAfter", "give whole seconds")
		case q.Burst < 0:
			return setting.Invalid(field+".burst", "give 0 or a positive number")
		case q.Burst == 0:
			q.Burst = max(1, int(q.PerSecond))
		}
		buckets = append(buckets, &bucket{Quota: q, tokens: float64(q.Burst), filled: time.Now()})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets = buckets
	return nil
}

// Take returns the effect of all faults and quotas on a call. It counts the call against the faults
// that apply. The delays of these faults add up, and so do their skews. Of the faults that make the
// call fail, only the fault that was added first applies. A quota applies only if no fault makes
// the call fail.
func (s *Set) Take(host, service, operation string) Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e Effect
	for _, f := range s.faults {
		if f.Kind == Refuse || !f.hits(host, service, operation) {
			continue
		}
		failing := f.Kind != Latency && f.Kind != Skew
		if failing && e.Kind != None {
			continue // an earlier fault makes the call fail, so f is not used up
		}
		e.Delay += f.Delay
		e.Skew += f.Skew
		if failing {
			e.Kind, e.ID, e.RetryAfter = f.Kind, f.ID, f.RetryAfter
		}
		f.count()
	}
	s.sweep()
	for _, b := range s.buckets {
		if b.Service != service || (b.Operation != "" && b.Operation != operation) {
			continue
		}
		if !b.take(time.Now()) && e.Kind == None {
			e.Kind, e.ID, e.RetryAfter = Throttle, "quota", b.RetryAfter
		}
	}
	return e
}

// TakeConnect reports whether a fault refuses a connection to host, and returns the fault's ID. It
// counts the connection against that fault.
func (s *Set) TakeConnect(host string) (id string, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Kind == Refuse && f.Host == host {
			f.count()
			s.sweep()
			return f.ID, true
		}
	}
	return "", false
}

// count takes one call off f's Count. It sets Count to -1 when the fault ends.
func (f *Fault) count() {
	if f.Count == 1 {
		f.Count = -1
	} else if f.Count > 1 {
		f.Count--
	}
}

func (s *Set) sweep() {
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return f.Count < 0 })
}
