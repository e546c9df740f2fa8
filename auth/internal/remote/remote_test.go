package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

func get(target string) func(context.Context) (*http.Request, error) {
	return func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	}
}

func TestCall(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		switch r.URL.Path {
		case "/second":
			if n == 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
		case "/away":
			http.Redirect(w, r, "/second", http.StatusFound)
		case "/never":
			<-r.Context().Done()
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("a", 2<<20)))
		}
	}))
	defer server.Close()
	patient, hasty := remote.NewClient(http.DefaultTransport, time.Minute), remote.NewClient(http.DefaultTransport, 100*time.Millisecond)
	for path, want := range map[string]struct {
		status, asked int
		code          auth.Code
	}{
		"/second":  {status: 200, asked: 2},
		"/away":    {status: 302, asked: 1},
		"/refused": {status: 403, asked: 1},
		"/never":   {asked: 1, code: auth.CodeUnreachable},
		"/long":    {asked: 1, code: auth.CodeResponseInvalid},
	} {
		asked.Store(0)
		client := patient
		if path == "/never" {
			client = hasty
		}
		answer, err := remote.Call(t.Context(), client, get(server.URL+path))
		if answer.Status != want.status || int(asked.Load()) != want.asked || (err != nil) != (want.code != "") {
			t.Errorf("%s: status %d after %d requests, %v", path, answer.Status, asked.Load(), err)
		}
		if err != nil {
			if f := remote.Unanswered(t.Context(), err, "there"); f.Code != want.code || f.Fix == "" || f.What == "" || strings.Contains(f.What, "127.0.0.1") {
				t.Errorf("%s: %+v", path, f)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := remote.Call(ctx, patient, get(server.URL))
	if e := remote.Unanswered(ctx, err, "there").Error(auth.StageExchange, "asking"); !errors.Is(e, context.Canceled) || e.Code != auth.CodeUnreachable {
		t.Errorf("%v", e)
	}
}

func TestRefusedAddress(t *testing.T) {
	err := error(&endpoint.AddressError{Host: "metadata.internal", Kind: "link-local"})
	f := remote.Unanswered(t.Context(), err, "there")
	if f.Code != auth.CodeEndpointRefused || !strings.Contains(f.What, `"metadata.internal" is link-local`) || !strings.Contains(f.Fix, "--allowed-endpoint-hosts") {
		t.Errorf("%+v", f)
	}
	e := f.Error(auth.StageExchange, "asking")
	if _, ok := errors.AsType[*endpoint.AddressError](e); !ok || strings.Count(e.Error(), "--allowed-endpoint-hosts") != 1 {
		t.Errorf("%v", e)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\nb\x00\u2028", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = min(max(most, 0), 300)
		got := remote.Printable(s, most)
		if len(got) > most+len("...") || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is not one printable line of at most %d bytes", got, most)
		}
	})
}
