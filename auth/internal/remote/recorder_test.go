package remote_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/must"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
	"github.com/lanyard-dev/lanyard/auth/transport/attempt"
)

func TestRecorder(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/never":
			<-r.Context().Done()
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("a", 2<<20))
		default:
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "short and stout")
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	recorder := remote.NewRecorder(ctx, http.DefaultTransport)
	client := remote.NewClient(recorder, time.Minute)
	if got := recorder.Last(); got.Method != "" {
		t.Errorf("before any request: %+v", got)
	}
	response, err := client.Get(server.URL)
	must.Succeed(t, err)
	seen, err := io.ReadAll(response.Body)
	got := recorder.Last()
	if err != nil || string(seen) != "short and stout" || got.Method != "GET" || got.Host != "127.0.0.1" || got.Answer.Status != http.StatusTeapot || string(got.Answer.Body) != string(seen) || got.Err != nil {
		t.Errorf("%q, %v, recorded %+v", seen, err, got)
	}
	if _, err := client.Post(server.URL+"/long", "", nil); err == nil {
		t.Error("an answer without end was read")
	}
	if got := recorder.Last(); got.Method != "POST" || attempt.Explain(got.Err).Again() {
		t.Errorf("%+v", got)
	}
	// A request ends with the caller's context, even if the SDK does not use that context.
	time.AfterFunc(20*time.Millisecond, cancel)
	started := time.Now()
	if _, err := client.Get(server.URL + "/never"); err == nil || time.Since(started) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(started))
	}
	if got := recorder.Last(); got.Err == nil || got.Answer.Status != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "9999999": 15 * time.Minute} {
		if got := (remote.Answer{Header: http.Header{"Retry-After": {value}}}).RetryAfter(); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestClaims(t *testing.T) {
	subject, err := auth.ServiceAccount(strings.Repeat("n", 63), strings.Repeat("a", 253))
	must.Succeed(t, err)
	for token, want := range map[string]remote.Claims{
		"":          {},
		"a":         {},
		"a.b":       {},
		"a.e30":     {}, // only two parts
		"a.e30.":    {},
		"a.!.c":     {},
		"a.e30=.c":  {},
		"a.W10.c":   {}, // the claims are []
		"a.bnVsbA.": {}, // the claims are null
		"a.eyJpc3MiOiJodHRwczovL2kiLCJzdWIiOiJzIn0.c": {Issuer: "https://i", Subject: "s"},
	} {
		if got := remote.ClaimsOf(&auth.JWT{Token: auth.NewSecret(token)}); got != want {
			t.Errorf("%q: %+v, want %+v", token, got, want)
		}
	}
	// People copy the subject, so the longest subject in Kubernetes is shown whole. Other text is
	// cut.
	if got := (remote.Claims{Subject: subject.String()}).Shown(auth.Subject{}); got.Subject != subject.String() || got.Issuer != "<issuer>" {
		t.Errorf("%+v", got)
	}
	if got := (remote.Claims{}).Shown(subject); got.Subject != subject.String() {
		t.Errorf("%+v", got)
	}
	if got := (remote.Claims{Issuer: "a\nb" + strings.Repeat("x", 1000)}).Shown(subject); len(got.Issuer) > 520 || strings.Contains(got.Issuer, "\n") {
		t.Errorf("%+v", got)
	}
}
