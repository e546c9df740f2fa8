package journal_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

func TestRingKeepsTheNewestAndCountsAll(t *testing.T) {
	j := journal.New(3)
	for i := range 5 {
		code := ""
		if i%2 == 1 {
			code = "AccessDenied"
		}
		j.Record(journal.Call{Service: "sts", Operation: "AssumeRole", Code: code, Status: 200})
	}
	var seqs []uint64
	for _, c := range j.Calls(journal.Filter{}) {
		seqs = append(seqs, c.Seq)
	}
	if diff := cmp.Diff([]uint64{3, 4, 5}, seqs); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if j.Dropped() != 2 || j.Last() != 5 {
		t.Errorf("dropped %d, last %d", j.Dropped(), j.Last())
	}
	want := []journal.Total{
		{Service: "sts", Operation: "AssumeRole", Count: 3},
		{Service: "sts", Operation: "AssumeRole", Code: "AccessDenied", Count: 2},
	}
	if diff := cmp.Diff(want, j.Totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	j.Reset()
	if len(j.Calls(journal.Filter{})) != 0 || len(j.Totals()) != 0 || j.Dropped() != 0 {
		t.Error("reset forgot nothing")
	}
	if seq := j.Record(journal.Call{}); seq != 6 {
		t.Errorf("after a reset the next call is %d, want 6", seq)
	}
}

func TestFilter(t *testing.T) {
	c := journal.Call{
		Seq: 7, Host: "h", Service: "s", Operation: "o", Principal: "p", Role: "r", Session: "n", Subject: "u", Resource: "e", Code: "c", Status: 403,
	}
	full := journal.Filter{
		Host: "h", Service: "s", Operation: "o", Principal: "p", Role: "r", Session: "n", Subject: "u", Resource: "e", Code: "c", After: 6,
		Verdict: journal.Refused,
	}
	if !full.Match(c) || !(journal.Filter{}).Match(c) {
		t.Error("a filter does not select what it describes")
	}
	parsed, err := journal.ParseFilter(full.Query())
	must.Succeed(t, err)
	if diff := cmp.Diff(full, parsed); diff != "" {
		t.Errorf("as a query and back (-want +got):\n%s", diff)
	}
	for name := range full.Query() {
		q := full.Query()
		value := "other"
		switch name {
		case "after":
			value = "7"
		case "verdict":
			value = "granted"
		}
		q.Set(name, value)
		f, err := journal.ParseFilter(q)
		must.Succeed(t, err)
		if f.Match(c) {
			t.Errorf("%s is not looked at", name)
		}
	}
	for _, raw := range []string{"servce=sts", "service=a&service=b", "after=x", "verdict=maybe", "after=-1"} {
		q, err := url.ParseQuery(raw)
		must.Succeed(t, err)
		var refusal *journal.FilterError
		if _, err := journal.ParseFilter(q); !errors.As(err, &refusal) || refusal.Fix == "" {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if (journal.Filter{Verdict: "maybe"}).Match(c) {
		t.Error("an unknown verdict selects something")
	}
}

func TestLongFieldsAreCut(t *testing.T) {
	j := journal.New(0)
	j.Record(journal.Call{Subject: strings.Repeat("ü", 10000)})
	if got := j.Calls(journal.Filter{})[0].Subject; len(got) > 2100 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d bytes, ends with %q", len(got), got[len(got)-6:])
	}
}

func TestWait(t *testing.T) {
	j := journal.New(0)
	done := make(chan []journal.Call)
	go func() {
		calls, _ := j.Wait(t.Context(), journal.Filter{Service: "sts"}, 2)
		done <- calls
	}()
	j.Record(journal.Call{Service: "sts"})
	j.Record(journal.Call{Service: "ecr"})
	j.Record(journal.Call{Service: "sts"})
	if calls := <-done; len(calls) != 2 {
		t.Errorf("%d calls", len(calls))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if calls, err := j.Wait(ctx, journal.Filter{Service: "sts"}, 3); len(calls) != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

// TestReadsRaceRecords reads and records at the same time, for the race detector. It also checks
// the order of the calls.
func TestReadsRaceRecords(t *testing.T) {
	j := journal.New(8)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				j.Record(journal.Call{Service: "sts"})
				calls := j.Calls(journal.Filter{})
				for i := 1; i < len(calls); i++ {
					if calls[i].Seq != calls[i-1].Seq+1 {
						t.Errorf("%d follows %d", calls[i].Seq, calls[i-1].Seq)
					}
				}
				_ = j.Totals()
			}
		})
	}
	wg.Wait()
	if j.Last() != 800 || j.Totals()[0].Count != 800 {
		t.Errorf("last %d, totals %+v", j.Last(), j.Totals())
	}
}
