package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

func TestFaults(t *testing.T) {
	const sts, ecr = "sts.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com"
	tests := []struct {
		name    string
		fault   fault.Fault
		sts     outcome
		ecr     outcome
		message string // text that STS's error must contain
	}{
		{"internal failure", fault.Fault{Kind: fault.InternalFailure}, outcome{"InternalFailure", 500}, outcome{"ServerException", 500}, ""},
		{"unavailable", fault.Fault{Kind: fault.Unavailable}, outcome{"ServiceUnavailable", 503}, outcome{"ServiceUnavailableException", 503}, ""},
		{"throttled", fault.Fault{Kind: fault.Throttle}, outcome{"Throttling", 400}, outcome{"ThrottlingException", 400}, "Rate exceeded"},
		{"one service", fault.Fault{Kind: fault.Throttle, Service: "ecr"}, outcome{}, outcome{"ThrottlingException", 400}, ""},
		{"one operation", fault.Fault{Kind: fault.Throttle, Operation: "GetCallerIdentity"}, outcome{"Throttling", 400}, outcome{}, ""},
		{"one host", fault.Fault{Kind: fault.Throttle, Host: sts}, outcome{"Throttling", 400}, outcome{}, ""},
		{"another host", fault.Fault{Kind: fault.Throttle, Host: "sts.eu-west-2.amazonaws.com"}, outcome{}, outcome{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			id, err := w.Faults().Add(tt.fault)
			must.Succeed(t, err)
			_, err = stsClient(w.Transport(), pusher()).GetCallerIdentity(t.Context(), nil)
			if diff := cmp.Diff(tt.sts, outcomeOf(err)); diff != "" {
				t.Errorf("STS (-want +got):\n%s", diff)
			}
			if tt.message != "" && !strings.Contains(err.Error(), tt.message) {
				t.Errorf("STS says %v", err)
			}
			_, err = ecrClient(w.Transport(), pusher()).GetAuthorizationToken(t.Context(), nil)
			if diff := cmp.Diff(tt.ecr, outcomeOf(err)); diff != "" {
				t.Errorf("ECR (-want +got):\n%s", diff)
			}
			for _, c := range w.Journal().Calls(journal.Filter{}) {
				if (c.Fault == id) != (c.Code != "") {
					t.Errorf("journal says %+v", c)
				}
			}
			w.Faults().Clear()
			if _, err := stsClient(w.Transport(), pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
	t.Run("dropped", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Drop, Count: 1}); err != nil {
			t.Fatal(err)
		}
		transport := w.Transport()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); !strings.Contains(fmt.Sprint(err), "EOF") {
			t.Errorf("got %v", err)
		}
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
			t.Errorf("second call: %v", err)
		}
		calls := w.Journal().Calls(journal.Filter{})
		if len(calls) != 2 || calls[0].Code != "Dropped" || calls[0].Status != 0 || calls[1].Code != "" {
			t.Errorf("journal has %+v", calls)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Malformed}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"STS": second(assume(t.Context(), stsClient(w.Transport(), nil), roleA, w.Mint(t, subjectA))),
			"ECR": second(ecrClient(w.Transport(), pusher()).GetAuthorizationToken(t.Context(), nil)),
		} {
			if err == nil || !strings.Contains(err.Error(), "deserialization") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Kind: fault.Refuse, Host: ecr}); err != nil {
			t.Fatal(err)
		}
		for _, transport := range []*http.Transport{w.Transport(), rig.Proxied(t, w.Cloud)} {
			if _, err := ecrClient(transport, pusher()).GetAuthorizationToken(t.Context(), nil); !strings.Contains(fmt.Sprint(err), "refuses connections to "+ecr) {
				t.Errorf("got %v", err)
			}
			if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
				t.Errorf("another host: %v", err)
			}
		}
	})
	t.Run("issuer down", func(t *testing.T) {
		w := newWorld(t)
		for _, tt := range []struct {
			fault fault.Fault
			want  string
		}{
			{fault.Fault{Kind: fault.Refuse, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "IDPCommunicationError"},
			// net/http repeats the request after a dropped connection, so Count is 2.
			{fault.Fault{Kind: fault.Drop, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 2}, "IDPCommunicationError"},
			{fault.Fault{Kind: fault.Unavailable, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "IDPCommunicationError"},
			{fault.Fault{Kind: fault.Malformed, Host: "oidc.eks.eu-west-1.amazonaws.com", Count: 1}, "InvalidIdentityToken"},
		} {
			w.Faults().Clear()
			if _, err := w.Faults().Add(tt.fault); err != nil {
				t.Fatal(err)
			}
			_, err := assume(t.Context(), stsClient(w.Transport(), nil), roleA, w.Mint(t, subjectA))
			if diff := cmp.Diff(outcome{tt.want, 400}, outcomeOf(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.fault.Kind, diff)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestLatencyHonoursTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, err := w.Faults().Add(fault.Fault{Service: "sts", Kind: fault.Latency, Delay: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		start := time.Now()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("answered after %s, want 2s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := stsClient(transport, pusher()).GetCallerIdentity(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		calls, err := w.Journal().Wait(t.Context(), journal.Filter{Code: "CallerGone"}, 1)
		if err != nil || time.Since(start) >= 4*time.Second {
			t.Errorf("the cloud went on waiting for a caller that had gone: %+v, %v", calls, err)
		}
	})
}

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		must.Succeed(t, w.Faults().SetQuotas([]fault.Quota{{Service: "sts", PerSecond: 2, Burst: 3}}))
		transport := w.Transport()
		defer transport.CloseIdleConnections()
		var codes []string
		call := func() {
			_, err := stsClient(transport, pusher()).GetCallerIdentity(t.Context(), nil)
			codes = append(codes, outcomeOf(err).Code)
		}
		for range 4 {
			call()
		}
		time.Sleep(500 * time.Millisecond)
		call()
		call()
		want := []string{"", "", "", "Throttling", "", "Throttling"}
		if diff := cmp.Diff(want, codes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
