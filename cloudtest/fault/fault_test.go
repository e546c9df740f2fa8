package fault_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

func TestAddRefuses(t *testing.T) {
	for field, faults := range map[string][]fault.Fault{
		"kind":  {{}, {Kind: "earthquake"}},
		"delay": {{Kind: fault.Latency}, {Kind: fault.Drop, Delay: -1}},
		"skew":  {{Kind: fault.Skew}, {Kind: fault.Drop, Skew: 1}},
		"host":  {{Kind: fault.Refuse}, {Kind: fault.Refuse, Host: "h", Service: "sts"}, {Kind: fault.Refuse, Host: "h", Operation: "o"}},
		"count": {{Kind: fault.Drop, Count: -1}},
		"retryAfter": {
			{Kind: fault.Throttle, RetryAfter: -time.Second},
			{Kind: fault.Throttle, RetryAfter: time.Millisecond},
			{Kind: fault.Drop, RetryAfter: time.Second},
		},
	} {
		for _, f := range faults {
			var s fault.Set
			var refusal *setting.Error
			if _, err := s.Add(f); !errors.As(err, &refusal) || refusal.Field != field || refusal.Err.Error() == "" {
				t.Errorf("%+v: %v, want field %s", f, err, field)
			}
		}
	}
	var s fault.Set
	if _, err := s.Add(fault.Fault{ID: "a", Kind: fault.Drop}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(fault.Fault{ID: "a", Kind: fault.Drop}); err == nil {
		t.Error("an ID was given twice")
	}
	for _, q := range []fault.Quota{{PerSecond: 1}, {Service: "sts"}, {Service: "sts", PerSecond: -1}, {Service: "sts", PerSecond: math.NaN()}, {Service: "sts", PerSecond: 1, Burst: -1}, {Service: "sts", PerSecond: 1, RetryAfter: 1}} {
		var refusal *setting.Error
		if err := s.SetQuotas([]fault.Quota{q}); !errors.As(err, &refusal) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestCombination(t *testing.T) {
	var s fault.Set
	for _, f := range []fault.Fault{
		{ID: "slow", Service: "sts", Kind: fault.Latency, Delay: time.Second},
		{ID: "once", Kind: fault.Throttle, Delay: time.Second, Count: 1},
		{ID: "clock", Kind: fault.Skew, Skew: time.Minute, Count: 2},
		{ID: "always", Operation: "o", Kind: fault.Drop},
		{ID: "unreachable", Host: "h", Kind: fault.Refuse, Count: 1},
	} {
		if _, err := s.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	want := []fault.Effect{
		{ID: "once", Kind: fault.Throttle, Delay: 2 * time.Second, Skew: time.Minute},
		{ID: "always", Kind: fault.Drop, Delay: time.Second, Skew: time.Minute},
		{ID: "always", Kind: fault.Drop, Delay: time.Second},
	}
	for i, w := range want {
		if diff := cmp.Diff(w, s.Take("h", "sts", "o")); diff != "" {
			t.Errorf("call %d (-want +got):\n%s", i+1, diff)
		}
	}
	if diff := cmp.Diff(fault.Effect{}, s.Take("h", "ecr", "p")); diff != "" {
		t.Errorf("a call that nothing is about (-want +got):\n%s", diff)
	}
	for i, w := range []string{"unreachable", ""} {
		if id, refused := s.TakeConnect("h"); id != w || refused != (w != "") {
			t.Errorf("connection %d: %q, %t", i+1, id, refused)
		}
	}
	var left []string
	for _, f := range s.List() {
		left = append(left, f.ID)
	}
	if diff := cmp.Diff([]string{"slow", "always"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if !s.Remove("slow") || s.Remove("slow") {
		t.Error("remove is wrong about what it removes")
	}
	s.Clear()
	if len(s.List()) != 0 {
		t.Error("clear left something")
	}
}

func TestQuotaRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s fault.Set
		must.Succeed(t, s.SetQuotas([]fault.Quota{{Service: "sts", PerSecond: 2}}))
		granted := 0
		for range 100 { // a hundred calls in ten seconds
			if s.Take("h", "sts", "o").Kind == fault.None {
				granted++
			}
			if s.Take("h", "ecr", "o").Kind != fault.None {
				t.Error("another service was throttled")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if granted != 21 { // a burst of 2, and then 2 calls a second for 9.9 seconds
			t.Errorf("granted %d", granted)
		}
	})
}

func TestWaitEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := (fault.Effect{Delay: time.Hour}).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if err := (fault.Effect{Delay: time.Hour}).Wait(t.Context()); err != nil || time.Since(start) != time.Hour+time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestJSON(t *testing.T) {
	f := fault.Fault{ID: "a", Host: "h", Service: "s", Operation: "o", Kind: fault.Skew, Delay: time.Second, Skew: -20 * time.Minute, Count: 3}
	data, err := json.Marshal(f)
	must.Succeed(t, err)
	const want = `{"id":"a","host":"h","service":"s","operation":"o","kind":"skew","delay":"1s","skew":"-20m0s","count":3}`
	if string(data) != want {
		t.Errorf("%s\nwant %s", data, want)
	}
	var back fault.Fault
	must.Succeed(t, json.Unmarshal(data, &back))
	if diff := cmp.Diff(f, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRetryAfter(t *testing.T) {
	var s fault.Set
	var f fault.Fault
	must.Succeed(t, json.Unmarshal([]byte(`{"service":"entra","kind":"throttle","retryAfter":"7s","count":1}`), &f))
	var q fault.Quota
	must.Succeed(t, json.Unmarshal([]byte(`{"service":"entra","perSecond":0.001,"burst":1,"retryAfter":"1m0s"}`), &q))
	for _, v := range []any{f, q} {
		written, err := json.Marshal(v)
		if err != nil || !strings.Contains(string(written), `"retryAfter":"`) {
			t.Errorf("%s: %v", written, err)
		}
	}
	for _, bad := range []string{`{"service":"a","perSecond":1,"retryAfter":"soon"}`, `{"service":"a","perSecond":1,"retryafterwards":"1s"}`} {
		if err := json.Unmarshal([]byte(bad), new(fault.Quota)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if _, err := s.Add(f); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, s.SetQuotas([]fault.Quota{q}))
	var got []string
	for range 3 {
		e := s.Take("h", "entra", "o")
		got = append(got, e.ID+" "+e.RetryAfterHeader())
	}
	if diff := cmp.Diff([]string{"fault-1 7", "quota 60", "quota 60"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
